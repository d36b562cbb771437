//! Whether flows are in a steady state: the same flows are under way, and the bytes that each delivered in
//! sixteen windows are samples of one mean.
//!
//! The mean has to be known well: its standard error, from the spread of the windows, is at most half of the
//! tolerance. And the rate must not drift: the halves of the windows differ by no more than their spread
//! explains (Student's t). Windows that show neither are doubled, since longer ones average over the
//! oscillation of congestion control and of pauses, and show a drift that short ones hide. They are doubled
//! after each time that is skipped as well, for a drift that was too slow to be seen.

use super::CHECK_EVERY;
use fabric::{Span, Time};

/// Windows that are compared.
const WINDOWS: usize = 16;

/// Each of the first windows after a change is at least so long.
const WINDOW_MIN: Span = CHECK_EVERY;

/// A time that is skipped is at most so many times as long as the windows that it repeats.
pub(super) const REPETITIONS_MAX: u64 = 64;

/// Student's t of two halves of 8 windows, from which a rate drifts. Without a drift one flow in 5,000 is
/// above it; a rate that grows steadily has 7.
const T_MAX: f64 = 5.0;

/// When repetition is skipped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SkipSteady {
    /// By how much the rate of a flow may be estimated wrongly, in millionths: twice the standard error.
    pub tolerance_ppm: u32,
}

impl SkipSteady {
    /// Rates are known within 1 %.
    pub const ONE_PERCENT: Self = Self { tolerance_ppm: 10_000 };
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
    /// The first window begins here.
    Begin,
    /// Each flow was steady since the first window began, so long ago.
    Steady(Span),
}

/// Windows of equal length.
#[derive(Debug)]
pub(super) struct Windows {
    tolerance_ppm: u32,
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
    pub(super) fn new(settings: SkipSteady, period: Span) -> Self {
        let shortest = WINDOW_MIN.max(period);
        Self {
            tolerance_ppm: settings.tolerance_ppm,
            activity: Activity::default(),
            shortest,
            length: shortest,
            begin: Time(0),
            delivered: vec![Vec::new()],
        }
    }

    /// Judges at a check. `delivered` counts the bytes of each flow so far, and is called when a window ends.
    pub(super) fn check(
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
        let since = now - self.begin;
        if since < self.length.times(self.delivered.len() as u64) {
            return Verdict::Wait;
        }
        self.delivered.push(delivered());
        if self.delivered.len() <= WINDOWS {
            return Verdict::Wait;
        }
        let steady = (0..self.delivered[0].len()).all(|flow| self.is_steady(flow));
        self.length = self.length.times(2);
        if steady {
            return Verdict::Steady(since);
        }
        let end = self.delivered.pop().unwrap_or_default();
        self.begin_at(now, end);
        Verdict::Begin
    }

    /// Begins the first window, as long as the last.
    pub(super) fn begin_at(&mut self, now: Time, delivered: Vec<u64>) {
        self.begin = now;
        self.delivered.clear();
        self.delivered.push(delivered);
    }

    /// Bytes that each flow had delivered when the first window began.
    pub(super) fn at_begin(&self) -> &[u64] {
        &self.delivered[0]
    }

    fn is_steady(&self, flow: usize) -> bool {
        let at = |window: usize| self.delivered[window][flow];
        is_steady(&std::array::from_fn(|window| (at(window + 1) - at(window)) as f64), self.tolerance_ppm)
    }
}

/// Whether counts are samples of one mean, which they determine within the tolerance.
fn is_steady(counts: &[f64; WINDOWS], tolerance_ppm: u32) -> bool {
    let mean_of = |counts: &[f64]| counts.iter().sum::<f64>() / counts.len() as f64;
    let mean = mean_of(counts);
    let tolerated = mean * f64::from(tolerance_ppm) / 1e6;
    let halves = counts.split_at(WINDOWS / 2);
    let means = [mean_of(halves.0), mean_of(halves.1)];
    let squares = |counts: &[f64], mean: f64| counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>();
    let variance = (squares(halves.0, means[0]) + squares(halves.1, means[1])) / (WINDOWS - 2) as f64;
    let drift = (means[1] - means[0]).abs();
    let drifts = drift > tolerated / REPETITIONS_MAX as f64
        && drift > T_MAX * (variance * 4.0 / WINDOWS as f64).sqrt();
    let total = squares(counts, mean) / (WINDOWS - 1) as f64;
    !drifts && 2.0 * (total / WINDOWS as f64).sqrt() <= tolerated
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: Activity = Activity { not_started: 0, unfinished: 2 };

    /// Checks each 50 us, with the bytes that flows have delivered by then; the first that is not `Wait`.
    fn first_verdict(windows: &mut Windows, from: u64, rates: impl Fn(u64) -> Vec<u64>) -> (u64, Verdict) {
        let checks = (from..from + 10_000)
            .map(|number| (number, windows.check(Time(number * CHECK_EVERY.0), BOTH, || rates(number))));
        checks.into_iter().find(|(_, verdict)| *verdict != Verdict::Wait).expect("a verdict")
    }

    #[test]
    fn equal_rates_are_steady_after_the_first_windows() {
        let mut windows = Windows::new(SkipSteady::ONE_PERCENT, Span::ZERO);
        let rates = |number: u64| vec![number * 1000, number * 10];
        assert_eq!(first_verdict(&mut windows, 1, rates), (1, Verdict::Begin));
        assert_eq!(first_verdict(&mut windows, 2, rates), (17, Verdict::Steady(CHECK_EVERY.times(16))));
    }

    #[test]
    fn an_oscillation_needs_windows_as_long_as_its_period() {
        // From one rate to three times that and back, in 24 checks.
        let rate = |number: u64| 100 + 200 * (12 - (number % 24).abs_diff(12)) / 12;
        let delivered = |number: u64| vec![(0..number).map(rate).sum()];
        let mut windows = Windows::new(SkipSteady::ONE_PERCENT, Span::ZERO);
        let (mut at, mut verdict) = first_verdict(&mut windows, 1, delivered);
        while verdict == Verdict::Begin {
            (at, verdict) = first_verdict(&mut windows, at + 1, delivered);
        }
        let Verdict::Steady(windows) = verdict else { panic!("{verdict:?}") };
        let periods = CHECK_EVERY.times(24 * WINDOWS as u64);
        assert!(windows >= periods, "{windows:?}: each window is shorter than a period");
    }

    #[test]
    fn a_flow_that_ends_begins_anew() {
        let mut windows = Windows::new(SkipSteady::ONE_PERCENT, Span::ZERO);
        let rates = |number: u64| vec![number * 1000];
        assert_eq!(first_verdict(&mut windows, 1, rates), (1, Verdict::Begin));
        let fewer = Activity { unfinished: 1, ..BOTH };
        assert_eq!(windows.check(Time(7 * CHECK_EVERY.0), fewer, || rates(7)), Verdict::Begin);
        assert_eq!(windows.check(Time(9 * CHECK_EVERY.0), fewer, || rates(9)), Verdict::Wait);
    }

    /// Counts that alternate around a mean that grows.
    fn counts(mean: f64, spread: f64, growth: f64) -> [f64; WINDOWS] {
        std::array::from_fn(|at| mean + if at % 2 == 0 { spread } else { -spread } + growth * at as f64)
    }

    #[test]
    fn the_mean_has_to_be_known_within_the_tolerance() {
        assert!(is_steady(&counts(0.0, 0.0, 0.0), 10_000), "a flow that stands still is steady");
        assert!(is_steady(&counts(1000.0, 15.0, 0.0), 10_000), "a standard error of 0.4 %");
        assert!(!is_steady(&counts(1000.0, 25.0, 0.0), 10_000), "a standard error of 0.6 %");
    }

    #[test]
    fn a_rate_that_drifts_is_not_steady() {
        assert!(!is_steady(&counts(1000.0, 0.0, 0.1), 10_000), "by 0.01 % in each window");
        assert!(!is_steady(&counts(1000.0, 2.0, 1.0), 10_000), "by 0.1 %, with a spread");
        assert!(is_steady(&counts(1000.0, 2.0, 0.1), 10_000), "by less than the spread explains");
    }
}
