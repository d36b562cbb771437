//! A line of the table before it is measured: how to measure it, what it is held against, and its goal.

use programs::Error;
use serde::{Deserialize, Serialize};

use crate::place::Place;

/// Measures once, in a place.
pub(crate) type Measure = Box<dyn Fn(&Place) -> Result<f64, Error>>;

/// A line of the table.
pub(crate) struct Row {
    /// The name of the row, in `--row` and in the results that are kept.
    pub(crate) name: String,
    /// The unit of the figure and of its limits.
    pub(crate) unit: Unit,
    /// The bound of the figure, if it has one.
    pub(crate) goal: Option<Bound>,
    /// Measures the figure.
    pub(crate) ours: Measure,
    /// The limits that the figure is compared with.
    pub(crate) limits: Vec<Limit>,
}

/// A figure for comparison, measured in the same run: a limit of the machine, or another program.
pub(crate) struct Limit {
    /// Its name in the table.
    pub(crate) name: String,
    /// The bound of the figure divided by the limit, if there is one.
    pub(crate) goal: Option<Bound>,
    /// Measures the limit.
    pub(crate) measure: Measure,
}

impl Row {
    /// A row without goal and limits.
    pub(crate) fn new(
        name: impl Into<String>,
        unit: Unit,
        ours: impl Fn(&Place) -> Result<f64, Error> + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            unit,
            goal: None,
            ours: Box::new(ours),
            limits: Vec::new(),
        }
    }

    /// The same row with a goal for the figure itself.
    pub(crate) fn goal(self, goal: Bound) -> Self {
        Self {
            goal: Some(goal),
            ..self
        }
    }

    /// The same row with one more limit.
    pub(crate) fn beside(
        mut self,
        name: impl Into<String>,
        goal: Option<Bound>,
        measure: impl Fn(&Place) -> Result<f64, Error> + 'static,
    ) -> Self {
        self.limits.push(Limit {
            name: name.into(),
            goal,
            measure: Box::new(measure),
        });
        self
    }
}

/// A unit, and how figures of it are printed and compared.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Unit {
    /// The unit's symbol.
    pub(crate) symbol: String,
    /// Digits behind the decimal point.
    pub(crate) decimals: usize,
    /// Whether less is better, as of times.
    pub(crate) less_is_better: bool,
}

impl Unit {
    fn more(symbol: &str, decimals: usize) -> Self {
        Self {
            symbol: symbol.to_owned(),
            decimals,
            less_is_better: false,
        }
    }

    fn less(symbol: &str, decimals: usize) -> Self {
        Self {
            less_is_better: true,
            ..Self::more(symbol, decimals)
        }
    }

    pub(crate) fn gigabits() -> Self {
        Self::more("Gb/s", 1)
    }

    pub(crate) fn gigabytes() -> Self {
        Self::more("GB/s", 2)
    }

    pub(crate) fn millions() -> Self {
        Self::more("million/s", 2)
    }

    pub(crate) fn each_second() -> Self {
        Self::more("/s", 0)
    }

    pub(crate) fn milliseconds() -> Self {
        Self::less("ms", 2)
    }

    pub(crate) fn microseconds() -> Self {
        Self::less("us", 2)
    }

    pub(crate) fn nanoseconds() -> Self {
        Self::less("ns", 0)
    }

    pub(crate) fn bytes() -> Self {
        Self::less("bytes", 0)
    }

    /// A figure with its unit.
    pub(crate) fn text(&self, figure: f64) -> String {
        let blank = if self.symbol.starts_with('/') {
            ""
        } else {
            " "
        };
        format!("{figure:.*}{blank}{}", self.decimals, self.symbol)
    }
}

/// The bound of a figure or a ratio.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Bound {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
}

impl Bound {
    /// Whether all repeats are within the bound, or none is. Between the two, the machine's noise decides.
    pub(crate) fn verdict(self, low: f64, high: f64) -> &'static str {
        let (is_kept, is_missed) = match self {
            Self::AtLeast(least) => (low >= least, high < least),
            Self::AtMost(most) => (high <= most, low > most),
        };
        match (is_kept, is_missed) {
            (true, _) => "met",
            (_, true) => "missed",
            _ => "within the noise",
        }
    }

    /// The bound in words.
    pub(crate) fn text(self) -> String {
        match self {
            Self::AtLeast(least) => format!("at least {least}"),
            Self::AtMost(most) => format!("at most {most}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_units() {
        assert_eq!(Unit::gigabits().text(12.74), "12.7 Gb/s");
        assert_eq!(Unit::each_second().text(5000.4), "5000/s");
    }

    #[test]
    fn a_bound_within_the_repeats_is_neither_met_nor_missed() {
        assert_eq!(Bound::AtLeast(0.9).verdict(0.9, 1.0), "met");
        assert_eq!(Bound::AtLeast(0.9).verdict(0.8, 0.89), "missed");
        assert_eq!(Bound::AtLeast(0.9).verdict(0.8, 0.95), "within the noise");
        assert_eq!(Bound::AtMost(2.0).verdict(1.5, 2.0), "met");
        assert_eq!(Bound::AtMost(2.0).verdict(2.1, 3.0), "missed");
        assert_eq!(Bound::AtMost(2.0).verdict(1.9, 3.0), "within the noise");
    }
}
