//! The network, and its faults.

use crate::cm::pair::duration;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use rnic::Nanos;
use rnic::cm::Datagram;

/// The random generator of a run.
pub(crate) struct Dice(ChaCha8Rng);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// A random number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0.next_u64() % bound.max(1)
    }

    /// True `percent` times in a hundred.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// A random element.
    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }
}

/// Fault rates of the network in this run, in percent. Some faults are off in some runs and frequent in
/// others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults {
    pub(crate) lose: u64,
    pub(crate) double: u64,
    /// The longest delay: at most the packet lifetime that the hosts agreed on.
    pub(crate) delay: Nanos,
    /// Datagrams of a third host, per delivered one.
    pub(crate) forge_elsewhere: u64,
    /// Datagrams changed in the network, as if by the peer itself: then only the tables are checked, since
    /// messages cannot be attributed to a host.
    pub(crate) forge_as_peer: u64,
}

/// The packet lifetime of the runs: 1 ms.
pub(crate) const LIFETIME: u8 = 8;

impl Faults {
    pub(crate) const NONE: Self = Self {
        lose: 0,
        double: 0,
        delay: Nanos(0),
        forge_elsewhere: 0,
        forge_as_peer: 0,
    };

    pub(crate) fn roll(dice: &mut Dice) -> Self {
        let mut some = |values: &[u64]| *dice.pick(values);
        Self {
            lose: some(&[0, 0, 5, 20, 50]),
            double: some(&[0, 5, 30]),
            delay: Nanos(some(&[0, 10, 100]) * duration(LIFETIME).0 / 100),
            forge_elsewhere: some(&[0, 0, 20]),
            forge_as_peer: some(&[0, 0, 0, 10]),
        }
    }
}

/// Changes a few bits of a datagram.
pub(crate) fn damage(dice: &mut Dice, datagram: &Datagram) -> Datagram {
    let mut damaged = *datagram;
    for _ in 0..=dice.below(3) {
        // Mostly IDs and the fields after them; the class seldom, since a wrong one ends the parsing.
        let at = match dice.below(10) {
            0 => dice.below(24),
            1..8 => 24 + dice.below(16),
            _ => 24 + dice.below(232),
        };
        damaged.mad[at as usize] ^= 1 << dice.below(8);
    }
    if dice.percent(30) {
        damaged.mad[17] = 0x10 + dice.below(11) as u8;
    }
    damaged
}
