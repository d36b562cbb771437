//! A switch in its part of the network.

use fabric::Switch;

/// A switch in its place.
#[derive(Debug)]
pub(super) struct PlacedSwitch {
    pub(super) switch: Switch,
    pub(super) number: u32,
    /// The lane of its port 0.
    pub(super) first_lane: u32,
}
