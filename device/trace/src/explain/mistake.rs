//! The kinds of mistakes, and what to do about each.

/// A kind of mistake.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mistake {
    /// The peer had no receive for a message.
    NoReceive,
    /// A receive is shorter than the message that arrived.
    ShortReceive,
    /// Memory or a queue pair does not allow the operation.
    WrongAccess,
    /// An address is outside of the memory of a key.
    OutOfRange,
    /// A key that is not valid.
    WrongKey,
    /// A call that the state of the queue pair does not allow.
    WrongState,
    /// The two ends of a connection have different MTUs.
    MtuMismatch,
    /// A queue pair sends to an address that its peer does not send from.
    GidMismatch,
    /// The two ends of a connection name different queue pairs or packet sequence numbers.
    PeerMismatch,
    /// Completions are not polled.
    NeverPolled,
    /// No request of a full queue is signaled.
    NeverSignaled,
    /// Memory was deregistered while a request used it.
    DeregisteredInFlight,
    /// An ID that an outstanding request has already.
    WrIdReused,
    /// The peer did not answer.
    NoAnswer,
    /// A message is longer than the port carries.
    TooLong,
    /// A datagram has another Q_Key than the queue pair that it is for.
    QkeyMismatch,
}

impl Mistake {
    /// Name of the mistake in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoReceive => "no-receive",
            Self::ShortReceive => "short-receive",
            Self::WrongAccess => "wrong-access",
            Self::OutOfRange => "out-of-range",
            Self::WrongKey => "wrong-key",
            Self::WrongState => "wrong-state",
            Self::MtuMismatch => "mtu-mismatch",
            Self::GidMismatch => "gid-mismatch",
            Self::PeerMismatch => "peer-mismatch",
            Self::NeverPolled => "never-polled",
            Self::NeverSignaled => "never-signaled",
            Self::DeregisteredInFlight => "deregistered-in-flight",
            Self::WrIdReused => "wr-id-reused",
            Self::NoAnswer => "no-answer",
            Self::TooLong => "too-long",
            Self::QkeyMismatch => "qkey-mismatch",
        }
    }

    /// What to do about it.
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::NoReceive => {
                "Post receives (ibv_post_recv) before the peer may send: between INIT and the message that \
                 tells the peer to begin; rnr_retry 7 waits for ever"
            }
            Self::ShortReceive => {
                "Post receives for the longest message of the peer (UD: 40 bytes more, for the GRH)"
            }
            Self::WrongAccess => {
                "ibv_reg_mr and the INIT of the peer's queue pair need IBV_ACCESS_REMOTE_WRITE, \
                 IBV_ACCESS_REMOTE_READ or IBV_ACCESS_REMOTE_ATOMIC, and with WRITE and ATOMIC also \
                 IBV_ACCESS_LOCAL_WRITE"
            }
            Self::OutOfRange => "Send the peer the address and the length that were registered",
            Self::WrongKey => {
                "Local elements take the lkey of this process, RDMA operations the rkey of the peer"
            }
            Self::WrongState => {
                "RESET, INIT, RTR, RTS, each with the attributes of ibv_modify_qp(3): receives from INIT on, \
                 sends from RTS on"
            }
            Self::MtuMismatch => "Give both ends the smaller active_mtu of ibv_query_port",
            Self::GidMismatch => {
                "Tell the peer the GID at the sgid_index that ibv_modify_qp gets, and no other"
            }
            Self::PeerMismatch => {
                "dest_qp_num is the peer's qp_num, and rq_psn the peer's sq_psn, in both directions"
            }
            Self::NeverPolled => {
                "Poll the completion queue (ibv_poll_cq): each completion gives back its place in the queue"
            }
            Self::NeverSignaled => {
                "Set IBV_SEND_SIGNALED on one request of each half of the queue, and poll its completion: \
                 it gives back the places of all before it"
            }
            Self::DeregisteredInFlight => {
                "Deregister memory when the completions of all requests that use it were polled"
            }
            Self::WrIdReused => "Give requests IDs that no outstanding request of the queue has",
            Self::NoAnswer => {
                "Look at the peer's state and at the addresses of both ends; ROCKERY_LOG=rnic=debug shows \
                 what arrives"
            }
            Self::TooLong => {
                "Send datagrams of at most the active_mtu of ibv_query_port, and longer messages by RC or UC"
            }
            Self::QkeyMismatch => {
                "remote_qkey of a datagram is the qkey that the receiver gave its queue pair in INIT"
            }
        }
    }
}

/// A mistake that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// What kind of mistake it is.
    pub mistake: Mistake,
    /// The number of the event with the call that made it.
    pub event: usize,
    /// The number of the event that shows it, where that is another one.
    pub shown_by: Option<usize>,
    /// What is wrong, in a sentence.
    pub what: String,
}
