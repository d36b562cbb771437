//! The PFC watchdog of EOS: of the whole switch, and of single interfaces or their profile.

use super::write::WATCHDOG_MS;
use crate::blocks::Block;
use crate::text::ReadError;
use crate::watchdog::PauseWatchdog;

/// The watchdog's settings at one place; what is not set there is `None`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct WatchdogSettings {
    is_on: Option<bool>,
    drops: Option<bool>,
    detect_ms: Option<u32>,
    restore_ms: Option<u32>,
}

/// A time in seconds as milliseconds.
fn milliseconds(word: &str) -> Option<u32> {
    let (whole, part) = word.split_once('.').unwrap_or((word, ""));
    let part = format!("{part:0<3}");
    let is_number = part.len() == 3 && part.bytes().all(|digit| digit.is_ascii_digit());
    let part: u32 = part.parse().ok().filter(|_| is_number)?;
    let ms = whole.parse::<u32>().ok()?.checked_mul(1000)? + part;
    Some(ms).filter(|ms| *ms == 0 || WATCHDOG_MS.contains(ms))
}

impl WatchdogSettings {
    /// Takes the words after `priority-flow-control pause watchdog` of the whole switch.
    pub(super) fn of_switch(
        &mut self,
        file: &str,
        line: &Block<'_>,
        rest: &[&str],
    ) -> Result<(), ReadError> {
        match rest {
            ["default", "timeout", time] => {
                let ms = seconds(file, line, time)?;
                (self.is_on, self.detect_ms) = (Some(ms > 0), Some(ms));
            }
            ["default", "recovery-time", time, ..] => {
                self.restore_ms = Some(seconds(file, line, time)?);
            }
            ["default", "polling-interval", _] | ["hardware", ..] => {}
            ["action", action] => self.drops = Some(drops(file, line, action)?),
            _ => return Err(line.wrong(file, "this setting of the PFC watchdog is not known")),
        }
        Ok(())
    }

    /// Takes the words after `priority-flow-control pause watchdog` of an interface or a profile.
    pub(super) fn of_port(
        &mut self,
        file: &str,
        line: &Block<'_>,
        rest: &[&str],
    ) -> Result<(), ReadError> {
        match rest {
            [] => self.is_on = Some(true),
            ["disable"] => self.is_on = Some(false),
            ["port", "action", action] => self.drops = Some(drops(file, line, action)?),
            [
                "port",
                "timer",
                "timeout",
                detect,
                "polling-interval",
                _,
                "recovery-time",
                restore,
            ]
            | [
                "port",
                "timer",
                "timeout",
                detect,
                "polling-interval",
                _,
                "recovery-time",
                restore,
                "forced",
            ] => {
                let times = (seconds(file, line, detect)?, seconds(file, line, restore)?);
                (self.detect_ms, self.restore_ms) = (Some(times.0), Some(times.1));
            }
            _ => return Err(line.wrong(file, "this setting of the PFC watchdog is not known")),
        }
        Ok(())
    }

    /// Switches the watchdog off at this place.
    pub(super) fn switch_off(&mut self) {
        self.is_on = Some(false);
    }

    /// The watchdog that runs with these settings of a port, and those of the switch for what the port does
    /// not set.
    pub(super) fn running(self, switch: Self) -> Option<PauseWatchdog> {
        let is_on = self.is_on.or(switch.is_on).unwrap_or(false);
        let drops = self.drops.or(switch.drops).unwrap_or(true);
        (is_on && drops).then(|| PauseWatchdog {
            detect_ms: self.detect_ms.or(switch.detect_ms),
            restore_ms: self.restore_ms.or(switch.restore_ms),
        })
    }
}

fn seconds(file: &str, line: &Block<'_>, word: &str) -> Result<u32, ReadError> {
    let ms = milliseconds(word);
    ms.ok_or_else(|| line.wrong(file, "a time is in seconds, from 0.01 to 60"))
}

/// Whether the watchdog drops packets in a storm.
fn drops(file: &str, line: &Block<'_>, action: &str) -> Result<bool, ReadError> {
    match action {
        "drop" => Ok(true),
        "no-drop" | "notify-only" | "errdisable" => Ok(false),
        _ => Err(line.wrong(
            file,
            "the action is drop, no-drop, notify-only or errdisable",
        )),
    }
}
