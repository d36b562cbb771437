//! Why a responder does not execute a request.

/// Why a request was not executed. As wide as the first field of a [`crate::memory::Piece`], as
/// [`crate::resources::Unresolved`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(super) enum Refusal {
    /// No receive is posted.
    NotReady,
    /// Malformed, or not allowed on this queue pair: NAK invalid request.
    Invalid,
    /// Key, range or right: NAK remote access error.
    Access,
    /// The message is longer than the receive: NAK invalid request, and the receive fails.
    TooLong,
    /// The receive's own key or range is wrong: NAK remote operational error, and the receive fails.
    LocalProtection,
    /// More READs at once than agreed, which with out-of-order receive is no fault of the peer's: those that
    /// were held count together with those that it has sent again. It will ask once more.
    Busy,
    /// SEND with invalidate of a key that cannot be invalidated.
    Invalidate,
    /// The device that has the queue that a message names is gone: NAK remote operational error.
    Gone,
}

impl Refusal {
    /// The reason and the NAK that tells the peer, in the words of the log.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::NotReady => "no receive is posted",
            Self::Busy => "more READs at once than agreed",
            Self::Invalid => "invalid request: malformed, or not allowed on this queue pair",
            Self::Access => "remote access error: unknown rkey, wrong range or missing access right",
            Self::TooLong => "invalid request: the message is longer than the receive",
            Self::LocalProtection => "remote operational error: the receive's lkey or range is wrong",
            Self::Invalidate => "remote access error: the key cannot be invalidated",
            Self::Gone => "remote operational error: the owner of the SRQ has ended",
        }
    }
}
