//! READs and atomics that wait for their answers.

use alloc::collections::VecDeque;
use wire::Psn;

/// A READ or atomic that waits for its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outstanding {
    /// The next response packet expected.
    pub(super) next: Psn,
    /// Behind the last.
    pub(super) end: Psn,
}

/// The answers that the peer owes. The requester adds what it has asked for, the completer takes them.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    pub(super) outstanding: VecDeque<Outstanding>,
    /// Where pieces of READs ended that were asked for and not answered yet, in their order. What is asked
    /// for again must not reach beyond: the peer may have executed the first of two, and then knows no
    /// request that begins before what it expects and ends behind it (IBTA 9.7.5.1.5).
    pub(super) read_ends: VecDeque<Psn>,
}

impl Expected {
    /// READs and atomics that wait for their answers.
    #[inline]
    pub(super) fn responses(&self) -> usize {
        self.outstanding.len()
    }

    /// A request was sent that is answered by the PSNs from `next` to `end`.
    #[inline]
    pub(super) fn add(&mut self, next: Psn, end: Psn, is_read: bool) {
        if is_read {
            self.note_read_end(end);
        }
        self.outstanding.push_back(Outstanding { next, end });
    }

    /// Packets from `next` up to the first end of a piece that was asked for before.
    #[inline]
    pub(super) fn packets_to_read_end(&self, next: Psn) -> u32 {
        let end = self.read_ends.iter().find(|end| next.is_before(**end));
        end.map_or(u32::MAX, |end| end.distance_from(next) as u32)
    }

    /// A piece ends there: at an end that is known, or before the next that is.
    fn note_read_end(&mut self, end: Psn) {
        let place = self.read_ends.iter().position(|known| !known.is_before(end));
        match place {
            Some(place) if self.read_ends[place] == end => {}
            Some(place) => self.read_ends.insert(place, end),
            None => self.read_ends.push_back(end),
        }
    }

    /// Everything before `end` is answered: pieces that ended before it are asked for no more.
    #[inline]
    pub(super) fn forget_ends_up_to(&mut self, end: Psn) {
        while self.read_ends.front().is_some_and(|known| !end.is_before(*known)) {
            self.read_ends.pop_front();
        }
    }

    /// Expects nothing any more.
    pub(super) fn clear(&mut self) {
        self.outstanding.clear();
        self.read_ends.clear();
    }
}
