//! Time of the device: nanoseconds since an origin that the driver chooses.

use core::ops::{Add, Sub};

/// A point in time, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Instant(pub u64);

/// A duration, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Nanos(pub u64);

impl Instant {
    /// Later than all others: the deadline of a timer that does not run.
    pub(crate) const NEVER: Self = Self(u64::MAX);
}

impl Nanos {
    /// A time of whole microseconds.
    pub const fn from_micros(count: u64) -> Self {
        Self(count * 1_000)
    }

    /// A time of whole milliseconds.
    pub const fn from_millis(count: u64) -> Self {
        Self(count * 1_000_000)
    }
}

impl Add<Nanos> for Instant {
    type Output = Self;
    fn add(self, span: Nanos) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Sub for Instant {
    type Output = Nanos;
    fn sub(self, earlier: Self) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}
