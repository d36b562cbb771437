//! The result of an attempt to send.

/// Result of an attempt to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// A packet was sent.
    Sent,
    /// Something other than sending was done; there may be more.
    Progressed,
    /// Nothing can be sent now.
    Blocked,
}
