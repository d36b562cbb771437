//! Outputs of switches with one planted fault each, and without: `tests/switches` has the outputs, which name
//! where their layout is published. Switches are compared with a fabric file as well.

use std::fs;
use std::path::PathBuf;

use doctor::{Finding, Marks, SwitchFacts, check, read_switch};
use doctor::{attach_host, plan_switch};
use fabric_file::{Document, Network};
use vendors::read_host;

fn fixture(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(name);
    fs::read_to_string(path).expect("the fixture is there")
}

/// A fixture with replacements; each must change something.
fn derived(name: &str, replacements: &[(&str, &str)]) -> String {
    replacements.iter().fold(fixture(name), |text, (from, to)| {
        let changed = text.replace(from, to);
        assert_ne!(text, changed, "{name} has no {from:?}");
        changed
    })
}

/// The marks that the inputs have.
const MARKS: Marks = Marks {
    dscp: Some(26),
    cnp: Some(48),
};

fn rules(found: &[Finding]) -> Vec<&'static str> {
    found.iter().map(|finding| finding.rule).collect()
}

type Case = (
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
);

/// The rule, the fixture, and the replacements.
const FAULTS: &[Case] = &[
    (
        "shown-storm",
        "sonic",
        &[("Ethernet0:3  operational", "Ethernet0:3      stormed")],
    ),
    (
        "shown-storm",
        "sonic",
        &[(
            "Ethernet0:3  operational                        0/0         100/0         100/0",
            "Ethernet0:3  operational                        2/2       100/300       100/300",
        )],
    ),
    (
        "shown-drops",
        "sonic",
        &[(
            "8,193          852,072            0             0",
            "8,193          852,072        1,786        95,457",
        )],
    ),
    (
        "shown-mtu",
        "sonic",
        &[("4,5,6,7     100G   9100", "4,5,6,7     100G   1500")],
    ),
    (
        "shown-pfc",
        "eos",
        &[(
            "Ethernet2  Yes      3           Yes",
            "Ethernet2  Yes      3           No ",
        )],
    ),
    (
        "shown-pfc",
        "eos",
        &[(
            "Ethernet1  Yes      3           Yes",
            "Ethernet1  Yes      4           Yes",
        )],
    ),
    (
        "shown-pfc",
        "nxos",
        &[("On   On   (8)       4088353", "On   Off            4088353")],
    ),
    (
        "shown-pfc",
        "eos-status",
        &[("Et3        E A -", "Et3        E - -")],
    ),
    (
        "shown-dscp",
        "nvue",
        &[("trust-mode        pcp,dscp", "trust-mode        pcp     ")],
    ),
    (
        "shown-dscp",
        "nvue",
        &[("roce  3    26    3", "roce  3    26    4")],
    ),
    (
        "switch-ecn-off",
        "eos",
        &[(
            "      random-detect ecn minimum",
            "      ! random-detect ecn minimum",
        )],
    ),
    (
        "shown-ecn",
        "eos",
        &[(
            "3         bytes      150000      1500000",
            "6         bytes      150000      1500000",
        )],
    ),
    (
        "shown-dscp",
        "routeros",
        &[(
            "1 qsfp28-2-1    switch1  default  default  ignore    keep  ",
            "1 qsfp28-2-1    switch1  default  default  ignore    ignore",
        )],
    ),
    (
        "shown-dscp",
        "routeros",
        &[
            ("0 default  26    roce", "0 default  26    cnp "),
            (
                "                  name: qsfp28-1-1\n",
                "                  name:     ether1\n",
            ),
        ],
    ),
    (
        "shown-ecn",
        "routeros",
        &[
            ("yes                 yes", "yes                 no "),
            (
                "                  name: qsfp28-1-1\n",
                "                  name:     ether1\n",
            ),
        ],
    ),
    (
        "shown-drops",
        "routeros",
        &[(
            "drop-queue3-packet:          0",
            "drop-queue3-packet:      1 799",
        )],
    ),
    ("shown-dscp", "nvue-json", &[("\"pcp,dscp\"", "\"pcp\"")]),
    (
        "shown-ecn",
        "nvue-json",
        &[("\"enabled-tc\": \"0,3\"", "\"enabled-tc\": \"0\"")],
    ),
    (
        "shown-ecn",
        "nvue-json",
        &[("3              enable ", "3              disable")],
    ),
    (
        "shown-drops",
        "eos-json",
        &[(
            "\"DP1\": { \"droppedPackets\": 0 }",
            "\"DP1\": { \"droppedPackets\": 7 }",
        )],
    ),
    (
        "shown-mtu",
        "eos-json",
        &[(
            "\"bandwidth\": 100000000000,\n      \"mtu\": 9214\n    },\n    \"L",
            "\"bandwidth\": 100000000000,\n      \"mtu\": 1500\n    },\n    \"L",
        )],
    ),
    (
        "shown-ecn",
        "nxos-queuing",
        &[(" weight 7 ecn", " weight 7")],
    ),
    (
        "shown-drops",
        "nxos-queuing",
        &[(
            "| WRED/AFD & Tail Drop Pkts |               0|",
            "| WRED/AFD & Tail Drop Pkts |              19|",
        )],
    ),
    (
        "shown-storm",
        "nxos-queuing",
        &[("QOS GROUP 3 [Active]", "QOS GROUP 3 [Shutdown]")],
    ),
];

/// Outputs without faults.
const FIXTURES: [&str; 9] = [
    "sonic",
    "eos",
    "eos-status",
    "eos-json",
    "nxos",
    "nxos-queuing",
    "nvue",
    "nvue-json",
    "routeros",
];

#[test]
fn outputs_with_a_planted_fault_have_that_finding_and_no_other() {
    for (rule, name, replacements) in FAULTS {
        let text = derived(&format!("switches/{name}.txt"), replacements);
        let switch =
            read_switch(name, &text).unwrap_or_else(|error| panic!("{rule}, {name}: {error}"));
        let found = check(&[], &[switch], MARKS);
        assert_eq!(
            rules(&found),
            [*rule],
            "{name} {replacements:?}: {found:#?}"
        );
        let finding = &found[0];
        assert!(
            !finding.fix.is_empty() && !finding.evidence.is_empty(),
            "{finding}"
        );
        for evidence in &finding.evidence {
            let line = text
                .lines()
                .nth(evidence.line - 1)
                .unwrap_or_default()
                .trim();
            assert!(line.starts_with(&evidence.text), "{evidence}: {line}");
        }
    }
}

#[test]
fn healthy_outputs_have_no_findings_and_say_what_they_do_not_show() {
    for name in FIXTURES {
        let switch =
            read_switch(name, &fixture(&format!("switches/{name}.txt"))).expect("it is read");
        assert_eq!(
            switch.dialect.name(),
            name.split('-').next().unwrap_or(name)
        );
        // Without a configuration there are no groups, and none are assumed.
        assert_eq!(
            switch.groups.is_empty(),
            name != "eos",
            "{:?}",
            switch.groups
        );
        assert!(
            switch.shown.ports.iter().any(|port| port.pfc.is_some()),
            "{name}"
        );
        let found = check(&[], &[switch], MARKS);
        assert!(found.is_empty(), "{name}: {found:#?}");
    }
}

/// Outputs of switches, a part of each, and what it is garbled to.
const GARBLED: &[(&str, &str, &str)] = &[
    ("sonic", "Ethernet4    3,4", "Ethernet4    3,9"),
    (
        "sonic",
        "8,193          852,072            0             0",
        "8,193          852,072            x             0",
    ),
    (
        "sonic",
        "Ethernet4:3  operational",
        "Ethernet4.3  operational",
    ),
    (
        "eos",
        "Ethernet2  Yes      3           Yes",
        "Ethernet2  Yes      3           Maybe",
    ),
    ("eos", "Ethernet2  Yes      3  ", "Ethernet2  Yes      8  "),
    (
        "eos-status",
        "Et4        E A -   34",
        "Et4        E A -   39",
    ),
    (
        "eos-status",
        "Et4        E A -   34",
        "Et4        E A -   xy",
    ),
    (
        "nxos",
        "Ethernet1/2        Auto On   (8)",
        "Ethernet1/2        Auto On   (x)",
    ),
    ("nxos", "Ethernet1/2        Auto", "Ethernet1/2        Odd "),
    ("nvue", "pfc-priority      3", "pfc-priority      x"),
    ("eos", "3         bytes ", "8         bytes "),
    ("eos-json", "\"mtu\": 65535", "\"mtu\": 65535,,"),
    ("eos-json", "\"3\": \"1204\"", "\"3\": \"many\""),
    (
        "eos-json",
        "\"DP1\": { \"droppedPackets\": 0 }",
        "\"DP1\": { \"droppedPackets\": -1 }",
    ),
    (
        "nvue-json",
        "\"pfc-priority\": \"3\"",
        "\"pfc-priority\": \"9\"",
    ),
    (
        "nvue-json",
        "\"rx-enabled\": \"enabled\"",
        "\"rx-enabled\": \"perhaps\"",
    ),
    (
        "nvue-json",
        "0              enable  disable",
        "0              maybe   disable",
    ),
    ("nxos-queuing", "VL bitmap: (8)", "VL bitmap: (x)"),
    (
        "nxos-queuing",
        "| WRED/AFD & Tail Drop Pkts |               0|",
        "| WRED/AFD & Tail Drop Pkts |               x|",
    ),
    ("nxos-queuing", "QOS GROUP 0", "QOS GROUP x"),
    ("nxos-queuing", "Oper Mode: On", "Oper Mode: Odd"),
    (
        "routeros",
        "2 cnp        48    6              6",
        "2 cnp        48    6              9",
    ),
    ("routeros", "1 default  48    cnp", "1 default  64    cnp"),
    (
        "routeros",
        "ignore    keep      default     pfc-tc3 \n1",
        "ignore    kept      default     pfc-tc3 \n1",
    ),
    (
        "routeros",
        "traffic-class=3 rx=yes tx=yes",
        "traffic-class=3 rx=yes tx=odd",
    ),
    (
        "routeros",
        "drop-queue3-packet:          0",
        "drop-queue3-packet:          x",
    ),
    (
        "routeros",
        "pfc3-use:     1 075 200",
        "pfc3-use:     1 x75 200",
    ),
];

#[test]
fn garbled_outputs_name_their_line() {
    for &(name, from, to) in GARBLED {
        let text = derived(&format!("switches/{name}.txt"), &[(from, to)]);
        let first = to.lines().next().unwrap_or_default();
        let line = text
            .lines()
            .position(|line| line.contains(first))
            .expect("it is there")
            + 1;
        // The rest is read, and the line is named.
        let switch = read_switch(name, &text).expect("the rest is read");
        let odd: Vec<usize> = switch.left.iter().map(|line| line.line).collect();
        assert_eq!(odd, [line], "{name}: {to}: {:?}", switch.left);
        assert!(
            name == "nvue-json" || !switch.shown.ports.is_empty(),
            "{name}: {to}"
        );
    }
    let error = read_switch("x", "leaf#show version\nEOS\n")
        .expect_err("nothing of it is known")
        .to_string();
    assert!(error.contains("no output of their commands"), "{error}");
}

#[test]
fn a_host_with_pfc_and_a_switch_that_shows_none_are_a_pair() {
    let host = read_host("host", &fixture("hosts/mlx5.txt")).expect("it is read");
    let quiet = derived(
        "switches/nxos.txt",
        &[
            ("On   On   (8) ", "Auto Off    "),
            ("Auto On   (8) ", "Auto Off    "),
        ],
    );
    let switch = read_switch("nxos", &quiet).expect("it is read");
    assert!(
        check(&[], std::slice::from_ref(&switch), MARKS).is_empty(),
        "auto without an agreement is no fault alone"
    );
    let found = check(std::slice::from_ref(&host), &[switch], MARKS);
    assert_eq!(rules(&found), ["pair-pfc"], "{found:#?}");
    assert_eq!(found[0].evidence.len(), 2, "both ends: {found:#?}");
    let healthy = read_switch("nxos", &fixture("switches/nxos.txt")).expect("it is read");
    assert!(check(&[host], &[healthy], MARKS).is_empty());
}

const FABRIC: &str = "
title = \"leaf\"
duration = \"1ms\"
[[host]]
name = \"a\"
[[host]]
name = \"b\"
[[switch]]
name = \"leaf\"
[[switch]]
name = \"other\"
[[link]]
between = [\"a\", \"leaf\"]
rate = \"100Gb/s\"
length = \"3m\"
[[link]]
between = [\"b\", \"other\"]
rate = \"100Gb/s\"
length = \"3m\"
[[link]]
between = [\"leaf\", \"other\"]
rate = \"100Gb/s\"
length = \"3m\"
[[workload]]
name = \"load\"
pattern = \"each\"
from = [\"a\"]
to = [\"b\"]
message = \"1MiB\"
[qos.default]
trust = \"dscp\"
default-class = 0
dscp = { \"26\" = 3, \"48\" = 6 }
pfc.classes = [3]
[qos.default.queue.0]
weight = 50
[qos.default.queue.3]
weight = 50
ecn = { min = \"150kB\", max = \"1500kB\", probability = \"100%\" }
[qos.default.queue.6]
level = 1
";

fn network() -> Network {
    network_of(FABRIC)
}

fn network_of(text: &str) -> Network {
    let mut none = |_: &str| Err("no files".to_owned());
    let document = Document::read("fabric", text, &mut none).expect("it is TOML");
    let file = document.fields().expect("it has known fields");
    Network::build(&document, &file, &mut none).expect("it fits together")
}

/// The configuration that is planned for the switch, with a change.
fn planned(from: &str, to: &str) -> SwitchFacts {
    let (dialect, version) = vendors::Dialect::parse("eos@4.30").expect("it is known");
    let intent = doctor::switch_intent(&network(), "leaf", dialect).expect("it is there");
    let text = dialect.write(&intent, version).text;
    assert!(text.contains(from), "{from:?} is not in {text}");
    let mut switch = read_switch("leaf.cfg", &text.replacen(from, to, 1)).expect("it is read");
    assert!(plan_switch(&network(), &mut switch, None).expect("it has a plan"));
    switch
}

#[test]
fn a_switch_is_compared_with_the_fabric_file_setting_by_setting() {
    let found = check(&[], &[planned("", "")], MARKS);
    assert!(found.is_empty(), "{found:#?}");
    for (rule, from, to) in [
        ("fabric-map", " 49 50 51 ", " 50 51 "),
        (
            "fabric-ecn",
            "minimum-threshold 150 kbytes",
            "minimum-threshold 100 kbytes",
        ),
        (
            "fabric-queues",
            "bandwidth percent 47",
            "bandwidth percent 40",
        ),
        ("fabric-dcbx", "   dcbx mode ieee\n", ""),
        ("fabric-mtu", "   mtu 9216", "   mtu 5000"),
    ] {
        let switch = planned(from, to);
        let found = check(&[], &[switch], MARKS);
        assert_eq!(rules(&found), [rule], "{found:#?}");
        assert!(
            found[0].what.starts_with("differs from the fabric file: "),
            "{found:#?}"
        );
        assert!(
            !found[0].fix.is_empty() && found[0].evidence.len() == 1,
            "{found:#?}"
        );
        if rule == "fabric-mtu" {
            assert_eq!(found[0].fix, "interface Ethernet1/1\n   mtu 9216");
        }
    }
}

#[test]
fn a_host_is_paired_with_the_switch_that_it_is_attached_to() {
    let mut host = read_host("snapshots/a.txt", &fixture("hosts/mlx5.txt")).expect("it is read");
    assert!(attach_host(&network(), &mut host, None));
    let planned = host.planned.as_ref().expect("the file has it");
    assert_eq!(
        planned
            .links
            .iter()
            .map(|link| link.switch.as_str())
            .collect::<Vec<_>>(),
        ["leaf"]
    );
    assert_eq!((planned.gbps(), planned.functions), (Some(100), 0));
    let quiet = derived(
        "switches/nxos.txt",
        &[
            ("On   On   (8) ", "Auto Off    "),
            ("Auto On   (8) ", "Auto Off    "),
        ],
    );
    for (name, expected) in [("other", 0), ("leaf", 1)] {
        let mut switch = read_switch("nxos", &quiet).expect("it is read");
        assert!(plan_switch(&network(), &mut switch, Some(name)).expect("it is there"));
        let found = check(std::slice::from_ref(&host), &[switch], MARKS);
        let pairs = found
            .iter()
            .filter(|finding| finding.rule == "pair-pfc")
            .count();
        assert_eq!(pairs, expected, "{name}: {found:#?}");
    }
    let mut switch = read_switch("nxos", &quiet).expect("it is read");
    assert!(
        !plan_switch(&network(), &mut switch, None).expect("two switches, and none of this name")
    );
    assert!(plan_switch(&network(), &mut switch, Some("spine")).is_err());
}

/// The rule, additional text of the fabric file, and the replacements in the snapshot.
const HOSTS: &[Case] = &[
    (
        "host-rate",
        "rate = \"40Gb/s\"",
        &[
            ("rate: 100 Gb", "rate: 25 Gb"),
            ("Speed: 100000", "Speed: 25000"),
            ("50000base", "25000base"),
            ("100000base", "25000base"),
        ],
    ),
    ("host-mtu", "", &[("mtu: 9000", "mtu: 1500")]),
    ("host-dscp", "dscp = 24", &[]),
    ("host-map", "priority = 4", &[]),
    ("host-pfc", "pfc = [3, 4]", &[]),
    ("host-ecn", "ecn = false", &[]),
    ("host-cnp", "cnp-dscp = 46", &[]),
    ("host-cnp", "cnp-priority = 5", &[]),
    (
        "host-shares",
        "",
        &[(
            "tsa: ets, bw: 50%\n         priority:  3",
            "tsa: ets, bw: 20%\n         priority:  3",
        )],
    ),
    (
        "host-functions",
        "pcie = {}\nfunctions = { count = 2 }",
        &[],
    ),
    (
        "host-functions",
        "",
        &[("sriov_numvfs: 0", "sriov_numvfs: 8")],
    ),
    // A finding of the adapter alone is not reported twice.
    (
        "pfc-off",
        "",
        &[("enabled     0   0   0   1", "enabled     0   0   0   0")],
    ),
    (
        "tos-zero",
        "",
        &[("default_roce_tos: 106", "default_roce_tos: 0")],
    ),
];

#[test]
fn a_host_is_compared_with_the_adapter_that_the_fabric_file_gives_it() {
    for (rule, nic, replacements) in HOSTS {
        let network = network_of(&format!("{FABRIC}\n[nic.default]\n{nic}\n"));
        let mut host =
            read_host("a.txt", &derived("hosts/mlx5.txt", replacements)).expect("it is read");
        assert!(attach_host(&network, &mut host, None));
        let found = check(&[host], &[], MARKS);
        assert_eq!(rules(&found), [*rule], "{nic} {replacements:?}: {found:#?}");
        assert!(
            !found[0].evidence.is_empty() && !found[0].fix.is_empty(),
            "{found:#?}"
        );
        println!("{}", found[0]);
    }
    let mut host = read_host("a.txt", &fixture("hosts/mlx5.txt")).expect("it is read");
    assert!(attach_host(&network(), &mut host, None));
    assert!(check(std::slice::from_ref(&host), &[], MARKS).is_empty());
    // An adapter that the file does not have is not compared with it.
    let slow = "
/sys/class/infiniband/mlx5_9/ports/1/link_layer: Ethernet
/sys/class/infiniband/mlx5_9/ports/1/state: 4: ACTIVE
/sys/class/infiniband/mlx5_9/ports/1/rate: 25 Gb/sec (1X EDR)
";
    let text = fixture("hosts/mlx5.txt").replace(
        "==> show_gids <==",
        &format!("{}==> show_gids <==", &slow[1..]),
    );
    let mut host = read_host("a.txt", &text).expect("it is read");
    assert_eq!(host.adapters.len(), 2);
    assert!(attach_host(&network(), &mut host, None));
    let found = check(&[host], &[], MARKS);
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn settings_that_the_fabric_file_has_are_no_findings() {
    // Notifications with DSCP 4, no ECN and no PFC are faults only where no plan has them.
    let nic = "cnp-dscp = 4\necn = false\npfc = []\nmtu = 1024\ncongestion = \"off\"";
    let network = network_of(&format!("{FABRIC}\n[nic.default]\n{nic}\n"));
    let text = derived(
        "hosts/mlx5.txt",
        &[
            ("cnp_dscp: 48", "cnp_dscp: 4"),
            ("default_roce_tos: 106", "default_roce_tos: 104"),
            ("enabled     0   0   0   1", "enabled     0   0   0   0"),
            ("mtu: 9000", "mtu: 1500"),
            ("roce_rp/enable/3: 1", "roce_rp/enable/3: 0"),
        ],
    );
    let mut host = read_host("a.txt", &text).expect("it is read");
    assert_eq!(
        check(std::slice::from_ref(&host), &[], MARKS).len(),
        5,
        "without the file"
    );
    assert!(attach_host(&network, &mut host, None));
    let found = check(&[host], &[], MARKS);
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn data_in_another_priority_than_the_switch_pauses_is_a_fault_of_the_pair() {
    let text = derived(
        "hosts/mlx5.txt",
        &[
            ("28,27,26,25,24,", "28,27,25,24,"),
            ("36,35,34,33,32,", "36,35,34,33,32,26,"),
            (
                "enabled     0   0   0   1   0",
                "enabled     0   0   0   1   1",
            ),
            (
                "buffer      0   0   0   1   0",
                "buffer      0   0   0   1   1",
            ),
        ],
    );
    let host = read_host("host", &text).expect("it is read");
    assert!(
        check(std::slice::from_ref(&host), &[], MARKS).is_empty(),
        "alone it may be meant so"
    );
    let switch = read_switch("eos", &fixture("switches/eos.txt")).expect("it is read");
    let found = check(&[host], &[switch], MARKS);
    assert_eq!(rules(&found), ["pair-map"], "{found:#?}");
}

#[test]
fn switches_that_pause_different_priorities_are_found_at_their_link() {
    let text = FABRIC.replace("name = \"other\"\n", "name = \"other\"\nqos = \"four\"\n");
    let four = "
[qos.four]
trust = \"dscp\"
dscp = { \"26\" = 4, \"48\" = 6 }
pfc.classes = [4]
[qos.four.queue.4]
weight = 50
ecn = { min = \"150kB\", max = \"1500kB\", probability = \"100%\" }
[qos.four.queue.6]
level = 1
";
    for (text, expected) in [
        (FABRIC.to_owned(), None),
        (format!("{text}{four}"), Some("link-pfc")),
    ] {
        let network = network_of(&text);
        let switch = |name: &str| {
            let (dialect, version) = vendors::Dialect::parse("eos@4.30").expect("it is known");
            let intent = doctor::switch_intent(&network, name, dialect).expect("it is there");
            let text = dialect.write(&intent, version).text;
            let mut switch = read_switch(&format!("{name}.cfg"), &text).expect("it is read");
            assert!(plan_switch(&network, &mut switch, None).expect("it has a plan"));
            switch
        };
        let found = check(&[], &[switch("leaf"), switch("other")], MARKS);
        assert_eq!(
            rules(&found),
            expected.into_iter().collect::<Vec<_>>(),
            "{found:#?}"
        );
        for finding in found {
            assert!(
                finding
                    .what
                    .contains("priority 3-4 is paused at one end only"),
                "{finding}"
            );
        }
    }
}

#[test]
fn headroom_that_a_cable_exceeds_is_found_with_what_it_costs() {
    let dialect = vendors::Dialect::Sonic;
    for (metres, expected) in [(5, None), (300, None), (2000, Some("switch-headroom"))] {
        let mut intent = vendors::Intent::default();
        let pause = vendors::intent::Pause {
            headroom: Some(60_000),
            ..vendors::intent::Pause::default()
        };
        let port = vendors::intent::Port {
            name: "Ethernet0".to_owned(),
            mbps: Some(100_000),
            metres: Some(metres),
        };
        (intent.pause, intent.ports) = (pause, vec![port]);
        let switch = read_switch(
            "config_db.json",
            &dialect.write(&intent, dialect.versions().1).text,
        );
        let found = check(&[], &[switch.expect("it is read")], MARKS);
        assert_eq!(
            rules(&found),
            expected.into_iter().collect::<Vec<_>>(),
            "{metres} m: {found:#?}"
        );
        for finding in found {
            let doctor::Consequence::Simulated(cost) = finding.consequence else {
                panic!("{finding}")
            };
            assert!(cost.now.dropped > 0 && cost.fixed.dropped == 0, "{finding}");
            assert!(finding.evidence[0].text.contains("60000"), "{finding}");
        }
    }
}
