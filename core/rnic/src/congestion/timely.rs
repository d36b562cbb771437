//! TIMELY (Mittal et al., "TIMELY: RTT-based Congestion Control for the Datacenter", SIGCOMM 2015, algorithm
//! 1): the rate falls while round trips become longer, and grows while they become shorter. Integers only:
//! fractions are of 2^16.

use super::pace::Pace;
use super::round_trips::RoundTrips;
use super::{Algorithm, Parameters, Signal, packets};
use crate::time::{Instant, Nanos};

/// Unit of the fractions.
const ONE: i64 = 1 << 16;

/// N: an increase in hyper active mode is so many steps.
const HYPER_STEPS: u64 = 5;

/// Parameters of TIMELY, named as in its paper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelyConfig {
    /// Line rate in bits per second: the rate at which a flow starts.
    pub line_rate_bps: u64,
    /// Lower limit of rates.
    pub minimum_rate_bps: u64,
    /// Bytes of a segment: a round trip is measured for each, and once in a round trip at most.
    pub segment_bytes: u32,
    /// alpha: weight of a new difference of round trips, in units of 2^-16.
    pub weight: u32,
    /// beta: multiplicative decrease, in units of 2^-16.
    pub beta: u32,
    /// delta: additive increase in bits per second.
    pub additive_bps: u64,
    /// minRTT: what differences are compared with.
    pub minimum_rtt_ns: Nanos,
    /// T_low: below this round trip the rate grows, whatever the gradient.
    pub low_ns: Nanos,
    /// T_high: above this round trip the rate falls, whatever the gradient.
    pub high_ns: Nanos,
    /// Round trips in a row that did not become longer until increases are larger.
    pub hyper_after: u8,
}

impl Default for TimelyConfig {
    /// The paper's, for 10 Gb/s (section 6), with segments of 16 KiB.
    fn default() -> Self {
        Self {
            line_rate_bps: 10_000_000_000,
            minimum_rate_bps: 10_000_000,
            segment_bytes: 16 << 10,
            weight: (1 << 16) * 7 / 8,
            beta: (1 << 16) * 4 / 5,
            additive_bps: 10_000_000,
            minimum_rtt_ns: Nanos::from_micros(20),
            low_ns: Nanos::from_micros(50),
            high_ns: Nanos::from_micros(500),
            hyper_after: 5,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Timely {
    config: TimelyConfig,
    window_bytes: u32,
    current_bps: u64,
    round_trips: RoundTrips,
    /// Bytes of the last packets that were sent at once: their own transmission is no delay of the network.
    sent_bytes: u32,
    /// Bytes until the segment is complete.
    segment_left: u32,
    /// The rate changes again only when what was sent before its last change is acknowledged.
    changed_end: u64,
    /// The last round trip, and the average of differences between them, in nanoseconds.
    last_ns: Option<u64>,
    difference: i64,
    /// Round trips in a row that did not become longer.
    calm: u8,
    pace: Pace,
}

impl Parameters for TimelyConfig {
    type Control = Timely;
    const NAME: &'static str = "timely";
    const SIGNAL: Signal = Signal::Delay;

    fn control(&self, window_bytes: u32) -> Timely {
        Timely::new(self, window_bytes)
    }
}

impl Timely {
    pub(crate) fn new(config: &TimelyConfig, window_bytes: u32) -> Self {
        Self {
            window_bytes,
            current_bps: config.line_rate_bps,
            round_trips: RoundTrips::new(),
            sent_bytes: 0,
            segment_left: config.segment_bytes,
            changed_end: 0,
            last_ns: None,
            difference: 0,
            calm: 0,
            pace: Pace::default(),
            config: config.clone(),
        }
    }

    /// A segment is complete, and its last packet took so long.
    fn complete(&mut self, rtt_ns: u64) {
        let config = &self.config;
        let last = self.last_ns.replace(rtt_ns).unwrap_or(rtt_ns);
        let new = i64::try_from(rtt_ns)
            .unwrap_or(i64::MAX / ONE)
            .saturating_sub(i64::try_from(last).unwrap_or(i64::MAX / ONE));
        let weight = i64::from(config.weight);
        self.difference = (self.difference.saturating_mul(ONE - weight))
            .saturating_add(new.saturating_mul(weight))
            / ONE;
        if rtt_ns < config.low_ns.0 {
            return self.increase(1);
        }
        if rtt_ns > config.high_ns.0 {
            self.calm = 0;
            let above = ((rtt_ns - config.high_ns.0) << 16) / rtt_ns;
            return self.decrease(above);
        }
        if self.difference <= 0 {
            self.calm = self.calm.saturating_add(1);
            let is_hyper = self.calm >= config.hyper_after;
            return self.increase(if is_hyper { HYPER_STEPS } else { 1 });
        }
        self.calm = 0;
        let gradient = (self.difference.unsigned_abs() << 16) / config.minimum_rtt_ns.0.max(1);
        self.decrease(gradient);
    }

    fn increase(&mut self, steps: u64) {
        let step = self.config.additive_bps.saturating_mul(steps);
        let most = self.config.line_rate_bps;
        self.current_bps = self.current_bps.saturating_add(step).min(most);
    }

    /// Lowers the rate by beta times a fraction.
    fn decrease(&mut self, part: u64) {
        let part = (part.saturating_mul(u64::from(self.config.beta)) >> 16).min(ONE as u64);
        let cut = (u128::from(self.current_bps) * u128::from(part)) >> 16;
        let least = self.config.minimum_rate_bps.min(self.config.line_rate_bps);
        self.current_bps = (self.current_bps - cut as u64).max(least).max(1);
    }
}

impl Algorithm for Timely {
    const PACES: bool = true;

    fn window_packets(&self, mtu: u32) -> u32 {
        packets(self.window_bytes, mtu)
    }

    fn sent(&mut self, bytes: u32, now: Instant) {
        self.sent_bytes = bytes;
        self.round_trips.sent(bytes, now);
    }

    fn acknowledged(&mut self, bytes: u32, now: Instant) {
        let round_trip = self.round_trips.acknowledged(bytes, now);
        if bytes < self.segment_left {
            self.segment_left -= bytes;
            return;
        }
        let [sent, acknowledged] = self.round_trips.bytes();
        if acknowledged <= self.changed_end {
            return;
        }
        if let Some(round_trip) = round_trip {
            self.changed_end = sent;
            self.segment_left = self.config.segment_bytes;
            let bits = u64::from(self.sent_bytes) * 8_000_000_000;
            let own = bits / self.config.line_rate_bps.max(1);
            self.complete(round_trip.saturating_sub(own));
        }
    }

    fn lost(&mut self, _now: Instant) {
        self.round_trips.forget();
    }

    fn timed_out(&mut self, _now: Instant) {
        self.round_trips.forget();
    }

    fn paced(&mut self, bytes: u32, now: Instant) -> Instant {
        self.pace.after(bytes, self.current_bps, 0, now)
    }

    fn rate_bps(&self) -> Option<u64> {
        Some(self.current_bps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: u64 = 10_000_000_000;
    const STEP: u64 = 10_000_000;

    fn at_half_the_line_rate() -> Timely {
        let mut control = Timely::new(&TimelyConfig::default(), 1 << 20);
        control.current_bps = LINE / 2;
        control
    }

    #[test]
    fn short_round_trips_add_a_step_whatever_their_gradient() {
        let mut control = at_half_the_line_rate();
        for us in [10, 20, 30, 49] {
            control.complete(us * 1_000);
        }
        assert_eq!(control.current_bps, LINE / 2 + 4 * STEP);
    }

    #[test]
    fn round_trips_above_the_limit_cut_by_how_far_they_are_above() {
        let mut control = at_half_the_line_rate();
        control.complete(1_000_000);
        // 1 - 0.8 * (1 - 500 / 1000)
        let wanted = LINE / 2 * 6 / 10;
        assert!(
            control.current_bps.abs_diff(wanted) < LINE >> 15,
            "{}",
            control.current_bps
        );
    }

    #[test]
    fn between_the_limits_the_gradient_decides() {
        let mut control = at_half_the_line_rate();
        control.complete(100_000);
        assert_eq!(
            control.current_bps,
            LINE / 2 + STEP,
            "the first has no gradient"
        );
        control.complete(108_000);
        // 7/8 of 8 us are 35 % of the 20 us of minRTT: the rate falls by 0.8 times that.
        let wanted = (LINE / 2 + STEP) * 72 / 100;
        assert!(
            control.current_bps.abs_diff(wanted) < LINE >> 15,
            "{}",
            control.current_bps
        );
        let before = control.current_bps;
        control.complete(60_000);
        assert_eq!(control.current_bps, before + STEP);
    }

    #[test]
    fn the_fifth_calm_round_trip_in_a_row_begins_larger_steps() {
        let mut control = at_half_the_line_rate();
        let rates: [u64; 6] = core::array::from_fn(|_| {
            control.complete(100_000);
            control.current_bps
        });
        let steps: [u64; 5] = core::array::from_fn(|at| (rates[at + 1] - rates[at]) / STEP);
        assert_eq!(steps, [1, 1, 1, 5, 5]);
        control.complete(120_000);
        let cut = control.current_bps;
        control.complete(100_000);
        assert_eq!(control.current_bps, cut + STEP, "growth begins anew");
    }

    #[test]
    fn a_segment_is_one_round_trip_without_the_transmission_of_its_last_packet() {
        let mut control = at_half_the_line_rate();
        for packet in 0..4 {
            control.sent(4096, Instant(packet * 1_000));
        }
        for packet in 0..3 {
            control.acknowledged(4096, Instant(50_000 + packet * 1_000));
        }
        assert_eq!(control.last_ns, None);
        control.acknowledged(4096, Instant(53_276));
        // 4096 bytes take 3276 ns at 10 Gb/s.
        assert_eq!(control.last_ns, Some(53_276 - 3_000 - 3_276));
    }

    #[test]
    fn the_rate_changes_once_in_a_round_trip() {
        let mut control = at_half_the_line_rate();
        for packet in 0..16 {
            control.sent(4096, Instant(packet * 1_000));
        }
        (0..16).for_each(|packet| control.acknowledged(4096, Instant(40_000 + packet * 1_000)));
        assert_eq!(
            control.current_bps,
            LINE / 2 + STEP,
            "four segments, sent at once"
        );
        for packet in 16..20 {
            control.sent(4096, Instant(packet * 1_000));
        }
        (16..20).for_each(|packet| control.acknowledged(4096, Instant(40_000 + packet * 1_000)));
        assert_eq!(control.current_bps, LINE / 2 + 2 * STEP);
    }

    #[test]
    fn no_round_trip_stops_a_flow() {
        let mut control = at_half_the_line_rate();
        for us in [60, 10_000_000, 70, u64::MAX / 2_000, 400, 500] {
            control.complete(us.saturating_mul(1_000));
            assert!(control.current_bps >= control.config.minimum_rate_bps);
        }
    }
}
