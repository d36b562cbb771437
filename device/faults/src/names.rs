//! Names of the specifications that rules use: types of queue pairs and operations.

use crate::RuleError;
use core::fmt;

/// The known name that is most like a misspelt one, if one is alike.
pub(crate) fn closest<'a>(text: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let distance = |name: &&str| strsim::osa_distance(&text.to_lowercase(), &name.to_lowercase());
    let best = known.min_by_key(distance)?;
    (distance(&best) <= best.len().div_ceil(3)).then_some(best)
}

/// Defines an enumeration with the names of its values in rules.
macro_rules! named {
    ($(#[$meta:meta])* $type:ident, $what:literal, {
        $($(#[$doc:meta])* $variant:ident = $name:literal,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $type {
            $($(#[$doc])* $variant,)*
        }

        impl $type {
            /// All values, in the order of their bits.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The name in rules.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// One bit for this value.
            pub const fn bit(self) -> u32 {
                1 << self as u32
            }

            pub(crate) fn parse(text: &str) -> Result<Self, RuleError> {
                let lower = text.to_lowercase();
                let plain = lower.strip_prefix("ibv_wr_").or(lower.strip_prefix("ibv_qpt_"));
                let plain = plain.unwrap_or(&lower);
                let found = Self::ALL.iter().find(|one| one.name() == plain);
                found.copied().ok_or_else(|| {
                    let names: Vec<&str> = Self::ALL.iter().map(|one| one.name()).collect();
                    RuleError::wrong($what, text, format!("write one of {}", names.join(", ")))
                })
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

named! {
    /// Type of a queue pair (`enum ibv_qp_type`).
    QpKind, "type of queue pairs", {
        /// Reliable connection (`IBV_QPT_RC`).
        Rc = "rc",
        /// Unreliable connection (`IBV_QPT_UC`).
        Uc = "uc",
        /// Unreliable datagram (`IBV_QPT_UD`).
        Ud = "ud",
        /// Extended reliable connection, either end.
        Xrc = "xrc",
    }
}

named! {
    /// Operation of a work request (`enum ibv_wr_opcode`), or a receive.
    Opcode, "operation", {
        /// SEND without immediate data.
        Send = "send",
        /// SEND with immediate data.
        SendWithImm = "send_with_imm",
        /// SEND with invalidate.
        SendWithInv = "send_with_inv",
        /// RDMA WRITE without immediate data.
        RdmaWrite = "rdma_write",
        /// RDMA WRITE with immediate data.
        RdmaWriteWithImm = "rdma_write_with_imm",
        /// RDMA READ from the peer's memory.
        RdmaRead = "rdma_read",
        /// Compare and swap.
        CompareSwap = "atomic_cmp_and_swp",
        /// Fetch and add.
        FetchAdd = "atomic_fetch_and_add",
        /// ATOMIC WRITE of eight bytes.
        AtomicWrite = "atomic_write",
        /// Invalidation of a local key.
        LocalInv = "local_inv",
        /// Binding of a memory window.
        BindMw = "bind_mw",
        /// A receive, of a queue pair or of a shared receive queue.
        Recv = "recv",
    }
}

named! {
    /// Packet of RoCEv2, by what it is for (IBTA 9.2): the positions of a message are one kind.
    PacketKind, "kind of packets", {
        /// SEND, of any service but datagrams.
        Send = "send",
        /// RDMA WRITE, with or without immediate data.
        RdmaWrite = "rdma_write",
        /// Request of an RDMA READ.
        ReadRequest = "rdma_read_request",
        /// Response of an RDMA READ.
        ReadResponse = "rdma_read_response",
        /// ACK or NAK.
        Acknowledge = "acknowledge",
        /// Response of an atomic.
        AtomicAcknowledge = "atomic_acknowledge",
        /// Request of a compare and swap.
        CompareSwap = "compare_swap",
        /// Request of a fetch and add.
        FetchAdd = "fetch_add",
        /// ATOMIC WRITE with its eight bytes.
        AtomicWrite = "atomic_write",
        /// Datagram of UD.
        Datagram = "datagram",
        /// Congestion notification (CNP).
        Cnp = "cnp",
    }
}

named! {
    /// Message of the connection manager (IBTA 12.6).
    CmKind, "message of the connection manager", {
        /// Request for communication.
        Req = "req",
        /// Message receipt acknowledgement.
        Mra = "mra",
        /// Reject of a connection.
        Rej = "rej",
        /// Reply to a request.
        Rep = "rep",
        /// Ready to use.
        Rtu = "rtu",
        /// Request for release.
        Dreq = "dreq",
        /// Reply to a request for release.
        Drep = "drep",
        /// Request of a service ID resolution, which resolves datagram queue pairs.
        SidrReq = "sidr_req",
        /// Response of a service ID resolution.
        SidrRep = "sidr_rep",
    }
}

named! {
    /// Asynchronous event (`enum ibv_event_type`) that a rule may raise.
    EventKind, "event", {
        /// The port is down.
        PortErr = "port_err",
        /// The port is up again.
        PortActive = "port_active",
        /// The device has failed.
        DeviceFatal = "device_fatal",
        /// A queue pair has failed.
        QpFatal = "qp_fatal",
        /// A request of the peer was malformed.
        QpReqErr = "qp_req_err",
        /// A request of the peer had no right.
        QpAccessErr = "qp_access_err",
        /// A completion queue has overrun.
        CqErr = "cq_err",
        /// A shared receive queue is below its limit.
        SrqLimitReached = "srq_limit_reached",
        /// The GID table has changed.
        GidChange = "gid_change",
    }
}

named! {
    /// Limit of a device (`struct ibv_device_attr`, where it has the limit).
    Limit, "limit", {
        /// Queue pairs at most.
        MaxQp = "max_qp",
        /// Work requests of a queue pair at most.
        MaxQpWr = "max_qp_wr",
        /// Elements of a work request at most.
        MaxSge = "max_sge",
        /// Bytes of inline data at most.
        MaxInline = "max_inline_data",
        /// Completion queues at most.
        MaxCq = "max_cq",
        /// Entries of a completion queue at most.
        MaxCqe = "max_cqe",
        /// Memory regions and windows at most.
        MaxMr = "max_mr",
        /// Protection domains at most.
        MaxPd = "max_pd",
        /// Shared receive queues at most.
        MaxSrq = "max_srq",
        /// Work requests of a shared receive queue at most.
        MaxSrqWr = "max_srq_wr",
        /// READs and atomics of a queue pair that are outstanding at most.
        MaxRdAtom = "max_qp_rd_atom",
        /// The active MTU of the port at most, in bytes.
        ActiveMtu = "active_mtu",
        /// Registered bytes of a device at most, in all its regions together.
        RegisteredBytes = "registered_bytes",
    }
}

/// Events that a rule cannot raise, and why.
const NO_EVENTS: &[(&str, &str)] = &[
    (
        "lid_change",
        "RoCE has no LIDs; in labs with InfiniBand the subnet manager changes them",
    ),
    (
        "sm_change",
        "RoCE has no subnet manager; in labs with InfiniBand stop it",
    ),
    (
        "client_reregister",
        "RoCE has no subnet manager, at which to register again",
    ),
    (
        "pkey_change",
        "RoCE has one partition, which does not change",
    ),
    (
        "path_mig",
        "the device has no alternate paths, as RoCE adapters have none",
    ),
    (
        "path_mig_err",
        "the device has no alternate paths, as RoCE adapters have none",
    ),
    (
        "comm_est",
        "it follows from a packet before the RTU: write `cm: drop opcode rtu`",
    ),
    ("sq_drained", "it follows from the program's change to SQD"),
    (
        "qp_last_wqe_reached",
        "it follows from a queue pair with an SRQ that goes to ERR: write qp_fatal",
    ),
    (
        "srq_err",
        "the device has no errors of shared receive queues alone: write cq_err or qp_fatal",
    ),
];

impl EventKind {
    /// Reads a name; one that the device cannot raise is refused with the reason.
    pub(crate) fn parse_event(text: &str) -> Result<Self, RuleError> {
        let lower = text.to_lowercase();
        let plain = lower.strip_prefix("ibv_event_").unwrap_or(&lower);
        match NO_EVENTS.iter().find(|(name, _)| *name == plain) {
            Some((name, reason)) => Err(RuleError::Impossible(format!("{name}: {reason}"))),
            None => Self::parse(plain),
        }
    }
}
