//! Durations and repeats of a comparison, and where its results go.

use std::path::PathBuf;

/// Durations and repeats of a comparison.
#[derive(Debug, clap::Args)]
pub struct Repeats {
    /// Duration of each measurement in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    seconds: f64,
    /// Duration of the load before each measurement in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.3)]
    warm_up: f64,
    /// Number of repeats, 1 to 100; medians are shown, with the lowest and the highest.
    #[arg(long, value_name = "NUMBER", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    repeats: u32,
    /// Measure for a few seconds in all: to check that everything works, not for figures.
    #[arg(long)]
    pub quick: bool,
}

impl Repeats {
    /// Seconds before, and of, a measurement.
    pub const fn times(&self) -> (f64, f64) {
        if self.quick {
            (0.02, 0.08)
        } else {
            (self.warm_up, self.seconds)
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
