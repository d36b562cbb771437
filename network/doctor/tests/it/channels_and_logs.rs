//! Settings that stand in another place than at the port that they are for: at a channel, in the profile of
//! all ports, at the switch; and outputs that people have in the logs of their shells.

use super::inputs::{asked, only, ports, rules, switch, with};
use doctor::{Finding, Marks, check, judged_host};
use vendors::facts::HostFacts;
use vendors::read_host;

const CHANNEL: &str = "qos map dscp 26 to traffic-class 3
interface Port-Channel10
   switchport mode trunk
   mtu 9214
   qos trust dscp
interface Ethernet1
   channel-group 10 mode active
   priority-flow-control on
   priority-flow-control priority 3 no-drop
   tx-queue 3
      random-detect ecn minimum-threshold 150 kbytes maximum-threshold 1500 kbytes weight 0
interface Ethernet2
   channel-group 10 mode active
   mtu 1500
   priority-flow-control on
   priority-flow-control priority 3 no-drop
   tx-queue 3
      random-detect ecn minimum-threshold 150 kbytes maximum-threshold 1500 kbytes weight 0
";

#[test]
fn members_have_what_is_set_for_their_channel() {
    let read = switch(CHANNEL);
    assert!(read.left.is_empty(), "{:?}", read.left);
    let groups: Vec<_> = read
        .groups
        .iter()
        .map(|own| (ports(own), own.mtu, own.trust.dscp()))
        .collect();
    assert_eq!(
        groups,
        [
            (vec!["Ethernet1"], 9214, true),
            (vec!["Ethernet2"], 1500, true)
        ]
    );
    let found = check(&[], &[read], asked(26));
    assert_eq!(rules(&found), ["switch-mtu"], "{found:#?}");
    // A channel without members here is a port.
    let alone = CHANNEL.replace("channel-group 10", "channel-group 11");
    let names: Vec<String> = switch(&alone)
        .groups
        .iter()
        .flat_map(|own| {
            ports(own)
                .into_iter()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .collect();
    assert!(names.contains(&"Port-Channel10".to_owned()), "{names:?}");
    // What is not understood at the channel concerns its members.
    let odd = switch(&with(CHANNEL, "qos trust dscp", "qos trust maybe"));
    assert_eq!(odd.left.len(), 1, "{:?}", odd.left);
    assert_eq!(odd.left[0].line, 5);
}

#[test]
fn members_of_nxos_and_os10_have_the_policies_of_their_channel() {
    let nxos = "class-map type qos match-any R
  match dscp 26
policy-map type qos IN
  class R
    set qos-group 3
policy-map type network-qos NQ
  class type network-qos c-8q-nq3
    mtu 9216
    pause pfc-cos 3
system qos
  service-policy type network-qos NQ
interface port-channel7
  service-policy type qos input IN
  mtu 9216
interface Ethernet1/1-2
  priority-flow-control mode on
  channel-group 7 mode active
";
    let intent = only(nxos);
    assert_eq!(ports(&intent), ["Ethernet1/1", "Ethernet1/2"]);
    assert_eq!(
        (intent.dscp[26], intent.mtu, intent.pfc_send),
        (3, 9216, 1 << 3)
    );
    let os10 = "trust dscp-map T
 qos-group 3 dscp 26
class-map type network-qos N
 match qos-group 3
policy-map type network-qos P
 class N
  pause
  pfc-cos 3
system qos
 trust-map dscp T
 pfc-max-buffer-size 17408
 pfc-shared-buffer-size 10240
 service-policy input type network-qos P
interface port-channel20
 mtu 9216
interface ethernet1/1/1
 channel-group 20 mode active
 flowcontrol receive off
 priority-flow-control mode on
";
    let intent = only(os10);
    assert_eq!(ports(&intent), ["ethernet1/1/1"]);
    assert_eq!(
        (intent.dscp[26], intent.mtu, intent.pfc_send),
        (3, 9216, 1 << 3)
    );
    let default = switch(&with(os10, "trust-map dscp T", "trust-map dscp default"));
    assert!(
        default.left[0].why.contains("show qos maps"),
        "{:?}",
        default.left
    );
    assert!(
        check(&[], &[default], asked(26))
            .iter()
            .all(|own| own.rule == "switch-ecn-off")
    );
}

const PROFILES: &str = "nv set qos congestion-control default-global traffic-class 3 ecn enable
nv set qos pfc default-global switch-priority 3
nv set qos mapping default-global trust l3
nv set qos mapping default-global dscp 26 switch-priority 3
nv set interface eth0 ip address dhcp
nv set interface swp1-3 link state up
nv set interface swp4 link state down
";

#[test]
fn the_profile_of_all_ports_is_that_of_each_port_that_is_named() {
    let read = switch(PROFILES);
    assert!(read.left.is_empty(), "{:?}", read.left);
    assert_eq!(read.groups.len(), 1);
    assert_eq!(ports(&read.groups[0]), ["swp1", "swp2", "swp3"]);
    assert!(
        read.not_judged[0].why.contains("swp4"),
        "{:?}",
        read.not_judged
    );
    assert!(check(&[], &[read], asked(26)).is_empty());
    // Without it a port that has nothing of QoS is none to judge.
    let others = "nv set qos pfc P switch-priority 3\nnv set interface swp1 qos pfc profile P\nnv set \
         interface \
                  swp2 link state up\n";
    assert_eq!(ports(&only(others)), ["swp1"]);
}

/// The fixes of a configuration of NVUE.
fn fixes(text: &str) -> Vec<String> {
    let found = check(&[], &[switch(text)], asked(26));
    found.into_iter().map(|own: Finding| own.fix).collect()
}

#[test]
fn fixes_of_nvue_are_in_the_profiles_of_the_port() {
    let own = PROFILES.replace("default-global", "SITE")
        + "nv set interface swp1 qos pfc profile SITE\nnv set interface swp1 qos mapping profile \
           SITE\nnv set \
           interface swp1 qos congestion-control profile SITE\n";
    assert_eq!(fixes(&own), [""; 0]);
    let unmapped = with(
        &own,
        "dscp 26 switch-priority 3",
        "dscp 26 switch-priority 1",
    );
    assert_eq!(
        fixes(&unmapped),
        ["nv set qos mapping SITE dscp 26 switch-priority 3"]
    );
    let unmarked = with(&own, "ecn enable", "ecn disable");
    assert_eq!(
        fixes(&unmarked),
        ["nv set qos congestion-control SITE traffic-class 3 ecn enable"]
    );
    let deaf = own.clone() + "nv set qos pfc SITE rx disable\n";
    assert_eq!(fixes(&deaf), ["nv set qos pfc SITE rx enable"]);
    let deaf = format!("{PROFILES}nv set qos pfc default-global rx disable\n");
    assert_eq!(fixes(&deaf), ["nv set qos pfc default-global rx enable"]);
}

#[test]
fn queues_of_a_chassis_have_the_card_in_their_key() {
    let voq = |card: &str| {
        format!(
            r#"{{
  "DEVICE_METADATA": {{ "localhost": {{ "hostname": "card1", "switch_type": "voq" }} }},
  "PORT": {{ "Ethernet0": {{ "speed": "100000", "mtu": "9100" }} }},
  "CABLE_LENGTH": {{ "AZURE": {{ "Ethernet0": "40m" }} }},
  "DSCP_TO_TC_MAP": {{ "M": {{ "26": "3" }} }},
  "TC_TO_PRIORITY_GROUP_MAP": {{ "M": {{ "3": "3" }} }},
  "PORT_QOS_MAP": {{ "Ethernet0": {{ "dscp_to_tc_map": "M", "tc_to_pg_map": "M", "pfc_enable": "3" }} }},
  "WRED_PROFILE": {{
    "W": {{ "ecn": "ecn_all", "green_min_threshold": "1000", "green_max_threshold": "2000" }}
  }},
  "QUEUE": {{ "{card}|Asic0|Ethernet0|3": {{ "wred_profile": "W" }} }}
}}"#
        )
    };
    let own = switch(&voq("card1"));
    assert!(own.left.is_empty(), "{:?}", own.left);
    assert!(check(&[], &[own], asked(26)).is_empty());
    // The port of the same name of another card has its own queues.
    let other = switch(&voq("card2"));
    assert!(other.left.is_empty(), "{:?}", other.left);
    assert_eq!(rules(&check(&[], &[other], asked(26))), ["switch-ecn-off"]);
}

#[test]
fn the_mtu_of_a_port_of_routeros_is_at_least_its_l3_mtu() {
    let script = |of_port: &str| {
        format!(
            "/interface ethernet set [ find default-name=sfp28-1 ] {of_port}\n/interface ethernet switch qos \
             profile add dscp=26 name=roce traffic-class=3\n/interface ethernet switch qos port set sfp28-1 \
             trust-l3=keep\n"
        )
    };
    assert_eq!(only(&script("mtu=9000")).mtu, 9000);
    assert_eq!(only(&script("mtu=9000 l2mtu=9500")).mtu, 9500);
    assert_eq!(only(&script("mtu=1500 l2mtu=1592")).mtu, 1592);
}

const LOG: &str = "root@node1:~# rdma link show
link bnxt_re0/1 state ACTIVE physical_state LINK_UP netdev ens3f0np0
link rxe0/1 state ACTIVE physical_state LINK_UP netdev eth7
root@node1:~# ip -d link show dev ens3f0np0
4: ens3f0np0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 9000 qdisc mq state UP mode DEFAULT qlen 1000
    link/ether 00:11:22:33:44:55 brd ff:ff:ff:ff:ff:ff promiscuity 0 minmtu 60 maxmtu 9500
root@node1:~# dcb pfc show dev ens3f0np0
pfc-cap 8 macsec-bypass off delay 0
prio-pfc 0:off 1:off 2:off 3:on 4:off 5:off 6:off 7:off
root@node1:~# cat /sys/kernel/config/rdma_cm/bnxt_re0/ports/1/default_roce_tos
106
root@node1:~# ethtool -S ens3f0np0 | grep -E 'pfc|discard'
     rx_pfc_frames: 10
     rx_total_discard_pkts: 7
root@node1:~# ethtool -a ens3f0np0
Pause parameters for ens3f0np0:
Autonegotiate:\toff
RX:\t\ton
TX:\t\ton
";

fn host(text: &str) -> HostFacts {
    let host = read_host("log.txt", text).expect("it is read");
    assert!(host.left.is_empty(), "{:?}", host.left);
    host
}

#[test]
fn logs_of_a_shell_have_files_and_lists_of_devices() {
    let own = host(LOG);
    assert_eq!(own.adapters.len(), 1);
    let adapter = &own.adapters[0];
    assert_eq!(adapter.device, "bnxt_re0");
    let netdev = adapter.netdev.as_ref().map(|own| own.value.as_str());
    assert_eq!(netdev, Some("ens3f0np0"));
    assert_eq!(adapter.mtu.as_ref().map(|own| own.value), Some(9000));
    assert_eq!(adapter.tos.as_ref().map(|own| own.value), Some(106));
    assert_eq!(adapter.pfc.as_ref().map(|own| own.value), Some(1 << 3));
    assert_eq!(own.software_devices.len(), 1);
    let found = check(&[own], &[], Marks::default());
    let pause = found
        .iter()
        .find(|own| own.rule == "global-pause")
        .expect("pauses are on");
    let shown = pause.evidence[0].to_string();
    assert!(shown.ends_with(": TX:  on"), "{shown}");
    // The list may come last, and another tool has it too.
    let lines: Vec<&str> = LOG.lines().collect();
    let list = "root@node1:~# ibdev2netdev\nbnxt_re0 port 1 ==> ens3f0np0 (Up)\n";
    let last = format!("{}\n{list}", lines[3..].join("\n"));
    let tos = with(
        &last,
        "cat /sys/kernel/config/rdma_cm/bnxt_re0/ports/1/default_roce_tos",
        "cma_roce_tos -d bnxt_re0",
    );
    for text in [&last, &tos] {
        let own = host(text);
        assert_eq!(
            own.adapters[0].mtu.as_ref().map(|own| own.value),
            Some(9000),
            "{text}"
        );
        assert_eq!(
            own.adapters[0].tos.as_ref().map(|own| own.value),
            Some(106),
            "{text}"
        );
        assert!(
            judged_host(&own, Marks::default())[0]
                .text
                .contains("MTU 9000")
        );
    }
    let odd = read_host("log.txt", &with(&last, "port 1 ==> ens3f0np0", "ens3f0np0"))
        .expect("it is read");
    assert!(
        odd.left
            .iter()
            .any(|line| line.why.contains("DEVICE port N ==> INTERFACE")),
        "{:?}",
        odd.left
    );
}
