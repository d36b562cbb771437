//! The PFC watchdog: a queue that its peer keeps paused for too long is assumed to be in a pause storm or a
//! deadlock. Its packets are dropped, so that the rest of the network can send again.

use crate::time::Span;

/// The times at which the watchdog acts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watchdog {
    /// A queue that was paused for this long without a break, and holds packets, is in a storm.
    pub detect: Span,
    /// The storm ends when the queue was not paused for this long.
    pub restore: Span,
}
