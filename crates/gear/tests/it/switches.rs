//! Outputs of switches with one planted fault each, and without: `tests/switches` has the outputs, which name
//! where their layout is published. Switches are compared with a fabric file as well.

use std::fs;
use std::path::PathBuf;

use fabric::file::{Document, Network};
use gear::doctor::{Finding, SwitchFacts, check, read_host, read_switch};
use gear::{attach_host, plan_switch};

fn fixture(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests").join(name);
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

fn rules(found: &[Finding]) -> Vec<&'static str> {
    found.iter().map(|finding| finding.rule).collect()
}

type Case = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

/// The rule, the fixture, and what is replaced.
const FAULTS: &[Case] = &[
    ("shown-storm", "sonic", &[("Ethernet0:3  operational", "Ethernet0:3      stormed")]),
    (
        "shown-drops",
        "sonic",
        &[(
            "8,193          852,072            0             0",
            "8,193          852,072        1,786        95,457",
        )],
    ),
    ("shown-mtu", "sonic", &[("4,5,6,7     100G   9100", "4,5,6,7     100G   1500")]),
    ("shown-pfc", "eos", &[("Ethernet2  Yes      3           Yes", "Ethernet2  Yes      3           No ")]),
    ("shown-pfc", "eos", &[("Ethernet1  Yes      3           Yes", "Ethernet1  Yes      4           Yes")]),
    ("shown-pfc", "nxos", &[("On   On   (8)       4088353", "On   Off            4088353")]),
    ("shown-pfc", "eos-status", &[("Et3        E A -", "Et3        E - -")]),
    ("shown-dscp", "nvue", &[("trust-mode        pcp,dscp", "trust-mode        pcp     ")]),
    ("shown-dscp", "nvue", &[("roce  3    26    3", "roce  3    26    4")]),
    ("switch-ecn-off", "eos", &[("      random-detect ecn minimum", "      ! random-detect ecn minimum")]),
];

#[test]
fn outputs_with_a_planted_fault_have_that_finding_and_no_other() {
    for (rule, name, replacements) in FAULTS {
        let text = derived(&format!("switches/{name}.txt"), replacements);
        let switch = read_switch(name, &text).unwrap_or_else(|error| panic!("{rule}, {name}: {error}"));
        let found = check(&[], &[switch]);
        assert_eq!(rules(&found), [*rule], "{name} {replacements:?}: {found:#?}");
        let finding = &found[0];
        assert!(!finding.fix.is_empty() && !finding.evidence.is_empty(), "{finding}");
        for evidence in &finding.evidence {
            let line = text.lines().nth(evidence.line - 1).unwrap_or_default().trim();
            assert!(line.starts_with(&evidence.text), "{evidence}: {line}");
        }
    }
}

#[test]
fn healthy_outputs_have_no_findings_and_say_what_they_do_not_show() {
    for name in ["sonic", "eos", "eos-status", "nxos", "nvue"] {
        let switch = read_switch(name, &fixture(&format!("switches/{name}.txt"))).expect("it is read");
        assert_eq!(switch.dialect.name(), name.split('-').next().unwrap_or(name));
        // Without a configuration there are no groups, and nothing is made up for them.
        assert_eq!(switch.groups.is_empty(), name != "eos", "{:?}", switch.groups);
        assert!(switch.shown.ports.iter().any(|port| port.pfc.is_some()), "{name}");
        let found = check(&[], &[switch]);
        assert!(found.is_empty(), "{name}: {found:#?}");
    }
}

#[test]
fn garbled_outputs_name_their_line() {
    for (name, from, to) in [
        ("sonic", "Ethernet4    3,4", "Ethernet4    3,9"),
        (
            "sonic",
            "8,193          852,072            0             0",
            "8,193          852,072            x             0",
        ),
        ("sonic", "Ethernet4:3  operational", "Ethernet4.3  operational"),
        ("eos", "Ethernet2  Yes      3           Yes", "Ethernet2  Yes      3           Maybe"),
        ("eos", "Ethernet2  Yes      3  ", "Ethernet2  Yes      8  "),
        ("eos-status", "Et4        E A -   34", "Et4        E A -   39"),
        ("eos-status", "Et4        E A -   34", "Et4        E A -   xy"),
        ("nxos", "Ethernet1/2        Auto On   (8)", "Ethernet1/2        Auto On   (x)"),
        ("nxos", "Ethernet1/2        Auto", "Ethernet1/2        Odd "),
        ("nvue", "pfc-priority      3", "pfc-priority      x"),
    ] {
        let text = derived(&format!("switches/{name}.txt"), &[(from, to)]);
        let line = text.lines().position(|line| line.contains(to)).expect("it is there") + 1;
        let error = read_switch(name, &text).expect_err("it is garbled").to_string();
        assert!(error.starts_with(&format!("cannot read line {line} of {name}: ")), "{error}");
    }
    let error = read_switch("x", "leaf#show version\nEOS\n").expect_err("nothing of it is known").to_string();
    assert!(error.contains("no output of their commands"), "{error}");
}

#[test]
fn a_host_with_pfc_and_a_switch_that_shows_none_are_a_pair() {
    let host = read_host("host", &fixture("hosts/mlx5.txt")).expect("it is read");
    let quiet = derived(
        "switches/nxos.txt",
        &[("On   On   (8) ", "Auto Off    "), ("Auto On   (8) ", "Auto Off    ")],
    );
    let switch = read_switch("nxos", &quiet).expect("it is read");
    assert!(
        check(&[], std::slice::from_ref(&switch)).is_empty(),
        "auto without an agreement is no fault alone"
    );
    let found = check(std::slice::from_ref(&host), &[switch]);
    assert_eq!(rules(&found), ["pair-pfc"], "{found:#?}");
    assert_eq!(found[0].evidence.len(), 2, "both ends: {found:#?}");
    let healthy = read_switch("nxos", &fixture("switches/nxos.txt")).expect("it is read");
    assert!(check(&[host], &[healthy]).is_empty());
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
    let mut none = |_: &str| Err("no files".to_owned());
    let document = Document::read("fabric", FABRIC, &mut none).expect("it is TOML");
    let file = document.fields().expect("it has known fields");
    Network::build(&document, &file, &mut none).expect("it fits together")
}

/// The configuration that is planned for the switch, with a change.
fn planned(from: &str, to: &str) -> SwitchFacts {
    let (dialect, version) = gear::Dialect::parse("eos@4.30").expect("it is known");
    let intent = gear::switch_intent(&network(), "leaf", dialect).expect("it is there");
    let text = dialect.write(&intent, version).text;
    assert!(text.contains(from), "{from:?} is not in {text}");
    let mut switch = read_switch("leaf.cfg", &text.replacen(from, to, 1)).expect("it is read");
    assert!(plan_switch(&network(), &mut switch, None).expect("it has a plan"));
    switch
}

#[test]
fn a_switch_is_compared_with_the_fabric_file_setting_by_setting() {
    let found = check(&[], &[planned("", "")]);
    assert!(found.is_empty(), "{found:#?}");
    for (rule, from, to) in [
        ("fabric-map", " 49 50 51 ", " 50 51 "),
        ("fabric-ecn", "minimum-threshold 150 kbytes", "minimum-threshold 100 kbytes"),
        ("fabric-queues", "bandwidth percent 47", "bandwidth percent 40"),
        ("fabric-dcbx", "   dcbx mode ieee\n", ""),
        ("fabric-mtu", "   mtu 9216", "   mtu 5000"),
    ] {
        let switch = planned(from, to);
        let found = check(&[], &[switch]);
        assert_eq!(rules(&found), [rule], "{found:#?}");
        assert!(found[0].what.starts_with("differs from the fabric file: "), "{found:#?}");
        assert!(!found[0].fix.is_empty() && found[0].evidence.len() == 1, "{found:#?}");
        if rule == "fabric-mtu" {
            assert_eq!(found[0].fix, "interface Ethernet1/1\n   mtu 9216");
        }
    }
}

#[test]
fn a_host_is_paired_with_the_switch_that_it_is_attached_to() {
    let mut host = read_host("snapshots/a.txt", &fixture("hosts/mlx5.txt")).expect("it is read");
    assert!(attach_host(&network(), &mut host, None));
    assert_eq!(host.attached.as_deref(), Some(&["leaf".to_owned()][..]));
    let quiet = derived(
        "switches/nxos.txt",
        &[("On   On   (8) ", "Auto Off    "), ("Auto On   (8) ", "Auto Off    ")],
    );
    for (name, expected) in [("other", 0), ("leaf", 1)] {
        let mut switch = read_switch("nxos", &quiet).expect("it is read");
        assert!(plan_switch(&network(), &mut switch, Some(name)).expect("it is there"));
        let found = check(std::slice::from_ref(&host), &[switch]);
        let pairs = found.iter().filter(|finding| finding.rule == "pair-pfc").count();
        assert_eq!(pairs, expected, "{name}: {found:#?}");
    }
    let mut switch = read_switch("nxos", &quiet).expect("it is read");
    assert!(!plan_switch(&network(), &mut switch, None).expect("two switches, and none of this name"));
    assert!(plan_switch(&network(), &mut switch, Some("spine")).is_err());
}

#[test]
fn headroom_that_a_cable_exceeds_is_found_with_what_it_costs() {
    let dialect = gear::Dialect::Sonic;
    for (metres, expected) in [(5, None), (300, None), (2000, Some("switch-headroom"))] {
        let mut intent = gear::Intent::default();
        let pause = gear::intent::Pause { headroom: Some(60_000), ..gear::intent::Pause::default() };
        let port = gear::intent::Port { name: "Ethernet0".to_owned(), gbps: Some(100), metres: Some(metres) };
        (intent.pause, intent.ports) = (pause, vec![port]);
        let switch = read_switch("config_db.json", &dialect.write(&intent, dialect.versions().1).text);
        let found = check(&[], &[switch.expect("it is read")]);
        assert_eq!(rules(&found), expected.into_iter().collect::<Vec<_>>(), "{metres} m: {found:#?}");
        for finding in found {
            let gear::doctor::Consequence::Simulated(cost) = finding.consequence else { panic!("{finding}") };
            assert!(cost.now.dropped > 0 && cost.fixed.dropped == 0, "{finding}");
            assert!(finding.evidence[0].text.contains("60000"), "{finding}");
        }
    }
}
