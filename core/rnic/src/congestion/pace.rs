//! Pacing: packets are sent no faster than a rate, exactly over time. It is a token bucket: a driver that is
//! late may send what it has missed, up to the depth of the bucket.

use crate::time::Instant;

/// The time at which the next packet may be sent.
#[derive(Debug, Default)]
pub(super) struct Pace {
    next: Instant,
    /// Fractions of a nanosecond to carry over, in units of one by the rate.
    remainder: u64,
}

impl Pace {
    /// Records that `bytes` are sent now; returns when the next packet may be. `burst` is the depth of the
    /// bucket in bytes.
    pub(super) fn after(&mut self, bytes: u32, rate_bps: u64, burst: u32, now: Instant) -> Instant {
        let units = |bytes: u32| u64::from(bytes) * 8 * 1_000_000_000;
        // Most packets need no division here: there is no bucket, or it is empty.
        let saved = if burst == 0 || self.next >= now {
            0
        } else {
            units(burst) / rate_bps
        };
        let from = self.next.max(Instant(now.0.saturating_sub(saved)));
        let amount = units(bytes) + self.remainder;
        self.remainder = amount % rate_bps;
        self.next = Instant(from.0 + amount / rate_bps);
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1,000 bytes at 8 Gb/s are 1 us.
    const RATE: u64 = 8_000_000_000;

    #[test]
    fn without_a_bucket_what_is_late_stays_late() {
        let mut pace = Pace::default();
        assert_eq!(pace.after(1_000, RATE, 0, Instant(50_000)), Instant(51_000));
        assert_eq!(pace.after(1_000, RATE, 0, Instant(60_000)), Instant(61_000));
    }

    #[test]
    fn a_driver_that_asks_late_sends_what_it_has_missed_and_no_more_than_the_bucket_holds() {
        let mut pace = Pace::default();
        assert_eq!(
            pace.after(1_000, RATE, 4_000, Instant(50_000)),
            Instant(47_000)
        );
        // The bucket was full: three more packets may be sent at once after the first.
        for next in [48_000, 49_000, 50_000, 51_000] {
            assert_eq!(
                pace.after(1_000, RATE, 4_000, Instant(50_000)),
                Instant(next)
            );
        }
        // 2 us late: two packets may be sent at once, and the average rate is kept.
        assert_eq!(
            pace.after(1_000, RATE, 4_000, Instant(53_000)),
            Instant(52_000)
        );
        assert_eq!(
            pace.after(1_000, RATE, 4_000, Instant(53_000)),
            Instant(53_000)
        );
        assert_eq!(
            pace.after(1_000, RATE, 4_000, Instant(53_000)),
            Instant(54_000)
        );
    }
}
