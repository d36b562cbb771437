//! Highest rates of queues (shapers).

/// Bits per second of 1 kb/s, the unit of most devices.
pub(crate) const KILOBIT: u64 = 1000;

/// The highest rate of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HighestRate {
    /// Bits per second.
    pub bps: u64,
    /// Bytes that may leave at once after the queue was idle; the device chooses where `None`.
    pub burst: Option<u32>,
}

impl HighestRate {
    /// So many bits per second, with a burst that the device chooses.
    pub(crate) const fn of(bps: u64) -> Self {
        Self { bps, burst: None }
    }

    /// So many of a unit per second, whose bits per second are `unit`; none where the number is too large.
    pub(crate) fn in_units(number: u64, unit: u64) -> Option<Self> {
        number.checked_mul(unit).map(Self::of)
    }

    /// The rate in whole kb/s, as most devices have it.
    pub(crate) const fn kbps(self) -> u64 {
        self.bps / KILOBIT
    }
}

/// Bits per second of a unit in configurations of switches: `kbps`, `mbps` or `gbps`.
pub(crate) fn unit(word: &str) -> Option<u64> {
    match word {
        "bps" => Some(1),
        "kbps" => Some(KILOBIT),
        "mbps" => Some(KILOBIT * KILOBIT),
        "gbps" => Some(KILOBIT * KILOBIT * KILOBIT),
        _ => None,
    }
}

/// A rate in messages, without rounding.
pub(crate) fn shown(bps: u64) -> String {
    format!("{} Gb/s", bps as f64 / 1e9)
}
