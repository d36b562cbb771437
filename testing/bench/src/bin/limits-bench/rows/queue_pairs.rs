//! The cost of an idle queue pair, and of a message among many queue pairs.

use programs::{Error, Machine};

use crate::place::Place;
use crate::row::{Bound, Row, Unit};
use crate::tools::{SECONDS, number, succeeded};

pub(crate) fn rows() -> Vec<Row> {
    let per_message = "nanoseconds per message";
    vec![
        Row::new(
            "a message among 10,000 active queue pairs",
            Unit::nanoseconds(),
            move |place| run(place, "10000", "40", per_message),
        )
        .beside(
            "a message between one pair of them",
            Some(Bound::AtMost(2.0)),
            move |place| run(place, "2", "200000", per_message),
        ),
        Row::new("an idle queue pair of a million", Unit::bytes(), |place| {
            run(place, "1000000", "0", "bytes per queue pair")
        })
        .goal(Bound::AtMost(8192.0)),
        Row::new("opening a device", Unit::milliseconds(), |place| {
            Ok(run(place, "2", "0", "nanoseconds to open")? / 1e6)
        })
        .goal(Bound::AtMost(10.0)),
    ]
}

fn run(place: &Place, queue_pairs: &str, rounds: &str, figure: &str) -> Result<f64, Error> {
    let path = place.many_queue_pairs()?.to_string_lossy().into_owned();
    let argv = [path.as_str(), "-d", "rk_lo", queue_pairs, rounds];
    number(
        &succeeded(place.alone()?.run(&argv, SECONDS)?, &argv)?,
        figure,
    )
}
