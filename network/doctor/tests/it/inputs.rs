//! Inputs as other people have them: forms of configurations and outputs that are not rockery's own. Each has
//! its right value, and no line of any of them is passed over.

use doctor::{Finding, Marks, SwitchFacts, check, judged_switch, read_switch};
use vendors::{Area, Dialect, Intent, Outcome};

pub(crate) fn rules(found: &[Finding]) -> Vec<&'static str> {
    found.iter().map(|finding| finding.rule).collect()
}

pub(crate) fn asked(dscp: u8) -> Marks {
    Marks {
        dscp: Some(dscp),
        cnp: None,
    }
}

pub(crate) fn switch(text: &str) -> SwitchFacts {
    read_switch("leaf", text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// The only group of ports of a configuration of which every line is understood.
pub(crate) fn only(text: &str) -> Intent {
    let switch = switch(text);
    assert!(switch.left.is_empty(), "{:?}\n{text}", switch.left);
    assert_eq!(switch.groups.len(), 1, "{:?}\n{text}", switch.groups);
    switch.groups.into_iter().next().expect("one group")
}

pub(crate) fn ports(intent: &Intent) -> Vec<&str> {
    intent.ports.iter().map(|port| port.name.as_str()).collect()
}

pub(crate) const EOS: &str = "qos map dscp 26 to traffic-class 3
qos profile ROCE
   priority-flow-control on
   priority-flow-control priority 3 no-drop
   tx-queue 3
      no priority
      bandwidth percent 50
      random-detect ecn minimum-threshold 150 kbytes maximum-threshold 1500 kbytes weight 0
interface Ethernet1
   mtu 9214
   qos trust dscp
   service-profile ROCE
";

/// The configuration with one part replaced, which it must have.
pub(crate) fn with(text: &str, from: &str, to: &str) -> String {
    let changed = text.replacen(from, to, 1);
    assert_ne!(text, changed, "{from}");
    changed
}

#[test]
fn eos_trusts_headers_by_profile_by_routed_port_and_by_policy() {
    assert!(check(&[], &[switch(EOS)], asked(26)).is_empty());
    let in_profile = with(EOS, "   qos trust dscp\n", "");
    let in_profile = with(
        &in_profile,
        "qos profile ROCE\n",
        "qos profile ROCE\n   qos trust dscp\n",
    );
    let routed = with(EOS, "   qos trust dscp\n", "   no switchport\n");
    for text in [&in_profile, &routed] {
        assert!(only(text).trust.dscp(), "{text}");
        assert!(check(&[], &[switch(text)], asked(26)).is_empty(), "{text}");
    }
    let switched = with(EOS, "   qos trust dscp\n", "");
    let found = check(&[], &[switch(&switched)], asked(26));
    // Tagged packets of priority 3 are lossless, and whether data is tagged is not known.
    assert!(found.is_empty(), "{found:#?}");
    assert!(
        judged_switch(&switch(&switched), &[], asked(26))[0]
            .text
            .contains("tagged is unknown")
    );
    let policy = format!(
        "class-map type qos match-any DATA\n   match dscp 24\npolicy-map type quality-of-service IN\n   \
         class DATA\n      set traffic-class 3\n   class class-default\n      set traffic-class 0\n{}",
        with(
            EOS,
            "service-profile",
            "service-policy type qos input IN\n   service-profile"
        )
    );
    let intent = only(&policy);
    assert_eq!((intent.dscp[24], intent.dscp[26]), (3, 0));
    assert!(check(&[], &[switch(&policy)], asked(24)).is_empty());
    // Nothing says that data has DSCP 26.
    assert!(check(&[], &[switch(&policy)], Marks::default()).is_empty());
    let judged = judged_switch(&switch(&policy), &[], Marks::default());
    assert!(
        judged[0]
            .text
            .contains("DSCP 24 → class 3, lossless, ECN on"),
        "{judged:?}"
    );
    assert_eq!(
        rules(&check(&[], &[switch(&policy)], asked(26))),
        ["switch-dscp-map"]
    );
}

/// A switch of many ports that all differ took minutes, since the cost of each port was simulated.
#[test]
fn costs_of_a_bounded_number_of_settings_are_simulated_in_each_judgement() {
    use doctor::Consequence::{NotSimulated, Simulated};
    let port = |number: u32| {
        format!(
            "interface Ethernet{number}
   qos trust dscp
   tx-queue 3
      random-detect ecn minimum-threshold {} kbytes maximum-threshold 1500 kbytes
",
            100 + number
        )
    };
    let leaf = "qos map dscp 26 to traffic-class 3\n".to_owned();
    let many = (1..=48).fold(leaf.clone(), |text, number| text + &port(number));
    let found = check(&[], &[switch(&many)], asked(26));
    let simulated = |found: &[Finding]| {
        let is_simulated = |one: &&Finding| matches!(one.consequence, Simulated(_));
        found.iter().filter(is_simulated).count()
    };
    let left = |one: &&Finding| matches!(one.consequence, NotSimulated(why) if why.starts_with("32 other"));
    assert_eq!(simulated(&found), 32, "{found:#?}");
    assert_eq!(found.iter().filter(left).count(), 16, "{found:#?}");
    // Another judgement has costs again.
    let found = check(&[], &[switch(&(leaf + &port(60)))], asked(26));
    assert_eq!(simulated(&found), 1, "{found:#?}");
}

#[test]
fn eos_pfc_at_the_interface_and_off_for_the_whole_switch() {
    let off = format!("priority-flow-control all off\n{EOS}");
    assert_eq!(
        rules(&check(&[], &[switch(&off)], asked(26))),
        ["switch-pfc-off"]
    );
    let interface = "interface Ethernet9/1
   description to a host
   mtu 9214
   dcbx mode ieee
   switchport mode trunk
   priority-flow-control on
   priority-flow-control priority 3 no-drop
   spanning-tree portfast edge
";
    let intent = only(interface);
    assert_eq!(
        (intent.pfc_send, intent.trust.pcp(), intent.dcbx),
        (1 << 3, true, true)
    );
    let range = only(&with(
        EOS,
        "interface Ethernet1\n",
        "interface Ethernet1-3\n",
    ));
    assert_eq!(ports(&range), ["Ethernet1", "Ethernet2", "Ethernet3"]);
}

const NXOS: &str = "policy-map type network-qos NQ
  class type network-qos c-8q-nq3
    mtu 9216
    pause pfc-cos 3
class-map type qos match-any DATA
  match dscp 26
policy-map type qos IN
  class DATA
    set qos-group 3
policy-map type queuing OUT
  class type queuing c-out-8q-q3
    bandwidth remaining percent 50
    random-detect minimum-threshold 300 kbytes maximum-threshold 300 kbytes drop-probability 100 weight 0 ecn
  class type queuing c-out-8q-q-default
    bandwidth remaining percent 50
system qos
  service-policy type queuing output OUT
  service-policy type network-qos NQ
interface Ethernet1/1
  switchport mode trunk
  priority-flow-control mode on
  mtu 9216
  service-policy type qos input IN
";

#[test]
fn nxos_ranges_own_names_and_buffers() {
    assert!(check(&[], &[switch(NXOS)], asked(26)).is_empty());
    let tlv = with(NXOS, "mode on\n", "mode on send-tlv\n");
    assert_eq!(only(&tlv).pfc_send, 1 << 3);
    let range = only(&with(NXOS, "Ethernet1/1\n", "Ethernet1/1-3,Ethernet1/9\n"));
    assert_eq!(
        ports(&range),
        ["Ethernet1/1", "Ethernet1/2", "Ethernet1/3", "Ethernet1/9"]
    );
    let named = format!(
        "class-map type queuing OWN\n  match qos-group 3\nclass-map type network-qos OWN\n  match qos-group \
         3\n{}",
        NXOS.replace("c-out-8q-q3", "OWN")
            .replace("c-8q-nq3", "OWN")
            .replace("pause pfc-cos 3", "pause no-drop")
    );
    let intent = only(&named);
    assert_eq!(
        (intent.pfc_send, intent.queues[3].ecn.is_some()),
        (1 << 3, true)
    );
    let buffers = format!(
        "policy-map type queuing INQ\n  class type queuing c-in-q3\n    pause buffer-size 27456 \
         pause-threshold \
         12480 resume-threshold 12000\n{}",
        with(
            NXOS,
            "queuing output OUT\n",
            "queuing output OUT\n  service-policy type queuing input INQ\n"
        )
    );
    let pause = only(&buffers).pause;
    assert_eq!(
        (pause.xoff, pause.xon, pause.headroom),
        (Some(12_480), Some(12_000), Some(14_976))
    );
}

#[test]
fn classes_by_priority_code_point_by_list_and_by_precedence() {
    let by_cos = with(NXOS, "match dscp 26", "match cos 3");
    let by_list = with(NXOS, "match dscp 26", "match access-group name ROCE");
    let by_dot1p = "trust dot1p-map TAGS
 qos-group 0 dot1p 0-2,4-7
 qos-group 3 dot1p 3
class-map type network-qos N3
 match qos-group 3
policy-map type network-qos PFC
 class N3
  pause
  pfc-cos 3
system qos
 trust-map dot1p TAGS
interface ethernet1/1/1
 mtu 9216
 flowcontrol receive off
 priority-flow-control mode on
 service-policy input type network-qos PFC
";
    for (text, judged) in [
        (by_cos.as_str(), "PCP 3 → class 3, lossless"),
        (by_list.as_str(), "classes of packets unknown"),
        (by_dot1p, "PCP 3 → class 3, lossless"),
    ] {
        let switch = switch(text);
        assert!(switch.left.is_empty(), "{:?}", switch.left);
        let all = check(&[], std::slice::from_ref(&switch), asked(26));
        let found: Vec<&str> = rules(&all)
            .into_iter()
            .filter(|rule| *rule != "switch-ecn-off")
            .collect();
        assert!(found.is_empty(), "{text}\n{found:#?}");
        let said = judged_switch(&switch, &[], asked(26));
        assert!(said[0].text.contains(judged), "{said:?}");
    }
    let by_precedence = only(&with(NXOS, "match dscp 26", "match precedence 3"));
    assert_eq!(
        [23, 24, 26, 31, 32].map(|dscp| by_precedence.dscp[dscp]),
        [0, 3, 3, 3, 0]
    );
    let by_name = only(&with(NXOS, "match dscp 26", "match dscp af31,cs3"));
    assert_eq!([24, 25, 26].map(|dscp| by_name.dscp[dscp]), [3, 0, 3]);
}

#[test]
fn without_the_dscp_of_data_only_certain_faults_are_findings() {
    let unmapped = with(
        NXOS,
        "  class DATA\n    set qos-group 3\n",
        "  class class-default\n",
    );
    let found = check(&[], &[switch(&unmapped)], Marks::default());
    assert_eq!(rules(&found), ["switch-trust"]);
    assert!(found[0].fix.contains("--dscp"), "{}", found[0].fix);
    let other = with(NXOS, "match dscp 26", "match dscp 40");
    assert!(check(&[], &[switch(&other)], Marks::default()).is_empty());
    assert_eq!(
        rules(&check(&[], &[switch(&other)], asked(26))),
        ["switch-dscp-map"]
    );
}

const SONIC: &str = r#"{
  "PORT": { "Ethernet0": { "speed": "100000", "mtu": "9100" } },
  "CABLE_LENGTH": { "AZURE": { "Ethernet0": "40m" } },
  "DSCP_TO_TC_MAP": { "M": { "26": "3" } },
  "TC_TO_PRIORITY_GROUP_MAP": { "M": { "3": "3" } },
  "PORT_QOS_MAP": { "Ethernet0": { "dscp_to_tc_map": "M", "tc_to_pg_map": "M", "pfc_enable": "3" } },
  "WRED_PROFILE": { "W": { "ecn": "ecn_all", "green_min_threshold": "1000", "green_max_threshold": "2000" } },
  "QUEUE": { "Ethernet0|3": { "wred_profile": "W" } },
  "TC_TO_DSCP_MAP": { "M": { "3": "26" } },
  "DEVICE_METADATA": { "localhost": { "hostname": "tor" } }
}"#;

#[test]
fn sonic_has_the_lossless_buffers_that_buffermgrd_makes() {
    assert!(check(&[], &[switch(SONIC)], asked(26)).is_empty());
    only(SONIC);
    let without_cable = with(SONIC, "\"40m\"", "\"0m\"");
    let left = switch(&without_cable).left;
    assert!(left[0].why.contains("no lossless buffer"), "{left:?}");
    assert_eq!(left[0].ports, ["Ethernet0"]);
}

#[test]
fn a_sonic_entry_that_is_odd_leaves_the_rest() {
    for (from, to, line, area) in [
        (
            "\"pfc_enable\": \"3\"",
            "\"pfc_enable\": \"nine\"",
            6,
            Area::Pfc,
        ),
        ("\"26\": \"3\"", "\"26\": \"x\"", 4, Area::Classes),
        ("\"mtu\": \"9100\"", "\"mtu\": \"big\"", 2, Area::Mtu),
        (
            "\"TC_TO_DSCP_MAP\"",
            "\"DSCP_TO_TC_MAPS\"",
            9,
            Area::Classes,
        ),
    ] {
        let switch = switch(&with(SONIC, from, to));
        assert_eq!(switch.left.len(), 1, "{:?}", switch.left);
        assert_eq!(switch.left[0].line, line, "{:?}", switch.left);
        assert!(
            switch.groups[0].unknown(area).is_some(),
            "{to}: {:?}",
            switch.groups[0].unknown
        );
        let found = check(&[], &[switch], asked(26));
        assert!(found.is_empty(), "{to}: {found:#?}");
    }
}

#[test]
fn sonic_buffers_alone_do_not_show_that_pfc_is_off() {
    let buffers = r#"{
  "CABLE_LENGTH": { "AZURE": { "Ethernet0": "5m" } },
  "BUFFER_POOL": { "ingress_lossless_pool": { "size": "12766208", "type": "ingress", "mode": "dynamic" } },
  "BUFFER_PROFILE": { "lossy": { "pool": "ingress_lossless_pool", "size": "0", "dynamic_th": "3" } },
  "BUFFER_PG": { "Ethernet0|0": { "profile": "lossy" } }
}"#;
    let read = switch(buffers);
    assert_eq!(read.left.len(), 1, "{:?}", read.left);
    assert!(
        read.left[0].why.contains("no PORT_QOS_MAP"),
        "{:?}",
        read.left
    );
    assert!(read.groups[0].unknown(Area::Pfc).is_some());
    let found = check(&[], &[read], asked(26));
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn sonic_tables_may_be_flat() {
    let flat = r#"{
  "PORT|Ethernet0": { "speed": "100000", "mtu": "9100" },
  "CABLE_LENGTH|AZURE": { "type": "hash", "value": { "Ethernet0": "40m" } },
  "DSCP_TO_TC_MAP|M": { "26": "3" },
  "TC_TO_PRIORITY_GROUP_MAP|M": { "3": "3" },
  "PORT_QOS_MAP|Ethernet0": { "dscp_to_tc_map": "M", "tc_to_pg_map": "M", "pfc_enable": "3" },
  "WRED_PROFILE|W": { "ecn": "ecn_all", "green_min_threshold": "1000", "green_max_threshold": "2000" },
  "QUEUE|Ethernet0|3": { "wred_profile": "W" }
}"#;
    assert_eq!(only(flat), only(SONIC));
    let odd = switch(&with(
        flat,
        "\"pfc_enable\": \"3\"",
        "\"pfc_enable\": \"x\"",
    ));
    assert_eq!(odd.left[0].line, 6, "{:?}", odd.left);
}

#[test]
fn storms_that_are_over_are_a_finding_for_each_queue() {
    let text = "$ show pfcwd stats
       QUEUE       STATUS    STORM DETECTED/RESTORED    TX OK/DROP    RX OK/DROP
------------  -----------  -------------------------  ------------  ------------
 Ethernet0:3  operational                      33/33           0/0      0/816492
 Ethernet4:3  operational                        0/0           0/0           0/0
$ show priority-group drop counters
Ingress PG dropped packets:
     Port    PG0    PG3    PG4
---------  -----  -----  -----
Ethernet0      5    800    801
$ show platform summary
";
    let switch = switch(text);
    assert!(switch.left.is_empty(), "{:?}", switch.left);
    // A row whose state is wider than its column is read as well.
    let narrow = with(
        text,
        "       QUEUE       STATUS    STORM",
        "       QUEUE    STATUS    STORM",
    );
    let narrow = with(
        &narrow,
        "------------  -----------  ",
        "------------  --------  ",
    );
    let found = check(&[], &[self::switch(&narrow)], Marks::default());
    assert_eq!(rules(&found), ["shown-storm", "shown-drops"], "{found:#?}");
    let found = check(&[], &[switch], Marks::default());
    assert_eq!(rules(&found), ["shown-storm", "shown-drops"], "{found:#?}");
    assert!(
        found[0].what.contains("33 times, and 816492 packets"),
        "{}",
        found[0].what
    );
    assert!(
        found[1].what.contains("priority group 3 has dropped 800"),
        "{}",
        found[1].what
    );
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
";

/// The ports with PFC after a command, and the lines that were not understood.
fn paused(command: &str) -> (Vec<String>, Vec<usize>) {
    let switch = switch(&format!("{ROUTEROS}{command}\n"));
    let paused = switch.groups.iter().filter(|group| group.pfc_send != 0);
    let names = paused.flat_map(|group| {
        ports(group)
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    });
    let left = switch.left.iter().map(|line| line.line).collect();
    (names.collect(), left)
}

/// Asserts that a command gives PFC to these ports, and that each line is understood.
fn assert_paused(command: &str, expected: &[&str]) {
    let (names, left) = paused(command);
    assert!(left.is_empty(), "{left:?}\n{command}");
    assert_eq!(names, expected, "{command}");
}

#[test]
fn routeros_commands_as_people_write_them() {
    let port = "/interface ethernet switch qos port";
    for (command, expected) in [
        (
            format!("{port} set [find where name~\"qsfp28-1-1\"] pfc=pfc-tc3"),
            &["qsfp28-1-1"][..],
        ),
        (
            format!(
                "{port} set [find where name=\"qsfp28-1-1\" or name=\"qsfp28-2-1\"] pfc=pfc-tc3"
            ),
            &["qsfp28-1-1", "qsfp28-2-1"],
        ),
        (
            format!("{port}/set qsfp28-3-1 pfc=pfc-tc3 ; set qsfp28-4-1 pfc=pfc-tc3"),
            &["qsfp28-3-1", "qsfp28-4-1"],
        ),
        (
            "/interface ethernet switch qos\nport set qsfp28-1-1 pfc=pfc-tc3".to_owned(),
            &["qsfp28-1-1"],
        ),
        (
            format!("{port} set sfp-sfpplus1 pfc=pfc-tc3"),
            &["sfp-sfpplus1"],
        ),
        (
            format!("{port} set qsfp56-dd-1-1 pfc=pfc-tc3"),
            &["qsfp56-dd-1-1"],
        ),
        (
            format!(
                "/interface ethernet set [find default-name=qsfp28-1-1] name=storage1\n{port} set storage1 \
                 pfc=pfc-tc3"
            ),
            &["storage1"],
        ),
    ] {
        assert_paused(&command, expected);
    }
}

#[test]
fn routeros_settings_are_removed_disabled_and_of_other_versions() {
    let port = "/interface ethernet switch qos port";
    for (command, expected) in [
        (
            format!("{port} set [find] pfc=pfc-tc3\nunset [find where name!=qsfp28-1-1] pfc"),
            &["qsfp28-1-1"][..],
        ),
        (
            format!("{port} set qsfp28-1-1 pfc=pfc-tc3 trust-l3=keep\nset qsfp28-1-1 !pfc"),
            &[],
        ),
        (
            format!(
                "{port} set qsfp28-1-1 pfc=pfc-tc3\n/interface ethernet switch qos priority-flow-control\n\
                 remove [find where name=\"pfc-tc3\"]\nadd name=pfc-tc3 rx=yes traffic-class=3 tx=yes"
            ),
            &["qsfp28-1-1"],
        ),
        (
            format!(
                "{port} set qsfp28-1-1 pfc=pfc-tc3 trust-l3=keep\n/interface ethernet switch qos \
                 priority-flow-control set pfc-tc3 disabled=yes"
            ),
            &[],
        ),
        (
            format!(
                "{port} set qsfp28-1-1 pfc=pfc-tc3 egress-rate-queue3=0\n/interface ethernet switch qos \
                 tx-manager \
                 queue\nset 3 shared-pool-index=1\nset [find where tx-manager=default and traffic-class>=6] \
                 schedule=strict-priority\n/interface ethernet switch qos settings\nset \
                  lossless-buffers=auto \
                 lossless-traffic-class=3"
            ),
            &["qsfp28-1-1"],
        ),
    ] {
        assert_paused(&command, expected);
    }
}

#[test]
fn routeros_lines_that_are_not_evaluated_are_named() {
    let port = "/interface ethernet switch qos port";
    for command in [
        format!("{port} set [find where colour=red] pfc=pfc-tc3"),
        format!("{port} set [find where name=$p] pfc=pfc-tc3"),
        format!("{port} remove [find]"),
        format!("{port} set qsfp28-1-1 pfc=pfc-tc4"),
        format!("{port} set qsfp28-1-1 colour=red"),
        format!(":foreach p in={{\"qsfp28-1-1\"}} do={{ {port} set $p pfc=pfc-tc3 }}"),
        "/interface ethernet switch qos portt set 0 pfc=x".to_owned(),
    ] {
        let (_, left) = paused(&command);
        assert_eq!(left, [11], "{command}");
    }
}

#[test]
fn routeros_maps_disabled_entries_and_versions() {
    let port = "/interface ethernet switch qos port set [find] pfc=pfc-tc3 trust-l3=keep";
    let class = |text: &str| only(&format!("{text}{port}\n")).dscp[26];
    assert_eq!(class(ROUTEROS), 3);
    assert_eq!(
        class(&with(
            ROUTEROS,
            "add dscp=26 profile",
            "add disabled=yes dscp=26 profile"
        )),
        1
    );
    assert_eq!(
        class(&with(
            ROUTEROS,
            "map ip\nadd",
            "map ip\nadd dscp=26 profile=default\nadd"
        )),
        1
    );
    let unmapped = with(ROUTEROS, "add dscp=26 profile=roce\n", "");
    assert_eq!(class(&unmapped), 1);
    let newer = |version: &str| format!("# 2026-07-24 10:11:12 by RouterOS {version}\n{unmapped}");
    assert_eq!((class(&newer("7.22.1")), class(&newer("7.23.1"))), (1, 3));
    assert_eq!(
        class(&with(&newer("7.23"), "name=roce", "automap=no name=roce")),
        1
    );
    let default = format!(
        "{unmapped}/interface ethernet switch qos profile set [find default=yes] traffic-class=3\n"
    );
    assert_eq!(class(&default), 3);
    let removed =
        format!("{ROUTEROS}/interface ethernet switch qos map ip remove [find where dscp=26]\n");
    assert_eq!(class(&removed), 1);
    let vlan = |more: &str| {
        let map = format!("/interface ethernet switch qos map vlan add {more}pcp=3 profile=roce\n");
        only(&format!(
            "{ROUTEROS}{map}/interface ethernet switch qos port set [find] trust-l2=keep\n"
        ))
        .pcp[3]
    };
    assert_eq!((vlan(""), vlan("dei-only=yes ")), (3, 1));
}

#[test]
fn routeros_pauses_of_the_link_and_thresholds_of_the_shared_pool() {
    let port = "/interface ethernet switch qos port set [find] pfc=pfc-tc3 trust-l3=keep \
     egress-rate-queue3=100G\n";
    let pause = "/interface ethernet set [find default-name=qsfp28-1-1] rx-flow-control=on \
     tx-flow-control=on\n";
    let found = check(
        &[],
        &[switch(&format!("{ROUTEROS}{port}{pause}"))],
        asked(26),
    );
    assert_eq!(rules(&found), ["switch-global-pause"], "{found:#?}");
    assert!(found[0].place.contains("qsfp28-1-1") && !found[0].place.contains("qsfp28-2-1"));
    let thresholds = with(
        ROUTEROS,
        "add name=pfc-tc3",
        "add pause-threshold=90% resume-threshold=70% name=pfc-tc3",
    );
    let own = only(&format!("{thresholds}{port}")).pause;
    // 2.5 MiB are shared.
    assert_eq!((own.xoff, own.xon), (Some(2_359_296), Some(1_835_008)));
}

#[test]
fn each_line_of_each_configuration_has_an_outcome_and_strange_lines_are_named() {
    let strange = [
        "frobnicate the widgets",
        "qos frobnicate 3",
        "   priority-flow-control frobnicate",
        "/interface ethernet switch qos frobnicate set 0 a=b",
        "nv set qos frobnicate x",
        "dcb frob dev eth0 x:y",
        "Set-NetFrobnicate -Name x",
    ];
    for dialect in Dialect::ALL {
        let written = dialect.write(&Intent::default(), dialect.versions().1).text;
        let read = dialect.read_groups("leaf", &written).expect("it is read");
        assert!(
            read.outcomes.left().is_empty(),
            "{}: {:?}",
            dialect.name(),
            read.outcomes.left()
        );
        if dialect == Dialect::Sonic {
            continue;
        }
        for line in strange {
            for at in 0..=written.lines().count() {
                let mut lines: Vec<&str> = written.lines().collect();
                lines.insert(at, line);
                let text = lines.join("\n");
                let Ok(read) = dialect.read_groups("leaf", &text) else {
                    continue;
                };
                let own = read.outcomes.each().find(|(number, _)| *number == at + 1);
                let is_named = matches!(own, Some((_, Outcome::NotUnderstood(_))));
                // In FreeBSD's sections, and in a continued line, a line is one of other words.
                let is_part = dialect == Dialect::FreeBsd || own.is_none();
                assert!(
                    is_named || is_part,
                    "{}, line {}: {own:?}\n{text}",
                    dialect.name(),
                    at + 1
                );
            }
        }
    }
}

#[test]
fn no_rule_judges_what_a_line_that_was_not_understood_may_set() {
    let odd = with(
        NXOS,
        "priority-flow-control mode on",
        "priority-flow-control mode maybe",
    );
    let switch = switch(&odd);
    assert_eq!(switch.left[0].ports, ["Ethernet1/1"]);
    assert!(switch.groups[0].unknown(Area::Pfc).is_some());
    assert!(switch.groups[0].unknown(Area::Ecn).is_none());
    assert!(check(&[], std::slice::from_ref(&switch), asked(26)).is_empty());
    let judged = judged_switch(&switch, &[], asked(26));
    assert!(
        judged[0].text.contains("PFC unknown (line 21"),
        "{judged:?}"
    );
    let missing = self::switch(&with(NXOS, "qos input IN", "qos input INN"));
    assert!(
        missing.left[0]
            .why
            .contains("there is no policy of type qos \"INN\"")
    );
    assert!(check(&[], &[missing], asked(26)).is_empty());
}

#[test]
fn a_part_of_a_configuration_without_ports_is_not_called_right() {
    for text in [
        "/interface ethernet switch qos port\nset [find] trust-l3=ignore\n",
        "/interface ethernet switch qos tx-manager\nset default ecn=no\n",
        "qos map dscp 26 to traffic-class 3\nhostname leaf\n",
    ] {
        let read = switch(text);
        assert!(read.groups.is_empty(), "{text}");
        let said: Vec<&str> = read.left.iter().map(|line| line.why.as_str()).collect();
        assert!(!said.is_empty(), "{text}");
        assert!(
            read.left.iter().any(|line| !line.areas.is_empty()),
            "{said:?}\n{text}"
        );
    }
}
