//! Detects peers that do not read their responses, or do not send requested data.

use std::time::Duration;

use crate::nanoseconds;

/// The progress of one direction of a connection.
#[derive(Debug)]
pub struct StallTimer {
    most_ns: u64,
    /// Bytes that have to move within that time.
    bytes_min: usize,
    since_ns: Option<u64>,
    moved: usize,
}

impl StallTimer {
    /// A timer with this limit, within which at least `bytes_min` have to move.
    pub fn new(most: Duration, bytes_min: usize) -> Self {
        Self {
            most_ns: nanoseconds(most),
            bytes_min,
            since_ns: None,
            moved: 0,
        }
    }

    /// Notes that this many bytes moved.
    pub fn moved(&mut self, bytes: usize) {
        self.moved = self.moved.saturating_add(bytes);
    }

    /// Whether the limit has passed, if the connection waits for the peer now. Fewer bytes than
    /// `bytes_min` within the limit do not count as progress.
    pub fn is_too_long(&mut self, is_waited_for: bool, now_ns: u64) -> bool {
        if !is_waited_for || self.moved >= self.bytes_min {
            (self.since_ns, self.moved) = (None, 0);
        }
        is_waited_for && now_ns - *self.since_ns.get_or_insert(now_ns) > self.most_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES_MIN: usize = 64 << 10;

    #[test]
    fn slow_progress_is_a_stall_and_fast_progress_is_not() {
        let mut stall = StallTimer::new(Duration::from_nanos(100), BYTES_MIN);
        assert!(!stall.is_too_long(true, 1000));
        for now_ns in 1000..=1100 {
            stall.moved(1);
            assert!(!stall.is_too_long(true, now_ns));
        }
        assert!(stall.is_too_long(true, 1101));
        assert!(!stall.is_too_long(false, 1102) && !stall.is_too_long(true, 1200));
        stall.moved(BYTES_MIN);
        assert!(!stall.is_too_long(true, 1301) && !stall.is_too_long(true, 1401));
        assert!(stall.is_too_long(true, 1402));
    }
}
