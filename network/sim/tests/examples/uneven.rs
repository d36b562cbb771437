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
