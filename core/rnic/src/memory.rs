//! Access of the device to application memory.
//!
//! In a live device addresses are real; in a simulation a phantom counts bytes. The device checks keys,
//! ranges and rights before each call, so an implementation sees only addresses that a region covers.

use alloc::boxed::Box;
use alloc::vec;

/// A contiguous range of application memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// First address of the memory, as the application sees it.
    pub address: u64,
    /// Length in bytes.
    pub length: u32,
    /// Kind of memory behind it.
    pub backing: Backing,
}

/// Kind of memory behind a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backing {
    /// Pinned pages, which stay mapped.
    Pinned,
    /// Memory registered for on-demand paging: pages may be unmapped.
    OnDemand,
    /// No memory: stores are discarded, loads give zeros. The address has no meaning.
    Null,
}

/// Payload of an arriving packet.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// Bytes that do not change during the call.
    Bytes(&'a [u8]),
    /// A number of bytes without content, in a simulation.
    Phantom(u32),
    /// Bytes in shared memory, or in another process's memory, that may change during the call, at an address
    /// that only the driver's [`Memory`] can interpret.
    Foreign {
        /// Address of the bytes.
        address: u64,
        /// Length in bytes.
        length: u32,
    },
}

impl<'a> Payload<'a> {
    /// An empty payload.
    pub const EMPTY: Self = Self::Bytes(&[]);

    /// Length in bytes.
    pub const fn len(&self) -> u32 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u32,
            Self::Phantom(length) | Self::Foreign { length, .. } => *length,
        }
    }

    /// Whether the payload is empty.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Splits after `length` bytes, or at the end if that is more.
    pub fn split_at(self, length: u32) -> (Self, Self) {
        let length = length.min(self.len());
        match self {
            Self::Bytes(bytes) => {
                let (head, tail) = bytes.split_at(length as usize);
                (Self::Bytes(head), Self::Bytes(tail))
            }
            Self::Phantom(total) => (Self::Phantom(length), Self::Phantom(total - length)),
            Self::Foreign {
                address,
                length: total,
            } => (
                Self::Foreign { address, length },
                Self::Foreign {
                    address: address.wrapping_add(u64::from(length)),
                    length: total - length,
                },
            ),
        }
    }
}

/// Source of the payload of a packet that is to be sent.
#[derive(Clone, Copy, Debug)]
pub enum Gather<'a> {
    /// Bytes that the device holds: data posted inline, or generated.
    Inline(&'a [u8]),
    /// Application memory, in this order.
    Pieces(&'a [Piece]),
}

impl Gather<'_> {
    /// An empty payload.
    pub const EMPTY: Self = Self::Inline(&[]);

    /// Length in bytes.
    pub fn len(&self) -> u32 {
        match self {
            Self::Inline(bytes) => bytes.len() as u32,
            Self::Pieces([only]) => only.length,
            Self::Pieces(pieces) => pieces.iter().map(|piece| piece.length).sum(),
        }
    }

    /// Whether the payload is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Reason why memory could not be read or written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault {
    /// The memory is not mapped (an on-demand region whose pages the application does not have).
    #[error("application memory is not mapped")]
    Unmapped,
    /// The bytes of a [`Payload::Foreign`] cannot be read. The request counts as lost, so that its sender
    /// repeats it.
    #[error("the payload cannot be fetched from its sender's memory")]
    Payload,
}

/// Application memory, for writes and atomic operations of the device. (The sink, which sends packets, reads
/// it: [`crate::Sink`].)
pub trait Memory {
    /// Stores payload at `piece`, which has the same length. In ascending order, so that the last bytes
    /// become visible last: programs poll the last byte of an RDMA WRITE.
    fn write(&mut self, piece: Piece, payload: Payload<'_>) -> Result<(), Fault>;

    /// Adds to the eight bytes (host order) at `piece`; returns the old value.
    fn fetch_add(&mut self, piece: Piece, add: u64) -> Result<u64, Fault>;

    /// Stores `swap` if the old value equals `compare`; returns the old value.
    fn compare_swap(&mut self, piece: Piece, compare: u64, swap: u64) -> Result<u64, Fault>;

    /// Stores eight bytes atomically (ATOMIC WRITE), in the byte order of the packet.
    fn store(&mut self, piece: Piece, bytes: [u8; 8]) -> Result<(), Fault>;

    /// Copies a payload. A driver whose payload can be [`Payload::Foreign`] must override this.
    fn keep(&mut self, payload: Payload<'_>) -> Box<[u8]> {
        match payload {
            Payload::Bytes(bytes) => bytes.into(),
            Payload::Phantom(length) | Payload::Foreign { length, .. } => {
                vec![0; length as usize].into_boxed_slice()
            }
        }
    }
}
