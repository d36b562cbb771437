//! Counters of adapters: names of several drivers, `rdma statistic`, and the growth since an earlier
//! snapshot. And packets between subnets that a switch forwards with its processor.

use doctor::{Finding, Marks, check, judged_host, read_switch};
use vendors::facts::HostFacts;
use vendors::read_host;

const HEALTHY: &str = include_str!("../hosts/mlx5.txt");

fn host(more: &str) -> HostFacts {
    let read = read_host("server.txt", &format!("{HEALTHY}\n{more}")).expect("it reads");
    assert_eq!(read.left, []);
    read
}

fn counted(host: HostFacts) -> Vec<Finding> {
    let found = check(&[host], &[], Marks::default());
    found
        .into_iter()
        .filter(|finding| finding.rule.starts_with("counted-"))
        .collect()
}

fn rules(found: &[Finding]) -> Vec<&'static str> {
    found.iter().map(|finding| finding.rule).collect()
}

#[test]
fn counters_of_several_drivers_have_their_rules() {
    for (name, rule) in [
        ("seq_err_naks_rcvd", "counted-losses"),
        ("RetransSegs", "counted-losses"),
        ("rx_roce_discards", "counted-discards"),
        ("ip4InDiscards", "counted-discards"),
        ("max_retry_exceeded", "counted-retries"),
        ("req_rnr_retries_exceeded", "counted-retries"),
        ("rp_cnp_ignored", "counted-ignored"),
        ("cnpIgnored", "counted-ignored"),
    ] {
        let of = |value: u32| {
            format!(
                "==> sysfs <==\n/sys/class/infiniband/mlx5_0/ports/1/hw_counters/{name}: {value}\n"
            )
        };
        assert_eq!(rules(&counted(host(&of(5)))), [rule], "{name}");
        assert_eq!(counted(host(&of(0))), [], "{name}");
    }
    for (name, rule) in [
        ("rx_oversize_pkts_phy", "counted-oversize"),
        ("tx_pause_storm_error_events", "counted-storm"),
        ("rx_prio3_discards", "counted-discards"),
    ] {
        let text = format!(
            "==> ethtool -S ens4f0 <==\nNIC statistics:\n     {name}: 7\n     rx_prio3_pause: 9\n"
        );
        assert_eq!(rules(&counted(host(&text))), [rule], "{name}");
    }
}

/// The layout of rdma-statistic(8), with counters of queue pairs that count a part of the same.
const STATISTIC: &str = "==> rdma statistic show link mlx5_0/1 <==
link mlx5_0/1 rx_write_requests 12 out_of_buffer 0
    out_of_sequence 41 duplicate_request 0 RNR sent 3 rp_cnp_ignored 2
link mlx5_0/1 cntn 4 lqpn 178 out_of_sequence 99
";

#[test]
fn rdma_statistic_is_read_over_several_lines() {
    let found = counted(host(STATISTIC));
    assert_eq!(rules(&found), ["counted-losses", "counted-ignored"]);
    assert!(
        found[0].what.ends_with("out_of_sequence 41"),
        "{}",
        found[0].what
    );
    let pretty =
        "==> rdma statistic show link mlx5_0/1 -p <==\nlink mlx5_0/1\n    out_of_sequence 7\n";
    assert!(counted(host(pretty))[0].what.ends_with("out_of_sequence 7"));
}

/// As node-scraper's tests have it: one object for each port, and with `-p` a line for each counter.
#[test]
fn rdma_statistic_is_read_as_json() {
    let object = |name: &str, port: u32, more: &str| {
        format!(
            "{{\"ifname\":\"{name}\",\"port\":{port},\"rx_write_requests\":12,{more}\"RNR sent\":3}}"
        )
    };
    let own = object("mlx5_0", 1, "\"out_of_sequence\":41,\"rp_cnp_ignored\":2,");
    let of_pairs = object(
        "mlx5_0",
        1,
        "\"cntn\":4,\"lqpn\":[178],\"out_of_sequence\":99,",
    );
    let compact = format!("==> rdma -j statistic <==\n[{own},{of_pairs}]\n");
    let found = counted(host(&compact));
    assert_eq!(rules(&found), ["counted-losses", "counted-ignored"]);
    assert!(
        found[0].what.ends_with("out_of_sequence 41"),
        "{}",
        found[0]
    );
    let pretty = "==> rdma -j -p statistic show <==\n[ {\n    \"ifname\": \"mlx5_1\",\n    \"port\": 1,\n    \
                  \"out_of_sequence\": 0\n    },{\n    \"ifname\": \"mlx5_0\",\n    \"port\": 1,\n    \
                  \"out_of_sequence\": 7\n    } ]\n";
    let found = counted(host(pretty));
    assert!(found[0].what.ends_with("out_of_sequence 7"), "{}", found[0]);
    let seen = &found[0].evidence[0];
    assert!(seen.text.contains("\"out_of_sequence\": 7"), "{seen}");
    for odd in [
        "[{\"port\":1}]",
        "[3]",
        "[{\"ifname\":\"mlx5_0\",\"out_of_sequence\":[1]}]",
    ] {
        let text = format!("{HEALTHY}\n==> rdma statistic -j <==\n{odd}\n");
        let left = read_host("server.txt", &text).expect("it reads").left;
        assert_eq!(left.len(), 1, "{odd}: {left:?}");
    }
}

#[test]
fn only_what_grew_since_an_earlier_snapshot_counts() {
    let of = |lost: u32, discarded: u32, ended: u32| {
        let path = "/sys/class/infiniband/mlx5_0/ports/1/hw_counters";
        host(&format!(
            "==> sysfs <==\n{path}/packet_seq_err: {lost}\n{path}/out_of_buffer: {discarded}\n\
             {path}/req_transport_retries_exceeded: {ended}\n"
        ))
    };
    let mut before = of(100, 7, 50);
    before.name = "monday.txt".to_owned();
    let mut now = of(130, 7, 20);
    assert_eq!(
        rules(&counted(now.clone())),
        ["counted-losses", "counted-discards", "counted-retries"]
    );
    now.count_from(&before);
    let found = counted(now.clone());
    assert_eq!(rules(&found), ["counted-losses", "counted-retries"]);
    assert!(
        found[0]
            .what
            .ends_with("packet_seq_err 30, since monday.txt"),
        "{}",
        found[0].what
    );
    // A counter that fell counts from its new beginning, and is named.
    let judged = judged_host(&now, Marks::default());
    let part = "req_transport_retries_exceeded fell: wrapped, or the driver was loaded again";
    assert!(judged[0].text.contains(part), "{judged:?}");
}

/// Two ports of a host that have sent these many units of four bytes.
fn two_ports(one: u64, other: u64, rate: &str) -> HostFacts {
    let own = "/sys/class/infiniband/mlx5_0/ports/1";
    let second = "/sys/class/infiniband/mlx5_1/ports/1";
    host(&format!(
        "==> sysfs <==\n{own}/counters/port_xmit_data: {one}\n{second}/state: 4: ACTIVE\n\
         {second}/rate: {rate}\n{second}/counters/port_xmit_data: {other}\n"
    ))
}

#[test]
fn ports_of_one_speed_that_sent_uneven_amounts_are_named() {
    const BILLION: u64 = 1_000_000_000;
    let between = |before: [u64; 2], now: [u64; 2], rate: &str| {
        let mut earlier = two_ports(before[0], before[1], rate);
        earlier.name = "monday.txt".to_owned();
        let mut host = two_ports(now[0], now[1], rate);
        host.count_from(&earlier);
        let mut found = check(&[host], &[], Marks::default());
        found.retain(|finding| finding.rule == "uneven-ports");
        found
    };
    let same = "100 Gb/sec (4X EDR)";
    let from = [BILLION, BILLION];
    let found = between(from, [11 * BILLION, 3 * BILLION], same);
    assert_eq!(found.len(), 1, "{found:?}");
    let what = "since monday.txt: mlx5_0 40.0 GB, mlx5_1 8.0 GB";
    assert!(found[0].what.ends_with(what), "{}", found[0].what);
    // Even; too little; of another speed; and a counter that fell.
    for (now, rate) in [
        ([11 * BILLION, 7 * BILLION], same),
        ([2 * BILLION, BILLION], same),
        ([11 * BILLION, 3 * BILLION], "25 Gb/sec (1X EDR)"),
        ([11 * BILLION, 0], same),
    ] {
        assert_eq!(between(from, now, rate), [], "{now:?} {rate}");
    }
    // Without an earlier snapshot nothing is said.
    let alone = check(&[two_ports(11 * BILLION, 0, same)], &[], Marks::default());
    assert!(alone.iter().all(|finding| finding.rule != "uneven-ports"));
}

const SWITCH: &str = "# 2026-11-26 by RouterOS 7.17
/interface ethernet switch
set 0 qos-hw-offloading=yes
/interface ethernet switch qos priority-flow-control
add name=roce traffic-class=3 rx=yes tx=yes
/ip address
add address=192.0.2.1/25 interface=bridge1
add address=192.0.2.129/25 interface=bridge2
";

#[test]
fn a_version_of_routeros_without_pfc_is_named() {
    let of = |version: &str| {
        let text = SWITCH.replacen("RouterOS 7.17", &format!("RouterOS {version}"), 1);
        let switch = read_switch("crs504.rsc", &text).expect("it reads");
        let mut found = check(&[], &[switch], Marks::default());
        found.retain(|finding| finding.rule == "switch-version");
        found
    };
    let found = of("7.12.1");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].what.contains("RouterOS 7.12 has neither"),
        "{}",
        found[0]
    );
    assert_eq!(found[0].evidence[0].line, 1);
    for version in ["7.15", "7.17", "8.0"] {
        assert_eq!(of(version), [], "{version}");
    }
}

#[test]
fn hosts_of_two_subnets_are_routed_by_the_processor_of_the_switch() {
    let at = |address: &str| {
        let mut own = host("");
        let fact = own.adapters[0].addresses[0].clone();
        own.adapters[0].addresses = vec![vendors::facts::Fact {
            value: address.parse().expect("an address"),
            ..fact
        }];
        own
    };
    let routed = |text: &str, other: &str| {
        let switch = read_switch("crs504.rsc", text).expect("it reads");
        let found = check(&[at("192.0.2.10"), at(other)], &[switch], Marks::default());
        found
            .into_iter()
            .find(|finding| finding.rule == "switch-routing")
    };
    let finding = routed(SWITCH, "192.0.2.200").expect("a finding");
    assert_eq!(finding.evidence.len(), 2);
    assert!(finding.to_string().contains("454 Mb/s"), "{finding}");
    assert_eq!(routed(SWITCH, "192.0.2.20"), None, "one subnet");
    assert_eq!(
        routed(SWITCH, "198.51.100.7"),
        None,
        "a subnet of another router"
    );
    let offloaded = SWITCH.replace(
        "qos-hw-offloading=yes",
        "qos-hw-offloading=yes l3-hw-offloading=yes",
    );
    assert_eq!(routed(&offloaded, "192.0.2.200"), None);
    let of_port = format!("{SWITCH}/interface ethernet switch port\nset 1 l3-hw-offloading=yes\n");
    assert!(
        routed(&of_port, "192.0.2.200").is_some(),
        "a port alone does not route"
    );
}
