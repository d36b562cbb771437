//! What a finding says of a site: its own DSCPs, priorities, ports, systems and tools, and never a default.

use crate::inputs::{asked, rules, with};
use doctor::{Consequence, Finding, Marks, SwitchFacts, check, judged_switch, read_switch};
use vendors::read_host;

fn switch(text: &str) -> SwitchFacts {
    read_switch("leaf", text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn findings(text: &str, marks: Marks) -> Vec<Finding> {
    check(&[], &[switch(text)], marks)
}

/// Goodput without and with the fault of a finding, in Gb/s.
fn goodput(finding: &Finding) -> (f64, f64) {
    match &finding.consequence {
        Consequence::Simulated(cost) => (cost.fixed.gbps, cost.now.gbps),
        other => panic!("{other:?}"),
    }
}

/// Tagged data of priority 3 behind a switch that trusts tags and does not mark.
const TAGGED: &str = "trust dot1p-map T
 qos-group 3 dot1p 3
class-map type network-qos N
 match qos-group 3
policy-map type network-qos PFC
 class N
  pause
  pfc-cos 3
interface ethernet1/1/1
 mtu 9216
 priority-flow-control mode on
 service-policy input type network-qos PFC
 trust-map dot1p T
";

#[test]
fn costs_are_those_of_tagged_data_where_a_tag_leads_to_the_lossless_class() {
    let found = findings(TAGGED, Marks::default());
    assert_eq!(rules(&found), ["switch-ecn-off"], "{found:#?}");
    let (fixed, now) = goodput(&found[0]);
    // Data of DSCP 26 without a tag would be in a lossy class, and lose more than half.
    assert!(fixed > 80.0 && now > 80.0, "{fixed} {now}");
}

/// NX-OS: data of one DSCP in the lossless class 5.
fn nxos(dscp: u8, class_mtu: &str, port_mtu: &str) -> String {
    format!(
        "class-map type qos match-any R\n  match dscp {dscp}\npolicy-map type qos IN\n  class R\n    \
         set qos-group 5\npolicy-map type network-qos N\n  class type network-qos c-8q-nq5\n    \
         pause pfc-cos 5\n{class_mtu}policy-map type queuing Q\n  class type queuing c-out-8q-q5\n    \
         bandwidth remaining percent 50\nsystem qos\n  service-policy type network-qos N\n  \
         service-policy type queuing output Q\ninterface Ethernet1/1\n  priority-flow-control mode on\n  \
         service-policy type qos input IN\n{port_mtu}"
    )
}

#[test]
fn a_cost_does_not_depend_on_the_values_that_a_site_has_chosen() {
    let cost = |dscp: u8, marks: Marks| {
        let found = findings(&nxos(dscp, "    mtu 9216\n", ""), marks);
        assert_eq!(rules(&found), ["switch-ecn-off"], "{found:#?}");
        goodput(&found[0])
    };
    let usual = cost(26, asked(26));
    assert!(usual.1 > 80.0, "{usual:?}");
    for dscp in [8, 24, 34, 48, 63] {
        assert_eq!(cost(dscp, asked(dscp)), usual, "{dscp}");
        assert_eq!(cost(dscp, Marks::default()), usual, "{dscp}");
    }
}

#[test]
fn frames_of_nxos_are_limited_by_the_port_else_by_the_network_qos_class() {
    for (class, port, mtu) in [
        ("    mtu 9216\n", "", 9216),
        ("    mtu 2240\n", "", 2240),
        ("", "", 1500),
        ("    mtu 2240\n", "  mtu 9216\n", 9216),
        ("    mtu 9216\n", "  mtu 1500\n", 1500),
    ] {
        let text = nxos(26, class, port);
        assert_eq!(switch(&text).groups[0].mtu, mtu, "{text}");
        let found = findings(&text, asked(26));
        let small = found.iter().find(|finding| finding.rule == "switch-mtu");
        let said = small.map(|finding| finding.what.contains(&format!("MTU of {mtu} ")));
        let expected = (mtu < 4200 && text.contains("mtu")).then_some(true);
        assert_eq!(said, expected, "{found:#?}");
    }
}

/// SONiC: PFC on the first port only.
const TWO_KINDS: &str = r#"{
  "PORT": {
    "Ethernet0": { "speed": "100000", "mtu": "9100" },
    "Ethernet4": { "speed": "100000", "mtu": "9100", "admin_status": "down" }
  },
  "CABLE_LENGTH": { "AZURE": { "Ethernet0": "40m", "Ethernet4": "40m" } },
  "DSCP_TO_TC_MAP": { "M": { "26": "3" } },
  "TC_TO_PRIORITY_GROUP_MAP": { "M": { "3": "3" } },
  "PORT_QOS_MAP": {
    "Ethernet0": { "dscp_to_tc_map": "M", "tc_to_pg_map": "M", "pfc_enable": "3" },
    "Ethernet4": { "dscp_to_tc_map": "M", "tc_to_pg_map": "M" }
  },
  "WRED_PROFILE": { "W": { "ecn": "ecn_all", "green_min_threshold": "1000", "green_max_threshold": "2000" } },
  "QUEUE": { "Ethernet0,Ethernet4|3": { "wred_profile": "W" } }
}"#;

#[test]
fn ports_without_pfc_beside_ports_with_pfc_may_carry_other_traffic() {
    let facts = switch(&with(TWO_KINDS, ", \"admin_status\": \"down\"", ""));
    let found = check(&[], core::slice::from_ref(&facts), asked(26));
    assert_eq!(rules(&found), [""; 0], "{found:#?}");
    let judged = judged_switch(&facts, &[], asked(26));
    let said = "Ethernet4: DSCP 26 → class 3, lossy, ECN on, PFC off, and on at other ports: whether data \
                passes here is unknown";
    assert!(judged.iter().any(|own| own.text == said), "{judged:#?}");
    // A port that is down is named, and not judged.
    let down = switch(TWO_KINDS);
    let said = down.not_judged.iter().map(|line| line.why.as_str());
    let why = "\"admin_status down\": Ethernet4 is down, and is not judged";
    assert!(said.clone().any(|said| said == why), "{down:?}");
    let judged = down.groups.iter().flat_map(|group| &group.ports);
    assert!(judged.map(|port| port.name.as_str()).eq(["Ethernet0"]));
    // Without PFC anywhere it is a fault.
    let off = with(TWO_KINDS, ", \"pfc_enable\": \"3\"", "");
    assert_eq!(rules(&findings(&off, asked(26))), ["switch-pfc-off"]);
}

#[test]
fn fixes_of_links_and_addresses_are_of_the_system_of_the_host() {
    let linux = "==> sysfs <==\n/sys/class/infiniband/mlx5_0/ports/1/link_layer: Ethernet\n\
                 /sys/class/infiniband/mlx5_0/ports/1/state: 1: DOWN\n\
                 /sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0: eth0\n";
    let mut host = read_host("host", linux).expect("a snapshot");
    let found = check(core::slice::from_ref(&host), &[], Marks::default());
    assert_eq!(rules(&found), ["link-down"], "{found:#?}");
    assert!(
        found[0].fix.starts_with("ip link set eth0 up"),
        "{}",
        found[0].fix
    );
    host.windows = Some(vendors::facts::WindowsFacts::default());
    let found = check(&[host], &[], Marks::default());
    assert!(
        found[0]
            .fix
            .starts_with("Enable-NetAdapter -Name \"mlx5_0\""),
        "{}",
        found[0].fix
    );
}

#[test]
fn the_firewall_is_corrected_with_the_tool_that_was_seen() {
    let host = |rules: &str| {
        format!(
            "==> sysfs <==\n/sys/class/infiniband/rxe0/ports/1/link_layer: Ethernet\n\
             /sys/class/infiniband/rxe0/ports/1/gid_attrs/ndevs/0: eth0\n{rules}"
        )
    };
    let iptables =
        "==> iptables-save <==\n*filter\n-A INPUT -p udp -m udp --dport 4791 -j DROP\nCOMMIT\n";
    let nftables = "==> nft list ruleset <==\ntable inet filter {\n\tchain input {\n\t\t\
                    udp dport 4791 drop\n\t}\n}\n";
    for (text, tool, other) in [
        (iptables, "iptables ", "nft "),
        (nftables, "nft ", "iptables "),
    ] {
        let facts = read_host("host", &host(text)).expect("a snapshot");
        let found = check(&[facts], &[], Marks::default());
        assert_eq!(rules(&found), ["firewall"], "{found:#?}");
        let fix = &found[0].fix;
        assert!(fix.contains(tool) && !fix.contains(other), "{fix}");
    }
}

#[test]
fn systems_that_are_not_read_are_named() {
    for (text, name) in [
        ("dcb priority-flow-control enable force\n", "Onyx"),
        ("roce enable\n", "Dell Enterprise SONiC"),
        ("dcb pfc enable mode manual\n", "VRP"),
    ] {
        let error = read_switch("leaf", text).unwrap_err().to_string();
        assert!(
            error.contains(name) && error.contains("not read"),
            "{error}"
        );
    }
    let error = read_switch("leaf", "hello\n").unwrap_err().to_string();
    assert!(!error.contains("which is not read"), "{error}");
}

#[test]
fn the_first_of_several_devices_has_an_interface_and_a_table_has_an_end() {
    let mut text = "==> sysfs <==\n".to_owned();
    for (device, netdev) in [("a", "eth0"), ("b", "eth0"), ("c", "eth1")] {
        text += &format!("/sys/class/infiniband/{device}/ports/1/gid_attrs/ndevs/0: {netdev}\n");
    }
    text += "/sys/class/net/eth0/mtu: 1500\n/sys/class/net/eth1/mtu: 9000\n/sys/class/net/eth2/mtu: 1\n";
    let host = read_host("host", &text).expect("a snapshot");
    let mtu = |index: usize| host.adapters[index].mtu.as_ref().map(|mtu| mtu.value);
    assert_eq!((mtu(0), mtu(1), mtu(2)), (Some(1500), None, Some(9000)));
    for index in 0..4100 {
        text += &format!(
            "/sys/class/infiniband/a/ports/1/gids/{index}: ::{:x}\n",
            index + 1
        );
    }
    let host = read_host("host", &text).expect("a snapshot");
    assert_eq!((host.adapters[0].gids.len(), host.left.len()), (4096, 4));
}

#[test]
fn interfaces_beyond_those_of_any_chassis_are_not_read() {
    let mut text = String::new();
    for module in 1..=20 {
        text += &format!("interface Ethernet{module}/1-1024\n   mtu 9214\n   qos trust dscp\n");
    }
    let facts = switch(&text);
    let read: usize = facts.groups.iter().map(|group| group.ports.len()).sum();
    assert_eq!((read, facts.left.len()), (16_384, 4), "{:?}", facts.left);
}

#[test]
fn counters_of_faults_are_findings_by_kind() {
    let base = "==> sysfs <==\n/sys/class/infiniband/mlx5_0/ports/1/link_layer: Ethernet\n\
                /sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0: eth0\n";
    for (more, expected) in [
        ("", &[][..]),
        (
            "/sys/class/infiniband/mlx5_0/ports/1/hw_counters/packet_seq_err: 0\n",
            &[],
        ),
        (
            "/sys/class/infiniband/mlx5_0/ports/1/hw_counters/packet_seq_err: 7\n\
             /sys/class/infiniband/mlx5_0/ports/1/hw_counters/np_cnp_sent: 9\n",
            &["counted-losses"],
        ),
        (
            "/sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error: 1\n",
            &["counted-damage"],
        ),
        (
            "==> ethtool -S eth0 <==\nNIC statistics:\n  rx_discards_phy: 12\n  rx_prio3_discards: 5\n  \
             rx_prio3_pause: 77\n",
            &["counted-discards"],
        ),
        ("==> ethtool -S eth1 <==\n     rx_discards_phy: 12\n", &[]),
    ] {
        let host = read_host("host", &format!("{base}{more}")).expect("a snapshot");
        assert_eq!(host.left, [], "{more}");
        let found = check(&[host], &[], Marks::default());
        assert_eq!(rules(&found), *expected, "{more}: {found:#?}");
    }
    let odd = format!("{base}/sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error: many\n");
    assert_eq!(read_host("host", &odd).expect("a snapshot").left.len(), 1);
    let down = format!("{base}==> ethtool eth0 <==\n\tLink detected: no\n");
    let host = read_host("host", &down).expect("a snapshot");
    assert_eq!(rules(&check(&[host], &[], Marks::default())), ["link-down"]);
}
