//! Reasons for which a responder refuses a request.

/// Reason for a refusal. It is as wide as the first field of a [`crate::memory::Piece`], for the same reason
/// as [`crate::resources::Unresolved`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(super) enum Refusal {
    /// No receive is posted.
    NotReady,
    /// Malformed, or not allowed on this queue pair: NAK invalid request.
    Invalid,
    /// A wrong key, range or right: NAK remote access error.
    Access,
    /// The message is longer than the receive: NAK invalid request, and the receive fails.
    TooLong,
    /// The receive's own key or range is wrong: NAK remote operational error, and the receive fails.
    LocalProtection,
    /// More READs at once than agreed, which with out-of-order receive is no fault of the peer: held requests
    /// count together with those that it has retransmitted. It will repeat the request.
    Busy,
    /// The payload cannot be fetched from the sender's memory: NAK sequence error, after which the sender
    /// repeats the request with its payload.
    Unfetched,
    /// SEND with invalidate of a key that cannot be invalidated.
    Invalidate,
    /// The device with the queue that the message names has closed: NAK remote operational error.
    Gone,
}

impl Refusal {
    /// The reason and the NAK that reports it, as text for the log.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::NotReady => "no receive is posted",
            Self::Busy => "more READs at once than agreed",
            Self::Unfetched => "the payload cannot be fetched from the sender's memory",
            Self::Invalid => "invalid request: malformed, or not allowed on this queue pair",
            Self::Access => {
                "remote access error: unknown rkey, wrong range or missing access right"
            }
            Self::TooLong => "invalid request: the message is longer than the receive",
            Self::LocalProtection => {
                "remote operational error: the receive's lkey or range is wrong"
            }
            Self::Invalidate => "remote access error: the key cannot be invalidated",
            Self::Gone => "remote operational error: the owner of the SRQ has ended",
        }
    }
}
