//! DCTCP (RFC 8257): the window shrinks by half of the share of packets that arrive marked, once per window.
//! Integers only: alpha is a fraction of 2^16.

use super::{Algorithm, Parameters, Signal};
use crate::time::Instant;

/// Alpha of 1.
const ONE: u64 = 1 << 16;

/// The packet size assumed until one was sent: the largest MTU.
const PACKET_BYTES: u32 = 4096;

/// Parameters of DCTCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DctcpConfig {
    /// g: weight of a new observation in alpha, in units of 2^-16.
    pub g: u32,
}

impl Default for DctcpConfig {
    /// The recommendation of RFC 8257, section 4.2: 1/16.
    fn default() -> Self {
        Self { g: (1 << 16) / 16 }
    }
}

#[derive(Debug)]
pub(crate) struct Dctcp {
    g: u64,
    window_bytes: u32,
    threshold_bytes: u32,
    maximum_bytes: u32,
    /// Bytes that one packet counts for.
    packet_bytes: u32,
    /// Growth that is less than a byte, in bytes times the window.
    grown: u64,
    alpha: u64,
    /// Bytes sent and acknowledged since the last loss.
    sent: u64,
    acknowledged: u64,
    /// The end of the observation window, and what was acknowledged in it: all, and what was marked.
    window_end: u64,
    observed: u64,
    marked: u64,
    /// The window shrinks again only when what was sent before the last time is acknowledged.
    cut_end: u64,
    /// The acknowledgement that is handled next carries a mark.
    is_marked: bool,
}

impl Parameters for DctcpConfig {
    type Control = Dctcp;
    const NAME: &'static str = "dctcp";
    const SIGNAL: Signal = Signal::Echoes;

    fn control(&self, window_bytes: u32) -> Dctcp {
        Dctcp::new(self, window_bytes)
    }
}

impl Dctcp {
    pub(crate) fn new(config: &DctcpConfig, maximum_bytes: u32) -> Self {
        let maximum_bytes = maximum_bytes.max(PACKET_BYTES);
        Self {
            g: u64::from(config.g).min(ONE),
            window_bytes: maximum_bytes,
            threshold_bytes: maximum_bytes,
            maximum_bytes,
            packet_bytes: PACKET_BYTES,
            grown: 0,
            alpha: ONE,
            sent: 0,
            acknowledged: 0,
            window_end: 0,
            observed: 0,
            marked: 0,
            cut_end: 0,
            is_marked: false,
        }
    }

    /// Moves alpha towards the marked share of the window that is over (RFC 8257, section 3.3, step 5).
    fn observe(&mut self) {
        let share = self.marked * ONE / self.observed.max(1);
        self.alpha = (self.alpha * (ONE - self.g) + share * self.g) / ONE;
        self.begin_window();
    }

    fn begin_window(&mut self) {
        self.window_end = self.sent;
        (self.observed, self.marked) = (0, 0);
    }

    /// Shrinks the window by a fraction.
    fn shrink(&mut self, part: u64) {
        let cut = (u64::from(self.window_bytes) * part) >> 16;
        let left = self.window_bytes - cut as u32;
        self.window_bytes = left.max(self.packet_bytes);
        self.threshold_bytes = self.window_bytes;
        self.cut_end = self.sent;
        self.grown = 0;
    }

    /// Slow start below the threshold, one packet per round trip above it (RFC 5681, section 3.1).
    fn grow(&mut self, bytes: u32) {
        if self.window_bytes < self.threshold_bytes {
            self.window_bytes = self.window_bytes.saturating_add(bytes);
        } else {
            self.grown += u64::from(bytes) * u64::from(self.packet_bytes);
            let window = u64::from(self.window_bytes);
            self.window_bytes = self
                .window_bytes
                .saturating_add((self.grown / window) as u32);
            self.grown %= window;
        }
        self.window_bytes = self.window_bytes.min(self.maximum_bytes);
    }

    /// Retransmitted bytes are counted anew.
    fn forget(&mut self) {
        self.acknowledged = self.sent;
        self.begin_window();
    }
}

impl Algorithm for Dctcp {
    fn window_packets(&self, mtu: u32) -> u32 {
        self.window_bytes / mtu
    }

    fn sent(&mut self, bytes: u32, _now: Instant) {
        self.sent += u64::from(bytes);
        // Several packets may be sent at once.
        self.packet_bytes = self.packet_bytes.min(bytes);
    }

    fn echoed(&mut self) {
        self.is_marked = true;
    }

    fn acknowledged(&mut self, bytes: u32, _now: Instant) {
        let is_marked = core::mem::take(&mut self.is_marked);
        self.acknowledged = (self.acknowledged + u64::from(bytes)).min(self.sent);
        self.observed += u64::from(bytes);
        if is_marked {
            self.marked += u64::from(bytes);
        }
        if self.acknowledged > self.window_end {
            self.observe();
        }
        if !is_marked {
            self.grow(bytes);
        } else if self.acknowledged > self.cut_end {
            self.shrink(self.alpha / 2);
        }
    }

    fn lost(&mut self, _now: Instant) {
        self.forget();
        self.shrink(ONE / 2);
    }

    fn timed_out(&mut self, _now: Instant) {
        self.forget();
        self.shrink(ONE / 2);
        self.window_bytes = self.packet_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: u32 = 1024;
    const PACKETS: u32 = 64;

    fn control() -> Dctcp {
        let mut control = Dctcp::new(&DctcpConfig::default(), PACKET * PACKETS);
        control.packet_bytes = PACKET;
        control
    }

    /// A window of packets, the first so many of which arrive marked.
    fn round_trip(control: &mut Dctcp, marked: u32) {
        let packets = control.window_packets(PACKET);
        (0..packets).for_each(|_| control.sent(PACKET, Instant(0)));
        for packet in 0..packets {
            if packet < marked {
                control.echoed();
            }
            control.acknowledged(PACKET, Instant(0));
        }
    }

    #[test]
    fn without_marks_alpha_decays_by_g_per_window() {
        let mut control = control();
        (0..16).for_each(|_| round_trip(&mut control, 0));
        let alpha = control.alpha as f64 / ONE as f64;
        // One window ends with the first packet of the next.
        assert!(
            (alpha - (15.0_f64 / 16.0).powi(16)).abs() < 0.001,
            "{alpha}"
        );
        assert_eq!(control.window_packets(PACKET), PACKETS);
    }

    /// The fixed point of a constant share of marks is that share.
    #[test]
    fn alpha_becomes_the_marked_share() {
        let mut control = control();
        for _ in 0..200 {
            control.window_bytes = PACKET * PACKETS;
            round_trip(&mut control, PACKETS / 4);
        }
        let alpha = control.alpha as f64 / ONE as f64;
        assert!((alpha - 0.25).abs() < 0.01, "{alpha}");
    }

    #[test]
    fn marks_of_one_window_cut_once_by_half_of_alpha() {
        let mut control = control();
        control.alpha = ONE / 2;
        control.window_end = u64::MAX;
        round_trip(&mut control, PACKETS);
        assert_eq!(control.window_packets(PACKET), PACKETS * 3 / 4);
        // The first packet of the next window is marked, and cuts again. The others are not, and let the
        // window grow by a packet.
        round_trip(&mut control, 1);
        assert_eq!(control.window_packets(PACKET), PACKETS * 9 / 16 + 1);
    }

    #[test]
    fn the_window_grows_by_a_packet_per_round_trip() {
        let mut control = control();
        control.window_bytes = 16 * PACKET;
        control.threshold_bytes = 16 * PACKET;
        for packets in 16..PACKETS {
            assert_eq!(control.window_packets(PACKET), packets);
            // So many packets of growth that a window, which grows on the way, becomes one larger.
            (0..=packets).for_each(|_| {
                control.sent(PACKET, Instant(0));
                control.acknowledged(PACKET, Instant(0));
            });
        }
        (0..1000).for_each(|_| control.acknowledged(PACKET, Instant(0)));
        assert_eq!(
            control.window_packets(PACKET),
            PACKETS,
            "no larger than at the start"
        );
    }

    #[test]
    fn losses_halve_and_timeouts_begin_anew() {
        let mut control = control();
        control.lost(Instant(0));
        assert_eq!(control.window_packets(PACKET), PACKETS / 2);
        control.timed_out(Instant(0));
        assert_eq!(control.window_packets(PACKET), 1);
        (0..15).for_each(|_| {
            control.sent(PACKET, Instant(0));
            control.acknowledged(PACKET, Instant(0));
        });
        assert_eq!(control.window_packets(PACKET), PACKETS / 4, "slow start");
    }

    #[test]
    fn a_window_has_a_packet_at_least() {
        let mut control = control();
        for _ in 0..50 {
            control.lost(Instant(0));
            control.timed_out(Instant(0));
        }
        assert_eq!(control.window_bytes, PACKET);
    }
}
