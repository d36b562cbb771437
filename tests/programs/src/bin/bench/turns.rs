//! Measuring a row: the figure, the other build's and the limits take turns, since the speed of a machine
//! varies while they are measured.

use programs::Error;

use crate::measured::{Beside, Measured};
use crate::place::Place;
use crate::row::Row;

/// Measures a row in so many rounds, beside another build of rockery if there is one.
///
/// Each round's limit is the mean of a measurement before it and one after it. The two builds change their
/// order from round to round.
pub(crate) fn measure(
    row: &Row,
    place: &Place,
    other: Option<&Place>,
    rounds: usize,
) -> Result<Measured, Error> {
    let limits =
        || row.limits.iter().map(|limit| (limit.measure)(place)).collect::<Result<Vec<f64>, Error>>();
    let mut before = limits()?;
    let (mut figures, mut others) = (Vec::new(), Vec::new());
    let mut beside = vec![Vec::new(); row.limits.len()];
    for round in 0..rounds {
        if let Some(other) = other.filter(|_| round % 2 == 1) {
            others.push((row.ours)(other)?);
        }
        figures.push((row.ours)(place)?);
        if let Some(other) = other.filter(|_| round % 2 == 0) {
            others.push((row.ours)(other)?);
        }
        let after = limits()?;
        for ((repeats, before), after) in beside.iter_mut().zip(&before).zip(&after) {
            repeats.push((before + after) / 2.0);
        }
        before = after;
    }
    let beside = row.limits.iter().zip(beside);
    Ok(Measured {
        name: row.name.clone(),
        unit: row.unit.clone(),
        goal: row.goal,
        figures,
        limits: beside.map(|(it, limits)| Beside { name: it.name.clone(), goal: it.goal, limits }).collect(),
        other: other.map(|_| others),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Unit;
    use programs::Rockery;
    use std::cell::Cell;
    use std::rc::Rc;

    /// Places are made without namespaces or a build, which these rows do not use.
    fn place(name: &str) -> Place {
        Place::new(Rockery::at(name))
    }

    #[test]
    fn figures_lie_between_their_limits_and_builds_take_turns() {
        let calls = Rc::new(Cell::new(0.0));
        let count = move || {
            calls.set(calls.get() + 1.0);
            calls.get()
        };
        let (ours, limit) = (count.clone(), count);
        let row =
            Row::new("a row", Unit::gigabytes(), move |_| Ok(ours()))
                .beside("a limit", None, move |_| Ok(limit()));
        let (this, that) = (place("this"), place("that"));
        // Limit 1; ours 2, other 3; limit 4; other 5, ours 6; limit 7.
        let measured = measure(&row, &this, Some(&that), 2).expect("nothing fails");
        assert_eq!(measured.figures, [2.0, 6.0]);
        assert_eq!(measured.other, Some(vec![3.0, 5.0]));
        assert_eq!(measured.limits[0].limits, [2.5, 5.5]);
    }
}
