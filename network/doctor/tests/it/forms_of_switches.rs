//! Further forms of what other people have of their switches, each with its right value.

use doctor::{Finding, SwitchFacts, check, read_switch};
use vendors::{Area, Dialect};

use super::inputs::{asked, rules, with};

fn switch(text: &str) -> SwitchFacts {
    read_switch("leaf", text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn found(text: &str) -> Vec<Finding> {
    check(&[], &[switch(text)], asked(26))
}

/// The names of ports, group by group.
fn ports(switch: &SwitchFacts) -> Vec<Vec<&str>> {
    let of_group = |group: &vendors::Intent| -> usize { group.ports.len() };
    assert!(switch.groups.iter().all(|group| of_group(group) > 0));
    let names = switch.groups.iter().map(|group| {
        let names = group.ports.iter().map(|port| port.name.as_str());
        names.collect()
    });
    names.collect()
}

/// Lines that are not understood.
fn odd(switch: &SwitchFacts) -> Vec<usize> {
    switch.left.iter().map(|left| left.line).collect()
}

const ROUTEROS: &str = "# 2026-02-02 10:00:00 by RouterOS 7.23.1
/interface/ethernet/switch
set switch1 qos-hw-offloading=yes
/interface/ethernet/switch/qos/profile
add dscp=26 name=roce traffic-class=3
/interface/ethernet/switch/qos/tx-manager/queue
set 3 ecn=yes schedule=high-priority-group weight=1
/interface/ethernet/switch/qos/priority-flow-control
add name=pfc-tc3 rx=yes traffic-class=3 tx=yes
/interface/ethernet/switch/qos/port
set [find] egress-rate-queue3=100.0Gbps pfc=pfc-tc3 trust-l3=keep
";

const ALL: &str = "set [find]";

#[test]
fn scripts_of_routeros_are_recognised_by_any_path_of_their_menus() {
    for separator in ["/", " "] {
        for menu in ["interface/ethernet/switch", "in/eth/sw", "int/ether/switch"] {
            let menu = format!("/{}", menu.replace('/', separator));
            let text = ROUTEROS.replace("/interface/ethernet/switch", &menu);
            let text = text.replace("# 2026-02-02 10:00:00 by RouterOS", "# RouterOS");
            let read = switch(&text);
            assert_eq!((read.dialect, odd(&read)), (Dialect::RouterOs, vec![]));
            assert_eq!(check(&[], &[read], asked(26)), [], "{text}");
        }
    }
    // A loop is named, and the text is recognised by what is within.
    let looped = "{\n  :foreach port in={\"a\"} do={\n    \
                  /interface/ethernet/switch/qos/port set $port pfc=x\n  }\n}\n";
    assert_eq!(odd(&switch(looped)), [1]);
    for other in [
        "/ip address\nadd address=10.0.0.1/24 interface=ether1\n",
        "# /interface ethernet switch\n",
    ] {
        assert!(read_switch("leaf", other).is_err(), "{other}");
    }
}

#[test]
fn newer_chips_of_mikrotik_apply_qos_whatever_their_setting_is() {
    let off = with(ROUTEROS, "=yes", "=no");
    assert_eq!(rules(&found(&off)), ["switch-pfc-off"]);
    let unset = with(ROUTEROS, "set switch1 qos-hw-offloading=yes\n", "");
    assert_eq!(rules(&found(&unset)), ["switch-pfc-off"]);
    for text in [&off, &unset] {
        let by_model = with(text, "7.23.1\n", "7.23.1\n# model = CRS804-4DDQ\n");
        let by_port = with(text, ALL, "set qsfp56-dd-1-1,qsfp56-dd-1-5");
        for text in [by_model, by_port] {
            assert_eq!(found(&text), [], "{text}");
        }
    }
}

#[test]
fn parts_of_names_in_conditions_are_no_ports() {
    let all = ["qsfp28-1-1", "qsfp28-2-1", "qsfp28-3-1", "qsfp28-4-1"];
    let part = "/interface ethernet set [find name~\"qsfp28-2\"] mtu=9000\n";
    let read = switch(&format!("{ROUTEROS}{part}"));
    // The MTU of one port is its own.
    assert_eq!(ports(&read), [vec![all[0], all[2], all[3]], vec![all[1]]]);
    let two = with(
        ROUTEROS,
        ALL,
        "set [find where name=(\"qsfp28-1\" . \"-1\") or name~\"^qsfp28-2\"]",
    );
    assert_eq!(ports(&switch(&two)), [all[..2].to_vec()]);
    // A condition that matches no port that is known is no setting of no port.
    for none in [
        "name~\"sfp28\" and name~\"x\"",
        "name=\"uplink\"",
        "default-name~\"qsfp56-dd\"",
    ] {
        let read = switch(&with(ROUTEROS, ALL, &format!("set [find where {none}]")));
        assert_eq!(odd(&read), [11], "{none}: {:?}", read.left);
    }
}

#[test]
fn lanes_that_differ_are_ports_of_their_own() {
    let lane = |lane: u8, rate: u32, pfc: &str| {
        format!("set qsfp28-1-{lane} egress-rate-queue3={rate}Gbps pfc={pfc} trust-l3=keep\n")
    };
    let set = "set [find] egress-rate-queue3=100.0Gbps pfc=pfc-tc3 trust-l3=keep\n";
    let text = |lanes: &[String]| with(ROUTEROS, set, &lanes.concat());
    // Four links of 25 Gb/s.
    let own = text(&[lane(1, 25, "pfc-tc3"), lane(2, 25, "disabled")]);
    let read = switch(&own);
    assert_eq!(ports(&read), [["qsfp28-1-1"], ["qsfp28-1-2"]]);
    assert_eq!(found(&own), []);
    let untrusted = own.replace("pfc=disabled trust-l3=keep", "pfc=pfc-tc3");
    let found_there = found(&untrusted);
    assert_eq!(rules(&found_there), ["switch-trust"]);
    assert!(
        found_there[0].place.contains("qsfp28-1-2"),
        "{}",
        found_there[0]
    );
    assert_eq!(
        ports(&switch(&text(&[
            lane(1, 25, "pfc-tc3"),
            lane(2, 25, "pfc-tc3")
        ]))),
        [["qsfp28-1-1"]]
    );
    // One link of 100 Gb/s: the chip applies what all lanes have.
    for lanes in [vec![1], vec![2], vec![2, 3, 4]] {
        let mut all = vec![lane(1, 100, "disabled"), lane(2, 100, "disabled")];
        all.extend(lanes.iter().map(|number| lane(*number, 100, "pfc-tc3")));
        assert_eq!(rules(&found(&text(&all))), ["switch-lanes"], "{lanes:?}");
    }
    let only_second = text(&[lane(2, 100, "pfc-tc3")]);
    assert_eq!(
        ports(&switch(&only_second)),
        [["qsfp28-1-1"], ["qsfp28-1-2"]]
    );
    assert_eq!(rules(&found(&only_second)), ["switch-lanes"]);
    // A port of eight lanes has two halves.
    let halves = with(
        ROUTEROS,
        ALL,
        "set qsfp56-dd-1-1,qsfp56-dd-1-2,qsfp56-dd-1-5,qsfp56-dd-1-8",
    );
    assert_eq!(
        ports(&switch(&halves)),
        [["qsfp56-dd-1-1", "qsfp56-dd-1-5"]]
    );
}

#[test]
fn a_fix_switches_on_what_is_there_and_takes_no_class_from_others() {
    let menu = "/interface ethernet switch qos";
    let older = with(ROUTEROS, "7.23.1", "7.22");
    let mapped = format!("{older}{menu} map ip add dscp=26 profile=roce\n");
    assert_eq!(found(&mapped), []);
    for (line, fix) in [
        (
            "map ip set [find dscp=26] disabled=yes",
            "map ip enable [find dscp=26]",
        ),
        ("profile disable roce", "profile enable roce"),
        (
            "priority-flow-control disable pfc-tc3",
            "priority-flow-control enable pfc-tc3",
        ),
        (
            "priority-flow-control set pfc-tc3 tx=no",
            "priority-flow-control set pfc-tc3 tx=yes rx=yes",
        ),
        (
            "port set [find] trust-l3=ignore",
            "trust-l3=keep on every lane",
        ),
        (
            "profile add name=other traffic-class=5; map ip set [find dscp=26] profile=other",
            "map ip set [find dscp=26] profile=roce",
        ),
    ] {
        let found = found(&format!(
            "{mapped}{menu} {}\n",
            line.replace("; ", &format!("\n{menu} "))
        ));
        assert!(found[0].fix.contains(fix), "{line}: {}", found[0]);
    }
    // Nothing else is in the class that is lossless.
    let alone = with(
        &mapped,
        "name=roce traffic-class=3",
        "name=roce traffic-class=5",
    );
    assert!(
        found(&alone)[0]
            .fix
            .contains("PFC profile's traffic-class=5")
    );
}

const EOS: &str = "qos map dscp 26 to traffic-class 3
interface Ethernet1/1
   mtu 9214
   qos trust dscp
   priority-flow-control on
   priority-flow-control priority 3 no-drop
   tx-queue 3
      random-detect ecn minimum-threshold 150 kbytes maximum-threshold 1500 kbytes
interface Ethernet2/1
   mtu 9214
   qos trust dscp
   priority-flow-control on
   priority-flow-control priority 3 no-drop
   tx-queue 3
      random-detect ecn minimum-threshold 150 kbytes maximum-threshold 1500 kbytes
";

const NXOS: &str = "class-map type qos match-any RDMA
  match dscp 26
policy-map type qos IN
  class RDMA
    set qos-group 3
policy-map type network-qos NQ
  class type network-qos c-8q-nq3
    mtu 9216
    pause pfc-cos 3
policy-map type queuing OUT
  class type queuing c-out-8q-q3
    random-detect minimum-threshold 150 kbytes maximum-threshold 1500 kbytes drop-probability 100 weight 0 ecn
system qos
  service-policy type queuing output OUT
  service-policy type network-qos NQ
interface Ethernet1/1
  priority-flow-control mode on
  mtu 9216
  service-policy type qos input IN
";

const OS10: &str = "class-map type network-qos N3
 match qos-group 3
trust dscp-map D
 qos-group 3 dscp 26
wred W
 random-detect color green minimum-threshold 150 maximum-threshold 1500 drop-probability 100
 random-detect ecn
class-map type queuing Q3
 match queue 3
policy-map type network-qos P
 class N3
  pause
  pfc-cos 3
policy-map type queuing O
 class Q3
  random-detect W
interface ethernet1/1/1
 mtu 9216
 priority-flow-control mode on
 trust-map dscp D
 service-policy input type network-qos P
 service-policy output type queuing O
";

#[test]
fn interfaces_of_one_command_have_whole_names() {
    for (name, expected) in [
        ("Ethernet1/1,3/1", ["Ethernet1/1", "Ethernet3/1"]),
        ("Eth 1/1, 3/1", ["Ethernet1/1", "Ethernet3/1"]),
        ("et1/1,3", ["Ethernet1/1", "Ethernet1/3"]),
        ("e1/1-2", ["Ethernet1/1", "Ethernet1/2"]),
    ] {
        let text = EOS
            .split("interface Ethernet2/1")
            .next()
            .unwrap_or_default();
        let text = with(text, "Ethernet1/1", name);
        assert_eq!(ports(&switch(&text)), [expected], "{name}");
        let text = with(NXOS, "Ethernet1/1", name);
        assert_eq!(ports(&switch(&text)), [expected], "{name}");
    }
}

#[test]
fn a_line_that_is_not_known_concerns_the_interface_that_it_is_of() {
    assert_eq!(found(EOS), []);
    for line in [
        "no service-profile ROCE",
        "priority-flow-control pause maybe",
        "qos frobnicate",
    ] {
        let odd = with(
            EOS,
            "interface Ethernet2/1\n",
            &format!("interface Ethernet2/1\n   {line}\n"),
        );
        let read = switch(&odd);
        assert_eq!(self::odd(&read), [10], "{line}");
        for group in &read.groups {
            let all = [Area::Classes, Area::Pfc, Area::Ecn, Area::Queues, Area::Mtu];
            let is_known = all.iter().all(|area| group.unknown(*area).is_none());
            assert_eq!(
                is_known,
                group.ports[0].name == "Ethernet1/1",
                "{line}: {group:?}"
            );
        }
    }
}

#[test]
fn a_port_that_is_shut_is_not_judged() {
    let eos = with(
        EOS,
        "interface Ethernet2/1\n   mtu 9214\n",
        "interface Ethernet2/1\n   shutdown\n   mtu 1500\n",
    );
    let nxos = format!(
        "{NXOS}interface Ethernet1/2\n  flowcontrol receive on\n  priority-flow-control mode on\n"
    );
    let os10 = format!(
        "{OS10}interface ethernet1/1/2\n flowcontrol receive on\n priority-flow-control mode on\n"
    );
    for (text, shut) in [(eos, ""), (nxos, "  shutdown\n"), (os10, " shutdown\n")] {
        let text = format!("{text}{shut}");
        let read = switch(&text);
        assert_eq!(found(&text), [], "{text}");
        assert_eq!(
            read.groups
                .iter()
                .map(|group| group.ports.len())
                .sum::<usize>(),
            1
        );
        let said: Vec<String> = read.not_judged.iter().map(ToString::to_string).collect();
        assert!(said.len() == 1 && said[0].contains("is down"), "{said:?}");
        let up = text.replace("shutdown\n", "no shutdown\n");
        assert_ne!(found(&up), [], "{up}");
    }
}

#[test]
fn a_port_of_routeros_that_is_disabled_is_not_judged() {
    let off = format!("{ROUTEROS}set [find where name~\"qsfp28-2\"] trust-l3=ignore\n");
    assert_eq!(rules(&found(&off)), ["switch-trust"]);
    for shut in [
        "/interface/ethernet/disable qsfp28-2-1",
        "/interface/ethernet set [find where name=qsfp28-2-1] disabled=yes",
        "/interface/ethernet disable [find name~\"qsfp28-2\"]",
    ] {
        let text = format!("{off}{shut}\n");
        let read = switch(&text);
        assert_eq!((odd(&read), found(&text)), (vec![], vec![]), "{shut}");
        let said: Vec<String> = read.not_judged.iter().map(ToString::to_string).collect();
        assert!(
            said.iter()
                .any(|said| said.contains("qsfp28-2-1 is down, and is not judged")),
            "{shut}: {said:?}"
        );
        let again = format!("{text}/interface/ethernet/enable [find disabled=yes]\n");
        assert_eq!(rules(&found(&again)), ["switch-trust"], "{shut}");
    }
}

#[test]
fn a_part_of_a_configuration_is_recognised_by_its_interfaces() {
    let interface = "interface Ethernet1/1\n  switchport mode trunk\n  \
                     priority-flow-control mode on\n  mtu 9216\n";
    let read = switch(interface);
    assert_eq!((read.dialect, odd(&read)), (Dialect::NxOs, vec![1]));
    assert!(
        read.groups[0].unknown(Area::Pfc).is_some(),
        "which classes are lossless is elsewhere"
    );
    assert_eq!(found(interface), []);
    let os10 = interface.replace("Ethernet1/1", "range ethernet1/1/1-1/1/4");
    assert_eq!(switch(&os10).dialect, Dialect::Os10);
    // Arista's word of older versions.
    let eos = "interface Ethernet1/1\n   dcbx mode ieee\n   priority-flow-control mode on\n   \
               priority-flow-control priority 3 no-drop\n   qos trust cos\n";
    let read = switch(eos);
    assert_eq!((read.dialect, odd(&read)), (Dialect::Eos, vec![]));
    assert_eq!(read.groups[0].pfc_send, 1 << 3);
}

#[test]
fn thresholds_in_units_of_the_device_mark() {
    for unit in ["segments", "%", "percent", "milliseconds", "microseconds"] {
        let read = switch(&EOS.replace("kbytes", unit));
        assert_eq!(read.left, [], "{unit}");
        assert_eq!(check(&[], &[read], asked(26)), [], "{unit}");
    }
    assert_eq!(odd(&switch(&EOS.replace("kbytes", "furlongs"))), [8, 15]);
}

#[test]
fn a_map_that_is_not_there_leaves_its_area_unknown() {
    assert_eq!(found(OS10), []);
    for (from, to, area) in [
        ("trust-map dscp D", "trust-map dscp default", Area::Classes),
        (
            "network-qos P\n service",
            "network-qos X\n service",
            Area::Pfc,
        ),
        ("queuing O\n", "queuing X\n", Area::Queues),
    ] {
        let text = match to.starts_with("queuing") {
            true => format!("{}{to}", OS10.strip_suffix(from).unwrap_or_default()),
            false => with(OS10, from, to),
        };
        let read = switch(&text);
        assert_eq!(read.left.len(), 1, "{:?}", read.left);
        assert!(read.left[0].areas.contains(&area), "{:?}", read.left);
        assert_eq!(check(&[], &[read], asked(26)), [], "{to}");
    }
}
