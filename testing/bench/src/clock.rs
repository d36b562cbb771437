//! The clock of a measurement.

use std::time::Instant;

/// Does some work, and returns its result with the seconds of real time that it took.
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let began = Instant::now();
    let result = work();
    (result, began.elapsed().as_secs_f64())
}
