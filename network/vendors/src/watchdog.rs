//! PFC watchdogs of devices: a queue that is paused for too long drops its packets until pauses end.

/// A watchdog that drops packets. A time that the device chooses is `None`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct PauseWatchdog {
    /// Milliseconds without a break after which pauses are a storm.
    pub detect_ms: Option<u32>,
    /// Milliseconds without a pause after which the storm is over.
    pub restore_ms: Option<u32>,
}

/// The product nearest to `target` of a number in `first` and a whole number in `second`; of equally near
/// ones that with the smallest first number.
pub(crate) fn nearest_product(
    target: u32,
    first: core::ops::RangeInclusive<u32>,
    second: core::ops::RangeInclusive<u32>,
) -> (u32, u32) {
    let (least, most) = (*second.start(), *second.end());
    let pairs = first.map(|number| {
        let times = (target + number / 2) / number.max(1);
        (number, times.clamp(least, most))
    });
    pairs
        .min_by_key(|(number, times)| (number * times).abs_diff(target))
        .unwrap_or((1, 1))
}

#[cfg(test)]
mod tests {
    use super::nearest_product;

    #[test]
    fn times_are_products_of_an_interval() {
        for (target, expected) in [
            (150, (150, 1)),
            (200, (100, 2)),
            (1000, (100, 10)),
            (1510, (151, 10)),
            (20, (100, 1)),
            (60_000, (1000, 10)),
        ] {
            assert_eq!(nearest_product(target, 100..=1000, 1..=10), expected);
        }
    }
}
