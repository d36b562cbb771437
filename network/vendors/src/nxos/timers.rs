//! Timers of the PFC watchdog of NX-OS (Cisco Nexus 9000 NX-OS Quality of Service Configuration Guide,
//! "Configuring a PFC Watchdog Interval"): an interval, and multiples of it.

use crate::watchdog::{PauseWatchdog, nearest_product};

/// The interval, and after how many of them a queue is shut and restored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Timers {
    pub(super) interval_ms: u32,
    pub(super) shut: u32,
    pub(super) restore: u32,
}

/// Milliseconds of an interval.
pub(super) const INTERVAL_MS: core::ops::RangeInclusive<u32> = 100..=1000;

/// Intervals after which a queue is shut.
pub(super) const SHUT: core::ops::RangeInclusive<u32> = 1..=10;

/// Intervals after which a queue is restored.
pub(super) const RESTORE: core::ops::RangeInclusive<u32> = 0..=100;

impl Default for Timers {
    fn default() -> Self {
        Self {
            interval_ms: 100,
            shut: 1,
            restore: 10,
        }
    }
}

impl Timers {
    /// The timers that are nearest to a watchdog's times.
    pub(super) fn near(watchdog: PauseWatchdog) -> Self {
        let own = Self::default().watchdog();
        let wanted = |time: Option<u32>, usual: Option<u32>| time.or(usual).unwrap_or_default();
        let detect = wanted(watchdog.detect_ms, own.detect_ms);
        let restore = wanted(watchdog.restore_ms, own.restore_ms);
        let with = |interval_ms: u32| Self {
            interval_ms,
            shut: nearest_product(detect, interval_ms..=interval_ms, SHUT).1,
            restore: nearest_product(restore, interval_ms..=interval_ms, RESTORE).1,
        };
        let distance = |timers: &Self| {
            let shut = (timers.interval_ms * timers.shut).abs_diff(detect);
            (
                shut,
                (timers.interval_ms * timers.restore).abs_diff(restore),
            )
        };
        let all = INTERVAL_MS.map(with);
        all.min_by_key(distance).unwrap_or_default()
    }

    /// The times in which these timers result.
    pub(super) fn watchdog(self) -> PauseWatchdog {
        PauseWatchdog {
            detect_ms: Some(self.interval_ms * self.shut),
            restore_ms: Some(self.interval_ms * self.restore),
        }
    }

    /// The commands of the whole switch.
    pub(super) fn commands(self) -> String {
        let Self {
            interval_ms,
            shut,
            restore,
        } = self;
        format!(
            "priority-flow-control watch-dog-interval on\n\
             priority-flow-control watch-dog interval {interval_ms}\n\
             priority-flow-control watch-dog shutdown-multiplier {shut}\n\
             priority-flow-control auto-restore multiplier {restore}\n"
        )
    }
}
