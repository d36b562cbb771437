//! Files of htsim.

use crate::files::{input, run};
use imports::htsim::{HtsimFiles, StartUnit, import};
use imports::{ImportError, Imported};

/// Two pods of two leaves, bundles of two to the two switches on top, which are slower.
const TOPOLOGY: &str = "\
# A fat tree
Nodes 8
Tiers 3
Podsize 4

Tier 0
Downlink_speed_Gbps 200
Radix_Down 2
Radix_Up 2
Downlink_Latency_ns 1000

Tier 1
Downlink_speed_Gbps 200
Radix_Down 2
Radix_Up 2
Downlink_Latency_ns 500
Bundle 1

Tier 2
Downlink_speed_Gbps 100
Radix_Down 4
Downlink_Latency_ns 1000
Bundle 2
Switch_Latency_ns 0
";

fn imported(topology: &str, matrix: &str) -> Result<Imported, ImportError> {
    import(&HtsimFiles {
        topology: input("x.topo", topology),
        matrix: Some(input("x.cm", matrix)),
        start_unit: StartUnit::Microseconds,
    })
}

#[test]
fn a_fat_tree_has_its_tiers_and_bundles() {
    let imported = imported(
        TOPOLOGY,
        "Nodes 8\nConnections 1\n0->7 start 0 size 100000\n",
    )
    .unwrap();
    // Hosts 0 to 7, leaves to 11, their tops to 15, and two above all.
    for link in [
        "between = [\"h3\", \"s9\"]\nrate = \"200Gb/s\"\ndelay = \"1us\"\n",
        "between = [\"s9\", \"s13\"]\nrate = \"200Gb/s\"\ndelay = \"500ns\"\n",
        "between = [\"s15\", \"s17\"]\nrate = \"100Gb/s\"\ndelay = \"1us\"\ncount = 2\n",
    ] {
        assert!(
            imported.fabric.contains(link),
            "{link}\n{}",
            imported.fabric
        );
    }
    assert_eq!(imported.fabric.matches("[[switch]]").count(), 10);
    // 8 of hosts, 8 of leaves, and 4 bundles.
    assert_eq!(imported.fabric.matches("[[link]]").count(), 20);
    let ran = run(&imported);
    assert_eq!(ran.results.flows[0].delivered_bytes, 100_000);
}

#[test]
fn the_fat_tree_of_1024_hosts_has_320_switches() {
    let tier =
        |number: u32, down: u32, up: &str| format!("Tier {number}\nRadix_Down {down}\n{up}\n");
    let text = format!(
        "Nodes 1024\nTiers 3\nPodsize 64\n{}{}{}",
        tier(0, 8, "Radix_Up 8"),
        tier(1, 8, "Radix_Up 8"),
        tier(2, 16, "")
    );
    let imported = imported(&text, "Nodes 1024\nConnections 0\n").unwrap();
    assert_eq!(imported.fabric.matches("[[switch]]").count(), 320);
    assert_eq!(imported.fabric.matches("[[link]]").count(), 3 * 1024);
}

#[test]
fn connections_that_others_start_become_transfers() {
    let matrix = "\
Nodes 8
Connections 4
Triggers 2
2->1 id 1 start 2.5 size 2000 send_done_trigger 1
2->4 id 2 trigger 1 size 3000 recv_done_trigger 2
4->5 id 3 trigger 2 size 4000
6->4 id 4 start 0 size 100 recv_done_trigger 2
trigger id 1 oneshot
trigger id 2 barrier count 2
";
    let imported = imported(TOPOLOGY, matrix).unwrap();
    for table in [
        "name = \"line-4\"\nfrom = \"h2\"\nto = \"h1\"\nbytes = \"2kB\"\nstart = \"2500ns\"\n",
        "name = \"line-5\"\nfrom = \"h2\"\nto = \"h4\"\nbytes = \"3kB\"\nafter = [\"line-4\"]\n",
        "name = \"line-6\"\nfrom = \"h4\"\nto = \"h5\"\nbytes = \"4kB\"\nafter = [\"line-5\", \
         \"line-7\"]\n",
    ] {
        assert!(
            imported.fabric.contains(table),
            "{table}\n{}",
            imported.fabric
        );
    }
    assert_eq!(run(&imported).results.left, 0);
}

#[test]
fn mistakes_are_named_with_their_line() {
    let topology = |text: &str| imported(text, "").unwrap_err().to_string();
    let matrix = |text: &str| imported(TOPOLOGY, text).unwrap_err().to_string();
    for (said, expected) in [
        (
            topology("Nodes 8\nTiers 4\n"),
            "x.topo:2: the value is 4, and at most 3",
        ),
        (
            topology("Nodes 8\nTiers 1\n"),
            "x.topo: Tiers is 1: 2 and 3 are read",
        ),
        (
            topology("Radix_Up 8\n"),
            "x.topo:1: \"Radix_Up\" stands before a line such as Tier 0",
        ),
        (
            topology("Nodes 8\nTiers 2\nTier 0\nRadix_Down 3\n"),
            "x.topo: Podsize and Radix_Down of tier 0: 8 is no multiple of 3",
        ),
        (
            topology("Nodes 8\nTiers 2\nTier 0\nRadix_Down 4\nRadix_Up 2\nTier 1\nRadix_Down 3\n"),
            "x.topo: Radix_Down of tier 1 is 3, and 2 switches",
        ),
        (
            topology("Tier 0\nWidth 4\n"),
            "x.topo:2: \"Width\" is not understood",
        ),
        (
            matrix("Nodes 9\n"),
            "x.cm:1: Nodes is 9, and the topology has 8",
        ),
        (
            matrix("0->8 start 0 size 1\n"),
            "x.cm:1: \"0->8\" is no connection of hosts below 8",
        ),
        (matrix("0->0 start 0 size 1\n"), "x.cm:1: 0 sends to itself"),
        (
            matrix("0->1 size 1\n"),
            "x.cm:1: start or trigger is missing",
        ),
        (
            matrix("failure switch_type TOR\n"),
            "x.cm:1: failures are not imported",
        ),
        (
            matrix("trigger id 1 multishot\n"),
            "x.cm:1: a trigger is oneshot, or barrier",
        ),
        (
            matrix("0->1 trigger 4 size 1\n"),
            "x.cm:1: there is no trigger 4",
        ),
        (
            matrix("0->1 trigger 4 size 1\ntrigger id 4 oneshot\n"),
            "x.cm:1: no connection sets off trigger 4",
        ),
        (
            matrix(
                "0->1 start 0 size 1 send_done_trigger 4\n2->3 trigger 4 size 1\ntrigger id 4 oneshot\n",
            ),
            "x.cm:2: it begins when line-1 has ended at h0, of which neither of its hosts knows",
        ),
    ] {
        assert!(said.starts_with(expected), "{said}");
    }
}
