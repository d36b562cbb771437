//! The range of queue pair numbers of each slot.
//!
//! An attacker who cannot see the traffic, but knows addresses, may send packets and connection requests with
//! a peer's address for every queue pair number of a range. If ranges were assigned in order, a host with one
//! device would always have the second of them. So each agent multiplies slots by a random factor modulo the
//! number of slots without the last one: slot 0 keeps the range of queue pair 1, and the range with the
//! multicast number is not used.

use super::SLOTS;

/// Modulus of slots. 600 factors have an inverse.
const MODULUS: u32 = SLOTS as u32 - 1;

/// The order of the ranges of an agent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ranges {
    factor: u32,
    inverse: u32,
}

impl Ranges {
    /// Creates the order that a random number determines.
    pub(super) fn new(random: u32) -> Self {
        // Numbers with an inverse are never far apart.
        let mut factor = random % MODULUS;
        loop {
            if let Some(inverse) = (1..MODULUS).find(|inverse| factor * inverse % MODULUS == 1) {
                return Self { factor, inverse };
            }
            factor = (factor + 1) % MODULUS;
        }
    }

    /// The upper bits of the queue pair numbers of a slot.
    pub(super) fn of_slot(self, slot: usize) -> u32 {
        slot as u32 * self.factor % MODULUS
    }

    /// The factor that gives the slot from the upper bits of a queue pair number, see
    /// [`link::udp::Socket::join_group`].
    pub(super) fn inverse(self) -> u32 {
        self.inverse
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_slot_has_a_range_of_its_own_and_is_found_by_it() {
        for random in [0, 1, 2, 3, 341, 1022, 1023, 77_777, u32::MAX] {
            let ranges = Ranges::new(random);
            let upper: BTreeSet<u32> = (0..SLOTS - 1).map(|slot| ranges.of_slot(slot)).collect();
            assert_eq!(upper.len(), SLOTS - 1);
            assert!(!upper.contains(&MODULUS), "the multicast number's");
            assert_eq!(ranges.of_slot(0), 0, "queue pair 1");
            for slot in 0..SLOTS - 1 {
                assert_eq!(
                    (ranges.of_slot(slot) * ranges.inverse() % MODULUS) as usize,
                    slot
                );
            }
        }
    }

    #[test]
    fn agents_have_orders_of_their_own() {
        let first: BTreeSet<u32> = (0..1023)
            .map(|random| Ranges::new(random).of_slot(1))
            .collect();
        assert_eq!(first.len(), 600);
    }
}
