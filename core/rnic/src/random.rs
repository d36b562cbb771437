//! The random generator of the device: ChaCha8, value-stable, seeded by the driver.

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

/// Generates keys, queue pair numbers and salts that are unpredictable without the seed.
#[derive(Debug)]
pub(crate) struct Random(ChaCha8Rng);

impl Random {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        Self(ChaCha8Rng::from_seed(seed))
    }

    pub(crate) fn next_u32(&mut self) -> u32 {
        self.0.next_u32()
    }

    /// A number below `bound`, which is not 0. The bias of at most 2^-8 for 24-bit bounds does not matter
    /// here: the number has to be hard to guess, not uniformly distributed.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        ((u64::from(self.next_u32()) * u64::from(bound)) >> 32) as u32
    }
}
