//! Values of a sweep as numbers, beside their texts: texts sort 1200kB before 400kB.

use units::{Bandwidth, Quantity, Size, Timespan};

/// Nanoseconds of a picosecond.
const NS_OF_PS: f64 = 1e-3;

/// The unit in which all values of a field are numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unit {
    /// Numbers without a unit.
    Number,
    /// Bytes of a size: `64KiB`.
    Bytes,
    /// Bits per second of a rate: `25Gb/s`.
    BitsPerSecond,
    /// Nanoseconds of a time: `5us`.
    Nanoseconds,
}

impl Unit {
    const ALL: [Self; 4] = [
        Self::Number,
        Self::Bytes,
        Self::BitsPerSecond,
        Self::Nanoseconds,
    ];

    /// The unit of values, where there is one for all of them.
    pub(super) fn of_all(values: &[String]) -> Option<Self> {
        let is_of_all = |unit: &Self| values.iter().all(|value| unit.number(value).is_some());
        Self::ALL
            .into_iter()
            .find(is_of_all)
            .filter(|_| !values.is_empty())
    }

    /// Its name, behind the name of a field.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Number => "number",
            Self::Bytes => "bytes",
            Self::BitsPerSecond => "bps",
            Self::Nanoseconds => "ns",
        }
    }

    /// The number that a text is in this unit.
    pub(super) fn number(self, text: &str) -> Option<f64> {
        match self {
            Self::Number => text.parse().ok().filter(|number: &f64| number.is_finite()),
            Self::Bytes => Size::parse(text).map(|size| size.0 as f64),
            Self::BitsPerSecond => Bandwidth::parse(text).map(|rate| rate.0.bps() as f64),
            Self::Nanoseconds => Timespan::parse(text).map(|time| time.0.0 as f64 * NS_OF_PS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(values: &[&str]) -> Option<Unit> {
        Unit::of_all(&values.iter().map(|&it| it.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn values_of_one_kind_have_its_unit() {
        assert_eq!(unit(&["1024", "0.5", "1e3"]), Some(Unit::Number));
        assert_eq!(unit(&["400kB", "1200kB", "1MiB"]), Some(Unit::Bytes));
        assert_eq!(unit(&["25Gb/s", "800Mb/s"]), Some(Unit::BitsPerSecond));
        assert_eq!(unit(&["600ns", "1.5ms"]), Some(Unit::Nanoseconds));
        for none in [
            &["dcqcn", "swift"][..],
            &["64KiB", "5us"],
            &["none", "64KiB"],
            &[],
        ] {
            assert_eq!(unit(none), None, "{none:?}");
        }
    }

    #[test]
    fn numbers_are_in_the_unit_that_the_column_names() {
        for (unit, text, number) in [
            (Unit::Bytes, "1200kB", 1_200_000.0),
            (Unit::Bytes, "64KiB", 65_536.0),
            (Unit::BitsPerSecond, "2.5Gb/s", 2.5e9),
            (Unit::Nanoseconds, "1.5ms", 1.5e6),
            (Unit::Number, "0.25", 0.25),
        ] {
            assert_eq!(unit.number(text), Some(number), "{text}");
        }
    }
}
