//! Time and rates as integers. Times are in picoseconds: one byte at 400 Gb/s takes 20.

use core::ops::{Add, AddAssign, Sub};

/// A time, in picoseconds since the start. 2^64 of them are 213 days.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Time(pub u64);

/// A span of time, in picoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Span(pub u64);

impl Time {
    /// A time later than all others.
    pub const NEVER: Self = Self(u64::MAX);

    /// Whole nanoseconds, rounded down: the device's unit.
    pub const fn ns(self) -> u64 {
        self.0 / 1_000
    }

    /// The time of so many whole nanoseconds.
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns.saturating_mul(1_000))
    }
}

impl Span {
    /// The span of zero picoseconds.
    pub const ZERO: Self = Self(0);

    /// The span of so many whole nanoseconds.
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns.saturating_mul(1_000))
    }

    /// The span of so many whole microseconds.
    pub const fn from_us(us: u64) -> Self {
        Self(us.saturating_mul(1_000_000))
    }

    /// The span times a number.
    pub const fn times(self, count: u64) -> Self {
        Self(self.0.saturating_mul(count))
    }
}

impl Add<Span> for Time {
    type Output = Self;
    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Span> for Time {
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

impl Sub for Time {
    type Output = Span;
    fn sub(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Span {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// Picoseconds of a bit at 1 bit/s.
const PS_PER_SECOND: u128 = 1_000_000_000_000;

/// Fraction bits of [`Rate`]'s time per byte: the error over the longest frame stays below a picosecond.
const FRACTION_BITS: u32 = 20;

/// The slowest rate: below it the time of a long frame would not fit into the arithmetic.
pub const RATE_BPS_MIN: u64 = 1_000_000;

/// The fastest rate: a byte takes a picosecond.
pub const RATE_BPS_MAX: u64 = 8_000_000_000_000;

/// A bit rate, kept as the time that a byte takes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rate {
    /// Picoseconds per byte, times 2^[`FRACTION_BITS`].
    scaled_ps: u64,
    bps: u64,
}

impl Rate {
    /// The rate of so many bits per second, limited to [`RATE_BPS_MIN`] to [`RATE_BPS_MAX`].
    pub const fn from_bps(bps: u64) -> Self {
        let bps = match bps {
            ..RATE_BPS_MIN => RATE_BPS_MIN,
            RATE_BPS_MAX.. => RATE_BPS_MAX,
            _ => bps,
        };
        let scaled = ((8 * PS_PER_SECOND) << FRACTION_BITS) / bps as u128;
        Self {
            scaled_ps: scaled as u64,
            bps,
        }
    }

    /// The rate of so many gigabits per second.
    pub const fn from_gbps(gbps: u64) -> Self {
        Self::from_bps(gbps * 1_000_000_000)
    }

    /// The rate in bits per second.
    pub const fn bps(self) -> u64 {
        self.bps
    }

    /// The time of so many bytes, rounded to the nearest picosecond. For bytes of one frame: numbers far
    /// above 2^20 overflow.
    #[inline]
    pub const fn time_of(self, bytes: u32) -> Span {
        Span((bytes as u64 * self.scaled_ps + (1 << (FRACTION_BITS - 1))) >> FRACTION_BITS)
    }

    /// The number of whole bytes in so much time.
    pub const fn bytes_in(self, span: Span) -> u64 {
        ((span.0 as u128 * self.bps as u128) / (8 * PS_PER_SECOND)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rates_of_ethernet_are_exact() {
        for (gbps, ps) in [
            (1, 8000),
            (10, 800),
            (25, 320),
            (40, 200),
            (100, 80),
            (400, 20),
            (800, 10),
        ] {
            assert_eq!(Rate::from_gbps(gbps).time_of(9216), Span(9216 * ps));
        }
    }

    #[test]
    fn odd_rates_are_within_a_picosecond_per_frame() {
        let rate = Rate::from_bps(126_024_000_000);
        assert_eq!(
            rate.time_of(4178).0,
            (4178 * 8 * 1_000_000_u64 + 63_012) / 126_024
        );
        assert_eq!(rate.bytes_in(rate.time_of(1_000_000)), 999_999);
    }

    #[test]
    fn rates_out_of_range_are_brought_into_it() {
        assert_eq!(Rate::from_bps(0).bps(), RATE_BPS_MIN);
        assert_eq!(Rate::from_bps(u64::MAX).time_of(3), Span(3));
        assert_eq!(Rate::from_bps(0).time_of(65_535), Span(65_535 * 8_000_000));
    }
}
