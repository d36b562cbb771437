//! Many to one: the effect of pauses alone, of DCQCN, and of pauses in a circle.

use super::{Ran, run, run_with};
use fabric::Span;
use sim::report::Severity;

#[test]
fn without_ecn_pauses_storm_and_with_it_dcqcn_is_fair() {
    let (storm, calm) = (run("incast/storm.toml", &[]), run("incast/dcqcn.toml", &[]));
    let finding = storm.finding("ECN is off for class 3");
    assert!(finding.seen.contains("paused more than 25 %") && finding.instead.contains("ecn ="));
    let blocked = |ran: &Ran| {
        ran.report
            .findings
            .iter()
            .any(|one| one.seen.contains("head-of-line blocking"))
    };
    assert!(
        blocked(&storm) && !blocked(&calm),
        "{:#?}",
        storm.report.findings
    );
    let pauses = |ran: &Ran| {
        ran.report
            .switches
            .iter()
            .map(|switch| switch.pauses_sent)
            .sum::<u64>()
    };
    assert!(
        pauses(&storm) > 100 * pauses(&calm),
        "{} and {}",
        pauses(&storm),
        pauses(&calm)
    );
    assert_eq!([storm.dropped(), calm.dropped()], [0, 0]);
    let incast = &calm.report.workloads[0];
    // All of the line: 1,024 of 1,106 bytes. (The paper's: "always more than 39 Gb/s", headers counted.)
    let steady: f64 = calm.results.flows[..16]
        .iter()
        .filter_map(|flow| flow.goodput_bps(1 << 20))
        .sum();
    assert!(steady > 0.99 * 40e9 * 1024.0 / 1106.0, "{steady:.2e}");
    assert!(
        incast.goodput_bps > 0.97 * 40e9 * 1024.0 / 1106.0,
        "{:.2e}, its start included",
        incast.goodput_bps
    );
    assert!(incast.fairness.unwrap() > 0.99, "{:?}", incast.fairness);
    let slowdown = [&storm, &calm].map(|ran| ran.report.workloads[1].slowdown.unwrap().p50);
    assert!(
        slowdown[0] > 10.0 && slowdown[1] < 3.0,
        "the victim's slowdown: {slowdown:?}"
    );
}

#[test]
fn a_deadlock_in_a_ring_is_named_port_by_port() {
    let ran = run("incast/ring.toml", &[]);
    let finding = ran.finding("lossless in a circle of links");
    assert_eq!(finding.severity, Severity::Broken);
    assert!(
        finding
            .seen
            .contains("s0:1 → s1:2 → s2:2 → s3:2 → s4:2 pause each other"),
        "{}",
        finding.seen
    );
    assert_eq!(
        (ran.dropped(), ran.report.workloads[0].bytes),
        (0, 0),
        "nobody gets on"
    );
}

/// The bytes queued at a port, on average and at most, from some moment on.
fn queue_at(ran: &Ran, port: &str, from_us: f64) -> (f64, f64) {
    let series = ran
        .report
        .series
        .iter()
        .find(|series| series.port == port)
        .unwrap();
    let settled = series
        .at_us
        .iter()
        .zip(&series.queued_bytes)
        .filter(|(at, _)| **at > from_us);
    let queued: Vec<f64> = settled.map(|(_, bytes)| f64::from(*bytes)).collect();
    let most = queued.iter().copied().fold(0.0, f64::max);
    (queued.iter().sum::<f64>() / queued.len() as f64, most)
}

/// Swift's paper, section 3.1: the delay settles at its target, the line is full, shares are fair.
#[test]
fn swift_holds_the_queue_at_its_target() {
    let sets = [("duration", "40ms")];
    let ran = run_with("incast/swift.toml", &sets, |experiment| {
        experiment.scenario.watch.sample_every = Some(Span::from_us(20));
    });
    let [incast, victim] = &ran.report.workloads[..] else {
        panic!("two workloads")
    };
    assert!(
        incast.goodput_bps > 0.97 * 40e9 * 1024.0 / 1106.0,
        "{:.2e}",
        incast.goodput_bps
    );
    assert!(incast.fairness.unwrap() > 0.9, "{:?}", incast.fairness);
    assert!(victim.slowdown.unwrap().p50 < 2.0, "{:?}", victim.slowdown);
    let (mean, _) = queue_at(&ran, "leaf1:0", 10_000.0);
    // 5 bytes per nanosecond, and 8 us for the links.
    let delay_us = mean / 5_000.0 + 8.0;
    assert!(
        (18.0..32.0).contains(&delay_us),
        "{delay_us} us, and the target is 25"
    );
    let pauses: u64 = ran
        .report
        .switches
        .iter()
        .map(|switch| switch.pauses_sent)
        .sum();
    assert_eq!((pauses, ran.dropped()), (0, 0));
}

/// RFC 8257, section 1: windows are cut by how many packets are marked, so that the line stays full at a
/// short queue, about the threshold at which switches mark. Shares are fair.
#[test]
fn dctcp_holds_the_queue_at_the_threshold_of_marks() {
    let sets = [("duration", "40ms")];
    let ran = run_with("incast/dctcp.toml", &sets, |experiment| {
        experiment.scenario.watch.sample_every = Some(Span::from_us(20));
    });
    let [incast, victim] = &ran.report.workloads[..] else {
        panic!("two workloads")
    };
    let load = incast.goodput_bps / (40e9 * 1024.0 / 1106.0);
    assert!(load > 0.97, "{load} of the line");
    assert!(incast.fairness.unwrap() > 0.95, "{:?}", incast.fairness);
    assert!(victim.slowdown.unwrap().p50 < 2.0, "{:?}", victim.slowdown);
    let (mean, most) = queue_at(&ran, "leaf1:0", 10_000.0);
    // Each of 16 windows grows by a packet in the round trip in which the marks are under way.
    assert!(
        (90_000.0..120_000.0 + 16.0 * 1106.0).contains(&mean) && most < 180_000.0,
        "{mean} bytes on average, {most} at most"
    );
    let notifications: u64 = ran
        .results
        .flows
        .iter()
        .map(|flow| flow.sender.rp_cnp_handled)
        .sum();
    assert_eq!(
        (notifications, ran.dropped()),
        (0, 0),
        "acknowledgements say it"
    );
}

/// TIMELY's paper, section 4: round trips stay between its two limits, and the line is full.
#[test]
fn timely_holds_round_trips_between_its_limits() {
    let sets = [("duration", "40ms")];
    let ran = run_with("incast/timely.toml", &sets, |experiment| {
        experiment.scenario.watch.sample_every = Some(Span::from_us(20));
    });
    let incast = &ran.report.workloads[0];
    let load = incast.goodput_bps / (40e9 * 1024.0 / 1106.0);
    assert!(load > 0.8, "{load} of the line");
    assert!(incast.fairness.unwrap() > 0.8, "{:?}", incast.fairness);
    let (mean, most) = queue_at(&ran, "leaf1:0", 10_000.0);
    // 5 bytes per nanosecond.
    assert!(
        mean < 5.0 * 500_000.0 && most < 16.0 * 262_144.0 * 1.1,
        "{mean} bytes on average, {most} at most: above 500 us"
    );
    assert_eq!(ran.dropped(), 0);
}

/// Swift's paper, section 3.1: the target grows with the switches on the way, and as windows shrink, so that
/// many senders share a longer queue.
#[test]
fn swift_scales_its_target_by_hops_and_by_windows() {
    let delay_us = |sets: &[(&str, &str)]| {
        let sets = [&[("duration", "30ms")], sets].concat();
        let ran = run_with("incast/swift.toml", &sets, |experiment| {
            experiment.scenario.watch.sample_every = Some(Span::from_us(20));
        });
        queue_at(&ran, "leaf1:0", 10_000.0).0 / 5_000.0 + 8.0
    };
    let plain = delay_us(&[]);
    // Three switches.
    let by_hops = delay_us(&[("nic.default.swift.hop", "10us")]) - plain;
    assert!(
        (22.0..38.0).contains(&by_hops),
        "{by_hops} us for three switches at 10 us"
    );
    // Sixteen windows fill the line for the delay that they aim at: 25 us and the addition for their size.
    let by_flows = delay_us(&[("nic.default.swift.flow-range", "100us")]);
    let target = |delay: f64| {
        let packets = delay * 5_000.0 / 1106.0 / 16.0;
        25.0 + 100.0 * (1.0 / packets.sqrt() - 0.1) / (10.0_f64.sqrt() - 0.1)
    };
    let wanted = (0..50).fold(25.0, |delay, _| (delay + target(delay)) / 2.0);
    assert!(
        (by_flows / wanted - 1.0).abs() < 0.3,
        "{by_flows} us, {wanted} by the formula"
    );
}

/// HPCC's paper, section 3.2 and figure 13: links are used to eta, queues are almost empty, shares are fair.
#[test]
fn hpcc_keeps_the_queue_near_zero_and_the_line_at_eta() {
    let ran = run_with("incast/hpcc.toml", &[], |experiment| {
        experiment.scenario.watch.sample_every = Some(Span::from_us(5));
    });
    let incast = &ran.report.workloads[0];
    // 42 bytes of each packet are for telemetry by switches.
    let line = 100e9 * 1024.0 / (1024.0 + 82.0 + 42.0);
    let load = incast.goodput_bps / line;
    assert!((0.94..=0.96).contains(&load), "{load} of the line");
    assert!(incast.fairness.unwrap() > 0.99, "{:?}", incast.fairness);
    let (mean, most) = queue_at(&ran, "s0:0", 2_000.0);
    // Two packets on average, and never a quarter of the bytes that the link and its acknowledgements hold.
    assert!(
        mean < 2.0 * 1148.0 && most < 62_500.0 / 4.0,
        "{mean} and {most} bytes"
    );
    let pauses: u64 = ran
        .report
        .switches
        .iter()
        .map(|switch| switch.pauses_sent)
        .sum();
    assert_eq!((pauses, ran.dropped()), (0, 0));
}

#[test]
fn a_watchdog_breaks_the_ring() {
    let ran = run(
        "incast/watchdog.toml",
        &[("workload.0.message", "16KiB"), ("workload.0.depth", "64")],
    );
    assert!(
        ran.dropped() > 0 && ran.report.workloads[0].bytes > 0,
        "what is stuck is dropped"
    );
    let storms: u32 = ran
        .report
        .ports
        .iter()
        .flat_map(|port| &port.queues)
        .map(|queue| queue.storms)
        .sum();
    let dropped = ran
        .report
        .ports
        .iter()
        .flat_map(|port| &port.queues)
        .flat_map(|queue| &queue.dropped);
    let dropped: u64 = dropped
        .filter(|(why, _)| *why == "watchdog")
        .map(|(_, count)| count)
        .sum();
    assert!(
        storms > 0 && dropped > 0 && dropped <= ran.dropped(),
        "{storms} storms, {dropped} dropped"
    );
    // The watchdog is named, and neither headroom nor ECN is blamed for it.
    assert_eq!(
        ran.finding("the PFC watchdog drops").severity,
        Severity::Broken
    );
    assert!(
        ran.report
            .findings
            .iter()
            .all(|one| !one.cause.contains("headroom") && !one.cause.contains("ECN"))
    );
}

/// Messages complete one after the other: rates that are taken from each queue pair's own time add up to more
/// than the port that all of them share.
#[test]
fn goodput_is_never_above_the_line_rate_of_the_port_that_all_flows_share() {
    for (file, sets) in [
        (
            "incast.toml",
            &[("qos.default.buffer", "2MiB"), ("seed", "1")][..],
        ),
        (
            "incast.toml",
            &[("workload.0.messages", "2"), ("seed", "3")],
        ),
        (
            "incast.toml",
            &[("workload.0.messages", "1"), ("workload.0.message", "64B")],
        ),
        (
            "incast.toml",
            &[
                ("workload.0.message", "4KiB"),
                ("workload.0.messages", "10"),
                ("workload.0.depth", "16"),
            ],
        ),
        ("incast/storm.toml", &[("duration", "1ms")]),
        ("incast/hpcc.toml", &[("duration", "1ms")]),
    ] {
        let ran = run(file, sets);
        let workload = &ran.report.workloads[0];
        let most = ran
            .report
            .ports
            .iter()
            .map(|port| port.rate_bps)
            .min()
            .unwrap() as f64;
        assert!(
            workload.goodput_bps > 0.0 && workload.goodput_bps <= most,
            "{file} {sets:?}: {workload:?}"
        );
        assert!(workload.delivered_bytes >= workload.bytes, "{workload:?}");
        let [from, until] = workload.interval_us.unwrap();
        let rate = workload.delivered_bytes as f64 * 8.0 / ((until - from) * 1e-6);
        assert!(
            (rate / workload.goodput_bps - 1.0).abs() < 1e-9,
            "bytes over the interval"
        );
        let mine = ran.report.flows.iter().filter(|flow| flow.workload == 0);
        for flow in mine {
            assert!(flow.goodput_bps.unwrap_or(0.0) <= most, "{file}: {flow:?}");
        }
    }
}
