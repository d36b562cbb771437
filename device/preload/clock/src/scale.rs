//! Times of the machine and of the lab, in nanoseconds.

use libc::{clockid_t, timespec, timeval};

pub(crate) const SECOND: i64 = 1_000_000_000;
const MICROSECOND: i64 = 1000;

/// The lab's clock as a function of the machine's: both are equal when the lab begins, and from then on the
/// lab's runs slower by a factor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Scale {
    /// `CLOCK_MONOTONIC` when the lab began.
    pub(crate) epoch: i64,
    /// `CLOCK_REALTIME` at that moment.
    pub(crate) wall: i64,
    /// Difference of `CLOCK_BOOTTIME` and `CLOCK_MONOTONIC`: the time that the machine was suspended.
    pub(crate) boot_ahead: i64,
    /// Difference of `CLOCK_TAI` and `CLOCK_REALTIME`: leap seconds.
    pub(crate) tai_ahead: i64,
    /// Nanoseconds of the machine per nanosecond of the lab.
    pub(crate) slowdown: i64,
}

impl Scale {
    /// The time of a clock when the lab began; `None` for clocks that are not slowed. All clocks follow the
    /// machine's monotonic one, so that none jumps and all hosts of the lab agree.
    pub(crate) fn origin(&self, clock: clockid_t) -> Option<i64> {
        match clock {
            libc::CLOCK_MONOTONIC | libc::CLOCK_MONOTONIC_RAW | libc::CLOCK_MONOTONIC_COARSE => {
                Some(self.epoch)
            }
            libc::CLOCK_BOOTTIME | libc::CLOCK_BOOTTIME_ALARM => Some(self.epoch + self.boot_ahead),
            libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE | libc::CLOCK_REALTIME_ALARM => {
                Some(self.wall)
            }
            libc::CLOCK_TAI => Some(self.wall + self.tai_ahead),
            _ => None,
        }
    }

    /// The time in the lab of a clock that had `origin` when the lab began, when the machine's monotonic
    /// clock has `machine`.
    pub(crate) fn reading(&self, origin: i64, machine: i64) -> i64 {
        origin + (machine - self.epoch) / self.slowdown
    }

    /// The time of the machine's monotonic clock when a clock that had `origin` when the lab began has
    /// `time`.
    pub(crate) fn machine_at(&self, origin: i64, time: i64) -> i64 {
        self.epoch
            .saturating_add(self.stretch(time.saturating_sub(origin)))
    }

    /// The duration on the machine of a time of the lab.
    pub(crate) fn stretch(&self, time: i64) -> i64 {
        time.saturating_mul(self.slowdown)
    }

    /// The lab's time for a duration on the machine, rounded up, so that a wait that is not over never has
    /// zero left.
    pub(crate) fn shrink(&self, time: i64) -> i64 {
        time / self.slowdown + i64::from(time % self.slowdown > 0)
    }

    /// The lab's time for a time that the kernel took from the machine's `CLOCK_REALTIME`.
    pub(crate) fn wall_reading(&self, machine: i64) -> i64 {
        self.wall + (machine - self.wall) / self.slowdown
    }

    /// The clock of a deadline, derived from its value, because callers do not know it: a time since 1970 is
    /// longer than any machine has run.
    pub(crate) fn clock_of(&self, deadline: i64) -> clockid_t {
        if deadline > self.wall / 2 {
            libc::CLOCK_REALTIME
        } else {
            libc::CLOCK_MONOTONIC
        }
    }
}

/// Nanoseconds of a time; `None` if it is not valid, which the C library reports.
pub(crate) fn nanoseconds(time: &timespec) -> Option<i64> {
    let is_valid = time.tv_sec >= 0 && (0..SECOND).contains(&time.tv_nsec);
    is_valid.then(|| {
        time.tv_sec
            .saturating_mul(SECOND)
            .saturating_add(time.tv_nsec)
    })
}

/// The time of so many nanoseconds; negative numbers give zero.
pub(crate) fn time_of(nanoseconds: i64) -> timespec {
    let nanoseconds = nanoseconds.max(0);
    timespec {
        tv_sec: nanoseconds / SECOND,
        tv_nsec: nanoseconds % SECOND,
    }
}

/// The same for times in microseconds.
pub(crate) fn nanoseconds_of_micros(time: &timeval) -> Option<i64> {
    nanoseconds(&timespec {
        tv_sec: time.tv_sec,
        tv_nsec: time.tv_usec.checked_mul(MICROSECOND)?,
    })
}

/// The same for times in microseconds, rounded up: zero means that a timer is off, or a wait has no limit.
pub(crate) fn micros_of(nanoseconds: i64) -> timeval {
    let time = time_of(nanoseconds.saturating_add(MICROSECOND - 1));
    timeval {
        tv_sec: time.tv_sec,
        tv_usec: time.tv_nsec / MICROSECOND,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCALE: Scale = Scale {
        epoch: 100 * SECOND,
        wall: 1_700_000_000 * SECOND,
        boot_ahead: 7,
        tai_ahead: 37,
        slowdown: 10,
    };

    #[test]
    fn clocks_begin_as_the_machines_and_are_slower_from_then_on() {
        let origin = SCALE.origin(libc::CLOCK_MONOTONIC).unwrap();
        assert_eq!(SCALE.reading(origin, 100 * SECOND), 100 * SECOND);
        assert_eq!(
            SCALE.reading(origin, 105 * SECOND),
            100 * SECOND + SECOND / 2
        );
        let wall = SCALE.origin(libc::CLOCK_REALTIME).unwrap();
        assert_eq!(SCALE.reading(wall, 110 * SECOND), 1_700_000_001 * SECOND);
        assert_eq!(
            SCALE.wall_reading(1_700_000_010 * SECOND),
            1_700_000_001 * SECOND
        );
        assert_eq!(SCALE.origin(libc::CLOCK_PROCESS_CPUTIME_ID), None);
        assert_eq!(SCALE.origin(libc::CLOCK_THREAD_CPUTIME_ID), None);
    }

    #[test]
    fn a_deadline_is_reached_when_its_clock_shows_it() {
        for clock in [
            libc::CLOCK_MONOTONIC,
            libc::CLOCK_REALTIME,
            libc::CLOCK_BOOTTIME,
            libc::CLOCK_TAI,
        ] {
            let origin = SCALE.origin(clock).unwrap();
            let machine = SCALE.machine_at(origin, origin + 3);
            assert_eq!(
                (machine, SCALE.reading(origin, machine)),
                (SCALE.epoch + 30, origin + 3)
            );
            assert_eq!(SCALE.reading(origin, machine - 1), origin + 2);
        }
    }

    #[test]
    fn times_without_end_have_none_afterwards() {
        assert_eq!(SCALE.stretch(i64::MAX), i64::MAX);
        assert_eq!(SCALE.machine_at(SCALE.wall, i64::MAX), i64::MAX);
        assert_eq!(
            nanoseconds(&timespec {
                tv_sec: i64::MAX,
                tv_nsec: 0
            }),
            Some(i64::MAX)
        );
    }

    #[test]
    fn what_is_left_is_rounded_up_and_nothing_is_nothing() {
        assert_eq!([0, 1, 10, 11].map(|time| SCALE.shrink(time)), [0, 1, 1, 2]);
        let micros = |nanoseconds| micros_of(nanoseconds).tv_usec;
        assert_eq!([0, 1, 1000, 1001].map(micros), [0, 1, 1, 2]);
    }

    #[test]
    fn times_that_are_not_valid_are_left_to_the_c_library() {
        assert_eq!(
            nanoseconds(&timespec {
                tv_sec: 0,
                tv_nsec: SECOND
            }),
            None
        );
        assert_eq!(
            nanoseconds(&timespec {
                tv_sec: -1,
                tv_nsec: 0
            }),
            None
        );
        assert_eq!(
            nanoseconds_of_micros(&timeval {
                tv_sec: 0,
                tv_usec: 1_000_000
            }),
            None
        );
    }

    #[test]
    fn the_clock_of_a_deadline_is_told_by_its_size() {
        assert_eq!(SCALE.clock_of(1_700_000_003 * SECOND), libc::CLOCK_REALTIME);
        assert_eq!(SCALE.clock_of(110 * SECOND), libc::CLOCK_MONOTONIC);
    }
}
