//! A client and a server that send arbitrary messages to a gateway, or to a dial.
//!
//! The input is a byte that chooses between these, then steps: a byte that chooses the sender and how the
//! bytes are framed, a length, and bytes.
#![no_main]

use std::ops::Range;

use buffer::Buffer;
use smb::direct::incoming::Fragment;
use smb::close_reason::Ended;
use smb::peer::{Opened, Peer};
use smb::relay::Session;
use smb::relay::dial::Dial;
use smb::relay::gateway::Gateway;
use smb::relay::trees::Trees;
use wire::smb::direct::BufferDescriptor;

/// Steps of one input at most: faults show early.
const STEPS_MAX: usize = 32;

/// The SMB Direct side, without memory behind it.
#[derive(Default)]
struct Line {
    /// Bytes of the announced message that are still to come.
    missing: u32,
    fetches: Vec<(u64, Buffer)>,
    keys: u32,
}

fn sum(pieces: &[BufferDescriptor]) -> usize {
    pieces.iter().map(|piece| piece.length as usize).sum()
}

impl Peer for Line {
    fn begin(&mut self, length: u32, _: Option<u32>) -> Result<(), Ended> {
        assert_eq!(self.missing, 0, "messages do not interleave");
        self.missing = length;
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), Ended> {
        self.missing = self
            .missing
            .checked_sub(bytes.len() as u32)
            .expect("no more than was announced");
        Ok(())
    }

    fn buffer(&mut self, length: usize) -> Result<Option<Buffer>, Ended> {
        Ok(Some(Buffer::zeroed(length)))
    }

    fn buffer_beyond(&mut self, length: usize) -> Result<Option<Buffer>, Ended> {
        Ok(Some(Buffer::zeroed(length)))
    }

    fn recycle(&mut self, _: Buffer) {}

    fn fetch(
        &mut self,
        operation: u64,
        buffer: Buffer,
        at: usize,
        from: &[BufferDescriptor],
        length: usize,
    ) {
        assert_eq!(sum(from), length);
        assert!(at + length <= buffer.len());
        self.fetches.push((operation, buffer));
    }

    fn write_by_rdma(&mut self, buffer: Buffer, range: Range<usize>, to: &[BufferDescriptor]) {
        assert_eq!(sum(to), range.len());
        assert!(range.end <= buffer.len());
    }

    fn open(&mut self, length: usize, invalidates: bool) -> Result<Option<Opened>, Ended> {
        self.keys += 1;
        let buffer = Buffer::zeroed(length);
        let descriptor = BufferDescriptor {
            offset: 0,
            token: self.keys,
            length: length as u32,
        };
        Ok(Some(Opened {
            buffer,
            descriptor,
            invalidates,
        }))
    }

    fn close(&mut self, _: Opened) {}

    fn read_write_size(&self) -> u32 {
        1 << 20
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((&kind, rest)) = bytes.split_first() else {
        return;
    };
    _ = match kind & 1 {
        0 => relay(Gateway::default(), rest),
        _ => relay(Dial::new(Trees::default()), rest),
    };
});

fn relay(mut session: impl Session, mut rest: &[u8]) -> Result<(), Ended> {
    let mut line = Line::default();
    for _ in 0..STEPS_MAX {
        let Some((&[action, length], after)) = rest.split_first_chunk() else {
            break;
        };
        let (part, after) = after.split_at(usize::from(length).min(after.len()));
        rest = after;
        match action & 3 {
            0 => over_direct(&mut session, part, usize::from(action >> 2) + 1)?,
            1 => over_tcp(&mut session, &mut line, part)?,
            2 => {
                let framed = [&(part.len() as u32).to_be_bytes()[..], part].concat();
                over_tcp(&mut session, &mut line, &framed)?;
            }
            _ => {
                for (operation, buffer) in std::mem::take(&mut line.fetches) {
                    session.fetched(operation, buffer);
                }
            }
        }
        session.advance(&mut line)?;
        while let count = session.to_tcp().next().len()
            && count > 0
        {
            session.to_tcp().sent(count);
        }
    }
    Ok(())
}

/// A message of the SMB Direct peer, in fragments.
fn over_direct(session: &mut impl Session, message: &[u8], size: usize) -> Result<(), Ended> {
    let total = message.len();
    for (index, data) in message.chunks(size).enumerate() {
        let begins = (index == 0).then_some(total as u32);
        let remaining = (total - index * size - data.len()) as u32;
        session.fragment(Fragment {
            data,
            begins,
            remaining,
        })?;
    }
    Ok(())
}

/// Bytes of the TCP peer.
fn over_tcp(session: &mut impl Session, line: &mut Line, mut bytes: &[u8]) -> Result<(), Ended> {
    while !bytes.is_empty() {
        let Some(place) = session.tcp_place() else {
            return Ok(());
        };
        let count = place.len().min(bytes.len());
        place[..count].copy_from_slice(&bytes[..count]);
        session.tcp_received(count, line)?;
        bytes = &bytes[count..];
    }
    Ok(())
}
