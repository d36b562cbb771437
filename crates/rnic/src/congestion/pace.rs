//! Pacing: packets leave no faster than a rate, exactly over time.

use crate::time::Instant;

/// When the next packet may leave.
#[derive(Debug, Default)]
pub(super) struct Pace {
    next: Instant,
    /// Fractions of a nanosecond that are owed, in units of one by the rate.
    remainder: u64,
}

impl Pace {
    /// `bytes` leave now; returns when the next packet may.
    pub(super) fn after(&mut self, bytes: u32, rate_bps: u64, now: Instant) -> Instant {
        let from = self.next.max(now);
        let amount = u64::from(bytes) * 8 * 1_000_000_000 + self.remainder;
        self.remainder = amount % rate_bps;
        self.next = Instant(from.0 + amount / rate_bps);
        self.next
    }
}
