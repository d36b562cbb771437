//! The receiving side of a stream: a ring that the peer writes to, whose halves are granted to it in turn,
//! and the credits for its messages.

use super::buffer::Buffer;
use super::protocol::Range;
use super::sizes::{PEER_WRITES, Sizes};
use abi::ibv_pd;
use ffi::Errno;
use std::collections::VecDeque;

/// Bytes that the peer has written, or may write.
pub(super) struct Incoming {
    ring: Buffer,
    /// Where the program reads next.
    at: usize,
    /// Bytes that the program has read since the last grant.
    free: usize,
    /// The half that is granted next.
    granted_at: usize,
    /// Bytes that the peer may have written and that are not announced yet: its messages may not exceed it.
    outstanding: usize,
    /// Lengths of the messages that are not read to their ends.
    arrived: VecDeque<u32>,
    /// Bytes of the first message that were read.
    first_read: u32,
    /// Messages that the peer can send at a time.
    depth: u16,
    /// Messages that were read to their ends, modulo 2^16.
    received: u16,
    credits_due_at: u16,
}

impl Incoming {
    /// # Safety
    /// `pd` outlives this.
    pub(super) unsafe fn new(pd: *mut ibv_pd, sizes: &Sizes) -> Result<Self, Errno> {
        // SAFETY: by this function's contract, `pd` outlives the buffer.
        let ring = unsafe { Buffer::new(pd, sizes.receive_bytes, PEER_WRITES) }?;
        let half = ring.length() / 2;
        let depth = sizes.receives as u16;
        Ok(Self {
            ring,
            at: 0,
            free: half,
            granted_at: half,
            outstanding: half,
            arrived: VecDeque::with_capacity(sizes.receives as usize + 1),
            first_read: 0,
            depth,
            received: 0,
            credits_due_at: depth / 2,
        })
    }

    /// Messages that the peer can send before it gets more credits.
    pub(super) fn depth(&self) -> u16 {
        self.depth
    }

    /// The half that is granted when the connection is made.
    pub(super) fn first_grant(&self) -> Range {
        self.half_at(0)
    }

    fn half(&self) -> usize {
        self.ring.length() / 2
    }

    fn half_at(&self, at: usize) -> Range {
        Range {
            address: self.ring.address() + at as u64,
            key: self.ring.key(),
            length: self.half() as u32,
        }
    }

    /// The peer announces that it has written this number of bytes; `false` if that is more than it was
    /// granted, or more messages than it has credits for.
    pub(super) fn announce(&mut self, length: u32) -> bool {
        let is_granted = self.arrived.len() < usize::from(self.depth);
        let Some(left) = self
            .outstanding
            .checked_sub(length as usize)
            .filter(|_| is_granted)
        else {
            return false;
        };
        self.outstanding = left;
        self.arrived.push_back(length);
        true
    }

    /// A message without bytes for the program takes a credit too.
    pub(super) fn count_message(&mut self) {
        self.received = self.received.wrapping_add(1);
    }

    /// Whether received bytes are unread.
    pub(super) fn has_data(&self) -> bool {
        !self.arrived.is_empty()
    }

    /// Copies received bytes; removes them unless `peek` is set.
    pub(super) fn take(&mut self, to: &mut [u8], peek: bool) -> usize {
        let (mut copied, mut at, mut read, mut seen) = (0, self.at, self.first_read, 0);
        while copied < to.len() {
            let Some(&length) = self.arrived.get(seen) else {
                break;
            };
            let now = ((length - read) as usize).min(to.len() - copied);
            self.ring.take(at, &mut to[copied..copied + now]);
            copied += now;
            at = (at + now) % self.ring.length();
            read += now as u32;
            if read == length {
                (seen, read) = (seen + 1, 0);
            }
        }
        if !peek {
            self.arrived.drain(..seen);
            (self.at, self.first_read) = (at, read);
            self.received = self.received.wrapping_add(seen as u16);
            self.free += copied;
        }
        copied
    }

    fn has_room(&self) -> bool {
        self.free >= self.half()
    }

    /// Whether half of the ring or half of the receives is free.
    pub(super) fn owes_credits(&self) -> bool {
        self.has_room() || self.received.wrapping_sub(self.credits_due_at) as i16 >= 0
    }

    /// The number up to which the peer may send messages, for the next message to the peer, and the half that
    /// it is granted, if one is free.
    pub(super) fn renew(&mut self) -> (u16, Option<Range>) {
        self.credits_due_at = self.received.wrapping_add(self.depth / 2);
        let range = self.has_room().then(|| self.half_at(self.granted_at));
        (self.received.wrapping_add(self.depth), range)
    }

    /// The half of the last [`Self::renew`] was granted.
    pub(super) fn granted(&mut self) {
        let half = self.half();
        self.free -= half;
        self.outstanding += half;
        self.granted_at = if self.granted_at == 0 { half } else { 0 };
    }
}
