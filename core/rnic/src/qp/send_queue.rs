//! The send queue: work requests from posting to completion.

use crate::error::Error;
use crate::handle::Lkey;
use crate::work::{Data, Destination, Operation, SendFlags, SendRequest, Sge};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use wire::{Psn, Qpn};

/// Longest message (IBTA 9.7.7: 2^31 bytes).
pub(crate) const MESSAGE_MAX: u64 = 1 << 31;

/// PSNs are compared within half of their space (IBTA 9.7.1), so a message must have fewer packets than that.
const PACKETS_MAX: u32 = 1 << 23;

/// Whether the device executes an operation by itself, without a packet.
fn is_local(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::LocalInvalidate(_) | Operation::BindWindow(_) | Operation::Fault { .. }
    )
}

/// Whether a message of this length has few enough packets; `mtu` is 0 for datagrams, which are always one.
#[inline(always)]
fn check_packets(length: u32, mtu: u32) -> Result<(), Error> {
    if mtu != 0 && length.div_ceil(mtu) >= PACKETS_MAX {
        return Err(Error::Invalid(
            "the message has more packets than half of the PSN space",
        ));
    }
    Ok(())
}

/// A posted work request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendEntry {
    pub(crate) id: u64,
    pub(crate) operation: Operation,
    pub(crate) flags: SendFlags,
    pub(crate) xrc_srq: Option<Qpn>,
    /// PSN of its first packet: packets are numbered when posted, so a retransmission finds its position by
    /// PSN.
    pub(crate) first_psn: Psn,
    /// Number of packets, or of response packets of a READ; 0 for a local operation.
    pub(crate) packets: u32,
    /// Bytes of payload.
    pub(crate) length: u32,
    sge_at: u32,
    sge_count: u32,
    inline: bool,
}

impl SendEntry {
    /// The PSN after its last packet.
    pub(crate) fn end_psn(&self) -> Psn {
        self.first_psn.plus(self.packets)
    }

    /// Whether peers answer it with data: READs and atomics (the operations that a fence waits for).
    pub(crate) fn wants_response(&self) -> bool {
        matches!(
            self.operation,
            Operation::Read { .. }
                | Operation::CompareSwap { .. }
                | Operation::FetchAdd { .. }
                | Operation::AtomicWrite { .. }
        )
    }

    /// Bytes that count as sent with its request packets: none where the data are the peer's.
    #[inline]
    pub(crate) fn sent_bytes(&self) -> u32 {
        if self.wants_response() {
            0
        } else {
            self.length
        }
    }

    pub(crate) fn is_local(&self) -> bool {
        is_local(&self.operation)
    }
}

/// Entries in order of posting. Elements, inline bytes and destinations are in separate rings, so that an
/// entry is small and nothing is allocated per request once the rings have grown.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct SendQueue {
    max_wr: u32,
    /// Number of the first element in `sges`, counted since the creation of the queue.
    sge_base: u32,
    entries: VecDeque<SendEntry>,
    sges: VecDeque<Sge>,
    max_sge: u32,
    max_inline: u32,
    inline_slot_base: u32,
    /// One slot of `max_inline` bytes for each entry; grows on the first inline request.
    inline: Vec<u8>,
    destinations: VecDeque<Destination>,
}

impl SendQueue {
    pub(crate) fn new(max_wr: u32, max_sge: u32, max_inline: u32) -> Self {
        Self {
            max_wr,
            max_sge,
            max_inline,
            ..Self::default()
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &SendEntry> {
        self.entries.iter()
    }

    pub(crate) fn entry(&self, index: usize) -> Option<&SendEntry> {
        self.entries.get(index)
    }

    /// The one element of an entry that has neither several nor its bytes inline.
    pub(crate) fn only_sge(&self, entry: &SendEntry) -> Option<&Sge> {
        let at = entry.sge_at.wrapping_sub(self.sge_base) as usize;
        if entry.inline || entry.sge_count != 1 {
            None
        } else {
            self.sges.get(at)
        }
    }

    /// The lines of the oldest request.
    #[cfg(feature = "simulation")]
    #[inline]
    pub(crate) fn lines(&self, load: &impl Fn(*const u8)) {
        let entry: Option<*const u8> = self
            .entries
            .front()
            .map(|entry| core::ptr::from_ref(entry).cast());
        entry
            .into_iter()
            .for_each(|entry| [0, 64].iter().for_each(|at| load(entry.wrapping_add(*at))));
        self.sges
            .front()
            .into_iter()
            .for_each(|sge| load(core::ptr::from_ref(sge).cast()));
    }

    pub(crate) fn front(&self) -> Option<&SendEntry> {
        self.entries.front()
    }

    pub(crate) fn destination(&self, index: usize) -> Option<&Destination> {
        self.destinations.get(index)
    }

    /// The elements of an entry.
    pub(crate) fn sges(&self, entry: &SendEntry) -> impl Iterator<Item = &Sge> {
        let from = entry.sge_at.wrapping_sub(self.sge_base) as usize;
        self.sges.range(from..from + entry.sge_count as usize)
    }

    /// The inline bytes of an entry.
    pub(crate) fn inline(&self, entry: &SendEntry) -> Option<&[u8]> {
        let at = entry.sge_at as usize * self.max_inline as usize;
        entry
            .inline
            .then(|| &self.inline[at..at + entry.length as usize])
    }

    /// Checks a request and appends it. `mtu` is 0 for datagrams, which are always one packet.
    pub(crate) fn post(
        &mut self,
        request: &SendRequest<'_>,
        first_psn: Psn,
        mtu: u32,
    ) -> Result<u32, Error> {
        self.check_room(0)?;
        let length = self.check_request(request)?;
        let mut entry = SendEntry {
            id: request.id,
            operation: request.operation,
            flags: request.flags,
            xrc_srq: request.xrc_srq,
            first_psn,
            packets: 0,
            length,
            sge_at: 0,
            sge_count: 0,
            inline: false,
        };
        if !entry.is_local() {
            check_packets(length, mtu)?;
            entry.packets = if mtu == 0 {
                1
            } else {
                length.div_ceil(mtu).max(1)
            };
        }
        match request.data {
            Data::Sges(sges) => {
                entry.sge_at = self.sge_base.wrapping_add(self.sges.len() as u32);
                entry.sge_count = sges.len() as u32;
                // `extend` is a call, which for one element takes longer than the element.
                sges.iter().for_each(|sge| self.sges.push_back(*sge));
            }
            Data::Inline(bytes) => {
                entry.sge_at = self.store_inline(bytes);
                entry.inline = true;
            }
        }
        request
            .destination
            .into_iter()
            .for_each(|destination| self.destinations.push_back(destination));
        self.entries.push_back(entry);
        Ok(entry.packets)
    }

    /// Whether [`Self::post`] would take the request after `before` others.
    pub(crate) fn check_after(
        &self,
        request: &SendRequest<'_>,
        mtu: u32,
        before: usize,
    ) -> Result<(), Error> {
        self.check_room(before)?;
        let length = self.check_request(request)?;
        if is_local(&request.operation) {
            return Ok(());
        }
        check_packets(length, mtu)
    }

    /// Whether a request has room after `before` others.
    #[inline(always)]
    fn check_room(&self, before: usize) -> Result<(), Error> {
        if self.entries.len() + before >= self.max_wr as usize {
            return Err(Error::QueueFull);
        }
        Ok(())
    }

    /// Whether [`Self::post`] would take this operation with one element.
    #[inline(always)]
    pub(crate) fn takes_one(&self, operation: &Operation, sge: &Sge) -> bool {
        let is_atomic = matches!(
            operation,
            Operation::CompareSwap { .. } | Operation::FetchAdd { .. }
        );
        self.max_sge > 0 && u64::from(sge.length) <= MESSAGE_MAX && (sge.length == 8 || !is_atomic)
    }

    /// Whether [`Self::post`] would take a WRITE of these inline bytes.
    #[inline(always)]
    pub(crate) fn takes_inline(&self, bytes: &[u8]) -> bool {
        bytes.len() <= self.max_inline as usize
    }

    /// Checks a request; returns its length in bytes.
    fn check_request(&self, request: &SendRequest<'_>) -> Result<u32, Error> {
        let length = match request.data {
            Data::Sges(sges) => {
                if sges.len() > self.max_sge as usize {
                    return Err(Error::Invalid(
                        "more gather elements than the queue was created for",
                    ));
                }
                sges.iter().map(|sge| u64::from(sge.length)).sum()
            }
            Data::Inline(bytes) => {
                if bytes.len() > self.max_inline as usize {
                    return Err(Error::Invalid(
                        "more inline data than the queue was created for",
                    ));
                }
                bytes.len() as u64
            }
        };
        if length > MESSAGE_MAX {
            return Err(Error::Invalid("the message is longer than 2^31 bytes"));
        }
        let inline = matches!(request.data, Data::Inline(_));
        match request.operation {
            Operation::Read { .. } if inline => Err(Error::Invalid("a READ cannot be inline")),
            Operation::CompareSwap { .. } | Operation::FetchAdd { .. } if inline || length != 8 => {
                Err(Error::Invalid("an atomic has one element of eight bytes"))
            }
            Operation::AtomicWrite { address, .. } if length != 8 || address % 8 != 0 => {
                Err(Error::Invalid(
                    "an atomic write has eight bytes and an address that is a multiple of 8",
                ))
            }
            _ => Ok(length as u32),
        }
    }

    /// Copies the bytes into the slot of the entry that is being posted; returns the slot.
    fn store_inline(&mut self, bytes: &[u8]) -> u32 {
        let slot = (self.inline_slot_base + self.entries.len() as u32) % self.max_wr;
        let stride = self.max_inline as usize;
        if self.inline.is_empty() {
            self.inline.resize(stride * self.max_wr as usize, 0);
        }
        self.inline[slot as usize * stride..][..bytes.len()].copy_from_slice(bytes);
        slot
    }

    /// Removes the oldest entry.
    pub(crate) fn pop(&mut self) -> Option<SendEntry> {
        let entry = *self.entries.front()?;
        self.drop_front();
        Some(entry)
    }

    /// Removes the oldest entry without returning it.
    pub(crate) fn drop_front(&mut self) {
        let Some(entry) = self.entries.pop_front() else {
            return;
        };
        if !entry.inline {
            for _ in 0..entry.sge_count {
                self.sges.pop_front();
            }
            self.sge_base = self.sge_base.wrapping_add(entry.sge_count);
        }
        self.destinations.pop_front();
        self.inline_slot_base += 1;
        if self.inline_slot_base >= self.max_wr {
            self.inline_slot_base = 0;
        }
    }

    /// Drops all entries, and frees memory.
    pub(crate) fn clear(&mut self) {
        *self = Self::new(self.max_wr, self.max_sge, self.max_inline);
    }

    /// Index of the entry that has a packet with this PSN, among the first `count` (those in flight, which
    /// lie within half of the PSN space; all that are posted need not).
    pub(crate) fn find(&self, psn: Psn, count: usize) -> Option<usize> {
        let (mut low, mut high) = (0, count.min(self.entries.len()));
        let count = high;
        while low < high {
            let middle = low.midpoint(high);
            // Entries are ordered by PSN; those without packets share their successor's.
            if psn.is_before(self.entries[middle].end_psn()) {
                high = middle
            } else {
                low = middle + 1
            }
        }
        (low < count).then_some(low)
    }
}

/// An element that addresses `length` bytes from `offset` on within `sge`.
pub(crate) fn part(sge: &Sge, offset: u32, length: u32) -> Sge {
    Sge {
        address: sge.address.wrapping_add(u64::from(offset)),
        length,
        lkey: Lkey(sge.lkey.0),
    }
}
