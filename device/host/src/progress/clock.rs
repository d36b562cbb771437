//! The clock of the device: nanoseconds of the wall clock since the first reading in the process. In a lab it
//! is the lab's clock, the same for all hosts, which may run slower than the wall clock.

use crate::settings;
use crate::sys::ticks;
use rnic::{Instant, Nanos};
use std::sync::LazyLock;
use std::time::Duration;

/// Origin of the clock, and the number of nanoseconds of the wall clock per nanosecond of the device's.
struct Clock {
    /// Nanoseconds of the monotonic clock.
    epoch: u64,
    slowdown: u64,
}

static CLOCK: LazyLock<Clock> = LazyLock::new(|| match settings::lab_clock() {
    Some((epoch, slowdown)) => Clock {
        epoch,
        slowdown: slowdown.max(1),
    },
    None => Clock {
        epoch: link::lab::monotonic(),
        slowdown: 1,
    },
});

/// The current time of this process's clock.
pub(crate) fn now() -> Instant {
    let clock = &*CLOCK;
    let elapsed = link::lab::monotonic().saturating_sub(clock.epoch);
    // A division takes as long as reading the clock.
    Instant(if clock.slowdown == 1 {
        elapsed
    } else {
        elapsed / clock.slowdown
    })
}

/// The sleep time in which `time` of the device's clock passes.
pub(crate) fn real(time: Nanos) -> Duration {
    Duration::from_nanos(time.0.saturating_mul(CLOCK.slowdown))
}

/// The clock, read only if the last reading is not recent: a reading takes a fifth of the time of a small
/// message, and most of the time of a poll that finds nothing.
#[derive(Debug)]
pub(crate) struct RecentClock {
    read_at: Instant,
    read_at_ticks: u64,
    /// Ticks for which a reading is used again: a reading took 70 ns per message (measured).
    fresh_ticks: u64,
}

impl RecentClock {
    pub(crate) fn new() -> Self {
        Self {
            read_at: now(),
            read_at_ticks: ticks::now(),
            fresh_ticks: ticks::in_two_microseconds(),
        }
    }

    /// The time, at most two microseconds old.
    #[inline]
    pub(crate) fn read(&mut self) -> Instant {
        let ticks = ticks::now();
        if ticks.wrapping_sub(self.read_at_ticks) > self.fresh_ticks {
            (self.read_at, self.read_at_ticks) = (now(), ticks);
        }
        self.read_at
    }

    /// The last reading of the clock.
    pub(crate) fn last(&self) -> Instant {
        self.read_at
    }
}
