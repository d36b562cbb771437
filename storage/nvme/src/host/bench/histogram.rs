//! A latency histogram.

/// A histogram with 64 steps between powers of two: each latency is known to 1.6 %.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    sum_ns: u128,
    max_ns: u64,
}

const STEPS: u32 = 6;

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: vec![0; 64 << STEPS],
            total: 0,
            sum_ns: 0,
            max_ns: 0,
        }
    }
}

impl Histogram {
    fn bucket_of(ns: u64) -> usize {
        let magnitude = 63_u32.saturating_sub((ns | 1 << STEPS).leading_zeros()) - STEPS;
        ((magnitude as usize) << STEPS) + (ns >> magnitude) as usize
    }

    /// The highest latency of a bucket, in nanoseconds.
    fn value(index: usize) -> u64 {
        let magnitude = (index >> STEPS).saturating_sub(1);
        let mantissa = (index - (magnitude << STEPS)) as u64;
        ((mantissa + 1) << magnitude) - 1
    }

    /// Counts one latency, in nanoseconds.
    pub fn count(&mut self, ns: u64) {
        if let Some(count) = self.counts.get_mut(Self::bucket_of(ns)) {
            *count += 1;
        }
        self.total += 1;
        self.sum_ns += u128::from(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds the counts of another histogram.
    pub(super) fn add(&mut self, other: &Self) {
        self.counts
            .iter_mut()
            .zip(&other.counts)
            .for_each(|(count, more)| *count += more);
        self.total += other.total;
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// The number of latencies that were counted.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The mean latency in nanoseconds; 0 when none was counted.
    pub fn mean_ns(&self) -> u64 {
        (self.sum_ns / u128::from(self.total.max(1))) as u64
    }

    /// The longest latency in nanoseconds; 0 when none was counted.
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The latency in nanoseconds that `per_mille` thousandths do not exceed.
    pub fn per_mille_ns(&self, per_mille: u64) -> u64 {
        let wanted = (self.total * per_mille).div_ceil(1000);
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return Self::value(index).min(self.max_ns);
            }
        }
        self.max_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_known_to_two_in_a_hundred() {
        for ns in [
            0,
            1,
            63,
            64,
            65,
            1000,
            12_345,
            1_000_000,
            123_456_789,
            u64::from(u32::MAX) * 100,
        ] {
            let value = Histogram::value(Histogram::bucket_of(ns));
            assert!(
                value >= ns && value as f64 <= ns as f64 * 1.02 + 1.0,
                "{ns} becomes {value}"
            );
        }
    }

    #[test]
    fn percentiles_count_from_below() {
        let mut histogram = Histogram::default();
        (1..=1000).for_each(|ns| histogram.count(ns * 1000));
        let near = |found: u64, expected: f64| (found as f64 / expected - 1.0).abs() < 0.02;
        assert!(near(histogram.per_mille_ns(500), 500_000.0));
        assert!(near(histogram.per_mille_ns(990), 990_000.0));
        assert_eq!(
            (histogram.max_ns(), histogram.mean_ns()),
            (1_000_000, 500_500)
        );
    }

    #[test]
    fn histograms_add_up() {
        let (mut one, mut other) = (Histogram::default(), Histogram::default());
        (1..=500).for_each(|ns| one.count(ns * 1000));
        (501..=1000).for_each(|ns| other.count(ns * 1000));
        one.add(&other);
        assert_eq!(
            (one.total(), one.max_ns(), one.mean_ns()),
            (1000, 1_000_000, 500_500)
        );
    }
}
