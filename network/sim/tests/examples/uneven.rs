//! Paths of equal cost that carry uneven load.

use super::{Ran, run};

fn is_named(ran: &Ran) -> bool {
    let mut findings = ran.report.findings.iter();
    findings.any(|finding| finding.cause.contains("a hash puts each queue pair on one"))
}

#[test]
fn a_full_path_beside_a_free_one_is_a_finding() {
    let ran = run("uneven-paths.toml", &[]);
    let finding = ran.finding("a hash puts each queue pair on one");
    assert!(
        finding
            .seen
            .starts_with("leaf0: of 4 paths of equal cost that to spine"),
        "{finding:?}"
    );
    assert!(finding.instead.contains("more queue pairs"), "{finding:?}");
}

#[test]
fn many_queue_pairs_or_a_choice_for_each_packet_use_all_paths() {
    for set in [("workload.0.qps", "16"), ("routing.spread", "adaptive")] {
        assert!(!is_named(&run("uneven-paths.toml", &[set])), "{set:?}");
    }
    // Hosts that have one path each have no others to compare it with.
    assert!(!is_named(&run("incast.toml", &[])));
}

#[test]
fn a_full_path_without_a_queue_slows_nothing_down() {
    // In a ring of all hosts every leaf sends by one path at the rate of one host, which is what limits it.
    let ring = run(
        "spraying/job.toml",
        &[("collective.experts.kind", "all-reduce")],
    );
    assert!(!is_named(&ring), "{:#?}", ring.report.findings);
    assert!(ring.report.workloads[0].limit.is_some());
}

#[test]
fn a_workload_that_fills_nothing_says_where_its_packets_stood() {
    let waits = |ran: &Ran, number: usize| ran.report.workloads[number].waits_for.clone();
    // Queue pairs that share a spine for a part of the time.
    let hashed = waits(&run("spraying/job.toml", &[]), 0).unwrap();
    assert!(
        hashed.starts_with("packets queue for a part of the time, most of all at "),
        "{hashed}"
    );
    // The victim of pauses for another workload.
    let victim = waits(&run("crs504/ecn-off.toml", &[]), 1).unwrap();
    assert_eq!(victim, "sender0 is paused for 61 % of the time");
}
