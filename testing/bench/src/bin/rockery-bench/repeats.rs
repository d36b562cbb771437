//! Repeats of measurements, over each transport in turn.

use command::bench::Repeats;
use indicatif::ProgressBar;

use crate::Error;

/// Measures all transports round by round, because what changes on the machine meanwhile then changes for all
/// of them. Returns what each repeat gave, by transport.
///
/// # Errors
/// The first error of a measurement.
pub(super) fn measure<T, M>(
    repeats: &Repeats,
    transports: &[T],
    name: impl Fn(&T) -> &'static str,
    mut measure: impl FnMut(&T) -> Result<M, Error>,
) -> Result<Vec<Vec<M>>, Error> {
    let progress = ProgressBar::new(u64::from(repeats.count()) * transports.len() as u64);
    let mut runs: Vec<Vec<M>> = transports.iter().map(|_| Vec::new()).collect();
    for _ in 0..repeats.count() {
        for (transport, runs) in transports.iter().zip(&mut runs) {
            progress.set_message(name(transport));
            runs.push(measure(transport)?);
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    Ok(runs)
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
