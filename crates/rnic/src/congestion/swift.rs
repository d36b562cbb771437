//! Swift (Kumar et al., "Swift: Delay is Simple and Effective for Congestion Control in the Datacenter",
//! SIGCOMM 2020, section 3.1 and algorithm 1): the window grows by a step per round trip while the delay is
//! below a target, and shrinks in proportion to how far it is above. Hop and flow scaling of the target, and
//! windows below one packet, are left out.

use super::Algorithm;
use crate::config::SwiftConfig;
use crate::time::Instant;
use alloc::collections::VecDeque;

/// The window never shrinks below one packet of the largest MTU.
const WINDOW_BYTES_MIN: u32 = 4096;

/// Packets whose time of leaving is known at once: with more on their way, some are not measured.
const MEASURED_MAX: usize = 64;

#[derive(Debug)]
pub(crate) struct Swift {
    config: SwiftConfig,
    window_bytes: u32,
    maximum_bytes: u32,
    /// Bytes that left and that were acknowledged, since the last loss.
    sent: u64,
    acknowledged: u64,
    /// When the byte before each of these left.
    left: VecDeque<(u64, Instant)>,
    /// The last delay, and when the window may shrink again: a round trip after it last did.
    delay_ns: u64,
    shrink_at: Instant,
}

impl Swift {
    pub(crate) fn new(config: &SwiftConfig, maximum_bytes: u32) -> Self {
        let maximum_bytes = maximum_bytes.max(WINDOW_BYTES_MIN);
        Self {
            config: config.clone(),
            window_bytes: maximum_bytes,
            maximum_bytes,
            sent: 0,
            acknowledged: 0,
            left: VecDeque::with_capacity(MEASURED_MAX),
            delay_ns: 0,
            shrink_at: Instant(0),
        }
    }

    /// Shrinks by a part of 2^16, once per round trip.
    fn shrink(&mut self, part: u64, now: Instant) {
        if now < self.shrink_at {
            return;
        }
        let part = part.min(u64::from(self.config.decrease_max));
        let cut = (u64::from(self.window_bytes) * part) >> 16;
        self.window_bytes = (self.window_bytes - cut as u32).max(WINDOW_BYTES_MIN);
        self.shrink_at = Instant(now.0 + self.delay_ns);
    }

    /// What is sent again is not measured (Karn's rule).
    fn forget(&mut self) {
        self.left.clear();
        self.acknowledged = self.sent;
    }
}

impl Algorithm for Swift {
    fn window_packets(&self, mtu: u32) -> u32 {
        self.window_bytes / mtu
    }

    fn sent(&mut self, bytes: u32, now: Instant) {
        self.sent += u64::from(bytes);
        if self.left.len() < MEASURED_MAX {
            self.left.push_back((self.sent, now));
        }
    }

    fn acknowledged(&mut self, bytes: u32, now: Instant) {
        self.acknowledged = (self.acknowledged + u64::from(bytes)).min(self.sent);
        while let Some((_, at)) = self.left.front().filter(|(end, _)| *end <= self.acknowledged) {
            self.delay_ns = now.0.saturating_sub(at.0);
            self.left.pop_front();
        }
        let target = self.config.target_ns.0;
        if self.delay_ns > target {
            // A delay is far below 2^48 ns, which are three days.
            let over = ((self.delay_ns - target) << 16) / self.delay_ns;
            self.shrink((over * u64::from(self.config.beta)) >> 16, now);
        } else {
            let step = u64::from(bytes) * u64::from(self.config.additive_bytes);
            let grown = (step / u64::from(self.window_bytes)).max(1);
            self.window_bytes = self.window_bytes.saturating_add(grown as u32).min(self.maximum_bytes);
        }
    }

    fn lost(&mut self, now: Instant) {
        self.forget();
        self.shrink(u64::from(self.config.decrease_max), now);
    }

    fn timed_out(&mut self, _now: Instant) {
        self.forget();
        self.window_bytes = WINDOW_BYTES_MIN;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet that is acknowledged after so long.
    fn round_trip(control: &mut Swift, now: u64, delay_ns: u64) {
        control.sent(4096, Instant(now));
        control.acknowledged(4096, Instant(now + delay_ns));
    }

    #[test]
    fn the_window_shrinks_in_proportion_to_the_excess_once_per_round_trip() {
        let config = SwiftConfig::default();
        let mut control = Swift::new(&config, 1_000_000);
        let target = config.target_ns.0;
        round_trip(&mut control, 0, 2 * target);
        // Half of the delay is excess: 0.8 / 2.
        assert!(control.window_bytes.abs_diff(600_000) < 50, "{}", control.window_bytes);
        round_trip(&mut control, 1, 2 * target);
        assert!(control.window_bytes.abs_diff(600_000) < 50, "not twice in a round trip");
        round_trip(&mut control, 10 * target, 100 * target);
        assert!(control.window_bytes.abs_diff(300_000) < 50, "by a half at most");
    }

    #[test]
    fn below_the_target_it_grows_by_a_step_per_window() {
        let config = SwiftConfig::default();
        let mut control = Swift::new(&config, 1 << 20);
        control.timed_out(Instant(0));
        assert_eq!(control.window_bytes, WINDOW_BYTES_MIN);
        round_trip(&mut control, 0, config.target_ns.0);
        assert_eq!(control.window_bytes, 2 * WINDOW_BYTES_MIN);
        let mut now = 0;
        for _ in 0..1_000_000 {
            now += 1_000;
            round_trip(&mut control, now, config.target_ns.0 / 2);
        }
        assert_eq!(control.window_bytes, 1 << 20);
    }
}
