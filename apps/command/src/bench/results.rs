//! Durations and repeats of a comparison, and where its results go.

use std::path::PathBuf;
use std::time::Duration;

/// Durations and repeats of a comparison.
#[derive(Debug, clap::Args)]
pub struct Repeats {
    /// Duration of each measurement in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    seconds: f64,
    /// Duration of the load before each measurement in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.3)]
    warm_up: f64,
    /// Rest between two measurements in seconds, without load, up to a day: drives and processors cool down.
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = rest)]
    rest: Duration,
    /// Number of repeats, 1 to 100; medians are shown, with the lowest and the highest.
    #[arg(long, value_name = "NUMBER", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    repeats: u32,
    /// Measure for a few seconds in all: to check that everything works, not for figures.
    #[arg(long)]
    pub quick: bool,
}

/// The durations of a measurement in seconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Times {
    /// Of the load before it.
    pub warm_up: f64,
    /// Of the measurement itself.
    pub seconds: f64,
    /// Of the rest until the next one.
    pub rest: f64,
}

/// The longest rest, in seconds.
const REST_MAX: f64 = 86_400.0;

/// A rest between measurements.
///
/// # Errors
/// When it is no number of seconds up to a day.
pub fn rest(text: &str) -> Result<Duration, String> {
    let seconds: Option<f64> = text.parse().ok();
    match seconds.filter(|seconds| (0.0..=REST_MAX).contains(seconds)) {
        Some(seconds) => Ok(Duration::from_secs_f64(seconds)),
        None => Err(format!("a rest takes 0 to {REST_MAX} seconds")),
    }
}

impl Repeats {
    /// How long a measurement takes, with what is before and after it.
    pub const fn times(&self) -> Times {
        if self.quick {
            Times {
                warm_up: 0.02,
                seconds: 0.08,
                rest: 0.0,
            }
        } else {
            Times {
                warm_up: self.warm_up,
                seconds: self.seconds,
                rest: self.rest.as_secs_f64(),
            }
        }
    }

    /// How often each transport is measured.
    pub const fn count(&self) -> u32 {
        if self.quick { 1 } else { self.repeats }
    }
}

/// Where results go, besides the terminal.
#[derive(Debug, clap::Args)]
pub struct Output {
    /// JSON file for all results; `-`, or no name, is standard output, in place of the tables.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,
    /// HTML file for a report with plots, which opens offline.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_is_at_most_a_day() {
        assert_eq!(rest("60"), Ok(Duration::from_secs(60)));
        assert_eq!(rest("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["-1", "NaN", "inf", "86401", "a minute"] {
            assert!(rest(wrong).is_err(), "{wrong}");
        }
    }
}
