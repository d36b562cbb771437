//! Arbitration of virtual lanes (IBTA 7.6.9): two tables of lanes and weights. Lanes of the high one are
//! served first, until a limit is reached and a lane of the low one has a packet.

use super::LANES;
use alloc::vec::Vec;

/// Bytes of a unit of weights.
const WEIGHT_BYTES: u32 = 64;

/// Bytes of a unit of the limit of high priority.
const LIMIT_BYTES: u32 = 4_096;

/// [`Arbitration::high_limit`] that is no limit.
const UNLIMITED: u8 = 255;

/// An entry of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArbitrationEntry {
    /// The virtual lane.
    pub lane: u8,
    /// Units of 64 bytes that the lane may send in its turn; an entry with 0 is passed over.
    pub weight: u8,
}

/// The tables of a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Arbitration {
    /// Entries of high priority.
    pub high: Vec<ArbitrationEntry>,
    /// Entries of low priority.
    pub low: Vec<ArbitrationEntry>,
    /// Units of 4,096 bytes of high priority that may be sent while packets of low priority wait: 0 is one
    /// packet, and 255 is no limit.
    pub high_limit: u8,
}

impl Default for Arbitration {
    /// All lanes take turns of the same weight.
    fn default() -> Self {
        let entry = |lane| ArbitrationEntry {
            lane: lane as u8,
            weight: 64,
        };
        Self {
            high: Vec::new(),
            low: (0..LANES).map(entry).collect(),
            high_limit: 0,
        }
    }
}

/// The place in one table.
#[derive(Clone, Copy, Default, Debug)]
struct Turn {
    at: u8,
    /// What is left of the entry's weight, in units.
    left: i32,
}

impl Turn {
    /// The lane of the next entry that has weight left and whose lane may send.
    fn choose(
        &mut self,
        table: &[ArbitrationEntry],
        eligible: u8,
        length: impl Fn(u8) -> u32,
    ) -> Option<u8> {
        // Once around, and the entry at which that began again, with its whole weight.
        for _ in 0..=table.len() {
            let entry = table.get(usize::from(self.at))?;
            let may_send = eligible >> entry.lane & 1 == 1;
            if may_send && self.left > 0 {
                // A packet is sent whole where some weight is left.
                self.left -= length(entry.lane).div_ceil(WEIGHT_BYTES) as i32;
                return Some(entry.lane);
            }
            self.at = (self.at + 1) % table.len() as u8;
            self.left = i32::from(table[usize::from(self.at)].weight);
        }
        None
    }
}

/// The state of a port's arbitration.
#[derive(Clone, Default, Debug)]
pub(super) struct Arbiter {
    high: Turn,
    low: Turn,
    /// Bytes of high priority since the last packet of low priority.
    high_bytes: u32,
}

impl Arbiter {
    /// The lane that sends next, of several that may.
    pub(super) fn choose(
        &mut self,
        tables: &Arbitration,
        eligible: u8,
        length: impl Fn(u8) -> u32,
    ) -> Option<u8> {
        let limit = u32::from(tables.high_limit) * LIMIT_BYTES;
        let may_go_on = tables.high_limit == UNLIMITED || self.high_bytes <= limit;
        if may_go_on && let Some(lane) = self.high.choose(&tables.high, eligible, &length) {
            // With a limit of 0 one packet is sent.
            self.high_bytes = self.high_bytes.saturating_add(length(lane));
            return Some(lane);
        }
        self.high_bytes = 0;
        let lane = self.low.choose(&tables.low, eligible, &length);
        lane.or_else(|| {
            let lane = self.high.choose(&tables.high, eligible, &length)?;
            self.high_bytes = length(lane);
            Some(lane)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(of: &[(u8, u8)]) -> Vec<ArbitrationEntry> {
        let entry = |(lane, weight): &(u8, u8)| ArbitrationEntry {
            lane: *lane,
            weight: *weight,
        };
        of.iter().map(entry).collect()
    }

    /// Bytes by lane of 10,000 packets, all of one length, of lanes that always have some.
    fn shares(tables: &Arbitration, eligible: u8, length: u32) -> [u64; 8] {
        let (mut arbiter, mut sent) = (Arbiter::default(), [0; 8]);
        for _ in 0..10_000 {
            let lane = arbiter.choose(tables, eligible, |_| length).unwrap();
            sent[usize::from(lane)] += u64::from(length);
        }
        sent
    }

    #[test]
    fn lanes_of_one_table_share_by_weight() {
        let tables = Arbitration {
            high: Vec::new(),
            low: entries(&[(0, 65), (1, 195), (2, 0)]),
            high_limit: 0,
        };
        let sent = shares(&tables, 0b111, 4_124);
        assert_eq!((sent[1] / sent[0], sent[2]), (3, 0));
        // One lane alone has everything.
        assert_eq!(shares(&tables, 0b001, 4_124)[0], 41_240_000);
    }

    #[test]
    fn the_limit_of_high_priority_lets_low_priority_send() {
        for (high_limit, high, low) in [(0, 1, 1), (3, 4, 1), (9, 10, 1)] {
            let tables = Arbitration {
                high: entries(&[(1, 64)]),
                low: entries(&[(0, 64)]),
                high_limit,
            };
            // A packet that begins within the limit is sent whole.
            let sent = shares(&tables, 0b11, 4_096);
            let wanted = sent[0] * high / low;
            assert!(
                sent[1].abs_diff(wanted) <= 20 * 4_096,
                "{high_limit}: {sent:?}"
            );
        }
        let tables = Arbitration {
            high: entries(&[(1, 64)]),
            low: entries(&[(0, 64)]),
            high_limit: UNLIMITED,
        };
        assert_eq!(shares(&tables, 0b11, 4_096)[0], 0);
    }

    #[test]
    fn high_priority_goes_on_where_no_other_lane_has_packets() {
        let tables = Arbitration {
            high: entries(&[(1, 1)]),
            low: entries(&[(0, 64)]),
            high_limit: 0,
        };
        assert_eq!(shares(&tables, 0b10, 4_096)[1], 40_960_000);
    }

    #[test]
    fn a_lane_that_no_table_has_does_not_send() {
        let tables = Arbitration {
            high: Vec::new(),
            low: entries(&[(0, 64)]),
            high_limit: 0,
        };
        let lane = Arbiter::default().choose(&tables, 0b10, |_| 64);
        assert_eq!(lane, None);
    }
}
