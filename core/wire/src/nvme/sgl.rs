//! SGL descriptors: where a command's data are (Base 4.1.2.1, and the transports' own).

use thiserror::Error;

/// Bytes of a descriptor.
pub const SGL_SIZE: usize = 16;

/// An SGL descriptor, of the kinds that fabrics use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sgl {
    /// Memory of the host at an address. Not on fabrics.
    Address {
        /// Address of the first byte.
        address: u64,
        /// Length in bytes.
        length: u32,
    },
    /// Data in the capsule, `offset` behind the place where in-capsule data begin.
    InCapsule {
        /// Offset within the capsule, in bytes.
        offset: u64,
        /// Length in bytes.
        length: u32,
    },
    /// Data that the transport brings: TCP's H2CData and C2HData.
    Transport {
        /// Length in bytes.
        length: u32,
    },
    /// Memory of the host that a key grants: RDMA.
    Keyed {
        /// Address of the first byte in the host's memory.
        address: u64,
        /// Bytes, of which there can be 2^24 - 1.
        length: u32,
        /// Remote key of the host's memory region.
        key: u32,
        /// Whether the host requests that the controller invalidate the key with the response.
        invalidate: bool,
    },
    /// Descriptors in the capsule, the last of them or not.
    Segment {
        /// Bytes from the place where in-capsule data begin.
        offset: u64,
        /// Bytes of descriptors.
        length: u32,
        /// Whether no further segment follows it.
        last: bool,
    },
}

/// Why bytes are no descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("SGL descriptor of type {kind:#x}, subtype {subtype:#x}, is unknown")]
pub struct SglError {
    /// The upper half of the last byte.
    pub kind: u8,
    /// The lower half.
    pub subtype: u8,
}

const DATA_BLOCK: u8 = 0;
const SEGMENT: u8 = 2;
const LAST_SEGMENT: u8 = 3;
const KEYED: u8 = 4;
const TRANSPORT: u8 = 5;
const BY_ADDRESS: u8 = 0;
const BY_OFFSET: u8 = 1;
const TRANSPORT_SPECIFIC: u8 = 0xa;
const INVALIDATE: u8 = 0xf;

impl Sgl {
    /// Takes a descriptor apart.
    ///
    /// # Errors
    /// When type and subtype are not among those above.
    #[inline]
    pub fn parse(b: &[u8; SGL_SIZE]) -> Result<Self, SglError> {
        let address = u64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]);
        let length = u32::from_le_bytes([b[8], b[9], b[10], b[11]]);
        let (kind, subtype) = (b[15] >> 4, b[15] & 0xf);
        Ok(match (kind, subtype) {
            (DATA_BLOCK, BY_ADDRESS) => Self::Address { address, length },
            (DATA_BLOCK, BY_OFFSET) => Self::InCapsule {
                offset: address,
                length,
            },
            (SEGMENT | LAST_SEGMENT, BY_OFFSET) => Self::Segment {
                offset: address,
                length,
                last: kind == LAST_SEGMENT,
            },
            (KEYED, BY_ADDRESS | INVALIDATE) => Self::Keyed {
                address,
                length: length & 0xff_ffff,
                key: u32::from_le_bytes([b[11], b[12], b[13], b[14]]),
                invalidate: subtype == INVALIDATE,
            },
            (TRANSPORT, TRANSPORT_SPECIFIC) => Self::Transport { length },
            _ => return Err(SglError { kind, subtype }),
        })
    }

    /// The descriptor's bytes. Of a keyed length that does not fit, the low 24 bits are written.
    #[inline]
    pub fn to_bytes(self) -> [u8; SGL_SIZE] {
        let (address, length, last) = match self {
            Self::Address { address, length } => (address, length, DATA_BLOCK << 4 | BY_ADDRESS),
            Self::InCapsule { offset, length } => (offset, length, DATA_BLOCK << 4 | BY_OFFSET),
            Self::Transport { length } => (0, length, TRANSPORT << 4 | TRANSPORT_SPECIFIC),
            Self::Segment {
                offset,
                length,
                last,
            } => (
                offset,
                length,
                if last { LAST_SEGMENT } else { SEGMENT } << 4 | BY_OFFSET,
            ),
            Self::Keyed {
                address,
                length,
                key,
                invalidate,
            } => {
                let subtype = if invalidate { INVALIDATE } else { BY_ADDRESS };
                (
                    address,
                    length & 0xff_ffff | key << 24,
                    KEYED << 4 | subtype,
                )
            }
        };
        let mut bytes = [0; SGL_SIZE];
        bytes[..8].copy_from_slice(&address.to_le_bytes());
        bytes[8..12].copy_from_slice(&length.to_le_bytes());
        if let Self::Keyed { key, .. } = self {
            bytes[11..15].copy_from_slice(&key.to_le_bytes());
        }
        bytes[15] = last;
        bytes
    }

    /// Bytes of data that it describes; 0 for descriptors of descriptors.
    #[inline]
    pub const fn length(&self) -> u32 {
        match *self {
            Self::Address { length, .. }
            | Self::InCapsule { length, .. }
            | Self::Transport { length }
            | Self::Keyed { length, .. } => length,
            Self::Segment { .. } => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_survives() {
        for sgl in [
            Sgl::Address {
                address: u64::MAX,
                length: 1,
            },
            Sgl::InCapsule {
                offset: 8,
                length: 4096,
            },
            Sgl::Transport { length: u32::MAX },
            Sgl::Keyed {
                address: 0x1234,
                length: 0xff_ffff,
                key: 0x8765_4321,
                invalidate: true,
            },
            Sgl::Keyed {
                address: 0x1234,
                length: 0,
                key: 1,
                invalidate: false,
            },
            Sgl::Segment {
                offset: 0,
                length: 32,
                last: true,
            },
            Sgl::Segment {
                offset: 16,
                length: 32,
                last: false,
            },
        ] {
            assert_eq!(Sgl::parse(&sgl.to_bytes()), Ok(sgl));
        }
        let mut bytes = [0; SGL_SIZE];
        bytes[15] = 0x10;
        assert_eq!(
            Sgl::parse(&bytes),
            Err(SglError {
                kind: 1,
                subtype: 0
            })
        );
    }
}
