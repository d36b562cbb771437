//! SMB over TCP: a byte of 0 and a 24-bit length before each message (MS-SMB2 2.1).

use std::collections::VecDeque;
use std::ops::Range;

use buffer::Buffer;

use crate::close_reason::Ended;
use crate::peer::Opened;

/// The length of the prefix in bytes.
pub const PREFIX: usize = 4;
/// The longest message.
pub const LENGTH_MAX: u64 = 0xff_ffff;
/// The type of a NetBIOS keepalive, which has no message (RFC 1002 4.3.7).
const KEEPALIVE: u8 = 0x85;
/// Short messages are collected in blocks of this length, so that one system call sends several.
const BLOCK: usize = 64 << 10;

/// The prefix of a message.
///
/// # Errors
/// [`Ended::Length`] when the length has more than 24 bits.
pub fn prefix(length: u64) -> Result<[u8; PREFIX], Ended> {
    match length {
        0..=LENGTH_MAX => Ok((length as u32).to_be_bytes()),
        length => Err(Ended::Length(length)),
    }
}

/// The length that a prefix announces; 0 for a keepalive.
///
/// # Errors
/// [`Ended::Frame`] for messages of other types.
pub fn length(prefix: [u8; PREFIX]) -> Result<u32, Ended> {
    let [kind, rest @ ..] = prefix;
    match kind {
        0 => Ok(u32::from_be_bytes([0, rest[0], rest[1], rest[2]])),
        KEEPALIVE if rest == [0; 3] => Ok(0),
        kind => Err(Ended::Frame(kind)),
    }
}

/// A part of what is to be sent.
#[derive(Debug)]
enum Part {
    Bytes(Vec<u8>),
    Buffer(Buffer, Range<usize>),
    Opened(Opened, usize),
    /// Bytes, and data behind them that an RDMA READ is to fetch: nothing behind goes out before.
    Awaited {
        operation: u64,
        head: Vec<u8>,
        length: usize,
    },
}

/// The queue of data to be sent over TCP, in order.
#[derive(Default, Debug)]
pub struct ToTcp {
    parts: VecDeque<Part>,
    /// Bytes of the first part that are sent already.
    sent: usize,
    queued: usize,
    recycled: Vec<Buffer>,
    closed: Vec<Opened>,
}

impl ToTcp {
    /// Bytes that wait, without those in data buffers.
    pub fn queued(&self) -> usize {
        self.queued
    }

    /// Appends bytes, which are copied.
    pub fn bytes(&mut self, bytes: &[u8]) {
        // A part without bytes would look as if nothing could be sent.
        if bytes.is_empty() {
            return;
        }
        self.queued += bytes.len();
        match self.parts.back_mut() {
            Some(Part::Bytes(block)) if block.len() + bytes.len() <= BLOCK => {
                block.extend_from_slice(bytes)
            }
            _ => self.parts.push_back(Part::Bytes(bytes.to_vec())),
        }
    }

    /// Appends a range of a buffer.
    pub fn buffer(&mut self, buffer: Buffer, range: Range<usize>) {
        self.parts.push_back(Part::Buffer(buffer, range));
    }

    /// Appends the first bytes of a buffer that the peer has written.
    pub(crate) fn opened(&mut self, opened: Opened, length: usize) {
        self.parts.push_back(Part::Opened(opened, length));
    }

    /// Appends bytes, and data that are not here yet.
    pub(crate) fn awaited(&mut self, operation: u64, head: Vec<u8>, length: usize) {
        self.queued += head.len();
        self.parts.push_back(Part::Awaited {
            operation,
            head,
            length,
        });
    }

    /// Fills an awaited part: the data are in the buffer behind the room for the part's bytes. Returns the
    /// length of the data.
    pub(crate) fn arrived(&mut self, arrived: u64, mut buffer: Buffer) -> usize {
        for part in &mut self.parts {
            match part {
                Part::Awaited {
                    operation,
                    head,
                    length,
                } if *operation == arrived => {
                    let length = *length;
                    self.queued -= head.len();
                    let range = 0..head.len() + length;
                    buffer[..head.len()].copy_from_slice(head);
                    *part = Part::Buffer(buffer, range);
                    return length;
                }
                _ => {}
            }
        }
        self.recycled.push(buffer);
        0
    }

    /// The bytes to send next; empty when nothing can be sent now.
    pub fn next(&self) -> &[u8] {
        let bytes = match self.parts.front() {
            Some(Part::Bytes(bytes)) => bytes,
            Some(Part::Buffer(buffer, range)) => &buffer[range.clone()],
            Some(Part::Opened(opened, length)) => &opened.buffer[..*length],
            Some(Part::Awaited { .. }) | None => return &[],
        };
        &bytes[self.sent..]
    }

    /// Notes that the first bytes of [`ToTcp::next`] were sent.
    pub fn sent(&mut self, count: usize) {
        if count < self.next().len() {
            self.sent += count;
            return;
        }
        self.sent = 0;
        match self.parts.pop_front() {
            Some(Part::Bytes(bytes)) => self.queued -= bytes.len(),
            Some(Part::Buffer(buffer, _)) => self.recycled.push(buffer),
            Some(Part::Opened(opened, _)) => self.closed.push(opened),
            Some(Part::Awaited { .. }) | None => {}
        }
    }

    /// A buffer that was open to the peer, whose bytes were sent.
    pub(crate) fn closed(&mut self) -> Option<Opened> {
        self.closed.pop()
    }

    /// A buffer whose bytes were sent.
    pub fn recycled(&mut self) -> Option<Buffer> {
        self.recycled.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_have_24_bits() {
        assert_eq!(prefix(0x01_0203).unwrap(), [0, 1, 2, 3]);
        assert!(matches!(prefix(1 << 24), Err(Ended::Length(_))));
        assert_eq!(length([0, 1, 2, 3]).unwrap(), 0x01_0203);
        assert_eq!(length([KEEPALIVE, 0, 0, 0]).unwrap(), 0);
        assert!(matches!(
            length([0x81, 0, 0, 0x44]),
            Err(Ended::Frame(0x81))
        ));
    }

    #[test]
    fn awaited_data_keep_their_place() {
        let mut queue = ToTcp::default();
        queue.bytes(b"ab");
        queue.awaited(7, b"cd".to_vec(), 2);
        queue.bytes(b"");
        queue.bytes(b"gh");
        assert_eq!((queue.next(), queue.queued()), (&b"ab"[..], 6));
        queue.sent(1);
        queue.sent(1);
        assert_eq!(queue.next(), b"", "what comes behind does not overtake");
        let mut buffer = Buffer::zeroed(4);
        buffer[2..4].copy_from_slice(b"ef");
        queue.arrived(7, buffer);
        assert_eq!(queue.next(), b"cdef");
        queue.sent(4);
        assert!(queue.recycled().is_some());
        assert_eq!(queue.next(), b"gh");
    }
}
