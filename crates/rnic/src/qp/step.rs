//! The result of an attempt to send.

/// What came of trying to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// A packet left.
    Sent,
    /// Something else was done; there may be more.
    Progressed,
    /// Nothing can be done now.
    Blocked,
}
