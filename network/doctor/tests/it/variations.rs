//! Variations of configurations: one place of a sound one is written otherwise. Each is judged by what the
//! switch does with it, or named as not understood, and nothing else is unknown.

use doctor::{SwitchFacts, check, judged_switch, read_switch};
use vendors::Area;

use super::inputs::{asked, rules, with};

fn switch(text: &str) -> SwitchFacts {
    read_switch("leaf", text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Areas that are unknown at some port.
fn unknown(switch: &SwitchFacts) -> Vec<Area> {
    let all = [Area::Classes, Area::Pfc, Area::Ecn, Area::Queues, Area::Mtu];
    let is_unknown = |area: &Area| {
        let mut groups = switch.groups.iter();
        groups.any(|intent| intent.unknown(*area).is_some())
    };
    all.into_iter().filter(is_unknown).collect()
}

/// The rules that find something where data has DSCP 26.
fn found(text: &str) -> Vec<&'static str> {
    rules(&check(&[], &[switch(text)], asked(26)))
}

/// Asserts that a line is named, that these areas are unknown and no others, and that no rule judges them.
fn assert_named(text: &str, line: usize, areas: &[Area]) {
    let read = switch(text);
    let lines: Vec<usize> = read.left.iter().map(|left| left.line).collect();
    assert!(lines.contains(&line), "line {line}: {:?}", read.left);
    assert_eq!(unknown(&read), areas, "{:?}", read.left);
    assert_eq!(found(text), [""; 0], "{:?}", read.left);
}

#[test]
fn where_both_headers_are_trusted_the_dscp_decides() {
    let nvue = "nv set interface swp1-2 link mtu 9216\nnv set qos roce mode lossless\n";
    assert_eq!(found(nvue), [""; 0]);
    // Packets of PCP 3 are lossless there, and data is of DSCP 26 whether it is tagged or not.
    let mapped = format!("{nvue}nv set qos mapping default-global dscp 26 switch-priority 2\n");
    assert_eq!(found(&mapped), ["switch-dscp-map"]);
    let judged = judged_switch(&switch(&mapped), &[], asked(26));
    assert!(!judged[0].text.contains("tagged"), "{judged:?}");
    let both = "\"dscp_to_tc_map\": \"M\", \"dot1p_to_tc_map\": \"P\",";
    let sonic = SONIC.replace("\"dscp_to_tc_map\": \"M\",", both);
    let sonic = with(
        &sonic,
        "  \"SCHEDULER\"",
        "  \"DOT1P_TO_TC_MAP\": { \"P\": { \"3\": \"3\" } },\n  \"SCHEDULER\"",
    );
    assert_eq!(found(&sonic), [""; 0]);
    assert_eq!(
        found(&with(&sonic, "\"26\": \"3\"", "\"26\": \"2\"")),
        ["switch-dscp-map"]
    );
}

const SONIC: &str = r#"{
  "PORT": {
    "Ethernet0": { "speed": "100000", "mtu": "9100", "admin_status": "up" },
    "Ethernet4": { "speed": "100000", "mtu": "9100", "admin_status": "up" }
  },
  "CABLE_LENGTH": { "AZURE": { "Ethernet0": "40m", "Ethernet4": "40m" } },
  "DSCP_TO_TC_MAP": { "M": { "26": "3", "48": "6" } },
  "TC_TO_PRIORITY_GROUP_MAP": { "M": { "3": "3", "4": "4" } },
  "MAP_PFC_PRIORITY_TO_QUEUE": { "M": { "3": "3", "4": "4" } },
  "PORT_QOS_MAP": {
    "Ethernet0": { "dscp_to_tc_map": "M", "tc_to_pg_map": "M", "pfc_to_queue_map": "M", "pfc_enable": "3,4" },
    "Ethernet4": { "dscp_to_tc_map": "M", "tc_to_pg_map": "M", "pfc_to_queue_map": "M", "pfc_enable": "3,4" }
  },
  "SCHEDULER": { "S": { "type": "DWRR", "weight": "15" } },
  "WRED_PROFILE": { "W": { "ecn": "ecn_all", "green_min_threshold": "1000", "green_max_threshold": "2000" } },
  "QUEUE": {
    "Ethernet0|3-4": { "wred_profile": "W", "scheduler": "S" },
    "Ethernet4|3-4": { "wred_profile": "W", "scheduler": "S" }
  },
  "BUFFER_PROFILE": {
    "lossless": { "size": "1248", "xon": "2288", "xoff": "177632", "dynamic_th": "-3" },
    "lossy": { "size": "0", "dynamic_th": "3" }
  },
  "BUFFER_PG": { "Ethernet0,Ethernet4|3-4": { "profile": "lossless" } }
}"#;

/// What is written otherwise, the line that is named, and areas that are unknown then.
const SONIC_ODD: &[(&str, &str, usize, &[Area])] = &[
    (
        "\"pfc_enable\": \"3,4\"",
        "\"pfc_enable\": [\"3\", \"4\"]",
        11,
        &[Area::Pfc],
    ),
    (
        "\"pfc_enable\": \"3,4\"",
        "\"pfc_enable\": \"3-4\"",
        11,
        &[Area::Pfc],
    ),
    (
        "\"ecn\": \"ecn_all\"",
        "\"ecn\": \"ECN_ALL\"",
        15,
        &[Area::Ecn],
    ),
    ("\"ecn\": \"ecn_all\"", "\"ecn\": true", 15, &[Area::Ecn]),
    ("\"green_min_threshold\": \"1000\", ", "", 15, &[Area::Ecn]),
    ("\"1000\"", "\"3000\"", 15, &[Area::Ecn]),
    (
        "\"wred_profile\": \"W\"",
        "\"wred-profile\": \"W\"",
        17,
        &[Area::Ecn, Area::Queues],
    ),
    (
        "{ \"wred_profile\": \"W\", \"scheduler\": \"S\" }",
        "\"W\"",
        17,
        &[Area::Ecn, Area::Queues],
    ),
    (
        "\"Ethernet0|3-4\": { \"w",
        "\"ethernet0|3-4\": { \"w",
        17,
        &[Area::Ecn, Area::Queues],
    ),
    (
        "\"Ethernet4|3-4\"",
        "\"Ethernet4 |3-4\"",
        18,
        &[Area::Ecn, Area::Queues],
    ),
    (
        "\"Ethernet4|3-4\"",
        "\"Ethernet0|4-6\": {}, \"Ethernet4|3-4\"",
        18,
        &[],
    ),
    ("\"weight\"", "\"wieght\"", 14, &[Area::Queues]),
    ("\"DWRR\"", "\"dwrr\"", 14, &[Area::Queues]),
    ("\"xoff\"", "\"x_off\"", 21, &[Area::Pfc]),
    (
        "{ \"profile\": \"lossless\" }",
        "{ \"profle\": \"lossless\" }",
        24,
        &[Area::Pfc],
    ),
    (
        "\"Ethernet0,Ethernet4|3-4\"",
        "\"Ethernet0,Ethernet4|0-7\": {}, \"Ethernet0,Ethernet4|3-4\"",
        24,
        &[Area::Pfc],
    ),
    (
        "\"Ethernet0\": \"40m\"",
        "\"Ethernet0\": \"40 m\"",
        6,
        &[Area::Pfc],
    ),
    ("\"mtu\"", "\"mtus\"", 3, &[Area::Mtu]),
    (
        "\"Ethernet0\": { \"dscp",
        "\"Ethernet0\": null, \"Ethernet4,Ethernet4\": { \"dscp",
        11,
        &[Area::Classes, Area::Pfc],
    ),
];

#[test]
fn sonic_ignores_entries_that_its_schema_does_not_have() {
    assert_eq!(found(SONIC), [""; 0]);
    assert!(switch(SONIC).left.is_empty(), "{:?}", switch(SONIC).left);
    for (from, to, line, areas) in SONIC_ODD {
        let text = with(SONIC, from, to);
        let read = switch(&text);
        let lines: Vec<usize> = read.left.iter().map(|left| left.line).collect();
        assert!(lines.contains(line), "{to}: {:?}", read.left);
        let missing: Vec<&Area> = areas
            .iter()
            .filter(|area| !unknown(&read).contains(area))
            .collect();
        assert!(missing.is_empty(), "{to}: {missing:?}, {:?}", read.left);
        assert_eq!(found(&text), [""; 0], "{to}: {:?}", read.left);
    }
    let lists = with(SONIC, "\"QUEUE\": {\n", "\"QUEUE\": [] , \"X\": {\n");
    let read = switch(&lists);
    assert_eq!(
        read.left.len(),
        2,
        "two tables in one line: {:?}",
        read.left
    );
    assert!(unknown(&read).contains(&Area::Ecn), "{:?}", read.left);
    // One port's entry is unknown, and the other's is known.
    let odd = switch(&with(SONIC, "\"wred_profile\"", "\"wred-profile\""));
    let known = odd
        .groups
        .iter()
        .filter(|own| own.unknown(Area::Ecn).is_none());
    let known: Vec<&str> = known
        .flat_map(|own| &own.ports)
        .map(|port| port.name.as_str())
        .collect();
    assert_eq!(known, ["Ethernet4"]);
}

#[test]
fn sonic_takes_numbers_as_texts_and_any_name_of_a_table_of_cables() {
    for (from, to) in [
        ("\"pfc_enable\": \"3,4\"", "\"pfc_enable\": 3"),
        ("\"speed\": \"100000\"", "\"speed\": 100000"),
        (
            "\"CABLE_LENGTH\": { \"AZURE\"",
            "\"CABLE_LENGTH\": { \"DEFAULT\"",
        ),
    ] {
        let text = with(SONIC, from, to);
        assert!(
            switch(&text).left.is_empty(),
            "{to}: {:?}",
            switch(&text).left
        );
        assert_eq!(found(&text), [""; 0], "{to}");
        let groups = switch(&text).groups;
        assert!(groups.iter().all(|own| own.lossless(3)), "{to}");
        assert!(
            groups[0].ports.iter().all(|port| port.metres == Some(40)),
            "{to}"
        );
    }
}

#[test]
fn sonic_pauses_by_the_maps_of_groups_and_queues() {
    // Traffic class 3 in the group of priority 4 gets no pauses of priority 3.
    let group = with(
        SONIC,
        "\"TC_TO_PRIORITY_GROUP_MAP\": { \"M\": { \"3\": \"3\"",
        "\"TC_TO_PRIORITY_GROUP_MAP\": { \"M\": { \"3\": \"0\"",
    );
    assert_eq!(found(&group), ["switch-dscp-map"]);
    let queue = with(
        SONIC,
        "\"MAP_PFC_PRIORITY_TO_QUEUE\": { \"M\": { \"3\": \"3\", \"4\": \"4\"",
        "\"MAP_PFC_PRIORITY_TO_QUEUE\": { \"M\": { \"3\": \"4\", \"4\": \"3\"",
    );
    assert_eq!(found(&queue), ["switch-pfc-receive"]);
    let priority = with(
        &SONIC.replace("\"pfc_enable\"", "\"pfc_to_pg_map\": \"P\", \"pfc_enable\""),
        "  \"SCHEDULER\"",
        "  \"PFC_PRIORITY_TO_PRIORITY_GROUP_MAP\": { \"P\": { \"3\": \"4\", \"4\": \"3\" } },\n  \
         \"SCHEDULER\"",
    );
    assert_named(&priority, 11, &[Area::Pfc]);
    let none = SONIC.replace("\"tc_to_pg_map\": \"M\", ", "");
    assert_named(&none, 11, &[Area::Pfc]);
    // The dynamic buffer model makes no lossless buffer of its own.
    let dynamic = with(
        SONIC,
        "  \"PORT\"",
        "  \"DEVICE_METADATA\": { \"localhost\": { \"buffer_model\": \"dynamic\" } },\n  \"PORT\"",
    );
    assert_eq!(found(&dynamic), [""; 0]);
    let without = with(
        &dynamic,
        "\"Ethernet0,Ethernet4|3-4\"",
        "\"Ethernet0,Ethernet4|5\"",
    );
    assert_named(&without, 12, &[Area::Pfc]);
    let lossy = with(
        SONIC,
        "{ \"profile\": \"lossless\" }",
        "{ \"profile\": \"lossy\" }",
    );
    let why = &switch(&lossy).not_judged;
    assert!(
        why.iter().any(|own| own.why.contains("no headroom")),
        "{why:?}"
    );
}

#[test]
fn a_sonic_port_without_maps_is_a_port() {
    let text = with(SONIC, "\"Ethernet4\": { \"dscp", "\"Ehternet4\": { \"dscp");
    let read = switch(&text);
    assert!(
        read.left
            .iter()
            .any(|left| left.line == 12 && left.why.contains("did you mean \"Ethernet4\"?")),
        "{:?}",
        read.left
    );
    let judged = judged_switch(&read, &[], asked(26));
    assert!(
        judged
            .iter()
            .any(|own| own.text.starts_with("Ethernet4: ") && own.text.contains("PFC off")),
        "{judged:?}"
    );
    assert!(
        !judged.iter().any(|own| own.text.contains("Ehternet4")),
        "{judged:?}"
    );
    let watchdog = with(
        SONIC,
        "  \"SCHEDULER\"",
        "  \"PFC_WD\": { \"GLOBAL\": { \"BIG_RED_SWITCH\": \"enable\" }, \"Ethernet0\": { \
         \"detection_time\": \"200\", \
         \"restoration_time\": \"200\" } },\n  \"SCHEDULER\"",
    );
    let why = &switch(&watchdog).not_judged;
    assert!(why.iter().any(|own| own.line == 14), "{why:?}");
}

const ROUTEROS: &str = "/interface ethernet switch qos profile
add dscp=26 name=roce traffic-class=3
/interface ethernet switch qos map ip
add dscp=26 profile=roce
/interface ethernet switch qos tx-manager queue
set 3 ecn=yes schedule=high-priority-group weight=1
/interface ethernet switch qos priority-flow-control
add name=pfc-tc3 rx=yes traffic-class=3 tx=yes
/interface ethernet switch
set switch1 qos-hw-offloading=yes
/interface ethernet switch qos port
set qsfp28-1-1,qsfp28-2-1 pfc=pfc-tc3 trust-l3=keep egress-rate-queue3=100G
";

#[test]
fn routeros_commands_that_change_more_than_is_read_are_named() {
    assert_eq!(found(ROUTEROS), [""; 0]);
    let (classes, all) = (
        &[Area::Classes][..],
        &[Area::Classes, Area::Pfc, Area::Queues][..],
    );
    for (command, areas) in [
        (
            "/interface ethernet switch qos profile edit roce traffic-class",
            classes,
        ),
        ("/interface ethernet switch qos map ip move 0 0", classes),
        (
            "/interface ethernet switch qos port set qsfp28-1-1 profile=none",
            classes,
        ),
        (
            "/interface ethernet switch qos port set qsfp28-1-1 tx-manager=none",
            &[Area::Ecn, Area::Queues][..],
        ),
        (
            "/interface ethernet switch qos port reset qsfp28-1-1",
            &[Area::Classes, Area::Pfc, Area::Ecn, Area::Queues][..],
        ),
        // What tells of QoS is behind the part of the line that a message shows.
        (
            "/interface ethernet switch rule add dst-port=4791 ports=qsfp28-1-1 protocol=udp switch=switch1 \
             new-qos-profile=default",
            &[Area::Classes, Area::Queues][..],
        ),
    ] {
        assert_named(&format!("{ROUTEROS}{command}\n"), 13, areas);
    }
    let odd = with(ROUTEROS, "trust-l3=keep", "trust-l3=Keep");
    assert_named(&odd, 12, all);
    let ports: Vec<String> = switch(&odd)
        .groups
        .iter()
        .flat_map(|own| &own.ports)
        .map(|port| port.name.clone())
        .collect();
    assert_eq!(ports, ["qsfp28-1-1", "qsfp28-2-1"]);
    let rule = format!(
        "{ROUTEROS}/interface ethernet switch rule add dst-port=22 ports=qsfp28-1-1 switch=switch1\n"
    );
    assert!(switch(&rule).left.is_empty(), "{:?}", switch(&rule).left);
}

#[test]
fn routeros_ports_with_blanks_and_managers_of_their_own() {
    let named = format!(
        "/interface ethernet\nset [ find default-name=qsfp28-1-1 ] name=\"storage 1\"\n{}",
        with(
            ROUTEROS,
            "set qsfp28-1-1,qsfp28-2-1 ",
            "set \"storage 1\",qsfp28-2-1 "
        )
    );
    let read = switch(&named);
    assert!(read.left.is_empty(), "{:?}", read.left);
    let ports: Vec<&str> = read
        .groups
        .iter()
        .flat_map(|own| &own.ports)
        .map(|port| port.name.as_str())
        .collect();
    assert_eq!(ports, ["qsfp28-2-1", "storage 1"]);
    // The queues of a new manager do not mark, although those of another one do.
    let managed = format!(
        "{ROUTEROS}/interface ethernet switch qos tx-manager add name=own\n/interface ethernet switch \
         qos port set \
         qsfp28-1-1 tx-manager=own\n"
    );
    assert_eq!(found(&managed), ["switch-ecn-off"]);
    let off = "/interface ethernet set qsfp28-1-1 disabled=yes";
    let auto = "/interface ethernet set qsfp28-1-1 rx-flow-control=auto";
    for command in [off, auto, "/interface ethernet disable qsfp28-1-1"] {
        let read = switch(&format!("{ROUTEROS}{command}\n"));
        assert!(
            read.not_judged.iter().any(|own| own.line == 13),
            "{command}: {:?}",
            read.not_judged
        );
    }
}

#[test]
fn a_fix_of_nvue_leaves_the_headers_trusted_that_are() {
    use vendors::intent::Trust;
    let cases = [
        (Trust::None, Some("trust l3")),
        (Trust::Pcp, Some("trust both")),
        (Trust::Dscp, None),
        (Trust::Both, None),
    ];
    for (trusted, expected) in cases {
        let remedy = vendors::Remedy::MapDscp {
            dscp: 26,
            class: 3,
            trusted,
        };
        let fix = vendors::Dialect::Nvue.remedy(&remedy);
        let set = fix
            .lines()
            .find_map(|line| line.split_once("default-global trust"));
        let set = set.map(|(_, mode)| format!("trust{mode}"));
        assert_eq!(set.as_deref(), expected, "{fix}");
        assert!(fix.ends_with("dscp 26 switch-priority 3"), "{fix}");
    }
    // What is printed for a switch that trusts both, and has its data in a lossy class.
    let text = "nv set qos mapping default-global trust both
nv set qos mapping default-global dscp 26 switch-priority 1
nv set qos pfc default-global switch-priority 3
nv set interface swp1 link mtu 9216
";
    let found = check(&[], &[switch(text)], asked(26));
    let map = found.iter().find(|own| own.rule == "switch-dscp-map");
    let fix = &map.expect("a finding").fix;
    assert!(!fix.contains("trust"), "{fix}");
}

#[test]
fn pools_beyond_the_memory_of_the_chip_are_a_finding() {
    let config = |more: &str| {
        format!(
            r#"{{ {more}
    "PORT": {{ "Ethernet0": {{ "speed": "400000", "mtu": "9100" }} }},
    "DSCP_TO_TC_MAP": {{ "M": {{ "26": "3" }} }},
    "TC_TO_PRIORITY_GROUP_MAP": {{ "M": {{ "3": "3" }} }},
    "WRED_PROFILE": {{ "W": {{ "ecn": "ecn_all", "wred_green_enable": "true",
        "green_min_threshold": "1048576", "green_max_threshold": "2097152",
        "green_drop_probability": "5" }} }},
    "QUEUE": {{ "Ethernet0|3": {{ "wred_profile": "W" }} }},
    "PORT_QOS_MAP": {{ "Ethernet0": {{ "dscp_to_tc_map": "M", "tc_to_pg_map": "M", "pfc_enable": "3" }} }},
    "BUFFER_POOL": {{
        "ingress_lossless_pool": {{ "type": "ingress", "size": "258035400", "xoff": "81553920" }},
        "egress_lossless_pool": {{ "type": "egress", "size": "258035400" }}
    }},
    "BUFFER_PROFILE": {{ "P": {{ "pool": "ingress_lossless_pool", "size": "4620", "xoff": "500000",
        "dynamic_th": "0" }} }},
    "BUFFER_PG": {{ "Ethernet0|3": {{ "profile": "P" }} }}
}}"#
        )
    };
    let of = |text: &str| check(&[], &[switch(text)], asked(26));
    let rules = |text: &str| of(text).iter().map(|own| own.rule).collect::<Vec<_>>();
    // sonic-buildimage issue 28657: 339,589,320 bytes of 267,196,860.
    let table = |bytes: u64| {
        format!(r#""BUFFER_MAX_PARAM_TABLE": {{ "global": {{ "mmu_size": "{bytes}" }} }},"#)
    };
    assert_eq!(rules(&config("")), [] as [&str; 0]);
    assert_eq!(rules(&config(&table(339_589_320))), [] as [&str; 0]);
    let found = of(&config(&table(267_196_860)));
    assert_eq!(found.len(), 1, "{found:#?}");
    let own = &found[0];
    assert_eq!(own.rule, "switch-memory");
    assert!(
        own.what.contains("339589320") && own.what.contains("267196860"),
        "{own}"
    );
    let doctor::Consequence::Simulated(cost) = own.consequence else {
        panic!("{own}")
    };
    assert!(cost.now.dropped > cost.fixed.dropped, "{own}");
    // The same from outputs of commands.
    for shown in ["267196860", "{'mmu_size': '267196860'}"] {
        let text = format!(
            "==> sonic-db-cli STATE_DB hget 'BUFFER_MAX_PARAM_TABLE|global' mmu_size <==\n{shown}\n\
             ==> show runningconfiguration all <==\n{}",
            config("")
        );
        assert_eq!(rules(&text), ["switch-memory"], "{shown}");
    }
}

#[test]
fn lines_that_leave_a_mode_set_nothing() {
    let os10 = "class-map type network-qos NQ
 match qos-group 3
 exit
policy-map type network-qos PFC
 class NQ
  pause
  pfc-cos 3
  exit
 exit
wred ROCE
 random-detect color green minimum-threshold 150 maximum-threshold 1500 drop-probability 100
 random-detect ecn
 exit
class-map type queuing Q3
 match queue 3
policy-map type queuing OUT
 class Q3
  bandwidth percent 50
  random-detect ROCE
  end
trust dscp-map STORAGE
 qos-group 3 dscp 26
interface ethernet1/1/1
 mtu 9216
 trust-map dscp STORAGE
 priority-flow-control mode on
 service-policy input type network-qos PFC
 service-policy output type queuing OUT
 exit
";
    let read = switch(os10);
    assert!(read.left.is_empty(), "{:?}", read.left);
    assert_eq!(found(os10), [""; 0]);
    let lines = os10
        .lines()
        .filter(|line| !matches!(line.trim(), "exit" | "end"));
    let without: Vec<&str> = lines.collect();
    assert_eq!(read.groups, switch(&without.join("\n")).groups);
}

#[test]
fn nxos_is_known_by_a_policy_whose_classes_have_no_type() {
    let text = "class-map type network-qos DATA
  match qos-group 3
policy-map type network-qos NQ
  class DATA
    pause no-drop
system qos
  service-policy type network-qos NQ
interface Ethernet1/1
  priority-flow-control mode on
";
    let read = switch(text);
    assert_eq!(read.dialect, vendors::Dialect::NxOs);
    assert_eq!(read.left[0].line, 4, "{:?}", read.left);
    assert!(unknown(&read).contains(&Area::Pfc), "{:?}", read.left);
}
