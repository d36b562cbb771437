//! Queue pair numbers: allocation, and the table from number to queue pair.
//!
//! A host grants ranges; within them numbers are drawn at random, so that neither the next number nor a freed
//! one can be guessed (ReDMArk, USENIX Security 2021).

use crate::random::Random;
use alloc::vec;
use alloc::vec::Vec;
use wire::Qpn;

/// Limit of random draws before a free number is searched in order.
const DRAWS_MAX: u32 = 32;

#[derive(Debug)]
struct Range {
    first: u32,
    /// Index of the queue pair, plus one; 0 is free.
    slots: Vec<u32>,
    used: u32,
}

/// The table from number to queue pair.
#[derive(Debug, Default)]
pub(crate) struct Qpns {
    /// Ordered by `first`; they do not overlap.
    ranges: Vec<Range>,
}

impl Qpns {
    /// Adds numbers. Those that were added before, and the reserved ones, are left out.
    pub(crate) fn add(&mut self, first: Qpn, count: u32) {
        let from = first.value().max(2);
        let to = first
            .value()
            .saturating_add(count)
            .min(Qpn::MULTICAST.value());
        let overlaps =
            |range: &Range| range.first < to && from < range.first + range.slots.len() as u32;
        if from >= to || self.ranges.iter().any(overlaps) {
            return;
        }
        let at = self.ranges.partition_point(|range| range.first < from);
        self.ranges.insert(
            at,
            Range {
                first: from,
                slots: vec![0; (to - from) as usize],
                used: 0,
            },
        );
    }

    pub(crate) fn free(&self) -> u32 {
        self.ranges
            .iter()
            .map(|range| range.slots.len() as u32 - range.used)
            .sum()
    }

    /// Allocates a number for the queue pair with this index.
    pub(crate) fn allocate(&mut self, index: usize, random: &mut Random) -> Option<Qpn> {
        let range = self
            .ranges
            .iter_mut()
            .find(|range| (range.used as usize) < range.slots.len())?;
        let length = range.slots.len() as u32;
        let start = (0..DRAWS_MAX)
            .map(|_| random.below(length))
            .find(|&slot| range.slots[slot as usize] == 0)
            .unwrap_or_else(|| random.below(length));
        let slot = (start..length)
            .chain(0..start)
            .find(|&slot| range.slots[slot as usize] == 0)?;
        range.slots[slot as usize] = index as u32 + 1;
        range.used += 1;
        Some(Qpn::new(range.first + slot))
    }

    pub(crate) fn release(&mut self, qpn: Qpn) {
        if let Some((range, slot)) = self.position(qpn) {
            let range = &mut self.ranges[range];
            if core::mem::take(&mut range.slots[slot]) != 0 {
                range.used -= 1;
            }
        }
    }

    #[inline]
    pub(crate) fn index(&self, qpn: Qpn) -> Option<usize> {
        let (range, slot) = self.position(qpn)?;
        (self.ranges[range].slots[slot] as usize).checked_sub(1)
    }

    /// The line of the ranges.
    #[cfg(feature = "simulation")]
    pub(crate) fn lines(&self, load: &impl Fn(*const u8)) {
        load(self.ranges.as_ptr().cast());
    }

    /// The line of a number.
    #[cfg(feature = "simulation")]
    #[inline]
    pub(crate) fn lines_of(&self, qpn: Qpn, load: &impl Fn(*const u8)) {
        if let Some((range, slot)) = self.position(qpn) {
            load(core::ptr::from_ref(&self.ranges[range].slots[slot]).cast());
        }
    }

    #[inline]
    fn position(&self, qpn: Qpn) -> Option<(usize, usize)> {
        let after = self
            .ranges
            .partition_point(|range| range.first <= qpn.value());
        let range = after.checked_sub(1)?;
        let slot = (qpn.value() - self.ranges[range].first) as usize;
        (slot < self.ranges[range].slots.len()).then_some((range, slot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_a_range_is_given_once_in_no_order() {
        let mut random = Random::new([1; 32]);
        let mut qpns = Qpns::default();
        qpns.add(Qpn::new(0x1000), 256);
        let mut given: Vec<Qpn> = (0..256)
            .filter_map(|index| qpns.allocate(index, &mut random))
            .collect();
        assert!(qpns.allocate(256, &mut random).is_none());
        assert!(
            given
                .iter()
                .enumerate()
                .all(|(index, &qpn)| qpns.index(qpn) == Some(index))
        );
        let rising = given
            .windows(2)
            .filter(|pair| pair[1].value() == pair[0].value() + 1)
            .count();
        assert!(
            rising < 32,
            "{rising} of 255 numbers follow their neighbour"
        );
        given.sort();
        given.dedup();
        assert_eq!(given.len(), 256);
        qpns.release(given[7]);
        assert_eq!((qpns.free(), qpns.index(given[7])), (1, None));
    }

    #[test]
    fn reserved_and_overlapping_numbers_are_not_added() {
        let mut qpns = Qpns::default();
        qpns.add(Qpn::new(0), 4);
        assert_eq!(qpns.free(), 2);
        qpns.add(Qpn::new(3), 10);
        assert_eq!(qpns.free(), 2);
        qpns.add(Qpn::new(0xff_fff0), 16);
        assert_eq!(qpns.free(), 2 + 15);
    }
}
