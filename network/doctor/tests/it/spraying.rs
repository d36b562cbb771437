//! Switches that spread packets of one flow over several paths, and adapters that take them in order only.

use doctor::{
    Consequence, Finding, Marks, Severity, attach_host, check, host_intent, judged_host,
    plan_switch, read_switch, switch_plan,
};
use fabric_file::{Document, Network};
use vendors::facts::HostFacts;
use vendors::intent::Intent;
use vendors::{Dialect, PathSpread, read_host};

const HEALTHY: &str = include_str!("../hosts/mlx5.txt");

/// The register in the layout of NVIDIA's manual.
const IN_ORDER: &str = "==> mlxreg -d b3:00.0 --reg_name ROCE_ACCL --get <==
Sending access register...

Field Name                                     | Data
============================================================
roce_adp_retrans_en                            | 0x00000001
adaptive_routing_forced_en                     | 0x00000000
============================================================
";

/// Adaptive routing in the words of Cumulus Linux' manual ("Equal Cost Multipath Load Sharing").
const NVUE: &str = "nv set qos roce mode lossless
nv set interface swp1 link mtu 9216
nv set router adaptive-routing enable on
nv set router adaptive-routing link-utilization-threshold on
nv set interface swp51 router adaptive-routing enable on
nv set interface swp51 router adaptive-routing link-utilization-threshold 100
";

fn host(register: &str) -> HostFacts {
    let read = read_host("server.txt", &format!("{HEALTHY}\n{register}")).expect("it reads");
    assert_eq!(read.left, []);
    read
}

fn found(hosts: &[HostFacts], text: &str) -> Vec<Finding> {
    let switch = read_switch("leaf", text).expect("it reads");
    let all = check(hosts, &[switch], Marks::default());
    let is_own =
        |finding: &Finding| matches!(finding.rule, "spray-order" | "fabric-paths" | "host-order");
    all.into_iter().filter(is_own).collect()
}

fn of_ports(dialect: Dialect, text: &str) -> Vec<(String, PathSpread)> {
    let read = dialect.read_groups("leaf", text).expect("it reads");
    assert_eq!(read.outcomes.left(), [], "{text}");
    let one = |group: &Intent| {
        let spread = group.spread;
        group
            .ports
            .iter()
            .map(move |port| (port.name.clone(), spread))
            .collect::<Vec<_>>()
    };
    let mut all: Vec<(String, PathSpread)> = read.groups.iter().flat_map(one).collect();
    all.sort();
    all
}

fn named(names: &[(&str, PathSpread)]) -> Vec<(String, PathSpread)> {
    names
        .iter()
        .map(|(name, spread)| ((*name).to_owned(), *spread))
        .collect()
}

#[test]
fn an_adapter_in_order_behind_a_switch_that_sprays_is_found_with_its_cost() {
    let all = found(&[host(IN_ORDER)], NVUE);
    assert_eq!(all.len(), 1, "{all:?}");
    let finding = &all[0];
    assert_eq!(
        (finding.rule, finding.severity()),
        ("spray-order", Severity::Error)
    );
    let Consequence::Simulated(cost) = finding.consequence else {
        panic!("{finding}");
    };
    // 98.01 Gb/s fell to 0.19 in the published experiment.
    assert!(cost.now.gbps < 1.0 && cost.fixed.gbps > 97.0, "{cost}");
    let text = finding.to_string();
    for part in [
        "leaf:3: nv set router adaptive-routing enable on",
        "adaptive_routing_forced_en                     | 0x00000000",
        "mlxreg -d 0000:b3:00.0 --reg_name ROCE_ACCL --set \"adaptive_routing_forced_en=0x1\" --yes",
        "nv set router adaptive-routing enable off",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
}

#[test]
fn counters_of_the_adapter_show_the_disorder() {
    let counters = "==> sysfs <==\n\
                    /sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence: 41234\n\
                    /sys/class/infiniband/mlx5_0/ports/1/hw_counters/packet_seq_err: 40012\n";
    let all = found(&[host(&format!("{IN_ORDER}{counters}"))], NVUE);
    let text = all.first().expect("a finding").to_string();
    assert!(
        text.contains("out_of_sequence and packet_seq_err show it"),
        "{text}"
    );
    assert!(text.contains("hw_counters/out_of_sequ"), "{text}");
}

#[test]
fn nothing_is_said_where_one_of_both_ends_is_otherwise_or_unknown() {
    let any = IN_ORDER.replace(
        "forced_en                     | 0x00000000",
        "forced_en | 0x00000001",
    );
    assert_ne!(any, IN_ORDER);
    assert_eq!(found(&[host(&any)], NVUE), []);
    assert_eq!(found(&[host("")], NVUE), [], "the adapter was not asked");
    let flows = NVUE.replace("adaptive-routing enable on", "adaptive-routing enable off");
    assert_eq!(found(&[host(IN_ORDER)], &flows), []);
    let odd = format!("{NVUE}nv set interface swp51 router adaptive-routing mode x\n");
    let switch = read_switch("leaf", &odd).expect("it reads");
    assert_eq!(switch.left.len(), 1);
    assert_eq!(
        found(&[host(IN_ORDER)], &odd),
        [],
        "a line about paths was not understood"
    );
    // What it costs without a use stands beside the adapter.
    let judged = judged_host(&host(&any), Marks::default());
    assert!(
        judged[0]
            .text
            .contains("packets in any order, with an address in each"),
        "{judged:?}"
    );
}

#[test]
fn nvue_needs_the_switch_and_the_port() {
    let packets = PathSpread::Packets;
    assert_eq!(
        of_ports(Dialect::Nvue, NVUE),
        named(&[("swp1", PathSpread::Flows), ("swp51", packets)])
    );
    let off = NVUE.replace(
        "router adaptive-routing enable on\nnv set router",
        "router adaptive-routing enable off\nnv set router",
    );
    assert_ne!(off, NVUE);
    assert!(
        of_ports(Dialect::Nvue, &off)
            .iter()
            .all(|(_, spread)| *spread == PathSpread::Flows)
    );
    let yaml = "- set:\n    interface:\n      swp51:\n        router:\n          \
                adaptive-routing:\n            enable: on\n    router:\n      \
                adaptive-routing:\n        enable: on\n";
    assert_eq!(of_ports(Dialect::Nvue, yaml), named(&[("swp51", packets)]));
}

#[test]
fn sonic_has_an_object_of_the_switch_or_of_the_port() {
    let text = |mode: &str, object: &str, ports: &str| {
        format!(
            "{{ \"PORT\": {{ \"Ethernet0\": {{}}, \"Ethernet4\": {{}} }},\n\"ARS_PROFILE\": {{ \"p\": {{ \
             \"algorithm\": \"ewma\", \"ars_nhg_path_selector_mode\": \"{mode}\", \
             \"default_ars_object\": \"o\" }} }},\n\"ARS_OBJECT\": {{ \"o\": {{ {object} }}, \"other\": {{ \
             \"assign_mode\": \"per_packet_quality\" }} }},\n\"ARS_INTERFACES\": {{ {ports} }} }}"
        )
    };
    let packets = "\"assign_mode\": \"per_packet_quality\"";
    let flowlets = "\"assign_mode\": \"per_flowlet_quality\", \"flowlet_idle_time\": \"100\"";
    let (by_packet, by_flowlet) = (PathSpread::Packets, PathSpread::Flowlets(Some(100)));
    let (one, other) = ("Ethernet0", "Ethernet4");
    for (text, expected) in [
        (
            text("global", packets, ""),
            [(one, by_packet), (other, by_packet)],
        ),
        (
            text("interface", packets, "\"Ethernet4\": {}"),
            [(one, PathSpread::Flows), (other, by_packet)],
        ),
        (
            text(
                "interface",
                flowlets,
                "\"Ethernet0\": {}, \"Ethernet4\": { \"ars_obj_name\": \"other\" }",
            ),
            [(one, by_flowlet), (other, by_packet)],
        ),
    ] {
        assert_eq!(of_ports(Dialect::Sonic, &text), named(&expected), "{text}");
    }
    for (text, part) in [
        (
            text("nexthop", packets, ""),
            "the ports of next hops are not in the file",
        ),
        (
            text("some", packets, ""),
            "\"some\" is no mode of a path selector",
        ),
        (
            text("global", "\"assign_mode\": \"best\"", ""),
            "\"best\" is no mode of assignment",
        ),
        (
            text("global", packets, "").replace("\"o\": {", "\"q\": {"),
            "ARS_OBJECT has no entry \"o\"",
        ),
    ] {
        let read = Dialect::Sonic.read_groups("leaf", &text).expect("it reads");
        let left = read.outcomes.left();
        assert!(left.iter().any(|line| line.why.contains(part)), "{left:?}");
        let is_unknown = |group: &Intent| group.unknown(vendors::Area::Paths).is_some();
        assert!(read.groups.iter().all(is_unknown), "{text}");
    }
}

#[test]
fn nxos_names_the_ports_in_one_block() {
    // The block of a published unit test, and a port that says nothing of QoS.
    let text = "hardware profile dlb\n mode policy-driven per-packet\n dlb-interface Ethernet1/1 , Eth1/2\n \
                mac-address 00:00:5e:00:53:cd\n flowlet-aging 1024\n static-pinning\n source Ethernet1/5 \
                destination Ethernet1/6\ninterface Ethernet1/1-3\n  mtu 9216\n  \
                priority-flow-control mode auto\ninterface Ethernet1/2\n  no shutdown\n";
    let by_port = of_ports(Dialect::NxOs, text);
    let of = |name: &str| {
        by_port
            .iter()
            .find(|(own, _)| own == name)
            .map(|(_, spread)| *spread)
    };
    assert_eq!(of("Ethernet1/1"), Some(PathSpread::Packets));
    assert_eq!(of("Ethernet1/2"), Some(PathSpread::Packets));
    assert_eq!(of("Ethernet1/3"), Some(PathSpread::Flows));
    let flowlets = text
        .replace(" mode policy-driven per-packet\n", "")
        .replace("Ethernet1/1 , Eth1/2", "all");
    let by_port = of_ports(Dialect::NxOs, &flowlets);
    assert!(
        by_port
            .iter()
            .all(|(_, spread)| *spread == PathSpread::Flowlets(Some(1024))),
        "{by_port:?}"
    );
    // Older versions have none.
    let intent = Intent {
        spread: PathSpread::Packets,
        ..Intent::default()
    };
    let (_, version) = Dialect::parse("nxos@9.3").expect("it is known");
    let written = Dialect::NxOs.write(&intent, version);
    assert!(!written.text.contains("dlb"), "{}", written.text);
    let note = "dynamic load balancing is in 10.5 and later";
    assert!(
        written.notes.iter().any(|own| own.0.contains(note)),
        "{:?}",
        written.notes
    );
}

/// Two leaves and two spines, with this spread.
fn network(spread: &str, any: bool) -> Network {
    let text = format!(
        "title = \"t\"\ntopology = {{ kind = \"leaf-spine\", leaves = 2, spines = 2, hosts = 1 }}\n\
         routing = {{ spread = \"{spread}\" }}\n[nic.default]\nout-of-order = {any}\n\
         [[workload]]\nname = \"w\"\nfrom = [\"h0\"]\nto = [\"h1\"]\nmessage = \"64KiB\"\n"
    );
    let mut none = |_: &str| Err("no files".to_owned());
    let document = Document::read("t.toml", &text, &mut none).expect("it reads");
    let file = document.fields().expect("fields");
    Network::build(&document, &file, &mut none).expect("a network")
}

fn leaf(network: &Network) -> String {
    network.switches[0].name.clone()
}

#[test]
fn a_plan_sprays_at_the_ports_between_switches() {
    let network = network("random", true);
    for (dialect, count) in [(Dialect::Nvue, 2), (Dialect::Sonic, 2), (Dialect::NxOs, 2)] {
        let plan = switch_plan(&network, &leaf(&network), dialect).expect("a plan");
        let sprays = |group: &&Intent| group.spread == PathSpread::Packets;
        let ports = |groups: &[Intent]| -> usize {
            groups
                .iter()
                .filter(sprays)
                .map(|group| group.ports.len())
                .sum()
        };
        assert_eq!(
            ports(&plan.groups),
            count,
            "{}: the ports to two spines",
            dialect.name()
        );
        let (written, _) = dialect
            .write_groups(&plan.groups, dialect.versions().1)
            .expect("it fits");
        let read = dialect
            .read_groups("leaf", &written.text)
            .expect("it reads");
        assert_eq!(ports(&read.groups), count, "{}", written.text);
    }
    for dialect in [Dialect::Eos, Dialect::Os10, Dialect::RouterOs] {
        let plan = switch_plan(&network, &leaf(&network), dialect).expect("a plan");
        let (written, _) = dialect
            .write_groups(&plan.groups, dialect.versions().1)
            .expect("it fits");
        let note = "packets spread by packet are not written";
        assert!(
            written.notes.iter().any(|own| own.0.contains(note)),
            "{}",
            dialect.name()
        );
    }
    let own = host_intent(&network, "h0", Dialect::Mlnx).expect("a host");
    let written = Dialect::Mlnx.write(&own, Dialect::Mlnx.versions().1);
    assert!(
        written
            .text
            .contains("--set \"adaptive_routing_forced_en=0x1\""),
        "{}",
        written.text
    );
    let windows = host_intent(&network, "h0", Dialect::Windows).expect("a host");
    let written = Dialect::Windows.write(&windows, Dialect::Windows.versions().1);
    assert!(
        written
            .notes
            .iter()
            .any(|own| own.0.contains("packets in any order")),
        "{:?}",
        written.notes
    );
}

#[test]
fn a_fabric_file_is_compared_with_switches_and_adapters() {
    let read = |spread: &str, any: bool| {
        let network = network(spread, any);
        let mut switch = read_switch("leaf", NVUE).expect("it reads");
        let name = leaf(&network);
        assert_eq!(plan_switch(&network, &mut switch, Some(&name)), Ok(true));
        let mut own = host(IN_ORDER);
        assert!(attach_host(&network, &mut own, Some("h0")));
        let all = check(&[own], &[switch], Marks::default());
        let rules = all.iter().map(|finding| finding.rule);
        let is_own = |rule: &&str| matches!(*rule, "spray-order" | "fabric-paths" | "host-order");
        rules.filter(is_own).collect::<Vec<_>>()
    };
    assert_eq!(
        read("random", true),
        ["spray-order"],
        "the adapter alone is wrong"
    );
    assert_eq!(
        read("hash", false),
        ["fabric-paths", "spray-order"],
        "the switch alone is wrong"
    );
    let network = network("hash", true);
    let mut own = host(IN_ORDER);
    assert!(attach_host(&network, &mut own, Some("h0")));
    let all = check(&[own], &[], Marks::default());
    let finding = all
        .iter()
        .find(|finding| finding.rule == "host-order")
        .expect("a finding");
    assert!(
        finding
            .what
            .contains("taken in order only, and planned is in any order"),
        "{finding}"
    );
}

/// The layout of Cumulus Linux's manual, with the state of the whole switch and of a port.
fn adaptive(of: &str, operational: &str) -> String {
    format!(
        "==> nv show {of} <==\n                            operational   applied\n\
         --------------------------  ------------  -------\n\
         enable                      {operational:<12}  on\n"
    )
}

#[test]
fn adaptive_routing_in_operation_counts_and_not_the_configuration() {
    let host = || read_host("server.txt", &format!("{HEALTHY}\n{IN_ORDER}")).expect("it reads");
    let found = |switch: &str| {
        let switch = doctor::read_switch("leaf", switch).expect("it reads");
        assert_eq!(switch.left, []);
        check(&[host()], &[switch], Marks::default())
    };
    let rules = |text: &str| -> Vec<&'static str> {
        let all = found(text);
        let own = all
            .iter()
            .filter(|one| one.rule.contains("spray") || one.rule == "shown-paths");
        own.map(|finding| finding.rule).collect()
    };
    let global = "router adaptive-routing";
    let port = "interface swp51 router adaptive-routing";
    let both = format!("{}{}", adaptive(global, "on"), adaptive(port, "on"));
    assert_eq!(rules(&both), ["spray-order"]);
    let seen = &found(&both)[0].evidence[0];
    assert!(seen.text.starts_with("enable") && seen.line == 8, "{seen}");
    assert_eq!(rules(&adaptive(port, "on")), ["spray-order"]);
    // Without a port that sprays nothing is known of the ports.
    assert_eq!(rules(&adaptive(global, "on")), [""; 0]);
    let off = format!("{}{}", adaptive(global, "off"), adaptive(port, "on"));
    assert_eq!(rules(&off), [""; 0]);
    let configured = format!("==> nv config show -o commands <==\n{NVUE}");
    assert_eq!(rules(&configured), ["spray-order"]);
    let idle = format!("{configured}{}", adaptive(global, "off"));
    assert_eq!(rules(&idle), ["shown-paths"]);
    let json =
        "==> nv show interface swp51 router adaptive-routing -o json <==\n{\"enable\": \"on\"}\n";
    assert_eq!(rules(json), ["spray-order"]);
}
