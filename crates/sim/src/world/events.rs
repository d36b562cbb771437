//! What happens when: a wheel of short slots for the near future, a heap for the far one.
//!
//! Events come out in the order of (time, key), whatever the order in which they were put in and however wide
//! the slots are: so a run is the same on any number of threads. A key stands for one thing that can happen,
//! and tells events of the same moment apart.

use fabric::Time;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// When, in picoseconds, and what.
type Event = (u64, u32);

/// Slots at most: with what is in them they fit into the second level cache.
const SLOTS_MAX: usize = 1 << 12;

/// So few sources of events need no wheel: one sorted list, in a slot without end.
const FEW: usize = 12;
const FEW_SHIFT: u32 = 63;

/// The queue of events.
#[derive(Debug)]
pub(crate) struct Events {
    /// The events of the slot that is being worked on, the next one last.
    current: Vec<Event>,
    /// Number of that slot since the start of time.
    slot: u64,
    /// Events of the slots after it, unordered.
    slots: Vec<Vec<Event>>,
    /// Which slots have any: one bit each.
    occupied: Vec<u64>,
    shift: u32,
    far: BinaryHeap<Reverse<Event>>,
    /// Events and slots that were taken since the width was last thought about.
    taken: u32,
    turned: u32,
    is_large: bool,
}

/// From so many sources on, a slot is to hold at least [`EVENTS_PER_SLOT_MIN`].
const LARGE: usize = 2048;

/// Sorting so many takes less than going through slots, each of which is a cache line or two of its own, and
/// the longer reach keeps events out of the heap. Measured with 1,024 hosts: 14.0 s with 3 in a slot, 11.3 s
/// with 24; but with 17 hosts, where all slots are in the cache, it took a quarter longer.
const EVENTS_PER_SLOT_MIN: u32 = 24;

/// So many events tell how full slots are.
const TUNE_AFTER: u32 = 4096;

impl Events {
    /// `reach_ps` is how far ahead most events lie, `sources` how many things make events: a slot is to hold
    /// few.
    pub(crate) fn new(reach_ps: u64, sources: usize) -> Self {
        if sources <= FEW {
            return Self::with_slots(64, FEW_SHIFT);
        }
        let wanted = sources.next_power_of_two().clamp(256, SLOTS_MAX) as u64;
        let shift = (reach_ps / wanted).max(1).next_power_of_two().trailing_zeros();
        let count = ((reach_ps >> shift) + 2).next_power_of_two().max(64) as usize;
        Self { is_large: sources >= LARGE, ..Self::with_slots(count, shift) }
    }

    fn with_slots(count: usize, shift: u32) -> Self {
        Self {
            current: Vec::new(),
            slot: 0,
            slots: vec![Vec::new(); count],
            occupied: vec![0; count / 64],
            shift,
            far: BinaryHeap::new(),
            taken: 0,
            turned: 0,
            is_large: false,
        }
    }

    /// Makes slots wider while they hold too few events. To be called now and then.
    pub(crate) fn tune(&mut self) {
        if !self.is_large || self.taken < TUNE_AFTER {
            return;
        }
        let (taken, turned) = (std::mem::take(&mut self.taken), std::mem::take(&mut self.turned));
        if taken / turned.max(1) >= EVENTS_PER_SLOT_MIN {
            return;
        }
        let mut all = std::mem::take(&mut self.current);
        all.extend(self.slots.iter_mut().flat_map(|slot| slot.drain(..)));
        self.occupied.fill(0);
        self.shift += 1;
        self.slot >>= 1;
        all.into_iter().for_each(|(at, key)| self.push(Time(at), key));
    }

    #[inline]
    pub(crate) fn push(&mut self, at: Time, key: u32) {
        let slot = at.0 >> self.shift;
        if slot <= self.slot {
            return self.insert((at.0, key));
        }
        if slot - self.slot < self.slots.len() as u64 {
            let index = slot as usize & (self.slots.len() - 1);
            self.slots[index].push((at.0, key));
            self.occupied[index / 64] |= 1 << (index % 64);
        } else {
            self.far.push(Reverse((at.0, key)));
        }
    }

    /// Puts an event among those of the slot that is being worked on.
    fn insert(&mut self, event: Event) {
        let sooner = self.current.iter().position(|other| *other < event);
        self.current.insert(sooner.unwrap_or(self.current.len()), event);
    }

    /// The next event, if it lies before `end`.
    #[inline]
    pub(crate) fn pop_before(&mut self, end: Time) -> Option<(Time, u32)> {
        loop {
            if let Some(&(at, key)) = self.current.last() {
                if at >= end.0 {
                    return None;
                }
                self.current.pop();
                return Some((Time(at), key));
            }
            if !self.turn(end.0 >> self.shift) {
                return None;
            }
        }
    }

    /// When the next event is.
    pub(crate) fn next_at(&mut self) -> Option<Time> {
        while self.current.is_empty() {
            if !self.turn(u64::MAX) {
                return None;
            }
        }
        self.current.last().map(|event| Time(event.0))
    }

    /// Goes on to the next slot that has events, if it is not beyond `last`.
    fn turn(&mut self, last: u64) -> bool {
        let near = self.next_occupied();
        let far = self.far.peek().map(|Reverse((at, _))| at >> self.shift);
        let Some(slot) = near.into_iter().chain(far).min().filter(|slot| *slot <= last) else { return false };
        self.slot = slot;
        self.turned += 1;
        if near == Some(slot) {
            let index = slot as usize & (self.slots.len() - 1);
            self.occupied[index / 64] &= !(1 << (index % 64));
            std::mem::swap(&mut self.current, &mut self.slots[index]);
        }
        while let Some(event) = self.far.peek().filter(|Reverse((at, _))| at >> self.shift == slot) {
            self.current.push(event.0);
            self.far.pop();
        }
        self.taken += self.current.len() as u32;
        if self.current.len() > 1 {
            self.current.sort_unstable_by(|one, other| other.cmp(one));
        }
        true
    }

    /// The next slot of the wheel with events.
    fn next_occupied(&self) -> Option<u64> {
        let mask = self.slots.len() - 1;
        let first = (self.slot as usize + 1) & mask;
        let words = self.occupied.len();
        let start = self.occupied[first / 64] >> (first % 64) << (first % 64);
        let found = |word: u64, at: usize| (at * 64 + word.trailing_zeros() as usize) & mask;
        let index = if start != 0 {
            found(start, first / 64)
        } else {
            let later = (1..=words).map(|step| (first / 64 + step) % words);
            let word = later.into_iter().find(|word| self.occupied[*word] != 0)?;
            found(self.occupied[word], word)
        };
        let ahead = index.wrapping_sub(self.slot as usize) & mask;
        Some(self.slot + ahead as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;

    #[test]
    fn events_come_out_in_order_whatever_the_slots() {
        for (reach, sources) in [(1, 1), (4_000_000, 3), (4_000_000, 100_000), (1 << 40, 10)] {
            let (mut events, mut dice) = (Events::new(reach, sources), Dice::new(7));
            let mut expected = BinaryHeap::new();
            let mut now = 0;
            for step in 0..30_000_u32 {
                for _ in 0..dice.below(3) {
                    let range = dice.pick(&[1, 1000, 1_000_000, 1 << 36]);
                    let ahead = dice.below(range);
                    events.push(Time(now + ahead), step);
                    expected.push(Reverse((now + ahead, step)));
                }
                if dice.below(100) == 0 {
                    events.tune();
                }
                if dice.below(3) > 0 {
                    let limit = now + dice.below(3_000_000);
                    let wanted = expected.peek().map(|event| event.0).filter(|event| event.0 < limit);
                    let got = events.pop_before(Time(limit)).map(|(at, key)| (at.0, key));
                    assert_eq!(got.map(|event| event.0), wanted.map(|event| event.0));
                    if let Some(event) = got {
                        assert_eq!(got, wanted);
                        now = event.0;
                        expected.pop();
                    }
                }
            }
            while let Some(Reverse(event)) = expected.pop() {
                assert_eq!(events.next_at(), Some(Time(event.0)));
                assert_eq!(events.pop_before(Time::NEVER).map(|(at, key)| (at.0, key)), Some(event));
            }
            assert_eq!(events.next_at(), None);
        }
    }
}
