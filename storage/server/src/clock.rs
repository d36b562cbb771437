//! The time of a server.

use std::time::{Duration, Instant};

/// A clock that starts with the server.
#[derive(Debug)]
pub struct Clock(Instant);

impl Default for Clock {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Clock {
    /// Nanoseconds since the start of the server.
    pub fn now_ns(&self) -> u64 {
        nanoseconds(self.0.elapsed())
    }
}

/// A time in nanoseconds; the longest for a time of more than 584 years.
pub fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
