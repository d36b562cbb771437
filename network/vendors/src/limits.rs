//! Highest rates of queues, PFC watchdogs and spreads over paths, made to fit a dialect.

use core::ops::RangeInclusive;

use crate::highest_rate::{HighestRate, shown};
use crate::intent::{Fit, Intent};
use crate::path_spread::PathSpread;
use crate::watchdog::PauseWatchdog;

impl Fit {
    /// The dialect has no highest rates of queues.
    pub(crate) fn no_rates(&mut self, intent: &mut Intent) {
        for (class, queue) in intent.queues.iter_mut().enumerate() {
            if let Some(rate) = queue.rate.take() {
                self.add_note(format!(
                    "queue {class}: its highest rate of {} is not written: set the device's shaper",
                    shown(rate.bps)
                ));
            }
        }
    }

    /// Rates are in steps of `step` bits per second, from one step to `most`, and devices choose the bursts.
    pub(crate) fn rates(&mut self, intent: &mut Intent, step: u64, most: u64) {
        for (class, queue) in intent.queues.iter_mut().enumerate() {
            let Some(rate) = &mut queue.rate else {
                continue;
            };
            self.step(class, rate, step, most);
            if let Some(burst) = rate.burst.take() {
                self.add_note(format!(
                    "queue {class}: the burst of {burst} bytes above its highest rate is left to the device"
                ));
            }
        }
    }

    /// Rounds the rate of a queue down to a step.
    pub(crate) fn step(&mut self, class: usize, rate: &mut HighestRate, step: u64, most: u64) {
        let whole = (rate.bps / step).clamp(1, most / step) * step;
        if whole != rate.bps {
            self.add_note(format!(
                "queue {class}: its highest rate of {} is written as {}: rates are in steps of {step} bit/s",
                shown(rate.bps),
                shown(whole)
            ));
            rate.bps = whole;
        }
    }

    /// The dialect has no PFC watchdog.
    pub(crate) fn no_watchdog(&mut self, intent: &mut Intent) {
        if let Some(watchdog) = intent.watchdog.take() {
            self.add_note(format!(
                "the PFC watchdog ({}) is not written: configure it there",
                times(watchdog)
            ));
        }
    }

    /// Replaces the watchdog by one that the dialect has.
    pub(crate) fn watchdog(
        &mut self,
        intent: &mut Intent,
        fitted: impl FnOnce(PauseWatchdog) -> PauseWatchdog,
    ) {
        let Some(wanted) = intent.watchdog else {
            return;
        };
        let fitted = fitted(wanted);
        if fitted != wanted {
            self.add_note(format!(
                "the PFC watchdog ({}) is written with {}",
                times(wanted),
                times(fitted)
            ));
        }
        intent.watchdog = Some(fitted);
    }
}

impl Fit {
    /// The dialect has no command for another spread than by flow: none that is published.
    pub(crate) fn by_flow(&mut self, intent: &mut Intent) {
        if intent.spread != PathSpread::Flows {
            self.add_note(format!(
                "packets spread {} are not written: no command of this system for it is known",
                intent.spread
            ));
            intent.spread = PathSpread::Flows;
        }
    }

    /// The dialect has flows and packets, and no flowlets.
    pub(crate) fn no_flowlets(&mut self, intent: &mut Intent) {
        if matches!(intent.spread, PathSpread::Flowlets(_)) {
            self.add_note(format!(
                "packets spread {} are not written: this system spreads by flow or by packet",
                intent.spread
            ));
            intent.spread = PathSpread::Flows;
        }
    }

    /// The break between flowlets, within the range of the dialect.
    pub(crate) fn flowlet_gap(&mut self, intent: &mut Intent, range: RangeInclusive<u32>) {
        let PathSpread::Flowlets(Some(us)) = intent.spread else {
            return;
        };
        let within = us.clamp(*range.start(), *range.end());
        if within != us {
            self.add_note(format!(
                "a break between flowlets is from {} to {} us: {within} us of {us} us",
                range.start(),
                range.end()
            ));
            intent.spread = PathSpread::Flowlets(Some(within));
        }
    }
}

/// A time within the range of a dialect, which has to be written.
pub(crate) fn within(time_ms: Option<u32>, range: RangeInclusive<u32>) -> Option<u32> {
    let (least, most) = (*range.start(), *range.end());
    Some(time_ms.unwrap_or(least).clamp(least, most))
}

/// The times of a watchdog in messages.
pub(crate) fn times(watchdog: PauseWatchdog) -> String {
    let time = |time: Option<u32>| {
        time.map_or_else(|| "left to the device".to_owned(), |ms| format!("{ms} ms"))
    };
    format!(
        "detection {}, restoration {}",
        time(watchdog.detect_ms),
        time(watchdog.restore_ms)
    )
}
