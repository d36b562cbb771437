//! Measuring a row: the figure, the other build's and the limits take turns, since the speed of a machine
//! varies while they are measured.

use programs::Error;

use crate::measured::{Beside, Measured};
use crate::place::Place;
use crate::row::Row;

/// Measures a row in so many rounds, beside another build of rockery if there is one.
///
/// Each round's limit is the mean of a measurement before it and one after it. Limits are not measured beside
/// another build, and the order of the two builds changes from round to round.
pub(crate) fn measure(
    row: &Row,
    place: &Place,
    other: Option<&Place>,
    rounds: usize,
) -> Result<Measured, Error> {
    let limits = if other.is_none() {
        &row.limits[..]
    } else {
        &[]
    };
    let look = || {
        limits
            .iter()
            .map(|limit| (limit.measure)(place))
            .collect::<Result<Vec<f64>, Error>>()
    };
    let mut before = look()?;
    let (mut figures, mut others) = (Vec::new(), Vec::new());
    let mut beside = vec![Vec::new(); limits.len()];
    for round in 0..rounds {
        if let Some(other) = other.filter(|_| round % 2 == 1) {
            others.push((row.ours)(other)?);
        }
        figures.push((row.ours)(place)?);
        if let Some(other) = other.filter(|_| round % 2 == 0) {
            others.push((row.ours)(other)?);
        }
        let after = look()?;
        for ((repeats, before), after) in beside.iter_mut().zip(&before).zip(&after) {
            repeats.push((before + after) / 2.0);
        }
        before = after;
    }
    let beside = limits.iter().zip(beside);
    Ok(Measured {
        name: row.name.clone(),
        unit: row.unit.clone(),
        goal: row.goal,
        figures,
        limits: beside
            .map(|(it, limits)| Beside {
                name: it.name.clone(),
                goal: it.goal,
                limits,
            })
            .collect(),
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

    /// A row whose two measures return how often they were called.
    fn row() -> Row {
        let calls = Rc::new(Cell::new(0.0));
        let count = move |_: &Place| {
            calls.set(calls.get() + 1.0);
            Ok(calls.get())
        };
        Row::new("a row", Unit::gigabytes(), count.clone()).beside("a limit", None, count)
    }

    #[test]
    fn a_figure_lies_between_its_limits() {
        // Limit 1, figure 2, limit 3, figure 4, limit 5.
        let measured = measure(&row(), &place("this"), None, 2).expect("nothing fails");
        assert_eq!(
            (&*measured.figures, &*measured.limits[0].limits),
            (&[2.0, 4.0][..], &[2.0, 4.0][..])
        );
        assert_eq!(measured.other, None);
    }

    #[test]
    fn builds_take_turns_in_both_orders() {
        let (this, that) = (place("this"), place("that"));
        let measured = measure(&row(), &this, Some(&that), 2).expect("nothing fails");
        assert_eq!(measured.figures, [1.0, 4.0]);
        assert_eq!(measured.other, Some(vec![2.0, 3.0]));
        assert!(measured.limits.is_empty());
    }
}
