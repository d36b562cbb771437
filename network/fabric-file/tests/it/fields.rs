//! The meaning of fields.

use super::{build, document};
use fabric::config::{ALPHA_ONE, Limit};
use fabric::topology::Node;
use fabric::{Rate, Span, Spread};
use fabric_file::{Document, Network, json_schema, reference};

const LAB: &str = r#"
title = "Three into one"
include = ["qos.toml"]

[[host]]
name = "h"
count = 4

[[switch]]
name = "sw"

[[link]]
between = ["h*", "sw"]
rate = "25Gb/s"
length = "3m"

[[workload]]
pattern = "each"
from = ["h[1-3]"]
to = ["h0"]
"#;

const QOS: &str = r#"
[qos.default]
buffer = "8MiB"
trust = "dscp"
dscp = { "24-31" = 3, 48 = 6 }
[qos.default.queue.3]
weight = 60
ecn = { min = "100KiB", max = "400KiB", probability = "10%" }
[qos.default.pfc]
classes = [3]
xoff = "alpha 1/4"
"#;

fn lab(sets: &[(&str, &str)]) -> (Document, Network) {
    let mut read = |name: &str| {
        if name == "qos.toml" {
            Ok(QOS.to_owned())
        } else {
            Err("missing".to_owned())
        }
    };
    let mut document = Document::read("lab.toml", LAB, &mut read).unwrap();
    sets.iter()
        .for_each(|(path, value)| document.set(path, value).unwrap());
    let fields = document.fields().unwrap();
    let network = Network::build(&document, &fields, &mut read).unwrap();
    (document, network)
}

#[test]
fn a_network_is_what_the_file_says() {
    let (document, network) = lab(&[]);
    assert_eq!(document.fields().unwrap().title, "Three into one");
    assert_eq!(
        (network.topology.hosts(), network.topology.switches()),
        (4, 1)
    );
    let link = network.topology.links()[0];
    assert_eq!(
        (link.config.rate, link.config.delay),
        (Rate::from_gbps(25), Span::from_ns(15))
    );
    let config = &network.switches[0].config;
    assert_eq!(
        (
            config.buffer.total_bytes,
            config.ports.len(),
            config.profiles.len()
        ),
        (8 << 20, 4, 1)
    );
    let profile = &config.profiles[0];
    assert_eq!(
        [23, 24, 31, 48].map(|dscp| profile.map.dscp[dscp].class),
        [0, 3, 3, 6]
    );
    assert_eq!(profile.queues[3].weight, 60);
    assert_eq!(profile.queues[3].red.unwrap().probability, u32::MAX / 10);
    assert_eq!(profile.groups[3].limit, Limit::Dynamic(ALPHA_ONE / 4));
    assert!(profile.groups[3].headroom_bytes > 2 * 9216 && profile.groups[0].headroom_bytes == 0);
    assert_eq!(network.hosts_matching("h[1-3]"), [1, 2, 3]);
    assert_eq!(network.port_name(link.ends[1]), "sw:0");
}

#[test]
fn the_command_line_sets_what_the_file_leaves_out_and_what_it_says() {
    let (document, network) = lab(&[
        ("seed", "7"),
        ("nic.default.mtu", "1024"),
        ("qos.default.pfc.classes", "[3, 4]"),
        ("link.0.rate", "100Gb/s"),
        ("workload.*.depth", "16"),
        ("switch.sw.qos", "default"),
        ("routing.spread", "adaptive"),
    ]);
    let file = document.fields().unwrap();
    assert_eq!((file.seed, file.workload[0].depth), (7, 16));
    assert_eq!(network.hosts[2].nic.mtu, 1024);
    assert_eq!(network.switches[0].config.profiles[0].pfc.send, 0b11000);
    assert_eq!(
        network.topology.links()[3].config.rate,
        Rate::from_gbps(100)
    );
    assert_eq!(network.spread, Spread::Adaptive);
}

#[test]
fn lossless_classes_may_have_limits_of_their_own() {
    let (_, network) = lab(&[
        ("qos.default.pfc.classes", "[3, 4]"),
        ("qos.default.pfc.class.4.xoff", "200KiB"),
        ("qos.default.pfc.class.4.xon", "10KiB"),
        ("qos.default.pfc.class.4.headroom", "50KiB"),
    ]);
    let groups = &network.switches[0].config.profiles[0].groups;
    assert_eq!(
        (groups[3].limit, groups[4].limit),
        (Limit::Dynamic(ALPHA_ONE / 4), Limit::Static(200 << 10))
    );
    assert_eq!(
        (groups[4].xon_offset_bytes, groups[4].headroom_bytes),
        (10 << 10, 50 << 10)
    );
    assert_eq!(groups[3].xon_offset_bytes, 18 << 10);
}

#[test]
fn every_shape_fits_on_a_line() {
    for (topology, hosts, switches, first) in [
        ("kind = \"star\", hosts = 5", 5, 1, "s0"),
        (
            "kind = \"leaf-spine\", leaves = 4, spines = 2, hosts = 8",
            32,
            6,
            "leaf0",
        ),
        ("kind = \"fat-tree\", k = 4", 16, 20, "edge0"),
        (
            "kind = \"rail\", servers = 4, rails = 8, spines = 4",
            32,
            12,
            "rail0",
        ),
        (
            "kind = \"dragonfly\", groups = 9, routers = 4, hosts = 2",
            72,
            36,
            "g0r0",
        ),
    ] {
        let network = build(&format!("topology = {{ {topology} }}")).unwrap();
        assert_eq!(
            (network.hosts.len(), network.switches.len()),
            (hosts, switches),
            "{topology}"
        );
        assert_eq!(network.switches[0].name, first);
        assert_eq!(network.topology.hosts() as usize, hosts);
    }
}

#[test]
fn generated_nodes_can_be_changed_and_added_to() {
    let text = r#"
        topology = { kind = "leaf-spine", leaves = 2, spines = 1, hosts = 2, rate = "25Gb/s" }
        [nic.old]
        mtu = 1024
        [qos.deep]
        buffer = "64MiB"
        [[switch]]
        name = "spine*"
        qos = "deep"
        [[host]]
        name = "h1"
        nic = "old"
        [[host]]
        name = "storage"
        [[link]]
        between = ["storage", "leaf1"]
    "#;
    let network = build(text).unwrap();
    assert_eq!(
        network
            .hosts
            .iter()
            .map(|host| host.nic.mtu)
            .collect::<Vec<_>>(),
        [4096, 1024, 4096, 4096, 4096]
    );
    assert_eq!(network.hosts[4].name, "storage");
    assert_eq!(network.switches[2].config.buffer.total_bytes, 64 << 20);
    assert_eq!(network.switches[0].config.buffer.total_bytes, 32 << 20);
    let link = network.topology.links().last().unwrap();
    assert_eq!(
        (link.ends[0].node, link.ends[1].node),
        (Node::Host(4), Node::Switch(1))
    );
}

#[test]
fn a_sweep_is_every_combination() {
    let text = "[sweep]\n\
                \"nic.default.mtu\" = [1024, 4096]\n\
                \"link.0.delay\" = [\"1us\", \"2us\", \"4us\"]\n";
    let (_, file) = document(text).unwrap();
    let points = file.points().unwrap();
    assert_eq!(points.len(), 6);
    let pair = |path: &str, value: &str| (path.to_owned(), value.to_owned());
    assert_eq!(
        points[1],
        [pair("link.0.delay", "1us"), pair("nic.default.mtu", "4096")]
    );
    assert_eq!(document("").unwrap().1.points().unwrap(), [vec![]]);
}

#[test]
fn the_schema_takes_what_the_reader_takes() {
    let schema = json_schema();
    jsonschema::meta::validate(&schema).expect("the schema is one");
    let validator = jsonschema::validator_for(&schema).unwrap();
    let good = serde_json::json!({
        "title": "x", "seed": 3, "duration": "5ms",
        "topology": { "kind": "fat-tree", "k": 4, "rate": "100Gb/s" },
        "nic": { "default": { "mtu": 4096, "dcqcn": { "g": "1/256", "cnp-interval": "50us" } } },
        "qos": { "default": { "dscp": { "26": 3 }, "pfc": { "headroom": "auto", "xoff": "alpha 1/8" } } },
        "link": [{ "between": ["a", "b"], "loss": 1e-6 }],
        "sweep": { "seed": [1, 2] },
    });
    assert!(
        validator.is_valid(&good),
        "{:?}",
        validator
            .iter_errors(&good)
            .map(|e| e.to_string())
            .collect::<Vec<_>>()
    );
    for bad in [
        serde_json::json!({ "sed": 3 }),
        serde_json::json!({ "duration": 5 }),
        serde_json::json!({ "duration": "5 parsecs" }),
        serde_json::json!({ "topology": { "kind": "torus" } }),
        serde_json::json!({ "link": [{ "between": ["a"] }] }),
    ] {
        assert!(!validator.is_valid(&bad), "{bad}");
    }
}

#[test]
fn an_adapter_with_functions_is_a_switch_in_place_of_its_link() {
    let text = "topology = { kind = \"star\", hosts = 2 }\n[[host]]\nname = \"h1\"\nnic = \"shared\"\n\
                [nic.shared]\npcie = { generation = 4, width = 8 }\n[nic.shared.functions]\ncount = 2\n\
                eswitch = \"switchdev\"\nvf.1 = { vlan = 7, qos = 5, max-rate = \"1Gb/s\" }\n";
    let network = build(text).unwrap();
    let names: Vec<&str> = network
        .hosts
        .iter()
        .map(|host| host.name.as_str())
        .collect();
    assert_eq!(names, ["h0", "h1", "h1v0", "h1v1"]);
    let eswitch = &network.switches[1];
    assert_eq!(
        (eswitch.name.as_str(), &eswitch.ports[..]),
        (
            "h1.eswitch",
            &["p0", "pf0", "pf0vf0", "pf0vf1"].map(String::from)[..]
        )
    );
    assert_eq!(eswitch.config.overcommitted(), None);
    let attached = network.topology.attachments();
    assert_eq!(
        attached,
        [Some((0, 0)), Some((1, 1)), Some((1, 2)), Some((1, 3))]
    );
    let nic = &network.hosts[3].nic;
    assert_eq!(
        (nic.pcp, nic.rate.unwrap().0),
        (Some(5), Rate::from_gbps(1))
    );
    assert_eq!(network.adapter_of(0), None);
    assert!(
        [1, 2, 3]
            .iter()
            .all(|host| network.adapter_of(*host).unwrap().host == 1)
    );
    assert_eq!(network.function(3).unwrap().0, 1);
    assert!(network.function(1).is_none() && network.function(0).is_none());
}

/// `UPDATE_DOCS=1 cargo test -p rockery-fabric-file` writes them.
#[test]
#[allow(clippy::disallowed_methods, reason = "a test reads the documentation")]
fn the_documentation_is_the_schemas() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let schema = format!("{:#}\n", json_schema());
    let path = format!("{root}/docs/reference/fabric-file.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let mark = "<!-- from here on made of the schema -->\n";
    let (head, tail) = page.split_once(mark).expect("the page has its mark");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, format!("{head}{mark}{}", reference())).unwrap();
        std::fs::write(
            format!("{root}/docs/reference/fabric-file.schema.json"),
            schema,
        )
        .unwrap();
        return;
    }
    let update = "UPDATE_DOCS=1 cargo test -p rockery-fabric-file";
    assert!(
        tail == reference(),
        "docs/reference/fabric-file.md is not what the fields say: {update}"
    );
    let written =
        std::fs::read_to_string(format!("{root}/docs/reference/fabric-file.schema.json")).unwrap();
    assert!(
        written == schema,
        "docs/reference/fabric-file.schema.json is not what the fields say: {update}"
    );
}
