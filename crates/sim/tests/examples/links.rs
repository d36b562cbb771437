//! Links that go down, and switches that do not wait for a packet's end.

use super::{Ran, run};

const SMALL: [(&str, &str); 3] =
    [("workload.0.message", "4KiB"), ("workload.0.depth", "1"), ("duration", "1ms")];

#[test]
fn what_is_sent_over_a_link_that_is_down_is_lost_and_sent_again() {
    let down = |times: &'static str| {
        let sets = [
            ("nic.default.timeout", "6"),
            ("nic.default.out-of-order", "false"),
            ("duration", "20ms"),
            ("link.2.down", times),
        ];
        run("spraying/two-hosts.toml", &sets)
    };
    let once = down("[{ at = \"5ms\", lasts = \"200us\" }]");
    let flaps = down("[{ at = \"5ms\", lasts = \"200us\", times = 10, every = \"1ms\" }]");
    let lost = |ran: &Ran| ran.report.damaged;
    assert!(lost(&once) > 100 && lost(&flaps) > 5 * lost(&once), "{} {}", lost(&once), lost(&flaps));
    let workload = |ran: &Ran| ran.report.workloads[0].clone();
    assert!(workload(&once).retransmitted > 0 && workload(&once).failed == 0);
    // A fiftieth of the time, and what it takes to notice.
    assert!(workload(&once).goodput_bps > 0.9 * 98e9, "{:.2e}", workload(&once).goodput_bps);
    assert!(workload(&flaps).goodput_bps < workload(&once).goodput_bps);
}

#[test]
fn cutting_through_saves_a_frame_time_per_switch() {
    let mean = |forwarding| {
        let sets = [SMALL.as_slice(), &[("qos.default.forwarding", forwarding)]].concat();
        run("spraying/two-hosts.toml", &sets).report.workloads[0].latency_us.unwrap().mean
    };
    let saved = mean("store-and-forward") - mean("cut-through");
    // 4,170 bytes of data and 66 of its acknowledgement, at two switches each, at 100 Gb/s.
    let frames = 2.0 * (4174.0 + 66.0) * 8.0 / 100e3;
    assert!((saved - frames).abs() < 0.02, "{saved} us, not {frames}");
}

#[test]
fn messages_that_come_by_chance_use_their_part_of_the_links() {
    let ran = run("web-search.toml", &[("workload.0.sizes", "storage")]);
    let workload = &ran.report.workloads[0];
    // 16 hosts at half of 100 Gb/s for 5 ms, some of it still on its way.
    let offered = 16.0 * 50e9 / 8.0 * 5e-3;
    assert!((0.85..1.05).contains(&(workload.bytes as f64 / offered)), "{} of {offered}", workload.bytes);
    assert!(workload.flows > 5_000 && workload.finished as f64 > 0.99 * workload.flows as f64);
    let slowdown = workload.slowdown.unwrap();
    assert!(slowdown.p50 >= 1.0 && slowdown.p99 > slowdown.p50, "{slowdown:?}");
}
