//! Random delays of links, by the distributions that a fabric file can name: in operations that IEEE 754
//! defines to the last bit, so that each machine computes the same.

use crate::random::natural_log;
use fabric::topology::Chance;
use fabric::{Pcg32, Span};

/// A link's random number generator, and the distribution of its delays.
#[derive(Clone, Debug)]
pub(super) struct LinkRng {
    random: Pcg32,
    chance: Chance,
    base: Span,
}

impl LinkRng {
    /// `base` is that of the link: a normal distribution goes below it.
    pub(super) fn new(random: Pcg32, chance: Chance, base: Span) -> Self {
        Self {
            random,
            chance,
            base,
        }
    }

    /// 32 random bits.
    pub(super) fn next_u32(&mut self) -> u32 {
        self.random.next_u32()
    }

    /// The random delay of a packet; with a normal distribution it includes the fixed delay.
    pub(super) fn delay(&mut self) -> Span {
        match &self.chance {
            Chance::None => Span::ZERO,
            Chance::Uniform(most) => part(*most, self.random.next_u32()),
            Chance::Normal(deviation) => {
                let delay = self.base.0 as f64 + normal(&mut self.random) * deviation.0 as f64;
                Span(delay.max(0.0) as u64)
            }
            Chance::Exponential(mean) => scaled(*mean, -natural_log(above_zero(&mut self.random))),
            Chance::Pareto(least, shape) => {
                let power = -natural_log(above_zero(&mut self.random)) * 1000.0 / f64::from(*shape);
                scaled(*least, exponential(power))
            }
            Chance::Measured(samples) => {
                let pairs = samples.len().saturating_sub(1) as u32;
                let at = self.random.below(pairs) as usize;
                let [low, high] =
                    [at, at + 1].map(|index| samples.get(index).copied().unwrap_or_default());
                low + part(Span(high.0 - low.0), self.random.next_u32())
            }
        }
    }
}

/// A part of a time, in 2^32nds.
fn part(of: Span, parts: u32) -> Span {
    Span(((u128::from(of.0) * u128::from(parts)) >> 32) as u64)
}

fn scaled(unit: Span, by: f64) -> Span {
    Span((unit.0 as f64 * by) as u64)
}

/// Evenly from 2^-32 to 1.
fn above_zero(random: &mut Pcg32) -> f64 {
    (f64::from(random.next_u32()) + 1.0) / 4_294_967_296.0
}

/// With mean 0 and deviation 1, by the polar method (Marsaglia and Bray, 1964).
fn normal(random: &mut Pcg32) -> f64 {
    loop {
        let [x, y] = [(); 2].map(|()| above_zero(random) * 2.0 - 1.0);
        let square = x * x + y * y;
        if square > 0.0 && square < 1.0 {
            return x * (-2.0 * natural_log(square) / square).sqrt();
        }
    }
}

/// e to this power, which is not negative: 2 to a whole number, and a series for the rest.
fn exponential(power: f64) -> f64 {
    let whole = (power / std::f64::consts::LN_2).floor().min(1000.0);
    let rest = power - whole * std::f64::consts::LN_2;
    let (mut sum, mut term) = (1.0, 1.0);
    for number in 1..20 {
        term *= rest / f64::from(number);
        sum += term;
    }
    sum * f64::from_bits((whole as u64 + 1023) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mean and standard deviation in nanoseconds, and the part above 10 us.
    fn thrown(chance: Chance, base: Span) -> (f64, f64, f64) {
        let mut rng = LinkRng::new(Pcg32::new(1, 1), chance, base);
        let delays: Vec<f64> = (0..100_000).map(|_| rng.delay().0 as f64 / 1e3).collect();
        let mean = delays.iter().sum::<f64>() / 1e5;
        let variance = delays
            .iter()
            .map(|delay| (delay - mean).powi(2))
            .sum::<f64>()
            / 1e5;
        let above = delays.iter().filter(|delay| **delay > 10_000.0).count() as f64 / 1e5;
        (mean, variance.sqrt(), above)
    }

    #[track_caller]
    fn near(value: f64, wanted: f64, within: f64) {
        assert!((value - wanted).abs() < within, "{value}, not {wanted}");
    }

    #[test]
    fn delays_are_distributed_as_they_are_called() {
        let us = Span::from_us;
        let (mean, deviation, _) = thrown(Chance::Uniform(us(6)), Span::ZERO);
        near(mean, 3000.0, 20.0);
        near(deviation, 6000.0 / 12_f64.sqrt(), 20.0);
        let (mean, deviation, above) = thrown(Chance::Normal(us(1)), us(8));
        near(mean, 8000.0, 15.0);
        near(deviation, 1000.0, 10.0);
        near(above, 0.0228, 0.002);
        let (mean, deviation, above) = thrown(Chance::Exponential(us(4)), Span::ZERO);
        near(mean, 4000.0, 40.0);
        near(deviation, 4000.0, 60.0);
        near(above, (-2.5_f64).exp(), 0.003);
        let (mean, _, above) = thrown(Chance::Pareto(us(2), 3000), Span::ZERO);
        near(mean, 3000.0, 40.0);
        near(above, 0.2_f64.powi(3), 0.001);
        let measured = Chance::Measured([us(1), us(2), us(20)].into());
        let (mean, _, above) = thrown(measured, Span::ZERO);
        near(mean, (1500.0 + 11_000.0) / 2.0, 60.0);
        near(above, 0.5 * 10.0 / 18.0, 0.006);
    }

    #[test]
    fn a_normal_delay_is_never_negative_and_powers_are_right() {
        let mut rng = LinkRng::new(Pcg32::new(1, 1), Chance::Normal(Span::from_us(9)), Span(5));
        let none = (0..1000).filter(|_| rng.delay() == Span::ZERO).count();
        near(none as f64, 500.0, 60.0);
        for power in [0.0, 0.3, 1.0, 7.5, 22.0] {
            assert!(
                (exponential(power) / f64::exp(power) - 1.0).abs() < 1e-12,
                "{power}"
            );
        }
    }
}
