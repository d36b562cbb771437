//! How late the lab handles what it should have handled at an earlier time of its clock.

use fabric::Time;
use serde::{Deserialize, Serialize};

/// Buckets: powers of two of a nanosecond.
const BUCKETS: usize = 40;

/// A histogram of lateness in nanoseconds of the lab's clock.
#[derive(Clone, Debug)]
pub(crate) struct Lateness {
    counts: [u64; BUCKETS],
    max: u64,
}

/// Percentiles of the histogram.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct LatenessSummary {
    /// Packets that were handled.
    pub packets: u64,
    /// The median of all packets, ns.
    pub p50_ns: u64,
    /// 99th percentile, ns.
    pub p99_ns: u64,
    /// 99.9th percentile, ns.
    pub p999_ns: u64,
    /// The latest packet, ns.
    pub max_ns: u64,
}

impl Lateness {
    pub(crate) const fn new() -> Self {
        Self {
            counts: [0; BUCKETS],
            max: 0,
        }
    }

    /// Notes that something due at one time was handled at another.
    #[inline]
    pub(crate) fn note_event(&mut self, due: Time, handled: Time) {
        let late = handled.0.saturating_sub(due.0) / 1000;
        let bucket = (u64::BITS - late.leading_zeros()) as usize;
        self.counts[bucket.min(BUCKETS - 1)] += 1;
        self.max = self.max.max(late);
    }

    pub(crate) fn summary(&self) -> LatenessSummary {
        let packets: u64 = self.counts.iter().sum();
        // The upper end of the bucket in which the percentile is.
        let percentile = |thousandths: u64| {
            let wanted = (packets * thousandths).div_ceil(1000);
            let mut seen = 0;
            let found = self.counts.iter().position(|count| {
                seen += count;
                seen >= wanted
            });
            found
                .map_or(0, |bucket| (1_u64 << bucket) - 1)
                .min(self.max)
        };
        LatenessSummary {
            packets,
            p50_ns: percentile(500),
            p99_ns: percentile(990),
            p999_ns: percentile(999),
            max_ns: self.max,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_upper_ends_of_buckets() {
        let mut lateness = Lateness::new();
        (0..998).for_each(|_| lateness.note_event(Time(5_000), Time(8_000)));
        (0..2).for_each(|_| lateness.note_event(Time(0), Time(1_000_000)));
        let summary = lateness.summary();
        assert_eq!(
            (summary.packets, summary.p50_ns, summary.p99_ns),
            (1000, 3, 3)
        );
        assert_eq!((summary.p999_ns, summary.max_ns), (1000, 1000));
        lateness.note_event(Time(9_000), Time(8_000));
        assert_eq!(lateness.summary().packets, 1001);
    }
}
