//! Medians, and how far repeats were apart.

use serde::Serialize;

/// The median of some figures; the higher of the two in the middle of an even number, and 0 of none.
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or_default()
}

/// The lowest and the highest of some repeats.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Spread(pub [f64; 2]);

impl Spread {
    /// The lowest and the highest of some figures, none of which is negative.
    pub fn of(figures: impl Iterator<Item = f64>) -> Self {
        Self(figures.fold([f64::MAX, 0.0], |[low, high], it| {
            [low.min(it), high.max(it)]
        }))
    }

    /// Differences of both from the median, in percent.
    pub fn percent_of(self, median: f64) -> String {
        let [low, high] = self.0.map(|end| (end / median.max(1.0) - 1.0) * 100.0);
        format!("{low:+.0}/{high:+.0}%")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_one_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 3.0, 2.0]), 3.0);
        assert_eq!(median(Vec::new()), 0.0);
    }

    #[test]
    fn a_spread_is_relative_to_the_median() {
        let spread = Spread::of([200.0, 150.0, 260.0].into_iter());
        assert_eq!(
            (spread.0, spread.percent_of(200.0).as_str()),
            ([150.0, 260.0], "-25/+30%")
        );
    }
}
