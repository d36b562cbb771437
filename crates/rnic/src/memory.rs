//! The one way in which the device reaches application memory.
//!
//! Live, addresses are real; in a simulation a phantom counts bytes. The device checks keys, ranges and
//! rights before it calls, so an implementation sees only what a region covers.

use alloc::boxed::Box;
use alloc::vec;

/// A stretch of application memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Where it begins, as the application sees it.
    pub address: u64,
    /// Length in bytes.
    pub length: u32,
    /// What is behind it.
    pub backing: Backing,
}

/// What is behind a stretch of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backing {
    /// Pages that stay.
    Pinned,
    /// The region was registered for on-demand paging: nothing promised that pages are there.
    OnDemand,
    /// Nothing: what is stored is gone, what is read is zeros. The address means nothing.
    Null,
}

/// Payload of an arriving packet.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// Bytes that do not change meanwhile.
    Bytes(&'a [u8]),
    /// Simulated: a number of bytes without content.
    Phantom(u32),
    /// Bytes that another process may change meanwhile (shared memory), at an address that means
    /// something to the driver's [`Memory`] alone.
    Foreign {
        /// Where they are.
        address: u64,
        /// Length in bytes.
        length: u32,
    },
}

impl<'a> Payload<'a> {
    /// A payload of no bytes.
    pub const EMPTY: Self = Self::Bytes(&[]);

    /// Length in bytes.
    pub const fn len(&self) -> u32 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u32,
            Self::Phantom(length) | Self::Foreign { length, .. } => *length,
        }
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first `length` bytes, and the rest. `length` is cut to what is there.
    pub fn split_at(self, length: u32) -> (Self, Self) {
        let length = length.min(self.len());
        match self {
            Self::Bytes(bytes) => {
                let (head, tail) = bytes.split_at(length as usize);
                (Self::Bytes(head), Self::Bytes(tail))
            }
            Self::Phantom(total) => (Self::Phantom(length), Self::Phantom(total - length)),
            Self::Foreign { address, length: total } => (
                Self::Foreign { address, length },
                Self::Foreign { address: address.wrapping_add(u64::from(length)), length: total - length },
            ),
        }
    }
}

/// Where a packet that is to be sent finds its payload.
#[derive(Clone, Copy, Debug)]
pub enum Gather<'a> {
    /// Bytes that the device holds: data posted inline, or generated.
    Inline(&'a [u8]),
    /// Application memory, in this order.
    Pieces(&'a [Piece]),
}

impl Gather<'_> {
    /// A payload of no bytes.
    pub const EMPTY: Self = Self::Inline(&[]);

    /// Length in bytes.
    pub fn len(&self) -> u32 {
        match self {
            Self::Inline(bytes) => bytes.len() as u32,
            Self::Pieces([only]) => only.length,
            Self::Pieces(pieces) => pieces.iter().map(|piece| piece.length).sum(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The memory is not there (an on-demand region whose pages the application does not have).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("application memory is not mapped")]
pub struct Fault;

/// Application memory, as the device writes it and operates on it. (It is read by the sink, which sends
/// packets:
/// [`crate::Sink`].)
pub trait Memory {
    /// Stores payload at `piece`, whose length is the payload's. Ascending, the last bytes becoming visible
    /// last: programs spin on the last byte of an RDMA WRITE.
    fn write(&mut self, piece: Piece, payload: Payload<'_>) -> Result<(), Fault>;

    /// Adds to the eight bytes (host order) at `piece`; returns what was there.
    fn fetch_add(&mut self, piece: Piece, add: u64) -> Result<u64, Fault>;

    /// Stores `swap` if `compare` was there; returns what was there.
    fn compare_swap(&mut self, piece: Piece, compare: u64, swap: u64) -> Result<u64, Fault>;

    /// Stores eight bytes at once (ATOMIC WRITE). The bytes are as they were on the wire.
    fn store(&mut self, piece: Piece, bytes: [u8; 8]) -> Result<(), Fault>;

    /// A copy of payload. A driver whose payload can be [`Payload::Foreign`] has to say how that is had.
    fn keep(&mut self, payload: Payload<'_>) -> Box<[u8]> {
        match payload {
            Payload::Bytes(bytes) => bytes.into(),
            Payload::Phantom(length) | Payload::Foreign { length, .. } => {
                vec![0; length as usize].into_boxed_slice()
            }
        }
    }
}
