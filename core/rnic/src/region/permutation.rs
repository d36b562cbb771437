//! The keyed permutation that turns serial numbers into the upper parts of keys.

use crate::random::Random;

/// Bits of a serial number: the part of a key that the consumer does not choose.
pub(super) const SERIAL_BITS: u32 = 24;

/// Feistel network over 24 bits with a secret: two halves of 12, four rounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Permutation([u32; 4]);

impl Permutation {
    pub(super) fn new(random: &mut Random) -> Self {
        Self(core::array::from_fn(|_| random.next_u32()))
    }

    /// The upper part of the key with this serial number.
    pub(super) fn of_serial(&self, serial: u32) -> u32 {
        let (mut left, mut right) = (serial >> 12, serial & 0xfff);
        for &key in &self.0 {
            (left, right) = (right, left ^ round(key, right));
        }
        left << 12 | right
    }

    /// The serial number in a key with this upper part.
    #[inline]
    pub(super) fn serial_of(&self, part: u32) -> u32 {
        let (mut left, mut right) = (part >> 12 & 0xfff, part & 0xfff);
        for &key in self.0.iter().rev() {
            (left, right) = (right ^ round(key, left), left);
        }
        left << 12 | right
    }
}

#[inline]
fn round(key: u32, half: u32) -> u32 {
    let mixed = (half ^ key).wrapping_mul(0x9e37_79b1 ^ key.rotate_left(16));
    (mixed ^ mixed >> 15) >> 8 & 0xfff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permutation_is_its_own_inverse_over_all_24_bits() {
        let permutation = Permutation([1, 2, 0xdead_beef, 4]);
        let returns = |value| permutation.serial_of(permutation.of_serial(value)) == value;
        assert!((0..1 << SERIAL_BITS).all(returns));
    }
}
