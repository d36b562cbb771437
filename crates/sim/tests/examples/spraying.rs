//! Packet spraying between two hosts: the fabric files give what the engine's own tests give.

use super::run;

fn gbps(name: &str, sets: &[(&str, &str)]) -> f64 {
    run(name, sets).report.workloads[0].goodput_bps / 1e9
}

#[test]
fn an_address_in_every_packet_costs_what_it_weighs() {
    let on = gbps("spraying/two-hosts.toml", &[("nic.default.out-of-order", "true")]);
    let off = gbps("spraying/two-hosts.toml", &[("nic.default.out-of-order", "false")]);
    assert!((on - 97.66).abs() < 0.01 && (off - 98.01).abs() < 0.01, "{on} {off}");
}

#[test]
fn out_of_order_receive_does_not_feel_two_ways_and_go_back_n_names_its_cause() {
    let on = run("spraying/two-paths.toml", &[]);
    assert!((on.report.workloads[0].goodput_bps / 1e9 - 97.66).abs() < 0.02);
    assert_eq!(on.report.workloads[0].retransmitted, 0);
    let sets =
        [("nic.default.out-of-order", "false"), ("nic.default.recovery", "500us"), ("duration", "200ms")];
    let off = run("spraying/two-paths.toml", &sets);
    let measured = 0.19;
    let gbps = off.report.workloads[0].goodput_bps / 1e9;
    assert!((gbps - measured).abs() < 0.1 * measured, "{gbps}");
    assert!(off.finding("in order only (go-back-N)").instead.contains("out-of-order = true"));
}

#[test]
fn goodput_follows_the_recovery_time() {
    // Each time a packet is out of order it takes the recovery time and a round trip to go on.
    let off = ("nic.default.out-of-order", "false");
    let at = |recovery| gbps("spraying/recovery.toml", &[off, ("nic.default.recovery", recovery)]);
    let ratio = at("100us") / at("1ms");
    assert!((7.0..10.5).contains(&ratio), "{ratio}");
}
