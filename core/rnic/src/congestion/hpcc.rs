//! HPCC (Li et al., "HPCC: High Precision Congestion Control", SIGCOMM 2019, algorithm 1): switches report
//! how many bytes they sent and hold, and the sender sets its window so that the busiest link on the path has
//! a little less in flight than its capacity. Integers only: utilisation is a fraction of 2^16.

use super::pace::Pace;
use super::{Algorithm, Parameters, Signal};
use crate::telemetry::{HOPS_MAX, Hop};
use crate::time::{Instant, Nanos};

/// Utilisation of a link that is exactly full.
const ONE: u64 = 1 << 16;

/// Lower limit of the window: below one packet, pacing sends a packet now and then.
const WINDOW_BYTES_MIN: u64 = 64;

/// Nanoseconds times bits: converts bytes in flight to fractions of a link's capacity.
const BIT_NS: u128 = 8 * 1_000_000_000;

/// Parameters of HPCC, as in its paper's section 3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HpccConfig {
    /// Line rate in bits per second: the rate at which a flow starts.
    pub line_rate_bps: u64,
    /// T: the base round-trip time in an empty network, a little more than the longest.
    pub base_rtt_ns: Nanos,
    /// eta: target utilisation of links, in units of 2^-16.
    pub eta: u32,
    /// maxStage: consecutive steps in which the window only grows.
    pub stages_max: u8,
    /// W_AI: additive increase in bytes per step.
    pub additive_bytes: u32,
}

impl Default for HpccConfig {
    /// The paper's, for 100 Gb/s (section 5.1).
    fn default() -> Self {
        Self {
            line_rate_bps: 100_000_000_000,
            base_rtt_ns: Nanos::from_micros(13),
            eta: (1 << 16) * 95 / 100,
            stages_max: 5,
            additive_bytes: 80,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Hpcc {
    config: HpccConfig,
    /// W: the bytes that may be unacknowledged; W^c: the window it is computed from, once per round trip.
    window_bytes: u64,
    reference_bytes: u64,
    /// The window that fills the line for a base round trip: the initial and the largest one.
    maximum_bytes: u64,
    /// U, from which the window is computed, and incStage.
    utilisation: u64,
    stage: u8,
    /// L: the last telemetry of the switches, and whether the current acknowledgement carried it.
    hops: [Hop; HOPS_MAX],
    count: usize,
    is_told: bool,
    /// Bytes sent and acknowledged since the last loss; and lastUpdateSeq among them.
    sent: u64,
    acknowledged: u64,
    updated: u64,
    pace: Pace,
}

impl Hpcc {
    pub(crate) fn new(config: &HpccConfig, maximum_bytes: u32) -> Self {
        let filled = u128::from(config.line_rate_bps) * u128::from(config.base_rtt_ns.0) / BIT_NS;
        let maximum_bytes = (filled as u64)
            .min(u64::from(maximum_bytes))
            .max(WINDOW_BYTES_MIN);
        Self {
            config: config.clone(),
            window_bytes: maximum_bytes,
            reference_bytes: maximum_bytes,
            maximum_bytes,
            utilisation: 0,
            stage: 0,
            hops: [Hop::default(); HOPS_MAX],
            count: 0,
            is_told: false,
            sent: 0,
            acknowledged: 0,
            updated: 0,
            pace: Pace::default(),
        }
    }

    /// R = W / T: the rate that fills the window in a base round trip.
    fn rate(&self) -> u64 {
        let rate =
            u128::from(self.window_bytes) * BIT_NS / u128::from(self.config.base_rtt_ns.0.max(1));
        (rate as u64).clamp(1, self.config.line_rate_bps.max(1))
    }

    /// Utilisation of one link since its switch last reported: the part of its capacity in a base round trip
    /// that is in flight, and the time of the measurement. `None` if it cannot be computed.
    fn link(&self, last: &Hop, now: &Hop) -> Option<(u64, u64)> {
        let (time, base) = (
            now.at.0.checked_sub(last.at.0)?,
            self.config.base_rtt_ns.0.max(1),
        );
        let bits = u128::from(now.rate_bps);
        if time == 0 || bits == 0 {
            return None;
        }
        let queued = u128::from(now.queued_bytes.min(last.queued_bytes)) * BIT_NS * u128::from(ONE);
        let sent =
            u128::from(now.sent_bytes.wrapping_sub(last.sent_bytes)) * BIT_NS * u128::from(ONE);
        let in_flight = queued / (bits * u128::from(base)) + sent / (bits * u128::from(time));
        Some((in_flight.min(u128::from(u32::MAX)) as u64, time))
    }

    /// MeasureInflight: moves U towards the utilisation of the busiest link.
    fn measure(&mut self, hops: &[Hop]) {
        let pairs = self.hops.iter().zip(hops);
        let links = pairs.filter_map(|(last, now)| self.link(last, now));
        let Some((in_flight, time)) = links.max_by_key(|(in_flight, _)| *in_flight) else {
            return;
        };
        let base = self.config.base_rtt_ns.0.max(1);
        let time = time.min(base);
        self.utilisation = (self.utilisation * (base - time) + in_flight * time) / base;
    }

    /// Computes the window (ComputeWind in HPCC, algorithm 1).
    fn compute(&mut self, updates: bool) {
        let (target, additive) = (
            u64::from(self.config.eta),
            u64::from(self.config.additive_bytes),
        );
        let falls = self.utilisation >= target || self.stage >= self.config.stages_max;
        let from = if falls {
            self.reference_bytes.saturating_mul(target) / self.utilisation.max(1)
        } else {
            self.reference_bytes
        };
        self.window_bytes = from
            .saturating_add(additive)
            .clamp(WINDOW_BYTES_MIN, self.maximum_bytes);
        if updates {
            self.stage = if falls { 0 } else { self.stage + 1 };
            self.reference_bytes = self.window_bytes;
        }
    }

    /// Retransmitted bytes are counted anew.
    fn forget(&mut self) {
        self.acknowledged = self.sent;
        self.updated = self.sent;
    }
}

impl Parameters for HpccConfig {
    type Control = Hpcc;
    const NAME: &'static str = "hpcc";
    const SIGNAL: Signal = Signal::Telemetry;

    fn control(&self, window_bytes: u32) -> Hpcc {
        Hpcc::new(self, window_bytes)
    }
}

impl Algorithm for Hpcc {
    const PACES: bool = true;

    fn rate_bps(&self) -> Option<u64> {
        Some(self.rate())
    }

    fn window_packets(&self, mtu: u32) -> u32 {
        // A packet may be sent while less than the window is in flight, even if it ends beyond it.
        self.window_bytes
            .div_ceil(u64::from(mtu))
            .min(u64::from(u32::MAX)) as u32
    }

    fn sent(&mut self, bytes: u32, _now: Instant) {
        self.sent += u64::from(bytes);
    }

    fn told(&mut self, hops: &[Hop]) {
        let hops = &hops[..hops.len().min(HOPS_MAX)];
        // Another path (the paper's pathID), or the first report: there is nothing to compare with.
        let same = self
            .hops
            .iter()
            .zip(hops)
            .all(|(last, now)| last.port == now.port);
        if hops.len() == self.count && !hops.is_empty() && same {
            self.measure(hops);
            self.is_told = true;
        }
        self.count = hops.len();
        self.hops[..hops.len()].copy_from_slice(hops);
    }

    fn acknowledged(&mut self, bytes: u32, _now: Instant) {
        self.acknowledged = (self.acknowledged + u64::from(bytes)).min(self.sent);
        if core::mem::take(&mut self.is_told) {
            let updates = self.acknowledged > self.updated;
            self.compute(updates);
            if updates {
                self.updated = self.sent;
            }
        }
    }

    fn lost(&mut self, _now: Instant) {
        self.forget();
    }

    fn timed_out(&mut self, _now: Instant) {
        self.forget();
    }

    fn paced(&mut self, bytes: u32, now: Instant) -> Instant {
        let rate = self.rate();
        self.pace.after(bytes, rate, 0, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: u64 = 10_000;

    fn control() -> Hpcc {
        // A window of 125,000 bytes fills the link.
        let config = HpccConfig {
            base_rtt_ns: Nanos(T),
            additive_bytes: 0,
            ..HpccConfig::default()
        };
        Hpcc::new(&config, u32::MAX)
    }

    /// A round trip in which a link of 100 Gb/s sent `sent_bytes` and held `queued_bytes`.
    fn round_trip(control: &mut Hpcc, number: u64, sent_bytes: u64, queued_bytes: u32) {
        let rate_bps = 100_000_000_000;
        let hop = Hop {
            port: 7,
            at: Instant(number * T),
            sent_bytes,
            queued_bytes,
            rate_bps,
        };
        control.sent(4096, Instant(0));
        control.told(&[hop]);
        control.acknowledged(4096, Instant(0));
    }

    #[test]
    fn the_window_goes_to_what_fills_the_link_to_eta_at_once() {
        let mut control = control();
        round_trip(&mut control, 0, 0, 125_000);
        assert_eq!(control.window_packets(1000), 125, "nothing to compare with");
        // The full capacity of the link, and as much again in the queue: utilisation 2.
        round_trip(&mut control, 1, 125_000, 125_000);
        let wanted = 125_000.0 * 0.95 / 2.0;
        assert!(
            (control.window_bytes as f64 - wanted).abs() < 10.0,
            "{}",
            control.window_bytes
        );
        assert!((control.rate() as f64 / 47.5e9 - 1.0).abs() < 1e-3);
        // Now the utilisation is on target: nothing changes.
        round_trip(&mut control, 2, 125_000 + 118_750, 0);
        assert!(
            (control.window_bytes as f64 - wanted).abs() < 20.0,
            "{}",
            control.window_bytes
        );
    }

    #[test]
    fn another_way_is_not_compared_with_the_last() {
        let mut control = control();
        round_trip(&mut control, 0, 1_000_000, 0);
        let hop = Hop {
            port: 8,
            at: Instant(T),
            sent_bytes: 5,
            queued_bytes: 0,
            rate_bps: 100_000_000_000,
        };
        control.sent(4096, Instant(0));
        control.told(&[hop]);
        control.acknowledged(4096, Instant(0));
        assert_eq!(control.window_bytes, 125_000);
    }

    #[test]
    fn below_eta_it_grows_by_steps_and_after_some_of_them_to_where_the_link_is_full() {
        let config = HpccConfig {
            base_rtt_ns: Nanos(T),
            additive_bytes: 80,
            ..HpccConfig::default()
        };
        let mut control = Hpcc::new(&config, u32::MAX);
        round_trip(&mut control, 0, 0, 0);
        control.reference_bytes = 10_000;
        let half = 62_500;
        for number in 1..=5 {
            round_trip(&mut control, number, number * half, 0);
            assert_eq!(control.window_bytes, 10_000 + 80 * number);
        }
        round_trip(&mut control, 6, 6 * half, 0);
        let wanted = 10_400.0 * 0.95 / 0.5 + 80.0;
        assert!(
            (control.window_bytes as f64 - wanted).abs() < 10.0,
            "{}",
            control.window_bytes
        );
    }

    #[test]
    fn within_a_round_trip_the_window_is_reckoned_from_the_same_reference() {
        let mut control = control();
        round_trip(&mut control, 0, 0, 125_000);
        for _ in 0..10 {
            control.sent(4096, Instant(0));
        }
        round_trip(&mut control, 1, 125_000, 125_000);
        let reference = control.reference_bytes;
        // Packets that left before the window shrank report the same queue again and again.
        for number in 2..8 {
            round_trip(&mut control, number, number * 125_000, 125_000);
            let wanted = reference as f64 * 0.95 / 2.0;
            assert!(
                (control.window_bytes as f64 - wanted).abs() < 10.0,
                "not smaller each time"
            );
        }
    }
}
