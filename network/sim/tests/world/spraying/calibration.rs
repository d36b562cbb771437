//! Figures to which constants of the model are fitted: they show that the fit holds, not that the model is
//! right.

use super::{eight_paths, gbps, go_back_n, near};

/// Fitted: the recovery time of 500 us.
#[test]
fn go_back_n_over_two_paths_has_the_measured_goodput() {
    near(gbps(&go_back_n(500).flows[0]), 0.19, 0.019);
}

/// Fitted: 381 unacknowledged packets.
#[test]
fn a_reorder_distance_of_400_has_the_measured_goodput() {
    near(gbps(&eight_paths(400).flows[0]), 87.58, 1.0);
}
