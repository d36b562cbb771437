//! The random number generator: PCG32 (O'Neill, 2014: XSH-RR 64/32). It is small, and its values are stable.
//! Each switch has its own, so that draws of one switch never change those of another.

/// A PCG32 generator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pcg32 {
    state: u64,
    increment: u64,
}

impl Pcg32 {
    /// The generator of `stream` within the run `seed`. Seeds are mixed, because users choose small numbers.
    pub const fn new(seed: u64, stream: u64) -> Self {
        Self::seeded(mix(seed), stream)
    }

    /// The generator as `pcg32_srandom_r` of the reference implementation seeds it.
    const fn seeded(state: u64, stream: u64) -> Self {
        let increment = (stream << 1) | 1;
        let mut generator = Self {
            state: increment.wrapping_add(state),
            increment,
        };
        generator.next_u32();
        generator
    }

    /// 32 random bits.
    #[inline]
    pub const fn next_u32(&mut self) -> u32 {
        let old = self.state;
        self.state = old
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(self.increment);
        let shifted = (((old >> 18) ^ old) >> 27) as u32;
        shifted.rotate_right((old >> 59) as u32)
    }

    /// A number below `bound`; 0 when that is 0.
    #[inline]
    pub const fn below(&mut self, bound: u32) -> u32 {
        ((self.next_u32() as u64 * bound as u64) >> 32) as u32
    }
}

/// Spreads the bits of a number over all of it: the first value of SplitMix64 (Steele, Lea and Flood, 2014)
/// from this seed. As a constant function, which also chooses paths by hashes of flows.
#[inline]
pub(crate) const fn mix(mut value: u64) -> u64 {
    value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_core::{RngCore, SeedableRng};
    use rand_xoshiro::SplitMix64;

    /// The first round of `pcg32-demo` of the reference implementation (pcg-random.org, pcg-c-basic 0.9),
    /// which seeds with 42 and takes stream 54.
    #[test]
    fn the_stream_is_that_of_the_reference_implementation() {
        let mut generator = Pcg32::seeded(42, 54);
        let golden = [
            0xa15c_02b7,
            0x7b47_f409,
            0xba1d_3330,
            0x83d2_f293,
            0xbfa4_784b,
            0xcbed_606e,
        ];
        assert_eq!(golden.map(|_| generator.next_u32()), golden);
    }

    /// The mixed seed is that of the reference implementation: a seed gives the same run in all versions.
    #[test]
    fn values_never_change_and_streams_differ() {
        assert_eq!(Pcg32::new(1, 1), Pcg32::seeded(mix(1), 1));
        let mut first = Pcg32::new(1, 1);
        let mut second = Pcg32::new(1, 2);
        let draws = [first.next_u32(), first.next_u32(), second.next_u32()];
        let mut again = Pcg32::new(1, 1);
        assert_eq!([again.next_u32(), again.next_u32()], draws[..2]);
        assert_ne!(draws[0], draws[2]);
    }

    #[test]
    fn a_mixed_number_is_the_first_one_of_split_mix_64() {
        for seed in [0, 1, 42, u64::MAX] {
            assert_eq!(mix(seed), SplitMix64::seed_from_u64(seed).next_u64());
        }
    }

    #[test]
    fn below_stays_below_and_reaches_everything() {
        let mut generator = Pcg32::new(7, 0);
        let mut seen = [0; 5];
        (0..1000).for_each(|_| seen[generator.below(5) as usize] += 1);
        assert!(seen.iter().all(|count| *count > 150), "{seen:?}");
        assert_eq!(generator.below(0), 0);
    }
}
