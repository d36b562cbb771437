//! Swift (Kumar et al., "Swift: Delay is Simple and Effective for Congestion Control in the Datacenter",
//! SIGCOMM 2020, section 3.1 and algorithm 1): the window grows by a step per round trip while the delay is
//! below a target, and shrinks in proportion to how far it is above. The target grows with the number of
//! switches on the path, and as the window shrinks. With a window below one packet, a packet is sent now and
//! then.

use super::round_trips::RoundTrips;
use super::{Algorithm, Parameters, Signal};
use crate::time::{Instant, Nanos};

/// Lower limit of the window: a thousandth of a packet of 4096 bytes, so that progress is always possible.
const WINDOW_BYTES_MIN: u32 = 4;

/// The packet size assumed until one was sent: the largest MTU.
const PACKET_BYTES: u32 = 4096;

/// Unit of the fractions of packets, and of the square roots.
const ONE: u64 = 1 << 16;

/// Usual initial hop limits of senders: the least of these that is not below the received one is assumed.
const HOP_LIMITS: [u8; 3] = [64, 128, 255];

/// Parameters of Swift, as in its paper's section 3.1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwiftConfig {
    /// The target delay, from sending a packet to its acknowledgement, below which the window grows: without
    /// hops and with a large window.
    pub target_ns: Nanos,
    /// Increase of the target per switch on the path.
    pub hop_ns: Nanos,
    /// fs_range: the largest increase of the target as the window shrinks; 0 is none.
    pub flow_range_ns: Nanos,
    /// fs_min_cwnd: the window at which the increase is largest, in units of 2^-16 packets.
    pub flow_min: u32,
    /// fs_max_cwnd: the window from which on there is no increase, in units of 2^-16 packets.
    pub flow_max: u32,
    /// ai: additive increase of the window in bytes per round trip.
    pub additive_bytes: u32,
    /// beta: multiplicative decrease, in units of 2^-16.
    pub beta: u32,
    /// max_mdf: the largest part by which the window shrinks at once, in units of 2^-16.
    pub decrease_max: u32,
}

impl Default for SwiftConfig {
    /// The paper gives few of its constants. Those of htsim's model of it (`sim/swift.cpp`, which calls them
    /// guesses): 0.8, a half, 0.1 and 100 packets. One packet per round trip, and a target of 25 us that
    /// neither hops nor windows change by default.
    fn default() -> Self {
        Self {
            target_ns: Nanos::from_micros(25),
            hop_ns: Nanos(0),
            flow_range_ns: Nanos(0),
            flow_min: (1 << 16) / 10,
            flow_max: 100 << 16,
            additive_bytes: 4096,
            beta: (1 << 16) * 4 / 5,
            decrease_max: 1 << 15,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Swift {
    config: SwiftConfig,
    window_bytes: u32,
    maximum_bytes: u32,
    round_trips: RoundTrips,
    /// Bytes that one packet counts for.
    packet_bytes: u32,
    /// Number of switches on the path, from the hop limit of the last acknowledgement.
    hops: u8,
    /// The last delay, and the time from which the window may shrink again: a round trip after it last did.
    delay_ns: u64,
    shrink_at: Instant,
}

impl Swift {
    pub(crate) fn new(config: &SwiftConfig, maximum_bytes: u32) -> Self {
        let maximum_bytes = maximum_bytes.max(PACKET_BYTES);
        Self {
            config: config.clone(),
            window_bytes: maximum_bytes,
            maximum_bytes,
            round_trips: RoundTrips::new(),
            packet_bytes: PACKET_BYTES,
            hops: 0,
            delay_ns: 0,
            shrink_at: Instant(0),
        }
    }

    /// The target delay in nanoseconds.
    fn target_ns(&self) -> u64 {
        let config = &self.config;
        config.target_ns.0 + config.hop_ns.0 * u64::from(self.hops) + self.flow_scaling_ns()
    }

    /// Increase of the target as the window shrinks (flow scaling): proportional to the inverse square root
    /// of the window, from nothing at `flow_max` packets to `flow_range_ns` at `flow_min`.
    fn flow_scaling_ns(&self) -> u64 {
        let range = self.config.flow_range_ns.0;
        if range == 0 {
            return 0;
        }
        let packets = u64::from(self.window_bytes) * ONE / u64::from(self.packet_bytes);
        let [now, least, most] = [
            packets,
            self.config.flow_min.into(),
            self.config.flow_max.into(),
        ]
        .map(by_root);
        let span = least.saturating_sub(most).max(1);
        range * now.saturating_sub(most).min(span) / span
    }

    /// Shrinks the window by a fraction, in units of 2^-16, once per round trip.
    fn shrink(&mut self, part: u64, now: Instant) {
        if now < self.shrink_at {
            return;
        }
        let part = part.min(u64::from(self.config.decrease_max));
        let cut = (u64::from(self.window_bytes) * part) >> 16;
        self.window_bytes = (self.window_bytes - cut as u32).max(WINDOW_BYTES_MIN);
        self.shrink_at = Instant(now.0 + self.delay_ns);
    }
}

impl Parameters for SwiftConfig {
    type Control = Swift;
    const NAME: &'static str = "swift";
    const SIGNAL: Signal = Signal::Delay;

    fn control(&self, window_bytes: u32) -> Swift {
        Swift::new(self, window_bytes)
    }
}

impl Algorithm for Swift {
    const PACES: bool = true;

    fn window_packets(&self, mtu: u32) -> u32 {
        self.window_bytes / mtu
    }

    fn sent(&mut self, bytes: u32, now: Instant) {
        // Several packets may be sent at once.
        self.packet_bytes = self.packet_bytes.min(bytes);
        self.round_trips.sent(bytes, now);
    }

    /// The return path is assumed to be as long as the forward path.
    fn travelled(&mut self, hop_limit: u8) {
        let begun = HOP_LIMITS
            .into_iter()
            .find(|limit| hop_limit <= *limit)
            .unwrap_or(hop_limit);
        self.hops = begun - hop_limit;
    }

    fn acknowledged(&mut self, bytes: u32, now: Instant) {
        if let Some(delay) = self.round_trips.acknowledged(bytes, now) {
            self.delay_ns = delay;
        }
        let target = self.target_ns();
        if self.delay_ns > target {
            // A delay is far below 2^48 ns, which are three days.
            let over = ((self.delay_ns - target) << 16) / self.delay_ns;
            self.shrink((over * u64::from(self.config.beta)) >> 16, now);
        } else {
            let step = u64::from(bytes) * u64::from(self.config.additive_bytes);
            let grown = (step / u64::from(self.window_bytes.max(self.packet_bytes))).max(1);
            self.window_bytes = self
                .window_bytes
                .saturating_add(grown as u32)
                .min(self.maximum_bytes);
        }
    }

    fn lost(&mut self, now: Instant) {
        self.round_trips.forget();
        self.shrink(u64::from(self.config.decrease_max), now);
    }

    fn timed_out(&mut self, _now: Instant) {
        self.round_trips.forget();
        self.window_bytes = self.window_bytes.min(self.packet_bytes);
    }

    fn paced(&mut self, _bytes: u32, now: Instant) -> Instant {
        if self.window_bytes >= self.packet_bytes {
            return now;
        }
        // A round trip divided by the fraction of a packet that the window holds.
        Instant(now.0 + self.delay_ns * u64::from(self.packet_bytes) / u64::from(self.window_bytes))
    }
}

/// The inverse square root of a fraction.
fn by_root(packets: u64) -> u64 {
    ONE * ONE / (packets * ONE).isqrt().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet that is acknowledged after `delay_ns`.
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
        assert!(
            control.window_bytes.abs_diff(600_000) < 50,
            "{}",
            control.window_bytes
        );
        round_trip(&mut control, 1, 2 * target);
        assert!(
            control.window_bytes.abs_diff(600_000) < 50,
            "not twice in a round trip"
        );
        round_trip(&mut control, 10 * target, 100 * target);
        assert!(
            control.window_bytes.abs_diff(300_000) < 50,
            "by a half at most"
        );
    }

    #[test]
    fn below_the_target_it_grows_by_a_step_per_window() {
        let config = SwiftConfig::default();
        let mut control = Swift::new(&config, 1 << 20);
        control.timed_out(Instant(0));
        assert_eq!(control.window_bytes, PACKET_BYTES);
        round_trip(&mut control, 0, config.target_ns.0);
        assert_eq!(control.window_bytes, 2 * PACKET_BYTES);
        let mut now = 0;
        for _ in 0..1_000_000 {
            now += 1_000;
            round_trip(&mut control, now, config.target_ns.0 / 2);
        }
        assert_eq!(control.window_bytes, 1 << 20);
    }

    /// Section 3.1: alpha over the square root of the window plus beta, between nothing and the range.
    #[test]
    fn the_target_grows_with_the_way_and_as_the_window_shrinks() {
        let config = SwiftConfig {
            hop_ns: Nanos(1_500),
            flow_range_ns: Nanos(100_000),
            flow_min: (ONE / 10) as u32,
            flow_max: 100 << 16,
            ..SwiftConfig::default()
        };
        let base = config.target_ns.0;
        let mut control = Swift::new(&config, 1 << 20);
        for (hop_limit, hops) in [(64, 0), (61, 3), (125, 3), (250, 5)] {
            control.travelled(hop_limit);
            assert_eq!(u64::from(control.hops), hops);
            assert_eq!(
                control.target_ns(),
                base + hops * 1_500,
                "256 packets are no reason for more"
            );
        }
        control.travelled(64);
        let alpha = 100_000.0 / (10.0_f64.sqrt() - 0.1);
        for packets in [0.05_f64, 0.1, 0.5, 1.0, 10.0, 60.0, 100.0, 200.0] {
            control.window_bytes = (packets * 4096.0) as u32;
            let wanted = (alpha / packets.sqrt() - alpha / 10.0).clamp(0.0, 100_000.0);
            let got = (control.target_ns() - base) as f64;
            assert!(
                (got - wanted).abs() < 60.0,
                "{packets} packets: {got}, not {wanted}"
            );
        }
    }

    #[test]
    fn a_window_below_one_packet_is_a_packet_now_and_then() {
        let config = SwiftConfig::default();
        let mut control = Swift::new(&config, 1 << 20);
        control.window_bytes = 8192;
        assert_eq!(
            control.paced(4096, Instant(5)),
            Instant(5),
            "a window of packets is not paced"
        );
        let mut now = 0;
        while control.window_bytes > 1024 {
            now += 1_000_000;
            round_trip(&mut control, now, 1_000_000);
        }
        assert_eq!(control.window_packets(4096), 0);
        let pause = control.paced(4096, Instant(now)).0 - now;
        assert_eq!(pause, 1_000_000 * 4096 / u64::from(control.window_bytes));
        let before = control.window_bytes;
        round_trip(&mut control, now, config.target_ns.0);
        assert_eq!(
            control.window_bytes,
            before + config.additive_bytes,
            "a step for a packet"
        );
    }
}
