//! Times of the machine and of the lab, in nanoseconds.

use libc::{clockid_t, timespec, timeval};

pub(crate) const SECOND: i64 = 1_000_000_000;
const MICROSECOND: i64 = 1000;

/// A lab's clock beside the machine's: both have the same time when the lab begins, and from then on the
/// lab's is slower by a factor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Scale {
    /// `CLOCK_MONOTONIC` when the lab began.
    pub(crate) epoch: i64,
    /// `CLOCK_REALTIME` at that moment.
    pub(crate) wall: i64,
    /// By what `CLOCK_BOOTTIME` is ahead of `CLOCK_MONOTONIC`: the time that the machine was suspended.
    pub(crate) boot_ahead: i64,
    /// By what `CLOCK_TAI` is ahead of `CLOCK_REALTIME`: leap seconds.
    pub(crate) tai_ahead: i64,
    /// How many nanoseconds of the machine are one of the lab.
    pub(crate) slowdown: i64,
}

impl Scale {
    /// What a clock showed when the lab began; `None` for clocks that are not slowed. All clocks follow the
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

    /// What a clock that had `origin` when the lab began shows when the machine's monotonic clock shows
    /// `machine`.
    pub(crate) fn reading(&self, origin: i64, machine: i64) -> i64 {
        origin + (machine - self.epoch) / self.slowdown
    }

    /// When, by the machine's monotonic clock, a clock that had `origin` when the lab began shows a time.
    pub(crate) fn machine_at(&self, origin: i64, time: i64) -> i64 {
        self.epoch.saturating_add(self.stretch(time.saturating_sub(origin)))
    }

    /// How long the machine takes for a time of the lab.
    pub(crate) fn stretch(&self, time: i64) -> i64 {
        time.saturating_mul(self.slowdown)
    }

    /// How much a time of the machine is on the lab's clock, rounded up: what is left of a wait is not over.
    pub(crate) fn shrink(&self, time: i64) -> i64 {
        time / self.slowdown + i64::from(time % self.slowdown > 0)
    }

    /// A time that the kernel took from the machine's `CLOCK_REALTIME`, as the lab's shows it.
    pub(crate) fn wall_reading(&self, machine: i64) -> i64 {
        self.wall + (machine - self.wall) / self.slowdown
    }

    /// The clock on which a deadline is: the functions that take one do not say. The time since 1970 is
    /// longer than any machine has run.
    pub(crate) fn clock_of(&self, deadline: i64) -> clockid_t {
        if deadline > self.wall / 2 { libc::CLOCK_REALTIME } else { libc::CLOCK_MONOTONIC }
    }
}

/// A time as a number; `None` if it is not valid, which is for the C library to report.
pub(crate) fn nanoseconds(time: &timespec) -> Option<i64> {
    let is_valid = time.tv_sec >= 0 && (0..SECOND).contains(&time.tv_nsec);
    is_valid.then(|| time.tv_sec.saturating_mul(SECOND).saturating_add(time.tv_nsec))
}

/// A number as a time. Below zero there is none: it is zero.
pub(crate) fn time_of(nanoseconds: i64) -> timespec {
    let nanoseconds = nanoseconds.max(0);
    timespec { tv_sec: nanoseconds / SECOND, tv_nsec: nanoseconds % SECOND }
}

/// The same for times in microseconds.
pub(crate) fn nanoseconds_of_micros(time: &timeval) -> Option<i64> {
    nanoseconds(&timespec { tv_sec: time.tv_sec, tv_nsec: time.tv_usec.checked_mul(MICROSECOND)? })
}

/// The same for times in microseconds, rounded up: zero means that a timer is off, or a wait has no limit.
pub(crate) fn micros_of(nanoseconds: i64) -> timeval {
    let time = time_of(nanoseconds.saturating_add(MICROSECOND - 1));
    timeval { tv_sec: time.tv_sec, tv_usec: time.tv_nsec / MICROSECOND }
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
        assert_eq!(SCALE.reading(origin, 105 * SECOND), 100 * SECOND + SECOND / 2);
        let wall = SCALE.origin(libc::CLOCK_REALTIME).unwrap();
        assert_eq!(SCALE.reading(wall, 110 * SECOND), 1_700_000_001 * SECOND);
        assert_eq!(SCALE.wall_reading(1_700_000_010 * SECOND), 1_700_000_001 * SECOND);
        assert_eq!(SCALE.origin(libc::CLOCK_PROCESS_CPUTIME_ID), None);
        assert_eq!(SCALE.origin(libc::CLOCK_THREAD_CPUTIME_ID), None);
    }

    #[test]
    fn a_deadline_is_reached_when_its_clock_shows_it() {
        for clock in [libc::CLOCK_MONOTONIC, libc::CLOCK_REALTIME, libc::CLOCK_BOOTTIME, libc::CLOCK_TAI] {
            let origin = SCALE.origin(clock).unwrap();
            let machine = SCALE.machine_at(origin, origin + 3);
            assert_eq!((machine, SCALE.reading(origin, machine)), (SCALE.epoch + 30, origin + 3));
            assert_eq!(SCALE.reading(origin, machine - 1), origin + 2);
        }
    }

    #[test]
    fn times_without_end_have_none_afterwards() {
        assert_eq!(SCALE.stretch(i64::MAX), i64::MAX);
        assert_eq!(SCALE.machine_at(SCALE.wall, i64::MAX), i64::MAX);
        assert_eq!(nanoseconds(&timespec { tv_sec: i64::MAX, tv_nsec: 0 }), Some(i64::MAX));
    }

    #[test]
    fn what_is_left_is_rounded_up_and_nothing_is_nothing() {
        assert_eq!([0, 1, 10, 11].map(|time| SCALE.shrink(time)), [0, 1, 1, 2]);
        let micros = |nanoseconds| micros_of(nanoseconds).tv_usec;
        assert_eq!([0, 1, 1000, 1001].map(micros), [0, 1, 1, 2]);
    }

    #[test]
    fn times_that_are_not_valid_are_left_to_the_c_library() {
        assert_eq!(nanoseconds(&timespec { tv_sec: 0, tv_nsec: SECOND }), None);
        assert_eq!(nanoseconds(&timespec { tv_sec: -1, tv_nsec: 0 }), None);
        assert_eq!(nanoseconds_of_micros(&timeval { tv_sec: 0, tv_usec: 1_000_000 }), None);
    }

    #[test]
    fn the_clock_of_a_deadline_is_told_by_its_size() {
        assert_eq!(SCALE.clock_of(1_700_000_003 * SECOND), libc::CLOCK_REALTIME);
        assert_eq!(SCALE.clock_of(110 * SECOND), libc::CLOCK_MONOTONIC);
    }
}
