//! Random delays of links.

use super::schema::{Law, LinkTable};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use fabric::Span;
use fabric::topology::Chance;

/// Shape at and below which Pareto's distribution has no mean.
const SHAPE_MIN: f64 = 1.0;

/// Shape above which nearly all values are close to the least one.
const SHAPE_MAX: f64 = 1000.0;

impl LinkTable {
    /// The random delay of the link; or the field that is wrong, why, and an example of what to write.
    pub(super) fn chance(&self) -> Result<Chance, (&'static str, String, &'static str)> {
        let spread = self.extra_spread.0;
        match self.extra_law {
            Law::Measured if self.extra_samples.len() < 2 => Err((
                "extra-samples",
                "two or more are needed".to_string(),
                "[\"1us\", \"1.2us\", \"9us\"]",
            )),
            Law::Measured => {
                let mut samples: Vec<Span> =
                    self.extra_samples.iter().map(|sample| sample.0).collect();
                samples.sort_unstable();
                Ok(Chance::Measured(samples.into()))
            }
            _ if spread == Span::ZERO => Ok(Chance::None),
            Law::Uniform => Ok(Chance::Uniform(spread)),
            Law::Normal => Ok(Chance::Normal(spread)),
            Law::Exponential => Ok(Chance::Exponential(spread)),
            Law::Pareto if !(SHAPE_MIN..=SHAPE_MAX).contains(&self.extra_shape) => {
                let what = alloc::format!("a shape of {} is not from 1 to 1000", self.extra_shape);
                Err(("extra-shape", what, "2.5"))
            }
            Law::Pareto => Ok(Chance::Pareto(spread, (self.extra_shape * 1000.0) as u32)),
        }
    }
}
