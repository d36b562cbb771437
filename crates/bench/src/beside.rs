//! A figure beside its limit. Machines differ and their speed varies while they work, so each figure is
//! measured between two measurements of its limit, and the ratio of the two is what counts.

use crate::median::median;

/// Medians of a figure, of its limit, and of the ratio of the two in each round.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Beside {
    /// The median of what was measured.
    pub figure: f64,
    /// The mean of the two measurements of the limit around it.
    pub limit: f64,
    /// The figure as a multiple of the limit.
    pub ratio: f64,
}

/// Measures a figure and its limit in turns, for so many rounds.
///
/// # Errors
/// The first error of a measurement.
pub fn beside<E>(
    rounds: usize,
    mut figure: impl FnMut() -> Result<f64, E>,
    mut limit: impl FnMut() -> Result<f64, E>,
) -> Result<Beside, E> {
    let (mut figures, mut limits, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let mut before = limit()?;
    for _ in 0..rounds {
        let (measured, after) = (figure()?, limit()?);
        let mean = (before + after) / 2.0;
        before = after;
        figures.push(measured);
        limits.push(mean);
        ratios.push(measured / mean);
    }
    Ok(Beside { figure: median(figures), limit: median(limits), ratio: median(ratios) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_is_divided_by_the_limits_around_it() {
        let (mut figures, mut limits) = ([3.0, 40.0, 10.0].into_iter(), [1.0, 3.0, 5.0, 15.0].into_iter());
        let found = beside(3, || figures.next().ok_or(()), || limits.next().ok_or(()));
        assert_eq!(found, Ok(Beside { figure: 10.0, limit: 4.0, ratio: 1.5 }));
        assert_eq!(beside(1, || Err("figure"), || Ok(1.0)), Err("figure"));
        assert_eq!(beside(1, || Ok(1.0), || Err("limit")), Err("limit"));
    }
}
