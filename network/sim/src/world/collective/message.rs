//! What ranks of one server tell each other.

use fabric::Time;

/// What a host hears of another one of its server, or of itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::world) enum LocalKind {
    /// A slice has arrived.
    Data,
    /// The receiver has room for a slice.
    Clear,
    /// A slice of its own has left.
    Sent,
}

/// A message between two ranks of a server. Those that arrive at once are in the order of their ways.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::world) struct LocalMessage {
    pub(in crate::world) at: Time,
    /// The way, by its number in the plan.
    pub(in crate::world) pipe: u32,
    pub(in crate::world) kind: LocalKind,
}
