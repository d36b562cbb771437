//! A line of the table after it was measured: all repeats of its figure and of its limits.

use bench::{Spread, median};
use serde::{Deserialize, Serialize};

use crate::row::{Bound, Unit};

/// All repeats of a row.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Measured {
    /// The name of the row.
    pub(crate) name: String,
    /// The unit of the figures.
    pub(crate) unit: Unit,
    /// The bound of the figure, if it has one.
    pub(crate) goal: Option<Bound>,
    /// The figure of each round.
    pub(crate) figures: Vec<f64>,
    /// The limits that were measured in the same rounds.
    pub(crate) limits: Vec<Beside>,
    /// The figure of another build in each round.
    pub(crate) other: Option<Vec<f64>>,
}

/// All repeats of a limit.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Beside {
    /// The name of the limit.
    pub(crate) name: String,
    /// The bound of the figure divided by the limit, if there is one.
    pub(crate) goal: Option<Bound>,
    /// In each round, the mean of what was measured before and after the figure.
    pub(crate) limits: Vec<f64>,
}

/// The median, the lowest and the highest of some repeats.
#[derive(Clone, Copy)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// A figure or a ratio beside its goal: a line of the table of ratios.
pub(crate) struct Held {
    /// What the figure is divided by; the figure stands alone where there is none.
    pub(crate) peer: Option<String>,
    /// Median, lowest and highest of the repeats.
    pub(crate) summary: Summary,
    /// The median with its unit.
    pub(crate) text: String,
    /// The bound of the repeats, if there is one.
    pub(crate) goal: Option<Bound>,
    /// The bound in words, with the unit of a figure; empty if there is none.
    pub(crate) goal_text: String,
}

impl Summary {
    fn of(figures: &[f64]) -> Self {
        let Spread([low, high]) = Spread::of(figures.iter().copied());
        Self {
            median: median(figures.to_vec()),
            low,
            high,
        }
    }

    fn of_ratios(figures: &[f64], divisors: &[f64]) -> Self {
        Self::of(
            &figures
                .iter()
                .zip(divisors)
                .map(|(one, other)| one / other)
                .collect::<Vec<_>>(),
        )
    }

    /// How far the repeats are from their median, in percent of it.
    fn spread(self) -> String {
        let percent = |end: f64| {
            if self.median > 0.0 {
                (end / self.median - 1.0) * 100.0
            } else {
                0.0
            }
        };
        format!("{:+.0}/{:+.0} %", percent(self.low), percent(self.high))
    }

    fn verdict(self, goal: Bound) -> String {
        format!("{}: {}", goal.text(), goal.verdict(self.low, self.high))
    }
}

impl Measured {
    /// The median of the figure, and how far its repeats are from it.
    pub(crate) fn figure(&self) -> String {
        let summary = Summary::of(&self.figures);
        format!("{} ({})", self.unit.text(summary.median), summary.spread())
    }

    /// The figure divided by each limit, with the limit.
    pub(crate) fn ratios(&self) -> String {
        let ratio = |beside: &Beside| {
            let ratio = Summary::of_ratios(&self.figures, &beside.limits);
            let limit = self.unit.text(median(beside.limits.clone()));
            format!(
                "{:.2} ({}) of {}, {limit}",
                ratio.median,
                ratio.spread(),
                beside.name
            )
        };
        self.limits.iter().map(ratio).collect::<Vec<_>>().join("; ")
    }

    /// The goals, each with whether it was met.
    pub(crate) fn verdicts(&self) -> String {
        let figure = self.goal.map(|goal| {
            let verdict = Summary::of(&self.figures).verdict(goal);
            verdict.replacen(':', &format!(" {}:", self.unit.symbol), 1)
        });
        let ratios = self.limits.iter().filter_map(|beside| {
            let ratio = Summary::of_ratios(&self.figures, &beside.limits);
            Some(
                ratio
                    .verdict(beside.goal?)
                    .replacen(':', &format!(" of {}:", beside.name), 1),
            )
        });
        figure
            .into_iter()
            .chain(ratios)
            .collect::<Vec<_>>()
            .join("; ")
    }

    /// The figure itself where it has a goal or nothing beside it, and each ratio.
    pub(crate) fn held(&self) -> Vec<Held> {
        let stands_alone = self.goal.is_some() || self.limits.is_empty();
        let figure = stands_alone.then(|| {
            let summary = Summary::of(&self.figures);
            let goal_text = |goal: Bound| format!("{} {}", goal.text(), self.unit.symbol);
            Held {
                peer: None,
                summary,
                text: self.unit.text(summary.median),
                goal: self.goal,
                goal_text: self.goal.map(goal_text).unwrap_or_default(),
            }
        });
        let ratio = |beside: &Beside| {
            let summary = Summary::of_ratios(&self.figures, &beside.limits);
            Held {
                peer: Some(beside.name.clone()),
                summary,
                text: format!("{:.2}", summary.median),
                goal: beside.goal,
                goal_text: beside.goal.map(Bound::text).unwrap_or_default(),
            }
        };
        let ratios = self.limits.iter().map(ratio);
        figure.into_iter().chain(ratios).collect()
    }

    /// The other build's figure, the figure as a multiple of it, and which is better. A difference that is
    /// smaller than the spread of the repeats' ratios is none.
    pub(crate) fn against_other(&self) -> Option<[String; 3]> {
        let other = self.other.as_ref()?;
        let ratio = Summary::of_ratios(&self.figures, other);
        let is_better = (ratio.median < 1.0) == self.unit.less_is_better;
        let verdict = match (ratio.low <= 1.0 && ratio.high >= 1.0, is_better) {
            (true, _) => "no difference beyond the noise",
            (_, true) => "better",
            _ => "worse",
        };
        let summary = Summary::of(other);
        Some([
            format!("{} ({})", self.unit.text(summary.median), summary.spread()),
            format!("{:.3} ({})", ratio.median, ratio.spread()),
            verdict.to_owned(),
        ])
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn measured() -> Measured {
        Measured {
            name: "a copy".into(),
            unit: Unit::gigabytes(),
            goal: Some(Bound::AtLeast(10.0)),
            figures: vec![9.0, 11.0, 10.0],
            limits: vec![Beside {
                name: "memcpy".into(),
                goal: Some(Bound::AtLeast(0.8)),
                limits: vec![10.0, 11.0, 12.5],
            }],
            other: None,
        }
    }

    #[test]
    fn figures_and_ratios_have_their_spread() {
        let measured = measured();
        assert_eq!(measured.figure(), "10.00 GB/s (-10/+10 %)");
        assert_eq!(measured.ratios(), "0.90 (-11/+11 %) of memcpy, 11.00 GB/s");
        assert_eq!(
            measured.verdicts(),
            "at least 10 GB/s: within the noise; at least 0.8 of memcpy: met"
        );
        assert_eq!(measured.against_other(), None);
    }

    #[test]
    fn builds_differ_only_where_all_repeats_say_so() {
        let with = |other: [f64; 3], unit| Measured {
            other: Some(other.to_vec()),
            unit,
            ..measured()
        };
        let verdict = |it: Measured| it.against_other().map(|[.., verdict]| verdict);
        let none = "no difference beyond the noise";
        assert_eq!(
            verdict(with([9.5, 10.0, 10.5], Unit::gigabytes())).as_deref(),
            Some(none)
        );
        assert_eq!(
            verdict(with([8.0, 8.0, 8.0], Unit::gigabytes())).as_deref(),
            Some("better")
        );
        assert_eq!(
            verdict(with([8.0, 8.0, 8.0], Unit::microseconds())).as_deref(),
            Some("worse")
        );
        assert_eq!(
            verdict(with([12.0, 12.0, 12.0], Unit::microseconds())).as_deref(),
            Some("better")
        );
    }
}
