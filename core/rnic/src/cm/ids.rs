//! Communication IDs: each is used once before any is used again, and the next one cannot be predicted.
//!
//! A peer keeps the IDs of connections that are over for as long as their packets may be in the network, and
//! refuses another connection with the same ID. Of IDs drawn at random from 22 bits, two in two thousand are
//! equal every other time; so IDs are counted, and the count is encrypted: a Feistel network (Luby and
//! Rackoff, 1988) of ten rounds, as many as NIST SP 800-38G takes for numbers this small, whose round
//! function is SipHash-2-4 (Aumasson and Bernstein, 2012).

use crate::random::Random;
use wire::cm::CommId;

const ROUNDS: u64 = 10;

/// The order of communication IDs and the position in it, to continue where another manager stopped.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct IdSeries {
    /// The secret key that determines the order.
    pub key: [u64; 2],
    /// Number of IDs used.
    pub used: u32,
}

/// The lower bits of a value, with which communication IDs begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct IdPrefix {
    pub(super) value: u32,
    pub(super) bits: u8,
}

/// The communication IDs of one connection manager.
#[derive(Debug)]
pub(super) struct CommIds {
    prefix: u32,
    /// Number of bits after the prefix: 8..=32.
    width: u32,
    series: IdSeries,
}

impl CommIds {
    /// Continues `series`, or begins a new one. All IDs begin with `prefix`.
    pub(super) fn new(series: Option<IdSeries>, prefix: IdPrefix, random: &mut Random) -> Self {
        let mut word = || u64::from(random.next_u32()) << 32 | u64::from(random.next_u32());
        let series = series.unwrap_or_else(|| IdSeries {
            key: [word(), word()],
            used: 0,
        });
        let width = 32 - u32::from(prefix.bits.min(24));
        let prefix = if width == 32 {
            0
        } else {
            prefix.value << width
        };
        Self {
            prefix,
            width,
            series,
        }
    }

    pub(super) const fn used(&self) -> u32 {
        self.series.used
    }

    /// The next ID, which is never 0. After the last the series begins again.
    pub(super) fn next(&mut self) -> CommId {
        loop {
            let count = self.series.used & (u32::MAX >> (32 - self.width));
            self.series.used = self.series.used.wrapping_add(1);
            let id = self.prefix | encipher(&self.series.key, self.width, count);
            if id != 0 {
                return CommId(id);
            }
        }
    }
}

/// Permutation of the numbers of `width` bits.
fn encipher(key: &[u64; 2], width: u32, number: u32) -> u32 {
    let low_bits = width / 2;
    let (low_mask, high_mask) = ((1 << low_bits) - 1, (1 << (width - low_bits)) - 1);
    let (mut high, mut low) = (u64::from(number) >> low_bits, u64::from(number) & low_mask);
    for round in (0..ROUNDS).step_by(2) {
        high ^= sip_hash(key, round << 32 | low) & high_mask;
        low ^= sip_hash(key, (round + 1) << 32 | high) & low_mask;
    }
    (high << low_bits | low) as u32
}

/// SipHash-2-4 of eight bytes.
fn sip_hash(key: &[u64; 2], word: u64) -> u64 {
    let mut v = [
        key[0] ^ 0x736f_6d65_7073_6575,
        key[1] ^ 0x646f_7261_6e64_6f6d,
        key[0] ^ 0x6c79_6765_6e65_7261,
        key[1] ^ 0x7465_6462_7974_6573,
    ];
    // The last block has the rest of the message, which is empty, and its length.
    for block in [word, 8 << 56] {
        v[3] ^= block;
        sip_rounds(&mut v, 2);
        v[0] ^= block;
    }
    v[2] ^= 0xff;
    sip_rounds(&mut v, 4);
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

fn sip_rounds(v: &mut [u64; 4], count: u32) {
    for _ in 0..count {
        v[0] = v[0].wrapping_add(v[1]);
        v[2] = v[2].wrapping_add(v[3]);
        v[1] = v[1].rotate_left(13) ^ v[0];
        v[3] = v[3].rotate_left(16) ^ v[2];
        v[0] = v[0].rotate_left(32);
        v[2] = v[2].wrapping_add(v[1]);
        v[0] = v[0].wrapping_add(v[3]);
        v[1] = v[1].rotate_left(17) ^ v[2];
        v[3] = v[3].rotate_left(21) ^ v[0];
        v[2] = v[2].rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    fn ids(prefix_bits: u8, series: IdSeries) -> CommIds {
        let prefix = IdPrefix {
            value: 5,
            bits: prefix_bits,
        };
        CommIds::new(Some(series), prefix, &mut Random::new([1; 32]))
    }

    /// The vector of eight bytes from the authors' `vectors.h`.
    #[test]
    fn sip_hash_has_the_test_vector_of_its_authors() {
        let bytes =
            |first: u8| u64::from_le_bytes(std::array::from_fn(|index| first + index as u8));
        assert_eq!(
            sip_hash(&[bytes(0), bytes(8)], bytes(0)),
            0x93f5_f579_9a93_2462
        );
    }

    #[test]
    fn every_id_of_a_width_is_used_once_before_any_is_used_again() {
        for width in [8, 11, 16] {
            let key = [width, 7];
            let numbers: BTreeSet<u32> = (0..1 << width)
                .map(|count| encipher(&key, width as u32, count))
                .collect();
            assert_eq!(numbers.len(), 1 << width);
            assert_eq!(numbers.last().copied(), Some((1 << width) - 1));
        }
    }

    #[test]
    fn a_later_process_continues_the_series_and_repeats_no_id() {
        let key = [3, 4];
        let (mut first, mut seen) = (ids(10, IdSeries { key, used: 0 }), BTreeSet::new());
        for _ in 0..5_000 {
            assert!(seen.insert(first.next()));
        }
        let mut second = ids(
            10,
            IdSeries {
                key,
                used: first.used(),
            },
        );
        for _ in 0..5_000 {
            let id = second.next();
            assert_eq!(id.0 >> 22, 5, "the prefix");
            assert!(seen.insert(id));
        }
    }

    /// Consecutive IDs are uncorrelated: one bit in two differs.
    #[test]
    fn half_of_the_bits_differ_between_consecutive_ids() {
        let mut ids = ids(
            10,
            IdSeries {
                key: [1, 2],
                used: 0,
            },
        );
        let names: Vec<u32> = (0..4_096).map(|_| ids.next().0).collect();
        let differing: u32 = names
            .windows(2)
            .map(|pair| (pair[0] ^ pair[1]).count_ones())
            .sum();
        let expected = 22 * (names.len() as u32 - 1) / 2;
        assert!(
            differing.abs_diff(expected) < expected / 50,
            "{differing} instead of {expected}"
        );
    }
}
