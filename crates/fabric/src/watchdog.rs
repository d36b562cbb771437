//! The PFC watchdog: a queue that its peer keeps paused for too long is taken for the victim of a storm or a
//! deadlock, and what waits in it is dropped, so that the rest of the network can send again.

use crate::time::Span;

/// When it acts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watchdog {
    /// A queue that was paused for this long without a break, and holds something, is in a storm.
    pub detect: Span,
    /// It is out of it when it was not paused for this long.
    pub restore: Span,
}
