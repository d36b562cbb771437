//! Fabric files whose links are of InfiniBand.

use super::{build, document};
use fabric_file::{Network, unused};

const BASE: &str = "[nic.default]\nlink-layer = \"infiniband\"\n";

fn infiniband(text: &str) -> Network {
    build(&format!("{BASE}{text}")).unwrap_or_else(|error| panic!("{text}\n{error}"))
}

fn message(text: &str) -> String {
    build(text).expect_err("a mistake").to_string()
}

#[test]
fn two_hosts_on_one_cable_have_guids_descriptions_and_a_speed() {
    let network = infiniband(
        "[[host]]\nname = \"alice\"\nguid = \"0x0002c903000a1b20\"\ndescription = \"alice mlx4_0\"\n\
         [[host]]\nname = \"bob\"\nguid = \"0002:c903:000a:1c40\"\nport-guid = \"0x2c903000a1c49\"\n\
         [[link]]\nbetween = [\"alice:1\", \"bob\"]\ninfiniband = \"4xQDR\"\n",
    );
    let subnet = network.infiniband.unwrap();
    let hosts: Vec<_> = subnet
        .hosts
        .iter()
        .map(|host| (host.node_guid, host.port_guid, host.description.as_str()))
        .collect();
    assert_eq!(
        hosts,
        [
            (0x0002_c903_000a_1b20, 0x0002_c903_000a_1b21, "alice mlx4_0"),
            (0x0002_c903_000a_1c40, 0x0002_c903_000a_1c49, "bob"),
        ]
    );
    assert_eq!(subnet.links[0].speed.to_string(), "4x QDR");
    assert_eq!(subnet.links[0].ports, [1, 1]);
    let rate = network.topology.links()[0].config.rate;
    assert_eq!(rate.bps(), 32_000_000_000);
}

#[test]
fn ports_are_numbers_and_links_without_one_get_the_lowest_free() {
    let network = infiniband(
        "[[host]]\nname = \"h\"\ncount = 3\n[[switch]]\nname = \"s0\"\nports = 36\n\
         guid = \"0x10\"\ndescription = \"MF0;s0:IS5030/U1\"\n[[switch]]\nname = \"s1\"\n\
         [[link]]\nbetween = [\"h0\", \"s0\"]\n[[link]]\nbetween = [\"s0:1\", \"h1\"]\n\
         [[link]]\nbetween = [\"h2\", \"s1:7\"]\n[[link]]\nbetween = [\"s0:36\", \"s1\"]\n",
    );
    let subnet = network.infiniband.as_ref().unwrap();
    let ports: Vec<[u8; 2]> = subnet.links.iter().map(|link| link.ports).collect();
    assert_eq!(ports, [[1, 2], [1, 1], [1, 7], [36, 1]]);
    assert_eq!(
        [subnet.switches[0].ports, subnet.switches[1].ports],
        [36, 7]
    );
    assert_eq!(subnet.switches[0].description, "MF0;s0:IS5030/U1");
    let end = network.topology.links()[3].ends[0];
    assert_eq!(network.port_name(end), "s0:36");
}

#[test]
fn generated_topologies_have_speeds_of_hosts_and_of_switches() {
    let network = infiniband(
        "[topology]\nkind = \"leaf-spine\"\nleaves = 2\nspines = 2\nhosts = 3\n\
         infiniband = \"4x FDR\"\nfabric-infiniband = \"12x FDR\"\n",
    );
    let subnet = network.infiniband.as_ref().unwrap();
    let fast = |text: &str| {
        subnet
            .links
            .iter()
            .filter(|link| link.speed.to_string() == text)
            .count()
    };
    assert_eq!((fast("4x FDR"), fast("12x FDR")), (6, 4));
    for (link, subnet) in network.topology.links().iter().zip(&subnet.links) {
        assert_eq!(link.config.rate, subnet.speed.rate());
    }
    let made: std::collections::BTreeSet<u64> = subnet
        .hosts
        .iter()
        .flat_map(|host| [host.node_guid, host.port_guid])
        .chain(subnet.switches.iter().map(|switch| switch.guid))
        .collect();
    assert_eq!(
        made.len(),
        2 * 6 + 4,
        "GUIDs that are made are all different"
    );
    assert!(
        made.iter().all(|guid| guid >> 57 & 1 == 1),
        "locally administered"
    );
}

#[test]
fn an_ethernet_network_has_no_subnet() {
    let network = build("topology = { kind = \"star\", hosts = 2 }\n").unwrap();
    assert_eq!(network.infiniband, None);
}

const STAR: &str = "topology = { kind = \"star\", hosts = 2 }\n";

/// Entries beside [`BASE`] and [`STAR`], and what the error says.
const WRONG: &[(&str, &[&str])] = &[
    (
        "[[link]]\nbetween = [\"s0\", \"x\"]\nrate = \"32Gb/s\"\n[[switch]]\nname = \"x\"\n",
        &[
            "link[0].rate: a link of InfiniBand has a width and a speed",
            "write infiniband = \"4x QDR\"",
        ],
    ),
    (
        "[[link]]\nbetween = [\"s0\", \"x\"]\ninfiniband = \"3x QDR\"\n[[switch]]\nname = \"x\"\n",
        &["link[0].infiniband: \"3x QDR\" is not a speed of InfiniBand; write \"4x QDR\""],
    ),
    (
        "[[link]]\nbetween = [\"s0:p3\", \"x\"]\n[[switch]]\nname = \"x\"\n",
        &[
            "link[0].between: there is no port \"p3\"",
            "numbers from 1 to 254",
        ],
    ),
    (
        "[[link]]\nbetween = [\"s0:0\", \"x\"]\n[[switch]]\nname = \"x\"\n",
        &["there is no port \"0\""],
    ),
    (
        "[[switch]]\nname = \"x\"\nports = 2\n[[link]]\nbetween = [\"s0\", \"x:3\"]\n",
        &[
            "link[0].between: there is no port \"3\"",
            "numbers from 1 to 2",
        ],
    ),
    (
        "[[switch]]\nname = \"s0\"\nports = 1\n",
        &["switch[0].ports: s0 has 1 ports and 2 links"],
    ),
    (
        "[[switch]]\nname = \"s0\"\nports = 255\n",
        &["switch[0].ports: 255 ports", "from 1 to 254"],
    ),
    (
        "[[host]]\nname = \"h*\"\nguid = \"0x17\"\n",
        &["host[0].guid: h0 and h1 have the same GUID, 0x0000000000000017"],
    ),
    (
        "[[host]]\nname = \"h1\"\nguid = \"0x17\"\n[[switch]]\nname = \"s0\"\nguid = \"0x17\"\n",
        &["switch[0].guid: h1 and s0 have the same GUID"],
    ),
    (
        "[[host]]\nname = \"h0\"\nport-guid = \"0x17\"\n[[host]]\nname = \"h1\"\nport-guid = \"0x17\"\n",
        &["host[1].port-guid: h0 and h1 have the same port GUID"],
    ),
    (
        "[[host]]\nname = \"h0\"\nguid = \"0x0\"\n",
        &["host[0].guid: \"0x0\" is not a GUID; write \"0x0002c90300001234\""],
    ),
    (
        "[[host]]\nname = \"h0\"\ndescription = \"a\\\"b\"\n",
        &["host[0].description", "no quotes"],
    ),
    (
        "[[host]]\nname = \"h0\"\nnic = \"eth\"\n[nic.eth]\n",
        &["some hosts have InfiniBand adapters and others Ethernet ones"],
    ),
    (
        "[[switch]]\nname = \"s0\"\nrouteros = [\"a.rsc\"]\n",
        &["switch[0].routeros: the configuration of an Ethernet switch"],
    ),
    (
        "[nic.default.functions]\ncount = 2\n",
        &["nic.default.functions: adapters of InfiniBand have no virtual functions"],
    ),
];

#[test]
fn mistakes_name_the_field_and_what_to_write() {
    for (text, expected) in WRONG {
        let message = message(&format!("{STAR}{BASE}{text}"));
        for expected in *expected {
            assert!(message.contains(expected), "{text}\n{message}");
        }
        assert!(message.starts_with("lab.toml:"), "{text}\n{message}");
    }
}

#[test]
fn a_speed_of_infiniband_on_ethernet_is_a_mistake() {
    let text = "topology = { kind = \"star\", hosts = 2, infiniband = \"4x EDR\" }\n";
    let message = message(text);
    let expected = "topology.infiniband: 4x EDR on a link between Ethernet ports";
    assert!(message.contains(expected), "{message}");
}

#[test]
fn a_description_is_at_most_64_bytes_long() {
    let entry = |length: usize| {
        let text = "x".repeat(length);
        build(&format!(
            "{STAR}{BASE}[[host]]\nname = \"h0\"\ndescription = \"{text}\"\n"
        ))
    };
    assert!(entry(64).is_ok());
    let message = entry(65).err().unwrap().to_string();
    assert!(
        message.contains("has 65 bytes, and 64 are the most"),
        "{message}"
    );
}

/// Fields that have an effect on one link layer alone: each with its reason.
#[test]
fn fields_of_the_other_link_layer_have_no_effect() {
    let infiniband = format!(
        "{STAR}{BASE}dscp = 3\npfc = []\nwilling = true\nmtu = 2048\n[qos.default]\ntrust = \"pcp\"\n\
         buffer = \"9MiB\"\nqueue.0 = {{ weight = 2, ecn = {{ at = \"enqueue\" }} }}\n"
    );
    let ethernet = format!(
        "{STAR}[[host]]\nname = \"h0\"\nguid = \"0x1\"\n[[switch]]\nname = \"s0\"\nports = 9\n"
    );
    for (text, expected) in [
        (
            infiniband,
            vec![
                "nic.default.dscp",
                "nic.default.pfc",
                "nic.default.willing",
                "qos.default.buffer",
                "qos.default.queue.0.ecn.at",
                "qos.default.queue.0.weight",
                "qos.default.trust",
            ],
        ),
        (ethernet, vec!["host.0.guid", "switch.0.ports"]),
    ] {
        let (document, file) = document(&text).unwrap();
        let mut none = |name: &str| Err(format!("no file {name}"));
        let network = Network::build(&document, &file, &mut none).unwrap();
        let mut fields: Vec<String> = unused(&document, &file, &network)
            .iter()
            .map(|unused| unused.keys.join("."))
            .collect();
        fields.sort();
        assert_eq!(fields, expected);
    }
}

const PAIR: &str = "topology = { kind = \"star\", hosts = 2, infiniband = \"4x EDR\" }\n";

#[test]
fn mistakes_of_the_manager_are_named() {
    for (lines, expected) in [
        ("[sm]\nmax-vls = 3", "sm.max-vls: 3 virtual lanes"),
        (
            "[sm]\nqos-sl2vl = \"0,9\"",
            "sm.qos-sl2vl: \"0,9\" does not name lanes alone",
        ),
        (
            "[sm]\nmax-vls = 2\nqos-sl2vl = \"0,2\"",
            "write lanes from 0 to 1",
        ),
        (
            "[sm]\nqos-sl2vl = \"0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0\"",
            "sm.qos-sl2vl: 17 lanes, and there are 16 service levels",
        ),
        (
            "[sm]\nqos-vlarb-low = \"0\"",
            "sm.qos-vlarb-low: \"0\" is no lane with its weight",
        ),
        (
            "[sm]\nqos-vlarb-high = \"8:1\"",
            "sm.qos-vlarb-high: \"8:1\" is no lane",
        ),
        (
            "[sm]\nqos-vlarb-low = \"0:64,1:0\"",
            "lane 1 of a service level has no weight in either table",
        ),
        (
            "[sm]\nrouting = \"file\"",
            "sm.routing: \"file\" needs tables",
        ),
        (
            "[sm]\nrouting = \"file\"\nlfts = \"none\"",
            "sm.lfts: none: there is no such file",
        ),
        (
            "[sm]\nrouting = \"updn\"\nroots = [\"spine\"]",
            "sm.roots[0]: no switch is called \"spine\"",
        ),
        (
            "lane-buffer = \"1KiB\"",
            "nic.default.lane-buffer: 1024 bytes for each of 1 lanes",
        ),
        (
            "pcie = { receive-buffer = \"32KiB\" }",
            "nic.default.pcie.receive-buffer: 32768 bytes for each of 8 lanes",
        ),
        (
            "[qos.default]\nlane-buffer = \"4KiB\"",
            "a packet has to fit: write 4288B or more",
        ),
        (
            "service-level = 16",
            "nic.default.service-level: 16 is more than 15",
        ),
    ] {
        let message = message(&format!("{PAIR}{BASE}{lines}\n"));
        assert!(message.contains(expected), "{lines}\n{message}");
    }
}

#[test]
fn the_manager_has_the_lanes_of_the_file() {
    let network = build(&format!(
        "{PAIR}{BASE}lane-buffer = \"1MiB\"\n[sm]\nmax-vls = 4\nqos-sl2vl = \"1,0\"\n\
         qos-vlarb-high = \"3:7\"\nhead-of-queue-lifetime = 20\nleaf-head-of-queue-lifetime = 1\n"
    ));
    let manager = network.unwrap().manager.unwrap();
    assert_eq!(manager.lane_of_level[..6], [1, 0, 2, 3, 0, 1]);
    let low: Vec<u8> = manager
        .arbitration
        .low
        .iter()
        .map(|entry| entry.lane)
        .collect();
    assert_eq!(
        (manager.arbitration.high[0].weight, low),
        (7, vec![0, 1, 2])
    );
    let lifetimes = manager.lifetimes.map(|life| life.map(|life| life.0));
    assert_eq!(lifetimes, [None, Some(8_192_000)]);
    // Credits count no further than 2,048 blocks.
    assert_eq!(
        (manager.buffers.hosts, manager.buffers.switches),
        (vec![2_048; 2], vec![1_024])
    );
}

#[test]
fn fields_of_the_manager_without_effect_are_named() {
    let sm = "[sm]\nroots = [\"s0\"]\nlfts = \"t\"\n";
    for (text, expected) in [
        (
            format!("{PAIR}[routing]\nreaction = \"1ms\"\n{BASE}congestion = \"swift\"\n{sm}"),
            vec![
                "nic.default.congestion",
                "routing.reaction",
                "sm.lfts",
                "sm.roots",
            ],
        ),
        (
            format!(
                "{}[nic.default]\nservice-level = 1\nlane-buffer = \"8KiB\"\n\
                 [qos.default]\nlane-buffer = \"8KiB\"\n[sm]\nmax-vls = 2\n",
                PAIR.replace(", infiniband = \"4x EDR\"", "")
            ),
            vec![
                "nic.default.lane-buffer",
                "nic.default.service-level",
                "qos.default.lane-buffer",
                "sm.max-vls",
            ],
        ),
    ] {
        let (document, file) = document(&text).unwrap();
        let mut none = |name: &str| Err(format!("no file {name}"));
        let network = Network::build(&document, &file, &mut none).unwrap();
        let mut fields: Vec<String> = unused(&document, &file, &network)
            .iter()
            .map(|unused| unused.keys.join("."))
            .collect();
        fields.sort();
        assert_eq!(fields, expected);
    }
}
