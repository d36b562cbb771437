//! A queue pair's timers: an enum, and a table of deadlines.

use crate::time::{Instant, Nanos};

/// The timers of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Timer {
    /// The local ACK timer (IBTA 9.7.6.1.3): the end of waiting for an acknowledgement.
    Retransmit,
    /// The retransmission after an RNR NAK, or after a sequence error.
    Resume,
    /// The time at which the rate limit permits the next packet.
    Pace,
}

impl Timer {
    /// Number of timers.
    const COUNT: usize = Self::Pace as usize + 1;
}

/// The deadline of each timer that runs.
#[derive(Debug)]
pub(super) struct TimerTable([Instant; Timer::COUNT]);

impl Default for TimerTable {
    fn default() -> Self {
        Self([Instant::NEVER; Timer::COUNT])
    }
}

impl TimerTable {
    /// Starts a timer, or moves its deadline.
    #[inline]
    pub(super) fn set(&mut self, timer: Timer, at: Instant) {
        self.0[timer as usize] = at;
    }

    #[inline]
    pub(super) fn stop(&mut self, timer: Timer) {
        self.0[timer as usize] = Instant::NEVER;
    }

    pub(super) fn stop_all(&mut self) {
        *self = Self::default();
    }

    #[inline]
    pub(super) fn is_set(&self, timer: Timer) -> bool {
        self.0[timer as usize] != Instant::NEVER
    }

    /// Stops a timer whose deadline has passed; whether it had.
    #[inline]
    pub(super) fn take_expired(&mut self, timer: Timer, now: Instant) -> bool {
        let is_due = self.is_set(timer) && self.0[timer as usize] <= now;
        if is_due {
            self.stop(timer);
        }
        is_due
    }

    /// The earliest deadline; [`Instant::NEVER`] where no timer runs.
    #[inline]
    pub(super) fn next(&self) -> Instant {
        let [first, second, third] = self.0;
        first.min(second).min(third)
    }
}

/// RNR timer codes 0 to 31 in units of 10 us (IBTA 9.7.5.2.8, table 46).
const RNR_WAIT_10_MICROS: [u32; 32] = [
    65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1_024,
    1_536, 2_048, 3_072, 4_096, 6_144, 8_192, 12_288, 16_384, 24_576, 32_768, 49_152,
];

/// Wait time of an RNR NAK.
pub(super) fn rnr_wait(code: u8) -> Nanos {
    Nanos::from_micros(u64::from(RNR_WAIT_10_MICROS[usize::from(code & 31)]) * 10)
}

/// Local ACK timeout of a code: 4.096 us × 2^code; 0 is never (IBTA 9.7.6.1.3).
pub(super) fn ack_timeout(code: u8) -> Option<Nanos> {
    (code != 0).then(|| Nanos(4_096 << (code & 31)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timer_codes_are_those_of_the_specification() {
        assert_eq!(rnr_wait(0), Nanos(655_360_000));
        assert_eq!(rnr_wait(1), Nanos(10_000));
        assert_eq!(rnr_wait(24), Nanos(40_960_000));
        assert_eq!(rnr_wait(31), Nanos(491_520_000));
        assert_eq!(ack_timeout(14), Some(Nanos(67_108_864)));
        assert_eq!(ack_timeout(0), None);
    }

    #[test]
    fn the_table_names_the_earliest_timer_and_each_expires_once() {
        let mut timers = TimerTable::default();
        assert_eq!(timers.next(), Instant::NEVER);
        timers.set(Timer::Retransmit, Instant(30));
        timers.set(Timer::Pace, Instant(10));
        assert_eq!(timers.next(), Instant(10));
        assert!(!timers.take_expired(Timer::Pace, Instant(9)));
        assert!(timers.take_expired(Timer::Pace, Instant(10)));
        assert!(!timers.take_expired(Timer::Pace, Instant(10)));
        assert_eq!(timers.next(), Instant(30));
        assert!(!timers.take_expired(Timer::Resume, Instant(u64::MAX)));
        timers.stop_all();
        assert_eq!(timers.next(), Instant::NEVER);
    }
}
