//! Whether flows are in a steady state: the same flows are under way, and what each delivered in the latter
//! half of the time since then tells its mean rate.
//!
//! That half is cut into eight blocks. The mean is known as well as the spread of the blocks says (its
//! standard error), and the halves of the blocks tell whether it drifts. Both are judged by what they change
//! in a flow's completion time: a mean that holds for a tenth of a transfer may be known less well than one
//! that holds for all of it.

use super::CHECK_EVERY;
use fabric::{Span, Time};

/// Windows after a change before flows are judged for the first time, and between two judgements.
const WINDOWS_FIRST: usize = 16;
const WINDOWS_STEP: usize = 8;

/// Windows at most: pairs of them are put together then.
const WINDOWS_MAX: usize = 64;

/// Blocks that are compared.
pub(super) const BLOCKS: usize = 8;

/// Each of the first windows after a change is at least so long.
const WINDOW_MIN: Span = CHECK_EVERY;

/// A time that is skipped is at most so many times as long as the blocks that it repeats.
pub(super) const REPETITIONS_MAX: u64 = 256;

/// The part of the tolerance that a drift may use up.
const DRIFT: f64 = 0.75;

/// The range of a random walk on average, as a multiple of its standard deviation at the end: the root of
/// 8 by pi.
const RANGE: f64 = 1.6;

/// When repetition is skipped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SkipSteady {
    /// By how much the completion time of a flow may be estimated wrongly, in millionths: twice the standard
    /// error of measured rates, and the standard error of what flows that are alike get more or less than
    /// each other by chance.
    pub tolerance_ppm: u32,
}

impl SkipSteady {
    /// Completion times are known within 1 %.
    pub const ONE_PERCENT: Self = Self {
        tolerance_ppm: 10_000,
    };

    /// As a part of 1.
    pub(super) fn tolerance(self) -> f64 {
        f64::from(self.tolerance_ppm) / 1e6
    }
}

/// Which flows are under way: they change whenever one of these numbers does.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Activity {
    pub(super) not_started: u64,
    pub(super) unfinished: u64,
}

/// The result of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// Nothing before the next check.
    Wait,
    /// Other flows are under way than before: the first window begins here.
    Begin,
    /// There are half as many windows as can be judged.
    Half,
    /// There are windows enough to be judged.
    Judge,
}

/// Bytes by block.
pub(super) type Blocks = [u64; BLOCKS];

/// Windows of equal length, since flows began or ended.
#[derive(Debug)]
pub(super) struct Windows {
    activity: Activity,
    /// Length of each of the first windows after a change, and of each now.
    shortest: Span,
    length: Span,
    begin: Time,
    /// Bytes that each flow had delivered at the begin, and at the end of each window so far.
    delivered: Vec<Vec<u64>>,
}

impl Windows {
    /// For senders that change their rate in steps of `period` at the longest.
    pub(super) fn new(period: Span) -> Self {
        let shortest = WINDOW_MIN.max(period);
        let delivered = vec![Vec::new()];
        Self {
            activity: Activity::default(),
            shortest,
            length: shortest,
            begin: Time(0),
            delivered,
        }
    }

    /// Looks at a check. `delivered` counts the bytes of each flow so far, and is called when a window ends.
    pub(super) fn check_steadiness(
        &mut self,
        now: Time,
        activity: Activity,
        delivered: impl FnOnce() -> Vec<u64>,
    ) -> Verdict {
        if std::mem::replace(&mut self.activity, activity) != activity {
            self.length = self.shortest;
            self.begin_at(now, delivered());
            return Verdict::Begin;
        }
        if now - self.begin < self.length.times(self.delivered.len() as u64) {
            return Verdict::Wait;
        }
        self.delivered.push(delivered());
        let windows = self.delivered.len() - 1;
        if !windows.is_multiple_of(WINDOWS_STEP) {
            return Verdict::Wait;
        }
        if windows < WINDOWS_FIRST {
            return Verdict::Half;
        }
        if windows == WINDOWS_MAX {
            let mut number = 0..;
            self.delivered
                .retain(|_| number.next().is_some_and(|number| number % 2 == 0));
            self.length = self.length.times(2);
        }
        Verdict::Judge
    }

    /// Begins the first window after a time was skipped: longer ones show a drift that short ones hide.
    pub(super) fn go_on_at(&mut self, now: Time, delivered: Vec<u64>) {
        self.length = self.length.times(2);
        self.begin_at(now, delivered);
    }

    /// Begins the first window, as long as the last.
    pub(super) fn begin_at(&mut self, now: Time, delivered: Vec<u64>) {
        self.begin = now;
        self.delivered.clear();
        self.delivered.push(delivered);
    }

    fn windows(&self) -> usize {
        self.delivered.len() - 1
    }

    /// The time of all windows.
    pub(super) fn all(&self) -> Span {
        self.length.times(self.windows() as u64)
    }

    /// The time of the last blocks.
    pub(super) fn last(&self) -> Span {
        self.length
            .times((self.windows() / BLOCKS / 2 * BLOCKS) as u64)
    }

    /// What a flow delivered in the latter half of the time.
    pub(super) fn last_of(&self, flow: u32) -> Blocks {
        self.blocks(flow, self.windows() / BLOCKS / 2)
    }

    /// What a flow delivered in all of the time.
    pub(super) fn all_of(&self, flow: u32) -> Blocks {
        self.blocks(flow, self.windows() / BLOCKS)
    }

    /// Whether flows that are alike have mixed: each had a higher rate than their mean, and a lower one.
    pub(super) fn mixed(&self, flows: &[u32]) -> bool {
        let delivered = |window: usize, flow: &u32| {
            let [earlier, later] =
                [window, window + 1].map(|at| self.delivered[at][*flow as usize]);
            (later - earlier) as f64
        };
        let mut seen = vec![[false; 2]; flows.len()];
        for window in 0..self.windows() {
            let mean = flows
                .iter()
                .map(|flow| delivered(window, flow))
                .sum::<f64>()
                / flows.len() as f64;
            for (seen, flow) in seen.iter_mut().zip(flows) {
                let own = delivered(window, flow);
                seen[0] |= own <= mean;
                seen[1] |= own >= mean;
            }
        }
        seen.iter().all(|seen| *seen == [true; 2])
    }

    fn blocks(&self, flow: u32, windows: usize) -> Blocks {
        let first = self.windows() - BLOCKS * windows;
        let at = |block: usize| self.delivered[first + block * windows][flow as usize];
        std::array::from_fn(|block| at(block + 1) - at(block))
    }
}

/// What blocks tell about the mean.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Estimate {
    mean: f64,
    /// The standard error of the mean.
    error: f64,
    /// By how much the mean of the second half differs from that of the first.
    drift: f64,
}

impl Estimate {
    pub(super) fn of(blocks: &Blocks) -> Self {
        let counts = blocks.map(|count| count as f64);
        let mean_of = |counts: &[f64]| counts.iter().sum::<f64>() / counts.len() as f64;
        let mean = mean_of(&counts);
        let squares: f64 = counts
            .iter()
            .map(|count| (count - mean) * (count - mean))
            .sum();
        let error = (squares / (BLOCKS * (BLOCKS - 1)) as f64).sqrt();
        let (first, second) = counts.split_at(BLOCKS / 2);
        Self {
            mean,
            error,
            drift: (mean_of(second) - mean_of(first)).abs(),
        }
    }

    /// Whether the mean is known within the tolerance, for a time that is such a part of a transfer. The
    /// errors of several such times in a transfer are independent, so that their squares add up.
    pub(super) fn suffices(self, tolerance: f64, part: f64) -> bool {
        let tolerated = self.mean * tolerance;
        2.0 * self.error * part.sqrt() <= tolerated
            && (self.drift + self.error) * part <= DRIFT * tolerated
    }
}

/// How far the bytes of a flow strayed from the mean of flows that are alike: the standard deviation of a
/// random walk over the time of the blocks, from its range. (It is that of a random walk for times in which
/// rates mix, and grows with the root of the time.)
pub(super) fn strays(own: &Blocks, mean: &[f64; BLOCKS]) -> f64 {
    let (mut sum, mut low, mut high) = (0.0_f64, 0.0_f64, 0.0_f64);
    for (own, mean) in own.iter().zip(mean) {
        sum += *own as f64 - mean;
        (low, high) = (low.min(sum), high.max(sum));
    }
    (high - low) / RANGE
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: Activity = Activity {
        not_started: 0,
        unfinished: 2,
    };
    const TOLERANCE: f64 = 0.01;

    /// Checks each 50 us, with the bytes that flows have delivered by then; the first that is not `Wait`.
    fn first_verdict(
        windows: &mut Windows,
        from: u64,
        rates: impl Fn(u64) -> Vec<u64>,
    ) -> (u64, Verdict) {
        let checks = (from..from + 10_000).map(|number| {
            (
                number,
                windows.check_steadiness(Time(number * CHECK_EVERY.0), BOTH, || rates(number)),
            )
        });
        checks
            .into_iter()
            .find(|(_, verdict)| *verdict != Verdict::Wait)
            .expect("a verdict")
    }

    /// When the first flow is steady for all of its transfer.
    fn steady_at(windows: &mut Windows, rates: impl Fn(u64) -> Vec<u64>) -> u64 {
        let mut at = 0;
        loop {
            let verdict;
            (at, verdict) = first_verdict(windows, at + 1, &rates);
            if verdict == Verdict::Judge
                && Estimate::of(&windows.last_of(0)).suffices(TOLERANCE, 1.0)
            {
                return at;
            }
        }
    }

    #[test]
    fn equal_rates_are_steady_after_the_first_windows() {
        let mut windows = Windows::new(Span::ZERO);
        let rates = |number: u64| vec![number * 1000, number * 10];
        assert_eq!(first_verdict(&mut windows, 1, rates), (1, Verdict::Begin));
        assert_eq!(first_verdict(&mut windows, 2, rates), (9, Verdict::Half));
        assert_eq!(first_verdict(&mut windows, 10, rates), (17, Verdict::Judge));
        assert_eq!(
            (windows.last_of(0), windows.all_of(1)),
            ([1000; BLOCKS], [20; BLOCKS])
        );
        assert_eq!(
            (windows.last(), windows.all()),
            (CHECK_EVERY.times(8), CHECK_EVERY.times(16))
        );
        assert!(Estimate::of(&windows.last_of(0)).suffices(TOLERANCE, 1.0));
    }

    #[test]
    fn windows_become_longer_when_there_are_many() {
        let mut windows = Windows::new(Span::ZERO);
        let rates = |number: u64| vec![number * number];
        let mut at = 0;
        while at < 1 + 128 {
            let verdict;
            (at, verdict) = first_verdict(&mut windows, at + 1, rates);
            if verdict != Verdict::Judge {
                continue;
            }
            let all = windows.all_of(0).iter().sum::<u64>();
            assert_eq!(all, at * at - 1, "all bytes since the begin at {at}");
        }
        assert_eq!(windows.all(), CHECK_EVERY.times(128));
        assert!(windows.delivered.len() <= WINDOWS_MAX);
    }

    #[test]
    fn an_oscillation_needs_blocks_as_long_as_its_period() {
        // From one rate to three times that and back, in 24 checks.
        let rate = |number: u64| 100 + 200 * (12 - (number % 24).abs_diff(12)) / 12;
        let mut windows = Windows::new(Span::ZERO);
        steady_at(&mut windows, |number| vec![(0..number).map(rate).sum()]);
        assert!(
            windows.last() >= CHECK_EVERY.times(24 * BLOCKS as u64),
            "{:?}",
            windows.last()
        );
    }

    #[test]
    fn a_flow_that_ends_begins_anew() {
        let mut windows = Windows::new(Span::ZERO);
        let rates = |number: u64| vec![number * 1000];
        assert_eq!(first_verdict(&mut windows, 1, rates), (1, Verdict::Begin));
        let fewer = Activity {
            unfinished: 1,
            ..BOTH
        };
        assert_eq!(
            windows.check_steadiness(Time(7 * CHECK_EVERY.0), fewer, || rates(7)),
            Verdict::Begin
        );
        assert_eq!(
            windows.check_steadiness(Time(9 * CHECK_EVERY.0), fewer, || rates(9)),
            Verdict::Wait
        );
    }

    /// Counts that alternate around a mean that grows.
    fn counts(mean: u64, spread: u64, growth: u64) -> Estimate {
        let count = |at: u64| mean + growth * at + if at.is_multiple_of(2) { spread } else { 0 };
        Estimate::of(&std::array::from_fn(|at| count(at as u64)))
    }

    #[test]
    fn the_mean_has_to_be_known_within_the_tolerance() {
        assert!(
            counts(0, 0, 0).suffices(TOLERANCE, 1.0),
            "a flow that stands still is steady"
        );
        assert!(
            counts(1000, 25, 0).suffices(TOLERANCE, 1.0),
            "a standard error of 0.47 %"
        );
        assert!(
            !counts(1000, 29, 0).suffices(TOLERANCE, 1.0),
            "a standard error of 0.54 %"
        );
        assert!(
            counts(1000, 58, 0).suffices(TOLERANCE, 0.2),
            "twice that, for a fifth of a transfer"
        );
    }

    #[test]
    fn a_rate_that_drifts_is_not_steady() {
        assert!(
            !counts(1000, 0, 2).suffices(TOLERANCE, 1.0),
            "by 0.2 % in each block"
        );
        assert!(
            !counts(1000, 2, 2).suffices(TOLERANCE, 1.0),
            "by 0.2 %, with a spread"
        );
        assert!(
            counts(1000, 2, 1).suffices(TOLERANCE, 1.0),
            "by 0.4 % from half to half"
        );
        assert!(
            counts(1000, 2, 2).suffices(TOLERANCE, 0.5),
            "by 0.8 %, for half of a transfer"
        );
    }

    #[test]
    fn flows_have_mixed_when_each_was_above_their_mean_and_below() {
        let mut windows = Windows::new(Span::ZERO);
        let apart = |number: u64| vec![number * 300, number * 100];
        for from in [1, 2, 10] {
            first_verdict(&mut windows, from, apart);
        }
        assert!(!windows.mixed(&[0, 1]));
        let turned = |number: u64| {
            vec![
                17 * 300 + (number - 17) * 100,
                17 * 100 + (number - 17) * 300,
            ]
        };
        first_verdict(&mut windows, 18, turned);
        assert!(windows.mixed(&[0, 1]));
    }

    #[test]
    fn bytes_that_are_ahead_and_behind_stray_by_both() {
        let own = [110, 110, 90, 90, 90, 110, 100, 100];
        assert!((strays(&own, &[100.0; BLOCKS]) * RANGE - 30.0).abs() < 1e-9);
        assert!(strays(&[100; BLOCKS], &[100.0; BLOCKS]) < 1e-9);
    }
}
