//! NSCC: the window of a sender, from the delay and the congestion marks of acknowledgements (Ultra Ethernet
//! 1.0, section 3.6.13).
//!
//! The specification scales its constants from a network of 100 Gb/s with a round trip of 12 us to the
//! network at hand: `a` is the quotient of the bandwidth-delay products, `b` that of the target delay and
//! 12 us. Bytes, picoseconds and integers throughout, so that results are the same on every machine.

use fabric::{Span, Time};

/// Round trip of the network that the constants are given for.
const REFERENCE_RTT_PS: u128 = 12_000_000;

/// Its bandwidth-delay product: 100 Gb/s for 12 us.
const REFERENCE_BDP: u128 = 150_000;

/// gamma, the strongest decrease, in percent.
const GAMMA_PERCENT: u128 = 80;

/// The largest part of the window that one decrease leaves at least: one half.
const DECREASE_MAX: u64 = 2;

/// Weight of a sample in the average of the delay is one of this: 0.0125.
const AVERAGE_PARTS: i64 = 80;

/// Below this delay the path counts as idle, and the window grows fast.
const IDLE_PS: u64 = 1_000_000;

/// Quick adapt acts when the delay is above so many times the target.
const QUICK_TARGETS: u64 = 4;

/// Quick adapt acts when less than this part of the largest window was acknowledged in a round trip.
const QUICK_PART: u64 = 8;

/// The increase is applied after so many packets were acknowledged, or a round trip.
const ADJUST_PACKETS: u64 = 8;

/// The network that windows are for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NsccConfig {
    /// The longest round trip of the empty network.
    pub base_rtt: Span,
    /// The target for the delay in queues.
    pub target: Span,
    /// Bits per second of the sender's port.
    pub line_bps: u64,
    /// Bytes of a full packet's payload.
    pub payload: u32,
    /// Bytes of a full packet on a link.
    pub packet: u32,
}

impl NsccConfig {
    /// Bytes that a link of the sender's rate carries in so long.
    fn bytes_in(&self, span: Span) -> u64 {
        (u128::from(self.line_bps) * u128::from(span.0) / 8_000_000_000_000) as u64
    }

    /// The largest window, of a path with this round trip: 1.5 times the bandwidth-delay product.
    pub(super) fn largest_window(&self, base_rtt: Span) -> u64 {
        (self.bytes_in(base_rtt) * 3 / 2).max(u64::from(self.packet))
    }
}

/// The state of one sender.
#[derive(Clone, Debug)]
pub(super) struct Nscc {
    config: NsccConfig,
    window: u64,
    largest: u64,
    /// The least round trip so far, from the network's on.
    base_rtt: u64,
    /// Average of the delay in queues.
    average_ps: i64,
    /// Increase that waits: in bytes, times the window.
    increase: u128,
    /// Bytes acknowledged since the last adjustment, and when there last was one for a round trip.
    since_adjusted: u64,
    adjusted_at: Time,
    decreased_at: Time,
    /// Bytes acknowledged on an idle path, and whether there were enough for fast increase.
    idle_bytes: u64,
    is_fast: bool,
    /// Quick adapt: when its period ends, what was acknowledged in it, and whether anything was trimmed.
    period_ends: Time,
    achieved: u64,
    has_lost: bool,
    /// After quick adapt, what was under way is ignored: bytes that are left of it.
    to_ignore: u64,
}

impl Nscc {
    pub(super) fn new(config: NsccConfig) -> Self {
        let largest = config.largest_window(config.base_rtt);
        Self {
            config,
            window: largest,
            largest,
            base_rtt: config.base_rtt.0,
            average_ps: 0,
            increase: 0,
            since_adjusted: 0,
            adjusted_at: Time(0),
            decreased_at: Time(0),
            idle_bytes: 0,
            is_fast: false,
            period_ends: Time(0),
            achieved: 0,
            has_lost: false,
            to_ignore: 0,
        }
    }

    /// Bytes that may be under way.
    pub(super) const fn window(&self) -> u64 {
        self.window
    }

    /// An acknowledgement came, of so many bytes that were not acknowledged before. `in_flight`: bytes that
    /// are under way behind them.
    pub(super) fn on_ack(
        &mut self,
        now: Time,
        acked: u64,
        is_marked: bool,
        rtt: Span,
        in_flight: u64,
    ) {
        self.learn_base_rtt(rtt);
        let delay = rtt.0 - self.base_rtt;
        let target = self.config.target.0;
        // A long delay without a mark is over already: the queue is short behind the packet.
        let sample = match !is_marked && delay > target {
            true => self.base_rtt / 4,
            false => delay,
        };
        self.average(sample);
        self.achieved += acked;
        self.since_adjusted += acked;
        self.to_ignore = self.to_ignore.saturating_sub(acked);
        let ignored = self.to_ignore > 0 && is_marked;
        if self.quick_adapt(now, ignored, delay, in_flight) {
            return;
        }
        match (is_marked, delay < target) {
            (false, true) => self.increase_by_delay(acked, delay),
            (false, false) => self.increase += self.scaled(5 * u128::from(acked)),
            (true, false) => self.decrease(now),
            // The path is at fault, not the rate: another entropy value will be chosen.
            (true, true) => {}
        }
        self.bound();
        let is_over = (now - self.adjusted_at).0 >= self.config.base_rtt.0;
        if self.since_adjusted > ADJUST_PACKETS * u64::from(self.config.packet) || is_over {
            self.adjust(now, is_over);
        }
    }

    /// A packet was trimmed. At the last hop it says nothing about paths, and where the receiver grants
    /// credit, that decides: the window stays then.
    pub(super) fn on_nack(
        &mut self,
        now: Time,
        bytes: u64,
        rtt: Span,
        stays: bool,
        in_flight: u64,
    ) {
        self.learn_base_rtt(rtt);
        self.average(self.config.base_rtt.0);
        self.to_ignore = self.to_ignore.saturating_sub(bytes);
        if stays {
            return;
        }
        self.has_lost = true;
        if !self.quick_adapt(now, self.to_ignore > 0, 0, in_flight) {
            self.window = self.window.saturating_sub(bytes);
            self.bound();
        }
    }

    /// A packet did not arrive at all.
    pub(super) fn on_timeout(&mut self, bytes: u64) {
        self.to_ignore = self.to_ignore.saturating_sub(bytes);
        self.window = self.window.saturating_sub(bytes);
        self.bound();
    }

    /// The path may be shorter than the longest one.
    fn learn_base_rtt(&mut self, rtt: Span) {
        if rtt.0 < self.base_rtt {
            self.base_rtt = rtt.0;
            self.largest = self.config.largest_window(rtt);
        }
    }

    fn average(&mut self, sample_ps: u64) {
        self.average_ps += (sample_ps as i64 - self.average_ps) / AVERAGE_PARTS;
    }

    /// So much, times the payload of a packet and the factor `a`.
    fn scaled(&self, value: u128) -> u128 {
        let bdp = u128::from(self.config.bytes_in(self.config.base_rtt));
        value * u128::from(self.config.payload) * bdp / REFERENCE_BDP
    }

    /// At the end of each period, sets the window to what came through in it, where that is little. Returns
    /// whether it did, or whether the acknowledgement is of a packet that was under way then.
    fn quick_adapt(&mut self, now: Time, ignored: bool, delay: u64, in_flight: u64) -> bool {
        let mut acts = ignored;
        if !ignored && now >= self.period_ends {
            let is_late = self.has_lost || delay > QUICK_TARGETS * self.config.target.0;
            let is_little = self.achieved < self.largest / QUICK_PART;
            if self.period_ends != Time(0) && is_late && is_little {
                self.window = self.achieved;
                self.bound();
                self.to_ignore = in_flight;
                self.has_lost = false;
                acts = true;
            }
            self.achieved = 0;
            self.period_ends = now + Span(self.base_rtt) + self.config.target;
        }
        if acts {
            (self.increase, self.since_adjusted) = (0, 0);
        }
        acts
    }

    /// Proportional increase: the more, the shorter the delay. On an idle path, after a whole window, the
    /// window grows at once.
    fn increase_by_delay(&mut self, acked: u64, delay: u64) {
        if delay < IDLE_PS {
            self.idle_bytes += acked;
            if self.idle_bytes > self.window || self.is_fast {
                let bdp = u128::from(self.config.bytes_in(self.config.base_rtt));
                self.window += (u128::from(acked) * bdp / REFERENCE_BDP / 4) as u64;
                self.is_fast = true;
                return;
            }
        } else {
            self.idle_bytes = 0;
        }
        self.is_fast = false;
        let below = u128::from(self.config.target.0 - delay);
        // alpha = 4 a b / target, in which the target cancels out.
        self.increase += self.scaled(4 * u128::from(acked) * below) / REFERENCE_RTT_PS;
    }

    /// Multiplicative decrease, once per round trip, by the part of the average delay that is too much.
    fn decrease(&mut self, now: Time) {
        (self.is_fast, self.idle_bytes) = (false, 0);
        let average = self.average_ps.max(0) as u64;
        if average <= self.config.target.0 || (now - self.decreased_at).0 <= self.base_rtt {
            return;
        }
        let above = u128::from(average - self.config.target.0);
        let window = u128::from(self.window);
        let cut = window * GAMMA_PERCENT * above / (100 * u128::from(average));
        self.window = (self.window - cut as u64).max(self.window / DECREASE_MAX);
        self.decreased_at = now;
    }

    /// Applies the increase that waits, and once per round trip a small one, so that shares become even.
    fn adjust(&mut self, now: Time, is_over: bool) {
        self.window += (self.increase / u128::from(self.window.max(1))) as u64;
        if is_over {
            self.window += (self.scaled(15) / 100) as u64;
            self.adjusted_at = now;
        }
        (self.increase, self.since_adjusted) = (0, 0);
        self.bound();
    }

    fn bound(&mut self) {
        self.window = self
            .window
            .min(self.largest)
            .max(u64::from(self.config.packet));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Span = Span::from_us(12);

    /// The network of the constants: `a` is 1, and the target is 9 us, so that `b` is 3/4.
    const CONFIG: NsccConfig = NsccConfig {
        base_rtt: RTT,
        target: Span::from_us(9),
        line_bps: 100_000_000_000,
        payload: 4096,
        packet: 4160,
    };

    const fn at_us(us: u64) -> Time {
        Time::from_ns(1_000 * us)
    }

    fn after_delay(us: u64) -> Span {
        RTT + Span::from_us(us)
    }

    #[test]
    fn the_window_begins_at_one_and_a_half_bandwidth_delay_products() {
        assert_eq!(Nscc::new(CONFIG).window(), 225_000);
    }

    /// 4096 bytes, 3 us below the target: 4 * 4096 * 4096 * 3 / 12 bytes times the window, of 100,000.
    #[test]
    fn the_increase_is_in_proportion_to_what_the_delay_is_below_the_target() {
        let mut nscc = Nscc::new(CONFIG);
        nscc.window = 100_000;
        nscc.adjusted_at = at_us(100);
        nscc.period_ends = at_us(200);
        (0..9).for_each(|_| nscc.on_ack(at_us(100), 4160, false, after_delay(6), 0));
        let each = 4 * 4096 * 4160 * 3 / 12;
        assert_eq!(nscc.window(), 100_000 + 9 * each / 100_000);
    }

    #[test]
    fn without_marks_a_delay_above_the_target_gives_the_fair_increase() {
        let mut nscc = Nscc::new(CONFIG);
        nscc.window = 100_000;
        nscc.adjusted_at = at_us(100);
        nscc.period_ends = at_us(200);
        (0..9).for_each(|_| nscc.on_ack(at_us(100), 4160, false, after_delay(10), 0));
        assert_eq!(nscc.window(), 100_000 + 9 * 5 * 4096 * 4160 / 100_000);
        // Fifteen hundredths of a packet more, once a round trip has gone.
        nscc.on_ack(at_us(113), 0, false, after_delay(10), 0);
        let before = 100_000 + 9 * 5 * 4096 * 4160 / 100_000;
        assert_eq!(nscc.window(), before + 4096 * 15 / 100);
    }

    #[test]
    fn the_decrease_follows_the_average_delay_and_comes_once_per_round_trip() {
        let mut nscc = Nscc::new(CONFIG);
        nscc.average_ps = 18_000_000;
        nscc.adjusted_at = at_us(100);
        nscc.period_ends = at_us(200);
        nscc.on_ack(at_us(100), 4160, true, after_delay(18), 0);
        // Half of the average is too much: 0.8 times that goes.
        assert_eq!(nscc.window(), 225_000 - 90_000);
        nscc.on_ack(at_us(101), 4160, true, after_delay(18), 0);
        assert_eq!(nscc.window(), 135_000);
        nscc.average_ps = 1_000_000_000;
        nscc.on_ack(at_us(113), 4160, true, after_delay(18), 0);
        // One half, and the small increase of a round trip.
        assert_eq!(nscc.window(), 67_500 + 4096 * 15 / 100);
    }

    #[test]
    fn quick_adapt_takes_what_came_through_and_ignores_what_was_under_way() {
        let mut nscc = Nscc::new(CONFIG);
        nscc.on_ack(at_us(1), 0, false, RTT, 0);
        nscc.on_ack(at_us(2), 8320, true, after_delay(20), 200_000);
        // The period of a round trip and the target is over, and a packet was trimmed.
        nscc.on_nack(at_us(23), 4160, RTT, false, 50_000);
        assert_eq!(nscc.window(), 8320);
        nscc.on_nack(at_us(24), 40_000, RTT, false, 10_000);
        nscc.on_ack(at_us(25), 9_999, true, after_delay(40), 0);
        assert_eq!(nscc.window(), 8320, "these 50,000 bytes were under way");
        nscc.on_nack(at_us(26), 4160, RTT, false, 0);
        assert_eq!(nscc.window(), 4160);
    }

    #[test]
    fn a_trim_costs_a_packet_and_the_window_keeps_one() {
        let mut nscc = Nscc::new(CONFIG);
        nscc.period_ends = at_us(200);
        nscc.on_nack(at_us(100), 4160, RTT, false, 0);
        assert_eq!(nscc.window(), 225_000 - 4160);
        nscc.on_nack(at_us(100), 4160, RTT, true, 0);
        assert_eq!(
            nscc.window(),
            225_000 - 4160,
            "the receiver's credit decides"
        );
        nscc.on_timeout(1 << 30);
        assert_eq!(nscc.window(), 4160);
    }

    #[test]
    fn the_least_round_trip_is_that_of_the_path() {
        let mut nscc = Nscc::new(CONFIG);
        nscc.on_ack(at_us(5), 4160, false, Span::from_us(4), 0);
        assert_eq!(nscc.window(), 75_000, "1.5 times 4 us at 100 Gb/s");
    }
}
