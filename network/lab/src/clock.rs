//! The clock of a lab.

use fabric::Time;
use std::time::{SystemTime, UNIX_EPOCH};

/// Model time: the time of the machine since the lab began, divided by its slowdown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clock {
    epoch: u64,
    slowdown: u64,
    /// The wall clock when it began, in nanoseconds, for programs in hosts.
    wall: u64,
}

impl Clock {
    /// A clock that begins now, and is slower than the machine's by a factor.
    pub fn new(slowdown: u32) -> Self {
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_nanos() as u64);
        Self {
            epoch: link::lab::monotonic(),
            slowdown: u64::from(slowdown.max(1)),
            wall,
        }
    }

    /// The clock that [`Self::variable`] describes.
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split(',').map(|number| number.parse().ok());
        let (epoch, slowdown, wall) = (numbers.next()??, numbers.next()??, numbers.next()??);
        (slowdown > 0 && numbers.next().is_none()).then_some(Self {
            epoch,
            slowdown,
            wall,
        })
    }

    /// A clock as slow as this one, which begins when this one has reached a time.
    pub(crate) fn beginning_at(&self, at: Time) -> Self {
        Self {
            epoch: self.epoch + (at.0 / 1000).saturating_mul(self.slowdown),
            ..*self
        }
    }

    /// Nanoseconds since it began.
    pub fn now_ns(&self) -> u64 {
        self.now().0 / 1000
    }

    /// By what factor it is slower than the machine's.
    pub const fn slowdown(&self) -> u64 {
        self.slowdown
    }

    /// The time now.
    #[inline]
    pub fn now(&self) -> Time {
        let elapsed = link::lab::monotonic().saturating_sub(self.epoch);
        Time(elapsed.saturating_mul(1000) / self.slowdown)
    }

    /// Nanoseconds of the machine until a time.
    pub(crate) fn until(&self, at: Time) -> u64 {
        (at.0.saturating_sub(self.now().0) / 1000).saturating_mul(self.slowdown)
    }

    /// As the environment of programs names it (`host::settings::LAB_CLOCK`).
    pub fn variable(&self) -> String {
        format!("{},{},{}", self.epoch, self.slowdown, self.wall)
    }
}
