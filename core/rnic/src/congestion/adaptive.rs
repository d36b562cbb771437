//! A window that halves on loss and grows by a packet's worth per round trip (RFC 5681's shape): for networks
//! that drop instead of pausing, such as the receive buffer of a UDP socket.

use super::Algorithm;
use crate::time::Instant;

/// Lower limit of the window, one packet of the largest MTU, so that progress is always possible.
const WINDOW_BYTES_MIN: u32 = 4096;

#[derive(Debug)]
pub(crate) struct Adaptive {
    window_bytes: u32,
    threshold_bytes: u32,
    maximum_bytes: u32,
}

impl Adaptive {
    pub(crate) fn new(maximum_bytes: u32) -> Self {
        let maximum_bytes = maximum_bytes.max(WINDOW_BYTES_MIN);
        Self {
            window_bytes: maximum_bytes,
            threshold_bytes: maximum_bytes,
            maximum_bytes,
        }
    }
}

impl Algorithm for Adaptive {
    #[cfg(feature = "simulation")]
    fn lines(&self, _load: &impl Fn(*const u8)) {
        // It lies in the queue pair.
    }

    fn window_packets(&self, mtu: u32) -> u32 {
        self.window_bytes / mtu
    }

    fn acknowledged(&mut self, bytes: u32, _now: Instant) {
        if self.window_bytes >= self.maximum_bytes {
            return;
        }
        let grown = if self.window_bytes < self.threshold_bytes {
            bytes
        } else {
            // One packet of the largest MTU per acknowledged window.
            (u64::from(bytes) * u64::from(WINDOW_BYTES_MIN) / u64::from(self.window_bytes)) as u32
                + 1
        };
        self.window_bytes = self
            .window_bytes
            .saturating_add(grown)
            .min(self.maximum_bytes);
    }

    fn lost(&mut self, _now: Instant) {
        self.threshold_bytes = (self.window_bytes / 2).max(WINDOW_BYTES_MIN);
        self.window_bytes = self.threshold_bytes;
    }

    fn timed_out(&mut self, _now: Instant) {
        self.threshold_bytes = (self.window_bytes / 2).max(WINDOW_BYTES_MIN);
        self.window_bytes = WINDOW_BYTES_MIN;
    }

    fn notified(&mut self, now: Instant) {
        self.lost(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_halves_the_window_and_acknowledgements_bring_it_back() {
        let mut control = Adaptive::new(1 << 20);
        control.lost(Instant(0));
        assert_eq!(control.window_bytes, 1 << 19);
        control.timed_out(Instant(0));
        assert_eq!(control.window_bytes, WINDOW_BYTES_MIN);
        for _ in 0..100_000 {
            control.acknowledged(4096, Instant(0));
        }
        assert_eq!(control.window_bytes, 1 << 20);
    }
}
