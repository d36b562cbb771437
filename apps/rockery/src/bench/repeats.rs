//! How long and how often jobs are measured, over each transport in turn.

use indicatif::ProgressBar;

use crate::Error;

/// Durations and repeats of a comparison.
#[derive(Debug, clap::Args)]
pub(super) struct Repeats {
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
    pub(super) quick: bool,
}

impl Repeats {
    /// Seconds before, and of, a measurement.
    pub(super) const fn times(&self) -> (f64, f64) {
        if self.quick {
            (0.02, 0.08)
        } else {
            (self.warm_up, self.seconds)
        }
    }

    /// How often each transport is measured.
    pub(super) const fn count(&self) -> u32 {
        if self.quick { 1 } else { self.repeats }
    }

    /// Measures all transports round by round, because what changes on the machine meanwhile then changes for
    /// all of them. Returns what each repeat gave, by transport.
    ///
    /// # Errors
    /// The first error of a measurement.
    pub(super) fn measure<T, M>(
        &self,
        transports: &[T],
        name: impl Fn(&T) -> &'static str,
        mut measure: impl FnMut(&T) -> Result<M, Error>,
    ) -> Result<Vec<Vec<M>>, Error> {
        let progress = ProgressBar::new(u64::from(self.count()) * transports.len() as u64);
        let mut runs: Vec<Vec<M>> = transports.iter().map(|_| Vec::new()).collect();
        for _ in 0..self.count() {
            for (transport, runs) in transports.iter().zip(&mut runs) {
                progress.set_message(name(transport));
                runs.push(measure(transport)?);
                progress.inc(1);
            }
        }
        progress.finish_and_clear();
        Ok(runs)
    }
}

/// The jobs, each once: parts of a comparison overlap.
pub(super) fn unique(jobs: Vec<String>) -> Vec<String> {
    let mut unique: Vec<String> = Vec::new();
    for job in jobs {
        if !unique.contains(&job) {
            unique.push(job);
        }
    }
    unique
}
