//! Whether a rate was steady, as SNIA's performance test specification for solid-state storage has it: the
//! highest and lowest of its parts are at most a fifth of the mean apart, and the line that fits them best
//! rises or falls by no more than a tenth.

use serde::Serialize;

/// How far apart the parts of a measurement may be, as a part of their mean.
const RANGE_MAX: f64 = 0.2;
/// How far the fitted line may rise or fall, as a part of the mean.
const DRIFT_MAX: f64 = 0.1;

/// How a rate went over its time. All are parts of its mean.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(super) struct Steadiness {
    /// The standard deviation of its parts.
    pub(super) deviation: f64,
    /// The highest part less the lowest.
    pub(super) range: f64,
    /// By how much the line that fits best rises.
    pub(super) drift: f64,
    /// Whether range and drift are what they may be.
    pub(super) steady: bool,
}

impl Steadiness {
    /// The steadiness of the parts of a measurement; `None` for fewer than two parts or a mean of 0.
    pub(super) fn of(parts: &[f64]) -> Option<Self> {
        let count = parts.len() as f64;
        let mean = parts.iter().sum::<f64>() / count;
        if parts.len() < 2 || mean <= 0.0 {
            return None;
        }
        let square: f64 = parts.iter().map(|part| (part - mean).powi(2)).sum();
        let (low, high) = parts
            .iter()
            .fold((f64::MAX, f64::MIN), |(low, high), part| {
                (low.min(*part), high.max(*part))
            });
        // Least squares; moments are one apart.
        let middle = (count - 1.0) / 2.0;
        let moments = || {
            parts
                .iter()
                .enumerate()
                .map(|(index, part)| (index as f64 - middle, part - mean))
        };
        let slope =
            moments().map(|(x, y)| x * y).sum::<f64>() / moments().map(|(x, _)| x * x).sum::<f64>();
        let (range, drift) = ((high - low) / mean, slope * (count - 1.0) / mean);
        let deviation = (square / count).sqrt() / mean;
        Some(Self {
            deviation,
            range,
            drift,
            steady: range <= RANGE_MAX && drift.abs() <= DRIFT_MAX,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_rises_or_jumps_is_not_steady() {
        let flat = Steadiness::of(&[100.0, 102.0, 98.0, 101.0, 99.0]).unwrap();
        assert!(
            flat.steady && flat.range == 0.04 && flat.deviation < 0.02,
            "{flat:?}"
        );
        let rising = Steadiness::of(&[92.0, 96.0, 100.0, 104.0, 108.0]).unwrap();
        assert!(
            !rising.steady && (rising.drift - 0.16).abs() < 1e-9 && rising.range < RANGE_MAX,
            "{rising:?}"
        );
        let jump = Steadiness::of(&[100.0, 100.0, 70.0, 100.0, 100.0]).unwrap();
        assert!(!jump.steady && jump.drift.abs() < DRIFT_MAX, "{jump:?}");
        assert_eq!(
            (Steadiness::of(&[1.0]), Steadiness::of(&[0.0, 0.0])),
            (None, None)
        );
    }
}
