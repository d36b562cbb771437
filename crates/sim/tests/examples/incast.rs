//! Many to one: what pauses alone do, what DCQCN does, and pauses in a circle.

use super::{Ran, run};
use sim::report::Severity;

#[test]
fn without_ecn_pauses_storm_and_with_it_dcqcn_is_fair() {
    let (storm, calm) = (run("incast/storm.toml", &[]), run("incast/dcqcn.toml", &[]));
    let finding = storm.finding("ECN is off for class 3");
    assert!(finding.seen.contains("paused more than 25 %") && finding.instead.contains("ecn ="));
    let blocked =
        |ran: &Ran| ran.report.findings.iter().any(|one| one.seen.contains("head-of-line blocking"));
    assert!(blocked(&storm) && !blocked(&calm), "{:#?}", storm.report.findings);
    let pauses = |ran: &Ran| ran.report.switches.iter().map(|switch| switch.pauses_sent).sum::<u64>();
    assert!(pauses(&storm) > 100 * pauses(&calm), "{} and {}", pauses(&storm), pauses(&calm));
    assert_eq!([storm.dropped(), calm.dropped()], [0, 0]);
    let incast = &calm.report.workloads[0];
    // All of the line: 1,024 of 1,106 bytes. (The paper's: "always more than 39 Gb/s", headers counted.)
    assert!(incast.goodput_bps > 0.99 * 40e9 * 1024.0 / 1106.0, "{:.2e}", incast.goodput_bps);
    assert!(incast.fairness.unwrap() > 0.99, "{:?}", incast.fairness);
    let slowdown = [&storm, &calm].map(|ran| ran.report.workloads[1].slowdown.unwrap().p50);
    assert!(slowdown[0] > 10.0 && slowdown[1] < 3.0, "the victim's slowdown: {slowdown:?}");
}

#[test]
fn a_deadlock_in_a_ring_is_named_port_by_port() {
    let ran = run("incast/ring.toml", &[]);
    let finding = ran.finding("lossless around a circle of links");
    assert_eq!(finding.severity, Severity::Broken);
    assert!(
        finding.seen.contains("s0:1 → s1:2 → s2:2 → s3:2 → s4:2 wait for each other"),
        "{}",
        finding.seen
    );
    assert_eq!((ran.dropped(), ran.report.workloads[0].bytes), (0, 0), "nobody gets on");
}
