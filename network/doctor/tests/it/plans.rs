//! Plans of fabric files: what is written says what the file says, and a note names the rest.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use doctor::{SourceError, SwitchPlan, host_intent, switch_plan};
use fabric_file::{Document, Network, json_schema};
use proptest::prelude::*;
use vendors::{Dialect, changes_by_port};

fn network(text: &str) -> Network {
    let mut none = |name: &str| Err(format!("no file {name} in this test"));
    let document =
        Document::read("lab.toml", text, &mut none).unwrap_or_else(|it| panic!("{it}\n{text}"));
    let file = document
        .fields()
        .unwrap_or_else(|it| panic!("{it}\n{text}"));
    Network::build(&document, &file, &mut none).unwrap_or_else(|it| panic!("{it}\n{text}"))
}

const HOSTS: &str = "[[host]]\nname = \"h\"\ncount = 2\n[[switch]]\nname = \"leaf\"\n[[link]]\n\
                     between = [\"h*\", \"leaf\"]\nlength = \"5m\"\n";

fn switches() -> impl Iterator<Item = Dialect> {
    Dialect::ALL
        .into_iter()
        .filter(|dialect| !dialect.is_host())
}

/// The text that is planned, and the notes beside it.
fn planned(network: &Network, dialect: Dialect) -> (String, Vec<String>) {
    let SwitchPlan { groups, mut notes } = switch_plan(network, "leaf", dialect).expect("a plan");
    let written = dialect.write_groups(&groups, dialect.versions().1);
    let (written, _) = written.expect("one setting for all ports");
    notes.extend(written.notes.into_iter().map(|note| note.0));
    (written.text, notes)
}

/// The changes that a plan would make to the configuration that was written for it.
fn changes_of_itself(groups: &[vendors::Intent], dialect: Dialect) -> Vec<String> {
    let (written, expressed) = dialect
        .write_groups(groups, dialect.versions().1)
        .unwrap_or_else(|error| panic!("{error}"));
    let read = dialect
        .read_groups("written", &written.text)
        .unwrap_or_else(|error| panic!("{error}\n{}", written.text));
    let changes = changes_by_port(&read.groups, groups, &expressed);
    changes.iter().map(ToString::to_string).collect()
}

/// Settings of `[qos.NAME]`, by the paths of the schema, each with two values. A plan tells them apart.
const SETTINGS: &[(&str, &str, &str)] = &[
    (
        "headroom-pool",
        "headroom-pool = \"2MB\"",
        "headroom-pool = \"3MB\"",
    ),
    ("trust", "trust = \"dscp\"", "trust = \"none\""),
    ("dscp", "dscp = { 26 = 3 }", "dscp = { 26 = 3, 30 = 4 }"),
    (
        "pcp",
        "trust = \"pcp\"\npcp = { 3 = 3 }",
        "trust = \"pcp\"\npcp = { 2 = 3 }",
    ),
    ("weigh", "weigh = \"bytes\"", "weigh = \"packets\""),
    (
        "lossy-limit",
        "lossy-limit = \"alpha 1\"",
        "lossy-limit = \"alpha 1/2\"",
    ),
    ("queue.level", "queue.6.level = 0", "queue.6.level = 1"),
    ("queue.weight", "queue.3.weight = 3", "queue.3.weight = 9"),
    (
        "queue.rate",
        "queue.0.rate = \"40Gb/s\"",
        "queue.0.rate = \"41.5Gb/s\"",
    ),
    (
        "queue.burst",
        "queue.0.rate = \"40Gb/s\"\nqueue.0.burst = \"70kB\"",
        "queue.0.rate = \"40Gb/s\"\nqueue.0.burst = \"90kB\"",
    ),
    (
        "queue.limit",
        "queue.0.limit = \"1MB\"",
        "queue.0.limit = \"alpha 1/4\"",
    ),
    (
        "queue.trim",
        "queue.0.trim = { at = \"60kB\", queue = 6 }",
        "queue.0.trim = { at = \"70kB\", queue = 6 }",
    ),
    ("queue.ecn", "", "queue.3.ecn = {}"),
    (
        "queue.ecn.drop",
        "queue.3.ecn.drop = false",
        "queue.3.ecn.drop = true",
    ),
    (
        "queue.ecn.at",
        "queue.3.ecn.at = \"dequeue\"",
        "queue.3.ecn.at = \"enqueue\"",
    ),
    (
        "queue.ecn.probability",
        "queue.3.ecn.probability = \"10%\"",
        "queue.3.ecn.probability = \"10.5%\"",
    ),
    ("pfc.classes", "pfc.classes = [3]", "pfc.classes = [3, 4]"),
    (
        "pfc.xoff",
        "pfc.xoff = \"150kB\"",
        "pfc.xoff = \"alpha 1/4\"",
    ),
    ("pfc.xon", "pfc.xon = \"10kB\"", "pfc.xon = \"20kB\""),
    (
        "pfc.headroom",
        "pfc.headroom = \"auto\"",
        "pfc.headroom = \"300kB\"",
    ),
    ("pfc.quanta", "pfc.quanta = 65535", "pfc.quanta = 100"),
    (
        "pfc.class",
        "pfc.classes = [3, 4]",
        "pfc.classes = [3, 4]\npfc.class.4.xoff = \"99kB\"",
    ),
    (
        "pfc.watchdog.detect",
        "pfc.watchdog.detect = \"150ms\"",
        "pfc.watchdog.detect = \"200ms\"",
    ),
    (
        "pfc.watchdog.restore",
        "pfc.watchdog.restore = \"150ms\"",
        "pfc.watchdog.restore = \"200ms\"",
    ),
];

/// Properties of the chip, and values that only together with another one have an effect.
const NOT_PLANNED: [&str; 9] = [
    "buffer",
    "lane-buffer",
    "cell",
    "forwarding",
    "willing",
    "default-class",
    "queue.ecn.min",
    "queue.ecn.max",
    "pfc.response",
];

/// The paths of all fields of a table of the schema; names of entries are left out.
fn paths(schema: &serde_json::Value, table: &str, prefix: &str, found: &mut BTreeSet<String>) {
    let fields = schema["$defs"][table]["properties"].as_object();
    for (name, field) in fields.expect(table) {
        let path = format!("{prefix}{name}");
        let text = field.to_string();
        match ["Queue", "Ecn", "Pfc", "Watchdog"]
            .into_iter()
            .find(|table| text.contains(&format!("#/$defs/{table}\"")))
        {
            Some(table) if name != "class" => {
                found.insert(path.clone());
                paths(schema, table, &format!("{path}."), found);
            }
            _ => _ = found.insert(path),
        }
    }
}

#[test]
fn every_setting_of_a_switch_is_written_or_named() {
    let mut all = BTreeSet::new();
    paths(&json_schema(), "Qos", "", &mut all);
    let known: BTreeSet<&str> = SETTINGS.iter().map(|(path, ..)| *path).collect();
    let tables = ["queue", "pfc", "pfc.watchdog"];
    let unknown: Vec<&String> = all
        .iter()
        .filter(|path| {
            let path = path.as_str();
            !known.contains(path) && !NOT_PLANNED.contains(&path) && !tables.contains(&path)
        })
        .collect();
    assert!(unknown.is_empty(), "a field without a row: {unknown:?}");
    for dialect in switches() {
        for (path, one, other) in SETTINGS {
            let plan = |setting: &str| {
                let text = format!("{HOSTS}[qos.default]\nqueue.3.ecn.min = \"100kB\"\n");
                let text = match *path {
                    "queue.ecn" => format!("{HOSTS}[qos.default]\n{setting}\n"),
                    _ => format!("{text}{setting}\n"),
                };
                planned(&network(&text), dialect)
            };
            assert_ne!(plan(one), plan(other), "{}: {path}", dialect.name());
        }
    }
}

#[test]
fn strict_queues_in_another_order_are_refused() {
    let text = format!("{HOSTS}[qos.default]\nqueue.0.level = 2\nqueue.6.level = 1\n");
    for dialect in switches() {
        let error = switch_plan(&network(&text), "leaf", dialect).unwrap_err();
        assert!(matches!(error, SourceError::Order(..)), "{error}");
        assert!(
            error
                .to_string()
                .contains("queue 0 has level 2 and queue 6 level 1"),
            "{error}"
        );
    }
}

#[test]
fn speeds_are_written_as_they_are() {
    for (rate, dialect, expected) in [
        (
            "2.5Gb/s",
            Dialect::RouterOs,
            "egress-rate-queue3=2500.0Mbps",
        ),
        ("2.5Gb/s", Dialect::Sonic, "\"speed\": \"2500\""),
        ("2.5Gb/s", Dialect::Nvue, "link speed 2500M"),
        ("25Gb/s", Dialect::RouterOs, "egress-rate-queue3=25.0Gbps"),
        ("100Gb/s", Dialect::Nvue, "link speed 100G"),
    ] {
        let text = format!("{HOSTS}rate = \"{rate}\"\n");
        let (written, _) = planned(&network(&text), dialect);
        assert!(written.contains(expected), "{expected}\n{written}");
    }
    let odd = format!("{HOSTS}rate = \"10.3125004Gb/s\"\n");
    let (_, notes) = planned(&network(&odd), Dialect::Sonic);
    assert!(
        notes.iter().any(|note| note.contains("whole Mb/s")),
        "{notes:?}"
    );
}

/// A line of a table, or none.
fn line(values: &'static [&'static str]) -> impl Strategy<Value = String> {
    proptest::option::of(proptest::sample::select(values))
        .prop_map(|value| value.map_or_else(String::new, |value| format!("{value}\n")))
}

/// One queue; its level rises with its class where it is strict.
fn queue(class: u8) -> impl Strategy<Value = String> {
    let levels = (any::<bool>(), 1..2000_u16);
    let lines = (
        line(&["rate = \"40Gb/s\"", "rate = \"2.5Gb/s\""]),
        line(&["limit = \"1MB\"", "limit = \"alpha 1/4\""]),
        line(&[
            "ecn = { min = \"150kB\", max = \"1500kB\", probability = \"100%\" }",
            "ecn = { min = \"99999B\", max = \"1MB\", probability = \"0.7%\", drop = true }",
            "ecn = {}",
        ]),
    );
    (levels, lines).prop_map(move |((is_strict, weight), (rate, limit, ecn))| {
        let level = if is_strict { class + 1 } else { 0 };
        format!(
            "[qos.default.queue.{class}]\nlevel = {level}\nweight = {weight}\n{rate}{limit}{ecn}"
        )
    })
}

fn fabric_file() -> impl Strategy<Value = String> {
    let top = (
        line(&[
            "trust = \"dscp\"",
            "trust = \"pcp\"",
            "trust = \"none\"",
            "trust = \"both\"",
        ]),
        line(&["default-class = 1", "default-class = 5"]),
        line(&[
            "dscp = { 26 = 3, \"40-47\" = 5 }",
            "dscp = { \"0-63\" = 2 }",
            "dscp = {}",
        ]),
        line(&["pcp = { 3 = 3, 4 = 4 }", "pcp = { \"0-7\" = 1 }"]),
        line(&["headroom-pool = \"8MB\""]),
        line(&["weigh = \"packets\""]),
    );
    let pfc = (
        line(&["classes = []", "classes = [3, 4]", "classes = [0, 7]"]),
        line(&[
            "xoff = \"150kB\"",
            "xoff = \"alpha 1/2\"",
            "xoff = \"none\"",
        ]),
        line(&["xon = \"9kB\"", "xon = \"200kB\""]),
        line(&["headroom = \"300kB\"", "headroom = \"99999B\""]),
        line(&["watchdog.detect = \"150ms\""]),
    );
    let queues = proptest::sample::subsequence((0..8_u8).collect::<Vec<_>>(), 0..5)
        .prop_flat_map(|classes| classes.into_iter().map(queue).collect::<Vec<_>>());
    let links = (
        line(&[
            "rate = \"25Gb/s\"",
            "rate = \"2.5Gb/s\"",
            "rate = \"400Gb/s\"",
        ]),
        line(&["length = \"3m\"", "delay = \"601ns\""]),
        line(&["rate = \"10Gb/s\""]),
    );
    (top, pfc, queues, links).prop_map(|(top, pfc, queues, links)| {
        let (trust, class, dscp, pcp, pool, weigh) = top;
        let (classes, xoff, xon, headroom, watchdog) = pfc;
        let (rate, length, other) = links;
        format!(
            "[[host]]\nname = \"h\"\ncount = 2\n[[host]]\nname = \"o\"\n[[switch]]\nname = \"leaf\"\n\
             [[link]]\nbetween = [\"h*\", \"leaf\"]\n{rate}{length}\
             [[link]]\nbetween = [\"o\", \"leaf\"]\n{other}\
             [qos.default]\nbuffer = \"1GiB\"\n{trust}{class}{dscp}{pcp}{pool}{weigh}\
             [qos.default.pfc]\n{classes}{xoff}{xon}{headroom}{watchdog}{}",
            queues.concat()
        )
    })
}

/// 500 fabric files in every dialect: the plan changes nothing of what was written for it.
#[test]
fn a_plan_does_not_change_its_own_configuration() {
    let config = ProptestConfig {
        cases: 500,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let checked = runner.run(&fabric_file(), |text| {
        let network = network(&text);
        for dialect in Dialect::ALL {
            let groups = match dialect.is_host() {
                true => vec![host_intent(&network, "h0", dialect).expect("a host")],
                false => {
                    switch_plan(&network, "leaf", dialect)
                        .expect("a switch")
                        .groups
                }
            };
            let changes = changes_of_itself(&groups, dialect);
            prop_assert!(
                changes.is_empty(),
                "{}: {changes:?}\n{text}",
                dialect.name()
            );
        }
        Ok(())
    });
    checked.unwrap_or_else(|error| panic!("{error}"));
}

/// The fabric files of `examples/`, below a folder.
fn examples(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in folder.read_dir().expect("examples") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.ends_with("smb") {
            examples(&path, found);
        } else if path.extension().is_some_and(|it| it == "toml") && !path.ends_with("Cargo.toml") {
            found.push(path);
        }
    }
}

#[test]
fn plans_of_the_examples_do_not_change_their_own_configurations() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut paths = Vec::new();
    examples(&root, &mut paths);
    let mut compared = 0;
    for path in paths.iter().filter(|path| !path.ends_with("smb")) {
        let folder = path.parent().expect("a folder").to_owned();
        let read = |path: &Path| std::fs::read_to_string(path).map_err(|error| error.to_string());
        let mut files = |name: &str| read(&folder.join(name));
        let text = read(path).expect("an example");
        let Ok(document) = Document::read("lab.toml", &text, &mut files) else {
            continue;
        };
        let Ok(file) = document.fields() else {
            continue;
        };
        let network = Network::build(&document, &file, &mut files).expect("a network");
        for switch in network.switches.iter().take(2) {
            for dialect in switches() {
                let plan = match switch_plan(&network, &switch.name, dialect) {
                    Ok(plan) => plan,
                    Err(SourceError::Order(..)) => continue,
                    Err(error) => panic!("{}: {error}", path.display()),
                };
                let changes = changes_of_itself(&plan.groups, dialect);
                assert!(changes.is_empty(), "{}: {changes:?}", path.display());
                compared += 1;
            }
            // The vendor's own file, in its own dialect.
            let Some(imported) = &switch.imported else {
                continue;
            };
            let dialect = imported.dialect();
            let plan = switch_plan(&network, &switch.name, dialect).expect("a plan");
            let (_, expressed) = dialect
                .write_groups(&plan.groups, dialect.versions().1)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let changes = changes_by_port(&imported.intents(), &plan.groups, &expressed);
            assert_eq!(changes, [], "{}", path.display());
        }
    }
    assert!(compared > 50, "{compared} plans were compared");
}

/// A SONiC configuration whose uplink has neither PFC nor ECN, and a fabric file that names it.
fn two_kinds() -> Network {
    let port = |pfc: &str| {
        let own = "\"dscp_to_tc_map\": \"A\", \"tc_to_queue_map\": \"A\", \"tc_to_pg_map\": \"A\"";
        format!("{{ {own}{pfc} }}")
    };
    let same: Vec<String> = (0..8)
        .map(|class| format!("\"{class}\": \"{class}\""))
        .collect();
    let same = same.join(", ");
    let with = port(", \"pfc_to_queue_map\": \"A\", \"pfc_enable\": \"3\"");
    let json = format!(
        "{{ \"PORT\": {{ \"Ethernet0\": {{ \"speed\": \"100000\", \"mtu\": \"9100\" }}, \
         \"Ethernet4\": {{ \"speed\": \"40000\", \"mtu\": \"9100\" }} }}, \
         \"DSCP_TO_TC_MAP\": {{ \"A\": {{ \"26\": \"3\" }} }}, \
         \"TC_TO_QUEUE_MAP\": {{ \"A\": {{ {same} }} }}, \
         \"TC_TO_PRIORITY_GROUP_MAP\": {{ \"A\": {{ {same} }} }}, \
         \"MAP_PFC_PRIORITY_TO_QUEUE\": {{ \"A\": {{ {same} }} }}, \
         \"PORT_QOS_MAP\": {{ \"Ethernet0\": {with}, \"Ethernet4\": {} }} }}",
        port("")
    );
    let text = "[[host]]\nname = \"h\"\n[[host]]\nname = \"up\"\n[[switch]]\nname = \"leaf\"\n\
                sonic = \"config_db.json\"\n[[link]]\nbetween = [\"h\", \"leaf:Ethernet0\"]\n[[link]]\n\
                between = [\"up\", \"leaf:Ethernet4\"]\nrate = \"40Gb/s\"\n";
    let mut files = |_: &str| Ok(json.clone());
    let document = Document::read("lab.toml", text, &mut files).expect("it is TOML");
    let file = document.fields().expect("it has known fields");
    Network::build(&document, &file, &mut files).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn ports_that_differ_are_planned_by_port() {
    let network = two_kinds();
    for dialect in switches() {
        let plan = switch_plan(&network, "leaf", dialect).expect("a plan");
        assert_eq!(plan.groups.len(), 2, "{}", dialect.name());
        let written = dialect.write_groups(&plan.groups, dialect.versions().1);
        // NVUE has one global profile, and NX-OS one network-qos policy.
        match (dialect, written) {
            (Dialect::Nvue | Dialect::NxOs, Err(error)) => {
                assert!(
                    error.to_string().contains("one setting for all of them"),
                    "{error}"
                );
            }
            (_, Err(error)) => panic!("{error}"),
            (_, Ok((written, expressed))) => {
                let read = dialect
                    .read_groups("written", &written.text)
                    .expect("it is read");
                assert_eq!(changes_by_port(&read.groups, &expressed, &expressed), []);
                let sends = |index: usize| {
                    let name = dialect.port_name(index);
                    let has =
                        |group: &&vendors::Intent| group.ports.iter().any(|it| it.name == name);
                    read.groups.iter().find(has).expect("the port").pfc_send
                };
                assert_eq!(
                    (sends(0), sends(1)),
                    (1 << 3, 0),
                    "{}\n{}",
                    dialect.name(),
                    written.text
                );
            }
        }
    }
    // The file compared with itself.
    let plan = switch_plan(&network, "leaf", Dialect::Sonic).expect("a plan");
    let imported = network.switches[0]
        .imported
        .as_ref()
        .expect("a vendor's file");
    let version = Dialect::Sonic.versions().1;
    let (_, expressed) = Dialect::Sonic
        .write_groups(&plan.groups, version)
        .expect("by port");
    assert_eq!(
        changes_by_port(&imported.intents(), &plan.groups, &expressed),
        []
    );
}
