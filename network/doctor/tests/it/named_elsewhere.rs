//! Names that a configuration uses: of profiles and maps that no line defines, of maps and policies that are
//! attached at one place of two, and of those that the system has itself.

use doctor::{check, judged_switch};
use vendors::{Area, Dialect, Remedy};

use super::inputs::{EOS, asked, only, rules, switch, with};

#[test]
fn an_eos_profile_that_no_line_defines_leaves_pfc_marks_and_queues_unknown() {
    let text = with(EOS, "service-profile ROCE", "service-profile MISSING");
    let read = switch(&text);
    assert_eq!(read.left.len(), 1, "{:?}", read.left);
    let own = &read.left[0];
    assert_eq!((own.line, own.ports.len()), (12, 1));
    assert!(
        own.why.contains("there is no qos profile of this name"),
        "{own}"
    );
    for area in [Area::Classes, Area::Pfc, Area::Ecn, Area::Queues] {
        assert!(read.groups[0].unknown(area).is_some(), "{area:?}");
    }
    let judged = judged_switch(&read, &[], asked(26));
    assert!(judged[0].text.contains("PFC unknown"), "{judged:?}");
    assert!(check(&[], &[read], asked(26)).is_empty());
}

#[test]
fn an_eos_map_with_a_name_counts_where_it_is_attached() {
    let named = "qos map dscp to traffic-class name STORAGE
   dscp cs3 af31 traffic-class 3
   dscp 48 to traffic-class 6
";
    let text = with(EOS, "qos map dscp 26 to traffic-class 3\n", named);
    // The map of the switch has DSCP 26 in class 3 by itself.
    let text = with(
        &text,
        "qos profile",
        "qos map dscp 24-31 to traffic-class 1\nqos profile",
    );
    assert_eq!(
        rules(&check(&[], &[switch(&text)], asked(26))),
        ["switch-dscp-map"]
    );
    let attach = "   qos map dscp to traffic-class STORAGE\n   service-profile ROCE\n";
    let at_port = with(&text, "   service-profile ROCE\n", attach);
    let read = only(&at_port);
    assert_eq!([24, 26, 48].map(|dscp| read.class_of_dscp(dscp)), [3, 3, 6]);
    assert!(check(&[], &[switch(&at_port)], asked(26)).is_empty());
    let in_profile = with(
        &text,
        "qos profile ROCE\n",
        "qos profile ROCE\n   qos map dscp to traffic-class STORAGE\n",
    );
    assert_eq!(only(&in_profile).class_of_dscp(24), 3);
    let other = switch(&with(
        &at_port,
        "class STORAGE\n   service",
        "class STORED\n   service",
    ));
    let unknown = other.groups[0].unknown(Area::Classes);
    assert_eq!(
        unknown,
        Some("there is no DSCP map to traffic-class \"STORED\"")
    );
    assert_eq!(other.left.len(), 1, "{:?}", other.left);
    let odd = switch(&with(&at_port, "dscp cs3 af31", "dscp cs9"));
    assert!(odd.left[0].why.contains("cs9"), "{:?}", odd.left);
    assert!(odd.groups[0].unknown(Area::Classes).is_some());
}

#[test]
fn an_eos_policy_may_be_in_the_profile() {
    let policy = "class-map type qos match-any DATA
   match dscp 24
policy-map type quality-of-service MARK
   class DATA
      set traffic-class 3
qos profile ROCE
   service-policy type qos input MARK
";
    let text = with(EOS, "qos profile ROCE\n", policy);
    let text = with(
        &text,
        "dscp 26 to traffic-class 3",
        "dscp 24-31 to traffic-class 1",
    );
    let read = only(&text);
    assert_eq!([24, 26].map(|dscp| read.class_of_dscp(dscp)), [3, 1]);
}

#[test]
fn dscps_have_names() {
    let eos = with(EOS, "dscp 26 to", "dscp af31 ef cs6 to");
    let read = only(&eos);
    assert_eq!(
        [26, 46, 48, 47].map(|dscp| read.class_of_dscp(dscp)),
        [3, 3, 3, 5]
    );
    let os10 = "trust dscp-map STORAGE
 qos-group 3 dscp af31,cs4
interface ethernet1/1/1
 trust-map dscp STORAGE
";
    let read = only(os10);
    assert_eq!([26, 32, 33].map(|dscp| read.class_of_dscp(dscp)), [3, 3, 0]);
}

const NXOS: &str = "class-map type qos match-any ROCE
  match dscp 26
policy-map type qos IN
  class ROCE
    set qos-group 3
policy-map type network-qos NQ
  class type network-qos c-8q-nq3
    mtu 9216
    pause pfc-cos 3
policy-map type queuing OUT
  class type queuing c-out-8q-q3
    bandwidth remaining percent 50
    random-detect minimum-threshold 150 kbytes maximum-threshold 1500 kbytes drop-probability 100 weight 0 ecn
  class type queuing c-out-8q-q-default
    bandwidth remaining percent 50
system qos
  service-policy type network-qos NQ
  service-policy type queuing output OUT
interface Ethernet1/1
  mtu 9216
  priority-flow-control mode on
  service-policy type qos input IN
";

#[test]
fn nxos_has_policies_of_its_own() {
    assert!(check(&[], &[switch(NXOS)], asked(26)).is_empty());
    for name in ["default-nq-policy", "default-8q-nq-policy"] {
        let text = with(
            NXOS,
            "network-qos NQ\n  service",
            &format!("network-qos {name}\n  service"),
        );
        let read = only(&text);
        assert_eq!((read.pfc_send, read.mtu), (0, 9216));
        let found = check(&[], &[switch(&text)], asked(26));
        assert_eq!(rules(&found), ["switch-pfc-off"], "{found:#?}");
        // A policy of the device is not changed, another one takes its place.
        let fix = &found[0].fix;
        assert!(
            fix.contains("service-policy type network-qos ROCE"),
            "{fix}"
        );
        assert!(!fix.contains(name), "{fix}");
    }
    let out = with(
        NXOS,
        "queuing output OUT",
        "queuing output default-8q-out-policy",
    );
    let read = only(&out);
    let strict = |class: usize| read.queues[class].schedule == vendors::intent::Schedule::Strict;
    assert_eq!(
        (0..8).filter(|class| strict(*class)).collect::<Vec<_>>(),
        [7]
    );
    let found = check(&[], &[switch(&out)], asked(26));
    assert_eq!(rules(&found), ["switch-ecn-off"], "{found:#?}");
    assert!(
        !found[0].fix.contains("default-8q-out-policy"),
        "{}",
        found[0].fix
    );
    let input = with(NXOS, "qos input IN", "qos input default-in-policy");
    let found = check(&[], &[switch(&input)], asked(26));
    assert_eq!(rules(&found), ["switch-trust"], "{found:#?}");
    assert!(
        !found[0].fix.contains("default-in-policy"),
        "{}",
        found[0].fix
    );
}

#[test]
fn nxos_names_a_policy_of_its_own_whose_lines_are_not_known() {
    let fcoe = "network-qos fcoe-default-nq-policy\n  service";
    let read = switch(&with(NXOS, "network-qos NQ\n  service", fcoe));
    let why = "`show policy-map type network-qos fcoe-default-nq-policy` prints it";
    assert!(read.left[0].why.contains(why), "{:?}", read.left);
    assert!(read.groups[0].unknown(Area::Pfc).is_some());
    // Buffers of arriving packets are not judged, and are not passed over.
    let buffers = "system qos\n  service-policy type queuing input BUFFERS\n";
    let read = switch(&with(NXOS, "system qos\n", buffers));
    assert!(read.left.is_empty(), "{:?}", read.left);
    let why = "buffers of arriving packets: there is no policy of type queuing \"BUFFERS\"";
    let said: Vec<&str> = read.not_judged.iter().map(|own| own.why.as_str()).collect();
    assert_eq!(said, [why]);
    let odd = with(
        NXOS,
        "class type queuing c-out-8q-q3",
        "class type queuing c-out-8q-q9",
    );
    let read = switch(&odd);
    assert!(
        read.groups[0].unknown(Area::Queues).is_some(),
        "{:?}",
        read.left
    );
    assert!(
        read.groups[0].unknown(Area::Ecn).is_some(),
        "{:?}",
        read.left
    );
}

#[test]
fn os10_has_a_trust_map_of_priority_code_points_and_one_of_dscps_that_is_not_published() {
    let text = "class-map type network-qos NQ
 match qos-group 3
policy-map type network-qos PFC
 class NQ
  pause
  pfc-cos 3
interface ethernet1/1/1
 mtu 9216
 trust-map dot1p default
 priority-flow-control mode on
 service-policy input type network-qos PFC
";
    let read = only(text);
    assert_eq!(read.pcp, [1, 0, 2, 3, 4, 5, 6, 7]);
    let dscp = switch(&with(text, "dot1p default", "dscp default"));
    let why = dscp.groups[0]
        .unknown(Area::Classes)
        .expect("it is unknown");
    assert!(why.contains("`show qos maps` prints it"), "{why}");
    assert_eq!(dscp.left.len(), 1, "{:?}", dscp.left);
}

const NVUE: &str = "nv set qos mapping default-global trust l3
nv set qos mapping default-global dscp 26 switch-priority 3
nv set qos egress-queue-mapping default-global switch-priority 3 traffic-class 5
nv set qos egress-queue-mapping default-global switch-priority 5 traffic-class 3
nv set qos egress-scheduler default-global traffic-class 5 mode strict
nv set qos congestion-control default-global traffic-class 5 ecn enable
nv set qos pfc default-global switch-priority 3
nv set interface swp1 link mtu 9216
";

#[test]
fn a_switch_priority_of_nvue_has_the_queue_of_its_traffic_class() {
    let read = only(NVUE);
    assert_eq!((read.pfc_send, read.class_of_dscp(26)), (1 << 3, 3));
    let strict = vendors::intent::Schedule::Strict;
    assert_eq!(read.queues[3].schedule, strict);
    assert!(read.queues[3].ecn.is_some() && read.queues[5].ecn.is_none());
    assert!(check(&[], &[switch(NVUE)], asked(26)).is_empty());
    // The command marks where the packets of the priority are.
    let off = with(NVUE, "class 5 ecn enable", "class 3 ecn enable");
    let found = check(&[], &[switch(&off)], asked(26));
    assert_eq!(rules(&found), ["switch-ecn-off"], "{found:#?}");
    assert!(
        found[0].fix.contains("traffic-class 5 ecn enable"),
        "{}",
        found[0].fix
    );
    // A queue of several priorities is shared, and what each of them has is not known.
    let shared = with(
        NVUE,
        "switch-priority 5 traffic-class 3",
        "switch-priority 2 traffic-class 5",
    );
    let read = only(&shared);
    assert_eq!(
        read.unknown(Area::Queues),
        Some("several switch priorities share traffic class 5")
    );
    assert!(read.queues[2].ecn.is_some() && read.unknown(Area::Classes).is_none());
    let said = &switch(&shared).not_judged;
    let why = "switch priority 3 has pauses, and other priorities are in its traffic class 5: a pause stops \
               them too";
    assert_eq!(said.len(), 1, "{said:?}");
    assert_eq!((said[0].line, said[0].why.as_str()), (4, why));
    assert!(switch(NVUE).not_judged.is_empty());
    let odd = switch(&with(
        NVUE,
        "switch-priority 5 traffic-class 3",
        "switch-priority 5 class 3",
    ));
    assert_eq!(odd.left[0].line, 4, "{:?}", odd.left);
}

#[test]
fn a_priority_of_nvues_roce_is_replaced_by_that_of_a_profile() {
    // "Change RoCE Configuration" of the Cumulus Linux guide, to priority 2.
    let text = "nv set qos roce
nv set qos pfc default-global switch-priority 2
nv set qos egress-queue-mapping default-global switch-priority 2 traffic-class 3
nv set qos egress-queue-mapping default-global switch-priority 3 traffic-class 0
nv set qos mapping default-global trust both
nv set qos mapping default-global dscp 26 switch-priority 2
nv set interface swp1 link mtu 9216
";
    let read = only(text);
    assert_eq!((read.pfc_send, read.class_of_dscp(26)), (1 << 2, 2));
    assert!(read.queues[2].ecn.is_some());
    assert!(check(&[], &[switch(text)], asked(26)).is_empty());
    let named = with(
        text,
        "pfc default-global switch-priority 2",
        "pfc STORAGE switch-priority 4,5",
    );
    let named = format!("{named}nv set interface swp1 qos pfc profile STORAGE\n");
    assert_eq!(only(&named).pfc_send, 1 << 4 | 1 << 5);
}

#[test]
fn outputs_of_nvue_count_by_traffic_class() {
    let shown = |classes: &str| {
        format!(
            "==> nv show qos roce <==\n                    operational  applied\n------------------  \
             -----------  -------\ncongestion-control\n  enabled-tc  {classes}\n\
             ==> nv config show -o commands <==\n{NVUE}"
        )
    };
    let marks = |classes: &str| {
        switch(&shown(classes))
            .shown
            .all
            .marks
            .map(|marks| marks.value)
    };
    assert_eq!(marks("0,5"), Some(1 << 0 | 1 << 3));
    assert_eq!(marks("3"), Some(1 << 5));
}

#[test]
fn a_fix_of_routeros_names_the_ports_and_what_is_known_of_their_rate() {
    let port = |name: &str, mbps| vendors::intent::Port {
        name: name.to_owned(),
        mbps,
        metres: None,
    };
    let ports = [port("qsfp28-1-1", Some(25_000)), port("storage 1", None)];
    let remedy = Remedy::ObeyPauses {
        classes: 1 << 3 | 1 << 4,
        ports: &ports,
    };
    let fix = Dialect::RouterOs.remedy(&remedy);
    assert_eq!(
        fix,
        "/interface ethernet switch qos port set \"storage 1\" egress-rate-queue3=RATE \
         egress-rate-queue4=RATE\n\
         /interface ethernet switch qos port set qsfp28-1-1 egress-rate-queue3=25.0Gbps \
         egress-rate-queue4=25.0Gbps   # RATE: the speed of the port; on every lane of a port, and \
         rx=yes in its PFC profile"
    );
    let script = "/interface ethernet switch qos profile
add dscp=26 name=roce traffic-class=3
/interface ethernet switch qos map ip
add dscp=26 profile=roce
/interface ethernet switch qos priority-flow-control
add name=pfc-tc3 rx=yes traffic-class=3 tx=yes
/interface ethernet switch
set switch1 qos-hw-offloading=yes
/interface ethernet switch qos port
set qsfp28-1-1,qsfp28-2-1 pfc=pfc-tc3 trust-l3=keep
";
    let found = check(&[], &[switch(script)], asked(26));
    let own = found.iter().find(|own| own.rule == "switch-pfc-receive");
    let fix = &own.expect("no rate, no pauses").fix;
    assert!(
        fix.contains("port set qsfp28-1-1,qsfp28-2-1 egress-rate-queue3=RATE"),
        "{fix}"
    );
}
