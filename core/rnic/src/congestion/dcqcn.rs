//! DCQCN's reaction point (Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015,
//! section 5.1 and figure 7). Integers only: alpha is a fraction of 2^32.

use super::pace::Pace;
use super::{Algorithm, Parameters, Signal, packets};
use crate::time::{Instant, Nanos};

/// Alpha of 1.
const ONE: u64 = 1 << 32;

/// Parameters of DCQCN, named as in the paper's section 5.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DcqcnConfig {
    /// Line rate in bits per second: the rate at which a flow starts.
    pub line_rate_bps: u64,
    /// Lower limit of rates.
    pub minimum_rate_bps: u64,
    /// g: weight of a new observation in alpha, as a shift (1/256 is 8).
    pub g_shift: u8,
    /// N: at most one CNP per queue pair in this time.
    pub cnp_interval_ns: Nanos,
    /// K: alpha decays when no CNP arrived for this time.
    pub alpha_interval_ns: Nanos,
    /// T: time between rate increases.
    pub increase_interval_ns: Nanos,
    /// B: bytes between rate increases.
    pub increase_bytes: u64,
    /// F: increases by halving the distance before additive ones.
    pub fast_recovery_steps: u8,
    /// R_AI: additive increase in bits per second.
    pub additive_bps: u64,
    /// R_HAI: hyper increase in bits per second.
    pub hyper_bps: u64,
    /// How many bytes may leave at once after the driver was late, or the queue pair had nothing to send: the
    /// depth of the rate limiter's token bucket. 0 for a driver that is in time, such as a simulator.
    pub burst_bytes: u32,
    /// The variant in adapters' firmware, if given: clock ticks instead of a cut with each notification.
    pub firmware: Option<FirmwareDcqcn>,
}

/// Differences of adapters' firmware from DCQCN's paper: alpha moves up or down every `alpha_interval_ns`,
/// depending on whether a notification arrived in it; the rate is cut at most once per `cut_interval_ns`; and
/// the first step beyond fast recovery is additive, all later ones are hyper, by the clock alone. (Parameters
/// `rate_reduce_monitor_period`, `dce_tcp_rtt` and `clamp_tgt_rate` of ConnectX; the model is that of HPCC's
/// authors, SIGCOMM 2019.)
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirmwareDcqcn {
    /// Least time between cuts.
    pub cut_interval_ns: Nanos,
    /// Whether a cut that follows another without an increase between them lowers the target too.
    pub clamp_target: bool,
}

impl Default for DcqcnConfig {
    /// The paper's values, for a 40 Gb/s line (SIGCOMM 2015, section 5.2 and figure 14).
    fn default() -> Self {
        Self {
            line_rate_bps: 40_000_000_000,
            minimum_rate_bps: 10_000_000,
            g_shift: 8,
            cnp_interval_ns: Nanos::from_micros(50),
            alpha_interval_ns: Nanos::from_micros(55),
            increase_interval_ns: Nanos::from_micros(55),
            increase_bytes: 10 << 20,
            fast_recovery_steps: 5,
            additive_bps: 40_000_000,
            hyper_bps: 400_000_000,
            burst_bytes: 0,
            firmware: None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Dcqcn {
    config: DcqcnConfig,
    window_bytes: u32,
    current_bps: u64,
    target_bps: u64,
    alpha: u64,
    /// When to lower alpha because no CNP arrived (equation 2). Clocks that do not run have
    /// [`Instant::NEVER`].
    alpha_at: Instant,
    /// When to raise the rate by the clock.
    increase_at: Instant,
    /// Increases by the clock, and by the byte counter, since the last cut.
    increases_by_time: u32,
    increases_by_bytes: u32,
    /// Firmware: when the rate may be cut next; and whether a notification came since the last cut, and since
    /// alpha last moved.
    cut_at: Instant,
    cut_due: bool,
    alpha_due: bool,
    bytes_left: u64,
    pace: Pace,
}

impl Dcqcn {
    pub(crate) fn new(config: &DcqcnConfig, window_bytes: u32) -> Self {
        Self {
            window_bytes,
            current_bps: config.line_rate_bps,
            target_bps: config.line_rate_bps,
            alpha: ONE,
            alpha_at: Instant::NEVER,
            increase_at: Instant::NEVER,
            increases_by_time: 0,
            increases_by_bytes: 0,
            cut_at: Instant::NEVER,
            cut_due: false,
            alpha_due: false,
            bytes_left: config.increase_bytes,
            pace: Pace::default(),
            config: config.clone(),
        }
    }

    /// Cuts the rate (equation 1) and starts recovery anew.
    fn cut(&mut self, now: Instant, clamp_target: bool) {
        let cut = u128::from(self.current_bps) * u128::from(self.alpha) / u128::from(ONE) / 2;
        if clamp_target {
            self.target_bps = self.current_bps;
        }
        self.current_bps = (self.current_bps - cut as u64).max(self.config.minimum_rate_bps);
        self.increase_at = now + self.config.increase_interval_ns;
        self.increases_by_time = 0;
        self.increases_by_bytes = 0;
        self.bytes_left = self.config.increase_bytes;
    }

    /// Firmware: records a notification. The first one starts the clocks.
    fn note_cnp(&mut self, now: Instant, cut_interval: Nanos) {
        self.cut_due = true;
        if self.cut_at == Instant::NEVER {
            self.alpha_due = false;
            // Just behind a change of alpha, whose clock may tick at the same time.
            self.cut_at = now + cut_interval + Nanos(1);
            self.alpha_at = now + self.config.alpha_interval_ns;
        } else {
            self.alpha_due = true;
        }
    }

    /// Firmware: the clocks of alpha, of increases and of cuts. Where an increase and a cut fall together,
    /// which they do whenever one interval is a multiple of the other, the rate rises before it is cut: its
    /// clock was set earlier. (HPCC's ns-3 model does the same, since it runs events of one moment in the
    /// order in which they were scheduled.)
    fn tick(&mut self, now: Instant, cut_interval: Nanos, clamp_target: bool) {
        if self.alpha_at <= now {
            self.alpha -= self.alpha >> self.config.g_shift;
            if core::mem::take(&mut self.alpha_due) {
                self.alpha += ONE >> self.config.g_shift;
            }
            self.alpha_at = now + self.config.alpha_interval_ns;
        }
        if self.increase_at <= now {
            self.increase_at = now + self.config.increase_interval_ns;
            self.step();
        }
        if self.cut_at <= now {
            self.cut_at = now + cut_interval;
            if core::mem::take(&mut self.cut_due) {
                let clamp = clamp_target || self.increases_by_time > 0;
                self.cut(now, clamp);
            }
        }
    }

    /// Firmware: the next step of recovery.
    fn step(&mut self) {
        let steps = u32::from(self.config.fast_recovery_steps);
        let step = match self.increases_by_time {
            done if done < steps => 0,
            done if done == steps => self.config.additive_bps,
            _ => self.config.hyper_bps,
        };
        self.increases_by_time += 1;
        self.target_bps = (self.target_bps + step).min(self.config.line_rate_bps);
        self.current_bps = self.target_bps.midpoint(self.current_bps);
    }

    /// Fast recovery until both counters passed F, then additive, then hyper increase (figure 7).
    fn increase(&mut self) {
        let steps = u32::from(self.config.fast_recovery_steps);
        let most = self.increases_by_time.max(self.increases_by_bytes);
        let least = self.increases_by_time.min(self.increases_by_bytes);
        if most >= steps {
            let hyper_steps = u64::from(least.saturating_sub(steps)) + 1;
            let step = if least >= steps {
                self.config.hyper_bps * hyper_steps
            } else {
                self.config.additive_bps
            };
            self.target_bps = (self.target_bps + step).min(self.config.line_rate_bps);
        }
        self.current_bps = self.target_bps.midpoint(self.current_bps);
        if self.current_bps + 1 >= self.config.line_rate_bps {
            // At line rate there is nothing to recover: the timers stop until the next CNP.
            self.current_bps = self.config.line_rate_bps;
            self.target_bps = self.config.line_rate_bps;
            self.increase_at = Instant::NEVER;
        }
    }

    fn limited(&self) -> bool {
        self.current_bps < self.config.line_rate_bps
    }
}

impl Parameters for DcqcnConfig {
    type Control = Dcqcn;
    const NAME: &'static str = "dcqcn";
    const SIGNAL: Signal = Signal::Notifications;

    fn control(&self, window_bytes: u32) -> Dcqcn {
        Dcqcn::new(self, window_bytes)
    }

    fn notification_interval(&self) -> Nanos {
        self.cnp_interval_ns
    }

    fn recovery(&self) -> Nanos {
        let steps = u64::from(self.fast_recovery_steps);
        Nanos(self.increase_interval_ns.0.saturating_mul(steps))
    }
}

impl Algorithm for Dcqcn {
    const PACES: bool = true;

    #[inline]
    fn deadline(&self) -> Instant {
        self.alpha_at.min(self.cut_at).min(self.increase_at)
    }

    fn rate_bps(&self) -> Option<u64> {
        Some(self.current_bps)
    }

    #[inline]
    fn window_packets(&self, mtu: u32) -> u32 {
        packets(self.window_bytes, mtu)
    }

    fn notified(&mut self, now: Instant) {
        if let Some(firmware) = &self.config.firmware {
            let interval = firmware.cut_interval_ns;
            return self.note_cnp(now, interval);
        }
        self.cut(now, true);
        self.alpha += (ONE - self.alpha) >> self.config.g_shift;
        self.alpha_at = now + self.config.alpha_interval_ns;
    }

    #[inline]
    fn paced(&mut self, bytes: u32, now: Instant) -> Instant {
        if self.config.firmware.is_none() && self.limited() {
            if u64::from(bytes) >= self.bytes_left {
                self.bytes_left = self.config.increase_bytes;
                self.increases_by_bytes += 1;
                self.increase();
            } else {
                self.bytes_left -= u64::from(bytes);
            }
        }
        self.pace
            .after(bytes, self.current_bps, self.config.burst_bytes, now)
    }

    fn handle_timeout(&mut self, now: Instant) {
        if let Some(firmware) = &self.config.firmware {
            let (interval, clamp) = (firmware.cut_interval_ns, firmware.clamp_target);
            return self.tick(now, interval, clamp);
        }
        // The clocks continue from their deadlines: a driver that is late calls again until none is due.
        if self.alpha_at <= now {
            self.alpha -= self.alpha >> self.config.g_shift;
            let rests = !self.limited();
            let next = self.alpha_at + self.config.alpha_interval_ns;
            self.alpha_at = if rests { Instant::NEVER } else { next };
        }
        if self.increase_at <= now {
            self.increases_by_time += 1;
            self.increase_at = self.increase_at + self.config.increase_interval_ns;
            self.increase();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(control: &Dcqcn) -> Option<Instant> {
        Some(control.deadline()).filter(|at| *at != Instant::NEVER)
    }

    #[test]
    fn the_first_notification_halves_the_rate_and_fast_recovery_closes_half_the_gap_each_step() {
        let config = DcqcnConfig::default();
        let mut control = Dcqcn::new(&config, 1 << 20);
        control.notified(Instant(0));
        assert_eq!(control.current_bps, 20_000_000_000);
        let mut now = Instant(0);
        for expected in [30, 35] {
            now = now + config.increase_interval_ns;
            control.handle_timeout(now);
            assert_eq!(control.current_bps, expected * 1_000_000_000);
        }
    }

    #[test]
    fn a_driver_that_asks_late_finds_the_rate_that_one_in_time_has() {
        let config = DcqcnConfig::default();
        let [mut late, mut in_time] = [(); 2].map(|()| Dcqcn::new(&config, 1 << 20));
        let end = Instant(config.increase_interval_ns.0 * 7 + 10);
        for control in [&mut late, &mut in_time] {
            control.notified(Instant(0));
        }
        while let Some(at) = due(&in_time).filter(|at| *at <= end) {
            in_time.handle_timeout(at);
        }
        while due(&late).is_some_and(|at| at <= end) {
            late.handle_timeout(end);
        }
        assert_eq!(
            (late.current_bps, late.alpha),
            (in_time.current_bps, in_time.alpha)
        );
        assert!(late.current_bps > 39_000_000_000 && due(&late) == due(&in_time));
    }

    #[test]
    fn firmware_cuts_by_its_clock_and_alpha_follows_another() {
        let config = DcqcnConfig {
            alpha_interval_ns: Nanos(1_000),
            fast_recovery_steps: 1,
            firmware: Some(FirmwareDcqcn {
                cut_interval_ns: Nanos(4_000),
                clamp_target: false,
            }),
            ..DcqcnConfig::default()
        };
        let line = config.line_rate_bps;
        let mut control = Dcqcn::new(&config, 1 << 20);
        control.notified(Instant(0));
        assert_eq!(control.current_bps, line, "nothing before the clock ticks");
        for now in [1_000, 2_000, 3_000, 4_000] {
            control.handle_timeout(Instant(now));
        }
        control.handle_timeout(Instant(4_001));
        // Alpha fell four times by 1/256 from 1.
        let alpha = (1.0 - 1.0 / 256.0_f64).powi(4);
        let wanted = line as f64 * (1.0 - alpha / 2.0);
        assert!(
            (control.current_bps as f64 / wanted - 1.0).abs() < 1e-6,
            "{} b/s, and not {wanted} b/s",
            control.current_bps
        );
        // No notification, no cut; the first step halves the gap to a target that was not lowered.
        let cut = control.current_bps;
        control.handle_timeout(Instant(8_001));
        assert_eq!(control.current_bps, cut);
        control.handle_timeout(Instant(4_001 + config.increase_interval_ns.0));
        assert_eq!(control.current_bps, line.midpoint(cut));
    }

    /// The clock of cuts ticks when that of increases does: up by half the way to the line, then down.
    #[test]
    fn firmware_raises_the_rate_before_it_cuts_it_when_both_are_due() {
        let config = DcqcnConfig {
            alpha_interval_ns: Nanos(1_000),
            increase_interval_ns: Nanos(300_000),
            fast_recovery_steps: 1,
            firmware: Some(FirmwareDcqcn {
                cut_interval_ns: Nanos(4_000),
                clamp_target: false,
            }),
            ..DcqcnConfig::default()
        };
        let mut control = Dcqcn::new(&config, 1 << 20);
        control.notified(Instant(0));
        let mut now = Instant(0);
        while now.0 < 304_001 {
            now = due(&control).unwrap();
            if now.0 == 304_001 {
                control.notified(now);
                let (before, alpha) = (control.current_bps, control.alpha as f64 / ONE as f64);
                control.handle_timeout(now);
                let raised = before.midpoint(config.line_rate_bps);
                assert_eq!(
                    control.target_bps, raised,
                    "what was reached is the target now"
                );
                let wanted = raised as f64 * (1.0 - alpha / 2.0);
                assert!(
                    (control.current_bps as f64 / wanted - 1.0).abs() < 1e-6,
                    "{} b/s, and not {wanted} b/s",
                    control.current_bps
                );
                return;
            }
            control.handle_timeout(now);
        }
        unreachable!("the clocks meet at 304,001 ns");
    }

    #[test]
    fn pacing_keeps_the_rate_exactly_over_time() {
        let config = DcqcnConfig {
            line_rate_bps: 7_000_000_000,
            ..DcqcnConfig::default()
        };
        let mut control = Dcqcn::new(&config, 1 << 20);
        let mut next = Instant(0);
        for _ in 0..7_000 {
            next = control.paced(1_000, next);
        }
        assert_eq!(next, Instant(8_000_000));
    }

    #[test]
    fn a_rate_never_falls_below_its_minimum_and_recovers_to_the_line() {
        let config = DcqcnConfig::default();
        let mut control = Dcqcn::new(&config, 1 << 20);
        for at in 0..1_000 {
            control.notified(Instant(at));
        }
        assert_eq!(control.current_bps, config.minimum_rate_bps);
        let mut now = Instant(1_000);
        while let Some(at) = due(&control) {
            now = now.max(at);
            control.handle_timeout(now);
            assert!(now.0 < 10_000_000_000, "never recovered: {control:?}");
        }
        assert_eq!(control.current_bps, config.line_rate_bps);
    }
}
