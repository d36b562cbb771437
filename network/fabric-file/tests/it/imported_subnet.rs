//! InfiniBand subnets of tools, read and written.

use super::{build, document};
use fabric_file::{ImportedSubnet, Network};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use vendors::infiniband::{Discovered, Format, read};

/// Two adapters at one switch, as `ibnetdiscover` prints them.
const PLAIN: &str = "#\n# Topology file: generated on Thu Nov 26 15:00:00 2026\n#\n\
    # Initiated from node 0002c903000a1b20 port 0002c903000a1b21\n\n\
    vendid=0x2c9\ndevid=0xbd36\nsysimgguid=0x2c90200404b20\nswitchguid=0x2c90200404b20(2c90200404b20)\n\
    Switch\t36 \"S-0002c90200404b20\"\t\t# \"MF0;core:IS5030/U1\" enhanced port 0 lid 2 lmc 0\n\
    [3]\t\"H-0002c903000a1b20\"[1](2c903000a1b21) \t\t# \"alice mlx4_0\" lid 1 4xQDR\n\
    [7]\t\"H-0002c903000a1c40\"[2](2c903000a1c42) \t\t# \"bob mlx4_0\" lid 3 4xDDR\n\n\
    vendid=0x2c9\ndevid=0x673c\nsysimgguid=0x2c903000a1b23\ncaguid=0x2c903000a1b20\n\
    Ca\t2 \"H-0002c903000a1b20\"\t\t# \"alice mlx4_0\"\n\
    [1](2c903000a1b21) \t\"S-0002c90200404b20\"[3]\t\t# lid 1 lmc 0 \"MF0;core:IS5030/U1\" lid 2 4xQDR\n\n\
    vendid=0x2c9\ndevid=0x673c\nsysimgguid=0x2c903000a1c43\ncaguid=0x2c903000a1c40\n\
    Ca\t2 \"H-0002c903000a1c40\"\t\t# \"bob mlx4_0\"\n\
    [2](2c903000a1c42) \t\"S-0002c90200404b20\"[7]\t\t# lid 3 lmc 0 \"MF0;core:IS5030/U1\" lid 2 4xDDR\n";

/// The same from `ibnetdiscover --ports`.
const PORTS: &str = "CA     3  2 0x0002c903000a1c42 4x DDR - SW     2  7 0x0002c90200404b20 ( 'bob mlx4_0' \
    - 'MF0;core:IS5030/U1' )\n\
    SW     2  8 0x0002c90200404b20 4x SDR                                    'MF0;core:IS5030/U1'\n\
    SW     2  7 0x0002c90200404b20 4x DDR - CA     3  2 0x0002c903000a1c42 ( 'MF0;core:IS5030/U1' - 'bob \
    mlx4_0' )\n\
    SW     2  3 0x0002c90200404b20 4x QDR - CA     1  1 0x0002c903000a1b21 ( 'MF0;core:IS5030/U1' - 'alice \
    mlx4_0' )\n\
    CA     1  1 0x0002c903000a1b21 4x QDR - SW     2  3 0x0002c90200404b20 ( 'alice mlx4_0' - \
    'MF0;core:IS5030/U1' )\n";

fn imported(text: &str) -> (Network, Vec<String>) {
    let read = read("cluster.txt", text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let imported = ImportedSubnet::of("cluster.txt", &read.subnet);
    let network =
        build(&imported.text).unwrap_or_else(|error| panic!("{error}\n{}", imported.text));
    let remarks = read.remarks.iter().map(ToString::to_string);
    (network, remarks.chain(imported.notes).collect())
}

#[test]
fn names_guids_and_speeds_are_those_of_the_tool() {
    let (network, notes) = imported(PLAIN);
    assert_eq!(notes, Vec::<String>::new());
    let names: Vec<&str> = network
        .hosts
        .iter()
        .map(|host| host.name.as_str())
        .collect();
    assert_eq!(names, ["alice", "bob"]);
    assert_eq!(network.switches[0].name, "core");
    let subnet = network.infiniband.unwrap();
    assert_eq!(subnet.hosts[1].node_guid, 0x0002_c903_000a_1c40);
    assert_eq!(subnet.hosts[1].port_guid, 0x0002_c903_000a_1c42);
    assert_eq!(subnet.hosts[0].description, "alice mlx4_0");
    assert_eq!(
        (subnet.switches[0].ports, subnet.switches[0].guid),
        (36, 0x0002_c902_0040_4b20)
    );
    let links: Vec<_> = subnet
        .links
        .iter()
        .map(|link| (link.ports, link.speed.to_string()))
        .collect();
    assert_eq!(
        links,
        [([3, 1], "4x QDR".to_owned()), ([7, 1], "4x DDR".to_owned())]
    );
}

#[test]
fn the_form_with_ports_has_the_same_links_and_guids_of_ports() {
    let (network, notes) = imported(PORTS);
    assert_eq!(notes, Vec::<String>::new());
    let subnet = network.infiniband.unwrap();
    let ports: BTreeSet<u64> = subnet.hosts.iter().map(|host| host.port_guid).collect();
    assert_eq!(
        ports,
        BTreeSet::from([0x0002_c903_000a_1b21, 0x0002_c903_000a_1c42])
    );
    assert_eq!(subnet.switches[0].ports, 8);
    assert_eq!(subnet.links.len(), 2);
}

#[test]
fn an_adapter_with_two_links_becomes_two_hosts() {
    let text = "Switch 8 \"s0\"\n[1] \"Hca1\"[1]\n[2] \"Hca1\"[2]\n\nHca 2 \"Hca1\"\n[1] \"s0\"[1]\n\
    [2] \"s0\"[2]\n";
    let (network, notes) = imported(text);
    let names: Vec<&str> = network
        .hosts
        .iter()
        .map(|host| host.name.as_str())
        .collect();
    assert_eq!(names, ["Hca1", "Hca1-p2"]);
    assert!(
        notes[0].contains("Hca1 has 2 links, and becomes 2 hosts"),
        "{notes:?}"
    );
    assert!(
        notes[1].contains("2 of the links have no width and speed"),
        "{notes:?}"
    );
}

#[test]
fn nodes_of_one_description_are_told_apart_by_their_guids() {
    let text = PLAIN.replace("bob", "alice");
    let (network, _) = imported(&text);
    let names: Vec<&str> = network
        .hosts
        .iter()
        .map(|host| host.name.as_str())
        .collect();
    assert_eq!(names, ["alice-0002c903000a1b20", "alice-0002c903000a1c40"]);
}

/// Changes of [`PLAIN`], and the line and the words of the remark that each gets.
const REMARKS: &[(&str, &str, &str)] = &[
    (
        "lid 3 4xDDR",
        "lid 3 4x???",
        "cluster.txt:12: \"4x???\" is no width and speed",
    ),
    (
        "lid 2 4xDDR",
        "lid 2 4xSDR",
        "4x SDR at this end, 4x DDR at the other",
    ),
    (
        "[2](2c903000a1c42) \t\"S-0002c90200404b20\"[7]\t\t# lid 3 lmc 0 \"MF0;core:IS5030/U1\" lid 2 \
        4xDDR\n",
        "",
        "cluster.txt:12: \"bob mlx4_0\"[2] has no line for this link",
    ),
    (
        "#\n# Initiated",
        "src/query_smp.c:195; umad (DR path slid 0; dlid 0; 0,1 Attr 0x11:0) bad status 110\n# Initiated",
        "cluster.txt:3: a node may be missing",
    ),
];

#[test]
fn what_is_missing_is_named_with_its_line() {
    for (from, to, expected) in REMARKS {
        assert!(PLAIN.contains(from), "{from}");
        let (_, notes) = imported(&PLAIN.replacen(from, to, 1));
        assert!(
            notes.iter().any(|note| note.contains(expected)),
            "{to}\n{notes:#?}"
        );
    }
}

/// Changes of [`PLAIN`] that contradict the rest, and the line and the words of the mistake.
const MISTAKES: &[(&str, &str, &str)] = &[
    (
        "\"S-0002c90200404b20\"[7]",
        "\"S-0002c90200404b20\"[8]",
        "leads to",
    ),
    (
        "[7]\t\"H-",
        "[37]\t\"H-",
        "cluster.txt:12: there is no port 37: the node has 36",
    ),
    (
        "[7]\t\"H-",
        "[3]\t\"H-",
        "cluster.txt:12: port 3 is in line 11 already",
    ),
    (
        "\"H-0002c903000a1c40\"[2](2c903000a1c42)",
        "\"H-0002c903000a1c40\"",
        "cluster.txt:12: the port of",
    ),
    (
        "caguid=0x2c903000a1c40\nCa\t2 \"H-0002c903000a1c40\"",
        "caguid=0x2c903000a1b20\nCa\t2 \"H-0002c903000a1c40\"",
        "cluster.txt:25: GUID 0x0002c903000a1b20 is there twice",
    ),
    ("Switch\t36", "???\t36", "cluster.txt:10: \"??? 36"),
    (
        "Switch\t36",
        "Swtich\t36",
        "neither the line of a node nor of a port",
    ),
    (
        "Switch\t36",
        "Switch\t255",
        "255 ports: a node has from 1 to 254",
    ),
    (
        "vendid=0x2c9\ndevid=0xbd36",
        "include other\ndevid=0xbd36",
        "cluster.txt:6: \"include other\": a command",
    ),
];

#[test]
fn contradictions_are_mistakes_with_their_lines() {
    for (from, to, expected) in MISTAKES {
        assert!(PLAIN.contains(from), "{from}");
        let message = read("cluster.txt", &PLAIN.replacen(from, to, 1))
            .expect_err(to)
            .to_string();
        let message = message.replace('\t', " ");
        assert!(message.contains(expected), "{to}\n{message}");
    }
    for text in [
        "",
        "# nothing\n",
        "[1] \"s0\"[1]\n",
        "Switch 4 \"s0\"\n[1] \"s0\"[1]\n",
        "\u{1}\n",
    ] {
        assert!(read("cluster.txt", text).is_err(), "{text}");
    }
}

#[test]
fn slurm_and_graphviz_get_the_layers_of_switches() {
    let text = "[nic.default]\nlink-layer = \"infiniband\"\n[topology]\nkind = \"leaf-spine\"\n\
                leaves = 2\nspines = 1\nhosts = 2\n";
    let (subnet, names) = build(text).unwrap().discovered().unwrap();
    assert_eq!(
        subnet.write(Format::Slurm, &names),
        "# topology.conf of Slurm, for TopologyPlugin=topology/tree\nSwitchName=leaf0 Nodes=h0,h1\n\
         SwitchName=leaf1 Nodes=h2,h3\nSwitchName=spine0 Switches=leaf0,leaf1\n"
    );
    let dot = subnet.write(Format::Dot, &names);
    assert!(
        dot.contains("{ rank=same; \"leaf0\"; \"leaf1\"; }"),
        "{dot}"
    );
    assert!(
        dot.contains("\"h0\" -- \"leaf0\" [taillabel=\"1\", headlabel=\"1\", label=\"4x EDR\"]"),
        "{dot}"
    );
    let ethernet = build("topology = { kind = \"star\", hosts = 2 }\n").unwrap();
    assert_eq!(ethernet.discovered(), None);
}

/// A node as it is compared: GUID, GUID of its port, description and number of ports.
type ComparedNode = (u64, Option<u64>, String, u8);

/// A link as it is compared: both ends, and width and speed.
type ComparedLink = (BTreeSet<(u64, u8)>, String);

/// Nodes and links without regard to order.
fn compared(subnet: &Discovered) -> (BTreeSet<ComparedNode>, BTreeSet<ComparedLink>) {
    let guid = |node: usize| subnet.nodes[node].guid.unwrap();
    let nodes = subnet.nodes.iter().map(|node| {
        let port = node.port_guids.get(&1).copied();
        (
            node.guid.unwrap(),
            port,
            node.description.clone(),
            node.ports,
        )
    });
    let links = subnet.links.iter().map(|link| {
        let ends = link
            .ends
            .iter()
            .map(|end| (guid(end.node), end.port))
            .collect();
        (ends, link.speed.unwrap().to_string())
    });
    (nodes.collect(), links.collect())
}

const SPEEDS: [&str; 6] = [
    "1x SDR", "4x QDR", "4x FDR10", "12x FDR", "2x HDR", "4x NDR",
];

fn fabric_files() -> impl Strategy<Value = String> {
    let switches = 1_usize..5;
    let hosts = prop::collection::vec((0_usize..5, 0_usize..6, any::<bool>()), 1..12);
    let links = prop::collection::vec((0_usize..5, 0_usize..5, 0_usize..6), 0..8);
    (switches, hosts, links, any::<u32>()).prop_map(|(switches, hosts, links, salt)| {
        let mut text = "[nic.default]\nlink-layer = \"infiniband\"\n".to_owned();
        let mut between = String::new();
        let mut link = |one: String, other: String, speed: usize| {
            between += &format!(
                "[[link]]\nbetween = [\"{one}\", \"{other}\"]\ninfiniband = \"{}\"\n",
                SPEEDS[speed]
            );
        };
        for (number, (switch, speed, is_named)) in hosts.into_iter().enumerate() {
            let guid = u64::from(salt) << 16 | (number as u64 + 1) << 4;
            text += &format!("[[host]]\nname = \"h{number}\"\nguid = \"0x{guid:x}\"\n");
            if is_named {
                // Several have the same description, and a GUID of a port that is not the next.
                text += &format!(
                    "description = \"host {}\"\nport-guid = \"0x{:x}\"\n",
                    number % 2,
                    guid + 2
                );
            }
            link(
                format!("h{number}"),
                format!("s{}", switch % switches),
                speed,
            );
        }
        for number in 0..switches {
            text += &format!("[[switch]]\nname = \"s{number}\"\nports = 40\n");
        }
        for (one, other, speed) in links {
            link(
                format!("s{}", one % switches),
                format!("s{}", other % switches),
                speed,
            );
        }
        text + &between
    })
}

proptest! {
    #[test]
    fn what_is_written_for_a_tool_is_read_again(text in fabric_files(), is_ibsim in any::<bool>()) {
        let (subnet, names) = build(&text).unwrap().discovered().unwrap();
        let format = if is_ibsim { Format::Ibsim } else { Format::Ibnetdiscover };
        let written = subnet.write(format, &names);
        let again = read("written", &written).unwrap_or_else(|error| panic!("{error}\n{written}"));
        prop_assert_eq!(&again.remarks, &Vec::new());
        prop_assert_eq!(compared(&again.subnet), compared(&subnet), "{}", written);
        let imported = ImportedSubnet::of("written", &again.subnet);
        prop_assert_eq!(&imported.notes, &Vec::<String>::new());
        let (network, _) = build(&imported.text).unwrap().discovered().unwrap();
        prop_assert_eq!(compared(&network), compared(&subnet), "{}", imported.text);
    }

    #[test]
    fn damaged_outputs_are_refused_or_read_and_never_panic(
        at in 0..PLAIN.len(),
        length in 0_usize..40,
        with in "[ -~\n]{0,12}",
        is_ports in any::<bool>(),
    ) {
        let whole = if is_ports { PORTS } else { PLAIN };
        let at = at.min(whole.len());
        let end = (at + length).min(whole.len());
        let text = format!("{}{with}{}", &whole[..at], &whole[end..]);
        if let Ok(read) = read("damaged", &text) {
            let imported = ImportedSubnet::of("damaged", &read.subnet);
            // TOML of the right fields, whatever the network of it is.
            prop_assert!(document(&imported.text).is_ok(), "{}", imported.text);
        }
    }
}

/// Nodes by description.
#[test]
fn a_peer_without_a_record_is_made_from_the_line_that_names_it() {
    let (head, _) = PLAIN
        .split_once("vendid=0x2c9\ndevid=0x673c\nsysimgguid=0x2c903000a1c43")
        .unwrap();
    let (network, notes) = imported(head);
    let subnet = network.infiniband.unwrap();
    let ports: BTreeMap<&str, u64> = subnet
        .hosts
        .iter()
        .map(|host| (host.description.as_str(), host.port_guid))
        .collect();
    assert_eq!(ports["bob mlx4_0"], 0x0002_c903_000a_1c42);
    assert!(
        notes[0].contains("\"bob mlx4_0\"[2] has no record of its own"),
        "{notes:?}"
    );
}
