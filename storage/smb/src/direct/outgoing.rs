//! Messages that wait to be sent, and their fragments (MS-SMBD 3.1.5.1).

use std::collections::VecDeque;

use wire::smb::direct::{DATA_OFFSET, DataTransfer};

use super::{SendError, Transmit};

/// Messages in the order in which they were announced. The last may be incomplete.
#[derive(Default, Debug)]
pub(super) struct Outgoing {
    messages: VecDeque<Message>,
    /// The bytes of all messages that are here and not sent.
    bytes: VecDeque<u8>,
}

/// A message that has not been sent to its end.
#[derive(Debug)]
struct Message {
    /// Bytes that are not sent yet, whether they are here or not.
    remaining: u32,
    /// Bytes that are still to come from the layer above.
    missing: u32,
    invalidate: Option<u32>,
}

/// A fragment whose data have been written to the buffer.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct OutgoingFragment {
    /// Bytes of data.
    pub(super) length: u32,
    /// Bytes of the message that later fragments carry.
    pub(super) remaining: u32,
    /// The key to invalidate: in the last fragment only.
    pub(super) invalidate: Option<u32>,
}

impl Outgoing {
    pub(super) fn begin(&mut self, length: u32, invalidate: Option<u32>) {
        self.messages.push_back(Message {
            remaining: length,
            missing: length,
            invalidate,
        });
    }

    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), SendError> {
        let missing = self
            .messages
            .back()
            .map_or(0, |message| message.missing as usize);
        if bytes.len() > missing {
            return Err(SendError::TooMany {
                extra: bytes.len() - missing,
            });
        }
        if let Some(message) = self.messages.back_mut() {
            message.missing -= bytes.len() as u32;
        }
        self.bytes.extend(bytes);
        Ok(())
    }

    pub(super) fn buffered(&self) -> usize {
        self.bytes.len()
    }

    /// Writes the data of the next fragment behind the header's room in `buffer`. A fragment is full, or the
    /// last of its message.
    pub(super) fn next_fragment(&mut self, buffer: &mut [u8]) -> Option<OutgoingFragment> {
        let message = self.messages.front_mut()?;
        let room = buffer.get_mut(DATA_OFFSET..)?;
        let length = room.len().min(message.remaining as usize);
        if length == 0 || self.bytes.len() < length {
            return None;
        }
        let (first, second) = self.bytes.as_slices();
        let from_first = length.min(first.len());
        room[..from_first].copy_from_slice(&first[..from_first]);
        room[from_first..length].copy_from_slice(&second[..length - from_first]);
        self.bytes.drain(..length);
        message.remaining -= length as u32;
        let remaining = message.remaining;
        let invalidate = if remaining == 0 {
            message.invalidate
        } else {
            None
        };
        if remaining == 0 {
            self.messages.pop_front();
        }
        Some(OutgoingFragment {
            length: length as u32,
            remaining,
            invalidate,
        })
    }
}

/// Writes the header before the data of its fragment.
pub(super) fn frame(header: &DataTransfer, invalidate: Option<u32>, buffer: &mut [u8]) -> Transmit {
    buffer[..DataTransfer::SIZE].copy_from_slice(&header.to_bytes());
    match header.data_length {
        0 => Transmit {
            length: DataTransfer::SIZE,
            invalidate: None,
        },
        length => {
            buffer[DataTransfer::SIZE..DATA_OFFSET].fill(0);
            Transmit {
                length: DATA_OFFSET + length as usize,
                invalidate,
            }
        }
    }
}
