//! READs and atomics that wait for their responses.

use alloc::collections::VecDeque;
use wire::Psn;

/// A READ or atomic that waits for its response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outstanding {
    /// The next response packet expected.
    pub(super) next: Psn,
    /// The PSN after the last response packet.
    pub(super) end: Psn,
}

/// The responses that the peer owes. The requester adds its requests, the completer removes them.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    pub(super) outstanding: VecDeque<Outstanding>,
    /// Ends of the READ pieces that were requested and not answered yet, in order. A repeated request must
    /// not reach beyond one: the peer may have executed the first of two pieces, and then has no request that
    /// begins before the expected PSN and ends after it (IBTA 9.7.5.1.5).
    pub(super) read_ends: VecDeque<Psn>,
}

impl Expected {
    /// Number of READs and atomics that wait for their responses.
    #[inline]
    pub(super) fn responses(&self) -> usize {
        self.outstanding.len()
    }

    /// Adds a request that was sent and is answered by the PSNs from `next` to `end`.
    #[inline]
    pub(super) fn add(&mut self, next: Psn, end: Psn, is_read: bool) {
        if is_read {
            self.note_read_end(end);
        }
        self.outstanding.push_back(Outstanding { next, end });
    }

    /// Number of packets from `next` to the end of the first piece that was requested before.
    #[inline]
    pub(super) fn packets_to_read_end(&self, next: Psn) -> u32 {
        let end = self.read_ends.iter().find(|end| next.is_before(**end));
        end.map_or(u32::MAX, |end| end.distance_from(next) as u32)
    }

    /// Records the end of a piece.
    fn note_read_end(&mut self, end: Psn) {
        let place = self
            .read_ends
            .iter()
            .position(|known| !known.is_before(end));
        match place {
            Some(place) if self.read_ends[place] == end => {}
            Some(place) => self.read_ends.insert(place, end),
            None => self.read_ends.push_back(end),
        }
    }

    /// Removes the ends of pieces up to `end`, since everything before it is answered.
    #[inline]
    pub(super) fn forget_ends_up_to(&mut self, end: Psn) {
        while self
            .read_ends
            .front()
            .is_some_and(|known| !end.is_before(*known))
        {
            self.read_ends.pop_front();
        }
    }

    /// Drops all expected responses.
    pub(super) fn clear(&mut self) {
        self.outstanding.clear();
        self.read_ends.clear();
    }
}
