//! Work requests of programs.

use crate::access::Access;
use crate::address::AddressVector;
use crate::completion::{CompletionKind, Status};
use crate::handle::{Lkey, Window};
use wire::{Qpn, Rkey, Tail};

/// Scatter/gather element: local memory with a local key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sge {
    /// Address, or offset in a zero-based region.
    pub address: u64,
    /// Length in bytes.
    pub length: u32,
    /// Key of the region that covers it.
    pub lkey: Lkey,
}

/// Source of the data of a send work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Data<'a> {
    /// Registered memory, read when the packets are made.
    Sges(&'a [Sge]),
    /// Bytes copied at once (IBV_SEND_INLINE): the program may reuse its buffer after the call.
    Inline(&'a [u8]),
}

/// Operation of a send work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// SEND, plain, with immediate, or with invalidate.
    Send(Tail),
    /// RDMA WRITE into the peer's memory.
    Write {
        /// Address in the peer's memory.
        address: u64,
        /// Key of the peer's memory region or window.
        rkey: Rkey,
        /// Immediate data; it consumes a receive of the peer.
        immediate: Option<[u8; 4]>,
    },
    /// RDMA READ from the peer's memory.
    Read {
        /// Address in the peer's memory.
        address: u64,
        /// Key of the peer's memory region or window.
        rkey: Rkey,
    },
    /// Compare and swap on eight bytes.
    CompareSwap {
        /// Remote address, a multiple of eight.
        address: u64,
        /// Key of the peer's memory region or window.
        rkey: Rkey,
        /// The value that the old one must equal for the swap.
        compare: u64,
        /// The new value.
        swap: u64,
    },
    /// Fetch and add on eight bytes.
    FetchAdd {
        /// Remote address, a multiple of eight.
        address: u64,
        /// Key of the peer's memory region or window.
        rkey: Rkey,
        /// The value that is added.
        add: u64,
    },
    /// Stores eight bytes atomically.
    AtomicWrite {
        /// Remote address, a multiple of eight.
        address: u64,
        /// Key of the peer's memory region or window.
        rkey: Rkey,
    },
    /// Invalidates a local region's or type 2 window's key.
    LocalInvalidate(Rkey),
    /// Binds a memory window.
    BindWindow(WindowBinding),
    /// Executes nothing, and completes with this status when the requests before it are done, as a request
    /// that cannot be executed does: a fault that the driver was asked for.
    Fault {
        /// The status, which is not `Success`.
        status: Status,
        /// The operation that the completion names.
        kind: CompletionKind,
    },
}

/// A memory window's binding (IBTA 10.6.7.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowBinding {
    /// The window that is bound.
    pub window: Window,
    /// Its new key (type 2: chosen by the program; type 1: by the device, see
    /// [`crate::RegisteredMemory::next_window_key`]).
    pub rkey: Rkey,
    /// Local key of the region behind it.
    pub region: Lkey,
    /// Address of the first byte of the range.
    pub address: u64,
    /// Bytes; 0 unbinds (type 1).
    pub length: u64,
    /// Remote rights, and `ZERO_BASED`.
    pub access: Access,
}

/// Destination of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Destination {
    /// Route to the peer.
    pub vector: AddressVector,
    /// The peer's queue pair.
    pub qpn: Qpn,
    /// The peer's queue key; with the top bit set, the sender's own is used (IBTA 10.2.5).
    pub qkey: u32,
}

bitflags::bitflags! {
    /// Flags of a send work request; the bits are those of `ibv_send_flags`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
    pub struct SendFlags: u32 {
        /// Waits until earlier READs and atomics of this queue are done.
        const FENCE = 1;
        /// Reports success too.
        const SIGNALED = 1 << 1;
        /// The peer's completion raises an event even when only solicited ones are requested.
        const SOLICITED = 1 << 2;
    }
}

/// A send work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendRequest<'a> {
    /// Identifier, returned in the completion.
    pub id: u64,
    /// Operation to execute.
    pub operation: Operation,
    /// Signaling, fence and solicited event.
    pub flags: SendFlags,
    /// Local data: source, or target of a READ or atomic.
    pub data: Data<'a>,
    /// Address handle of a datagram; UD only.
    pub destination: Option<Destination>,
    /// XRC only: the peer's shared receive queue.
    pub xrc_srq: Option<Qpn>,
}

/// A receive work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceiveRequest<'a> {
    /// Identifier, returned in the completion.
    pub id: u64,
    /// Buffers, filled in this order.
    pub sges: &'a [Sge],
}
