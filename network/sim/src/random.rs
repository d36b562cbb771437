//! The generator of a run: value-stable, seeded, passed as an argument. Decisions are made with integers.

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

/// Source of all that is random in a run.
#[derive(Clone, Debug)]
pub struct RunRng(ChaCha8Rng);

impl RunRng {
    /// A generator whose numbers depend on the seed alone.
    pub fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `bound`; 0 when that is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// True `part` times in a thousand.
    pub fn per_mille(&mut self, part: u64) -> bool {
        self.below(1000) < part
    }

    /// One of several.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// A random span, exponentially distributed with this mean: between independent events.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        let part = ((self.next_u64() >> 11) + 1) as f64 / 9_007_199_254_740_992.0;
        -natural_log(part) * mean
    }

    /// Seed bytes for a device.
    pub fn seed(&mut self) -> [u8; 32] {
        let mut seed = [0; 32];
        self.0.fill_bytes(&mut seed);
        seed
    }
}

/// The natural logarithm, in operations that IEEE 754 defines to the last bit: libraries' differ.
pub(crate) fn natural_log(value: f64) -> f64 {
    let bits = value.to_bits();
    let exponent = (bits >> 52) as i64 - 1023;
    let mantissa = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    // ln m = 2 artanh((m - 1) / (m + 1)); the argument is at most a third.
    let ratio = (mantissa - 1.0) / (mantissa + 1.0);
    let (square, mut power, mut sum) = (ratio * ratio, ratio, 0.0);
    for odd in 0..16 {
        sum += power / f64::from(2 * odd + 1);
        power *= square;
    }
    2.0 * sum + exponent as f64 * std::f64::consts::LN_2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_are_right_and_means_come_out() {
        for value in [1e-9, 0.1, 0.5, 0.999_999, 1.0] {
            assert!(
                (natural_log(value) - f64::ln(value)).abs() < 1e-12,
                "{value}"
            );
        }
        let mut rng = RunRng::new(1);
        let sum: f64 = (0..10_000).map(|_| rng.exponential(1.0)).sum();
        assert!((sum / 1e4 - 1.0).abs() < 0.03, "{sum}");
    }
}
