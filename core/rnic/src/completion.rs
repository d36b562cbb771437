//! Work completions, as `ibv_wc` reports them.

use wire::{Qpn, Rkey};

/// Outcome of a work request; the values are those of `ibv_wc_status`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum Status {
    /// The request was executed.
    Success = 0,
    /// A message was longer than its buffer, or longer than 2^31 bytes.
    LocalLength = 1,
    /// The queue pair could not execute the request for a local reason.
    LocalQpOperation = 2,
    /// A local key, range or right was wrong.
    LocalProtection = 4,
    /// Not executed: the queue pair was in the error state.
    Flushed = 5,
    /// Binding a memory window failed.
    WindowBind = 6,
    /// A response was inconsistent with the request.
    BadResponse = 7,
    /// Local access error: an immediate write that could not be placed.
    LocalAccess = 8,
    /// The peer rejected the request as invalid.
    RemoteInvalidRequest = 9,
    /// The peer refused the key, range or access right.
    RemoteAccess = 10,
    /// The peer could not execute the request.
    RemoteOperation = 11,
    /// No answer, after all retries.
    RetryExceeded = 12,
    /// The peer was not ready, after all RNR retries.
    RnrRetryExceeded = 13,
    /// The peer aborted the request.
    RemoteAborted = 16,
    /// The queue pair can execute nothing any more.
    Fatal = 19,
    /// A response did not arrive in time.
    ResponseTimeout = 20,
    /// A failure that no other status names.
    General = 21,
}

/// Operation that completed; the values are those of `ibv_wc_opcode`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum CompletionKind {
    /// SEND, with or without immediate or invalidate.
    Send = 0,
    /// RDMA WRITE, with or without immediate.
    Write = 1,
    /// An RDMA READ of ours.
    Read = 2,
    /// Compare and swap.
    CompareSwap = 3,
    /// Fetch and add.
    FetchAdd = 4,
    /// A memory window was bound.
    BindWindow = 5,
    /// A local key was invalidated.
    LocalInvalidate = 6,
    /// An ATOMIC WRITE of ours.
    AtomicWrite = 9,
    /// A receive, filled by a SEND.
    Receive = 128,
    /// A receive, used up by an RDMA WRITE with immediate.
    ReceiveWriteImmediate = 129,
}

/// Data that a receive completion carries besides the received bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Extra {
    /// The completion has neither immediate data nor an invalidated key.
    #[default]
    None,
    /// Immediate data, big-endian as on the wire.
    Immediate([u8; 4]),
    /// The local key that the sender invalidated.
    Invalidated(Rkey),
}

/// Header of a received UD packet (IBTA A17.4.5.1: a flag in the completion gives the IP version).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NetworkHeader {
    /// An IPv4 header, in the second half of the 40 bytes.
    Ipv4,
    /// An IPv6 header.
    Ipv6,
    /// The global route header of InfiniBand, which an IPv6 header resembles.
    Global,
}

/// One entry of a completion queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The work request's id.
    pub id: u64,
    /// Outcome. When not `Success`, only `id`, `qpn` and this have a meaning.
    pub status: Status,
    /// Operation that completed.
    pub kind: CompletionKind,
    /// Bytes: received (with the 40 of a UD's GRH), or read, or 8 for an atomic.
    pub length: u32,
    /// The queue pair.
    pub qpn: Qpn,
    /// UD and XRC receives: the sender's queue pair.
    pub source: Qpn,
    /// Immediate or invalidated key.
    pub extra: Extra,
    /// UD receives: the header that the first 40 bytes of the buffer hold.
    pub grh: Option<NetworkHeader>,
    /// UD receives of InfiniBand: the service level.
    pub service_level: u8,
    /// UD receives of InfiniBand: the LID of the sender.
    pub source_lid: u16,
    /// UD receives of InfiniBand: the low bits of the LID that the packet was for.
    pub path_bits: u8,
    /// Time at which the device generated it, in nanoseconds of the driver's clock.
    pub at_ns: u64,
}
