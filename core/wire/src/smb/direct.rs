//! The messages of SMB Direct and the buffer descriptors of RDMA channels (MS-SMBD 2.2).

use thiserror::Error;

use crate::layout::layouts;

/// The only version of the protocol (MS-SMBD 2.2.1).
pub const VERSION: u16 = 0x0100;
/// The flag of a data transfer that requests a message in return at once (`SMB_DIRECT_RESPONSE_REQUESTED`,
/// MS-SMBD 2.2.3).
pub const RESPONSE_REQUESTED: u16 = 0x0001;
/// Where the data of a data transfer message begin: behind the header and four bytes of padding.
pub const DATA_OFFSET: usize = 24;
/// The least value of MaxReceiveSize in a negotiation (MS-SMBD 3.1.5.2).
pub const RECEIVE_SIZE_MIN: u32 = 128;
/// The least value of MaxFragmentedSize in a negotiation (MS-SMBD 3.1.5.2).
pub const FRAGMENTED_SIZE_MIN: u32 = 131_072;
/// `STATUS_SUCCESS`: the negotiation succeeded.
pub const STATUS_SUCCESS: u32 = 0;
/// `STATUS_NOT_SUPPORTED`: the range of versions does not contain [`VERSION`].
pub const STATUS_NOT_SUPPORTED: u32 = 0xc000_00bb;

layouts! {
    /// Negotiate request: the first message of the side that connected (MS-SMBD 2.2.1).
    NegotiateRequest[20] {
        /// The lowest version that the sender supports.
        min_version: u16 = 0;
        /// The highest version that the sender supports.
        max_version: u16 = 2;
        /// The number of send credits that the sender requests, at least 1.
        credits_requested: u16 = 6;
        /// The size of message that the sender prefers to send, in bytes.
        preferred_send_size: u32 = 8;
        /// The largest message that the sender receives, in bytes.
        max_receive_size: u32 = 12;
        /// The largest reassembled message that the sender receives, in bytes.
        max_fragmented_size: u32 = 16;
    }
    /// Negotiate response: the first message of the side that listened (MS-SMBD 2.2.2).
    NegotiateResponse[32] {
        /// The lowest version that the sender supports.
        min_version: u16 = 0;
        /// The highest version that the sender supports.
        max_version: u16 = 2;
        /// The version that both sides use from now on.
        negotiated_version: u16 = 4;
        /// The number of send credits that the sender requests, at least 1.
        credits_requested: u16 = 8;
        /// How many send credits the sender grants.
        credits_granted: u16 = 10;
        /// Whether the negotiation succeeded, as an NTSTATUS.
        status: u32 = 12;
        /// The most bytes of one RDMA READ or WRITE over a buffer descriptor.
        max_read_write_size: u32 = 16;
        /// The size of message that the sender prefers to send, in bytes.
        preferred_send_size: u32 = 20;
        /// The largest message that the sender receives, in bytes.
        max_receive_size: u32 = 24;
        /// The largest reassembled message that the sender receives, in bytes.
        max_fragmented_size: u32 = 28;
    }
    /// The header of a data transfer message (MS-SMBD 2.2.3).
    DataTransfer[20] {
        /// The number of send credits that the sender requests, at least 1.
        credits_requested: u16 = 0;
        /// How many send credits the sender grants with this message.
        credits_granted: u16 = 2;
        /// Zero or [`RESPONSE_REQUESTED`].
        flags: u16 = 4;
        /// How many bytes of the message are still to come in later fragments; 0 in the last.
        remaining_data_length: u32 = 8;
        /// Where the data begin, from the start of the header, a multiple of 8; 0 without data.
        data_offset: u32 = 12;
        /// How many bytes of data this fragment has.
        data_length: u32 = 16;
    }
    /// Buffer descriptor V1: a piece of registered memory of the client (MS-SMBD 2.2.3.1).
    BufferDescriptor[16] {
        /// The address of the first byte, as the region's key counts.
        offset: u64 = 0;
        /// The remote key of the region.
        token: u32 = 8;
        /// Length in bytes.
        length: u32 = 12;
    }
}

/// Why bytes are not a data transfer message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum DataTransferError {
    /// The message ends within the header.
    #[error("SMB Direct: {length} bytes, a data transfer has at least 20")]
    Short {
        /// The bytes of the message.
        length: usize,
    },
    /// The peer requests no credits, which the specification forbids.
    #[error("SMB Direct: a data transfer requests 0 credits, at least 1 is needed")]
    NoCreditsRequested,
    /// The data lie outside of the message, within its header, or not at a multiple of 8.
    #[error("SMB Direct: data of {length} bytes at {offset} in a message of {available} bytes")]
    DataOutside {
        /// The field DataOffset.
        offset: u32,
        /// The field DataLength.
        length: u32,
        /// The bytes of the message.
        available: usize,
    },
}

impl DataTransfer {
    /// The header at the start of a message, and the message's data.
    ///
    /// # Errors
    /// [`DataTransferError`] names the field that breaks MS-SMBD 3.1.5.8: the connection has to end.
    pub fn parse_message(bytes: &[u8]) -> Result<(Self, &[u8]), DataTransferError> {
        let Some((header, _)) = Self::split(bytes) else {
            return Err(DataTransferError::Short {
                length: bytes.len(),
            });
        };
        if header.credits_requested == 0 {
            return Err(DataTransferError::NoCreditsRequested);
        }
        let (offset, length) = (header.data_offset, header.data_length);
        if length == 0 {
            return Ok((header, &[]));
        }
        let outside = DataTransferError::DataOutside {
            offset,
            length,
            available: bytes.len(),
        };
        let begin = usize::try_from(offset).map_err(|_| outside)?;
        let end = usize::try_from(length)
            .ok()
            .and_then(|length| begin.checked_add(length))
            .ok_or(outside)?;
        match bytes.get(begin..end) {
            Some(data) if begin >= DATA_OFFSET && begin.is_multiple_of(8) => Ok((header, data)),
            _ => Err(outside),
        }
    }
}

impl BufferDescriptor {
    /// The descriptors of an array, one after the other; `None` when its length is not a multiple of 16.
    pub fn array(bytes: &[u8]) -> Option<impl Iterator<Item = Self>> {
        let (chunks, rest) = bytes.as_chunks::<16>();
        rest.is_empty().then(|| chunks.iter().map(Self::parse))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(header: DataTransfer, data: usize) -> [u8; 64] {
        let mut bytes = [0xaa; 64];
        bytes[..DataTransfer::SIZE].copy_from_slice(&header.to_bytes());
        bytes[DATA_OFFSET..DATA_OFFSET + data].fill(0xdd);
        bytes
    }

    #[test]
    fn data_lie_behind_the_header_and_within_the_message() {
        let good = DataTransfer {
            credits_requested: 1,
            data_offset: 24,
            data_length: 40,
            ..DataTransfer::default()
        };
        let bytes = message(good, 40);
        assert_eq!(
            DataTransfer::parse_message(&bytes),
            Ok((good, &[0xdd; 40][..]))
        );
        for (offset, length) in [(24, 41), (16, 8), (28, 8), (u32::MAX, u32::MAX), (64, 8)] {
            let bad = DataTransfer {
                data_offset: offset,
                data_length: length,
                ..good
            };
            let refused = DataTransfer::parse_message(&message(bad, 0)).map(|_| ());
            assert_eq!(
                refused,
                Err(DataTransferError::DataOutside {
                    offset,
                    length,
                    available: 64
                })
            );
        }
    }

    #[test]
    fn empty_messages_carry_credits_and_may_announce_data() {
        let empty = DataTransfer {
            credits_requested: 255,
            credits_granted: 3,
            ..DataTransfer::default()
        };
        assert_eq!(
            DataTransfer::parse_message(&empty.to_bytes()),
            Ok((empty, &[][..]))
        );
        let remainder = DataTransfer {
            remaining_data_length: 5,
            ..empty
        };
        assert_eq!(
            DataTransfer::parse_message(&remainder.to_bytes()),
            Ok((remainder, &[][..]))
        );
        let none = DataTransfer {
            credits_requested: 0,
            ..empty
        };
        let refused = DataTransfer::parse_message(&none.to_bytes()).map(|_| ());
        assert_eq!(refused, Err(DataTransferError::NoCreditsRequested));
        let refused = DataTransfer::parse_message(&[0; 19]).map(|_| ());
        assert_eq!(refused, Err(DataTransferError::Short { length: 19 }));
    }

    #[test]
    fn descriptors_come_in_arrays() {
        let one = BufferDescriptor {
            offset: 0x1234,
            token: 7,
            length: 4096,
        };
        let two = BufferDescriptor { offset: 0, ..one };
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(&one.to_bytes());
        bytes[16..].copy_from_slice(&two.to_bytes());
        assert!(BufferDescriptor::array(&bytes).is_some_and(|all| all.eq([one, two])));
        assert!(BufferDescriptor::array(&bytes[1..]).is_none());
    }
}
