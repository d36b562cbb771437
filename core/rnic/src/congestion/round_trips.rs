//! Round trips of packets: from when one was sent until an acknowledgement covers it.

use crate::time::Instant;
use alloc::collections::VecDeque;

/// Limit of packets whose sending time is recorded: with more in flight, some are not measured.
const MEASURED_MAX: usize = 64;

/// The packets in flight that are measured.
#[derive(Debug)]
pub(super) struct RoundTrips {
    /// Bytes sent and acknowledged since the last loss.
    sent: u64,
    acknowledged: u64,
    /// Sending times, each with the count of bytes sent before it.
    left: VecDeque<(u64, Instant)>,
}

impl RoundTrips {
    pub(super) fn new() -> Self {
        Self {
            sent: 0,
            acknowledged: 0,
            left: VecDeque::with_capacity(MEASURED_MAX),
        }
    }

    pub(super) fn sent(&mut self, bytes: u32, now: Instant) {
        self.sent += u64::from(bytes);
        if self.left.len() < MEASURED_MAX {
            self.left.push_back((self.sent, now));
        }
    }

    /// The round trip in nanoseconds of the last packet that is acknowledged with these bytes, where one of
    /// them was measured.
    pub(super) fn acknowledged(&mut self, bytes: u32, now: Instant) -> Option<u64> {
        self.acknowledged = (self.acknowledged + u64::from(bytes)).min(self.sent);
        let mut last = None;
        while let Some((_, at)) = self
            .left
            .front()
            .filter(|(end, _)| *end <= self.acknowledged)
        {
            last = Some(now.0.saturating_sub(at.0));
            self.left.pop_front();
        }
        last
    }

    /// Bytes sent and acknowledged since the last loss.
    pub(super) fn bytes(&self) -> [u64; 2] {
        [self.sent, self.acknowledged]
    }

    /// Retransmitted packets are not measured (Karn's rule).
    pub(super) fn forget(&mut self) {
        self.left.clear();
        self.acknowledged = self.sent;
    }
}
