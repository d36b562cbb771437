//! Figures to which constants of the model are fitted: they show that the fit holds, not that the model is
//! right.

use super::{IN_ORDER, gbps, run};

/// Fitted: the recovery time of 500 us.
#[test]
fn go_back_n_over_two_paths_has_the_measured_goodput() {
    let sets = [
        IN_ORDER,
        ("nic.default.recovery", "500us"),
        ("duration", "200ms"),
    ];
    let measured = 0.19;
    let ran = run("spraying/two-paths.toml", &sets);
    assert!(
        (gbps(&ran) - measured).abs() < 0.1 * measured,
        "{}",
        gbps(&ran)
    );
}

/// Fitted: 381 unacknowledged packets.
#[test]
fn a_path_that_is_400_packets_longer_has_the_measured_goodput() {
    let ran = run(
        "spraying/eight-paths.toml",
        &[("link.3.extra-delay", "134.4us")],
    );
    assert!((gbps(&ran) - 87.58).abs() <= 1.0, "{}", gbps(&ran));
}
