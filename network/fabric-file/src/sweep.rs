//! Every combination of the values of `[sweep]`, in the order of the file's names: the last varies fastest.

use super::schema::{FabricFile, Scalar};
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// Runs of one sweep at most.
pub const RUNS_MAX: usize = 1 << 20;

/// One run of a sweep: paths and values, as [`super::Document::set`] takes them.
pub type Point = Vec<(String, String)>;

impl FabricFile {
    /// The points of the sweep; one without settings if there is none.
    ///
    /// # Errors
    /// How many there would be, when that is more than [`RUNS_MAX`].
    pub fn points(&self) -> Result<Vec<Point>, usize> {
        let counts = self.sweep.values().map(Vec::len);
        let count = counts.fold(1_usize, usize::saturating_mul);
        if count > RUNS_MAX {
            return Err(count);
        }
        Ok(combine(&self.sweep))
    }
}

fn combine(sweep: &BTreeMap<String, Vec<Scalar>>) -> Vec<Point> {
    let mut points = alloc::vec![Point::new()];
    for (path, values) in sweep {
        let longer = |point: &Point| {
            let with = |value: &Scalar| {
                let mut point = point.clone();
                point.push((path.clone(), value.to_string()));
                point
            };
            values.iter().map(with).collect::<Vec<_>>()
        };
        points = points.iter().flat_map(longer).collect();
    }
    points
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => value.fmt(f),
            Self::Integer(value) => value.fmt(f),
            Self::Float(value) => value.fmt(f),
            Self::Text(value) => value.fmt(f),
        }
    }
}
