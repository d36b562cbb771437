//! Units of reports.

const PS_PER_US: f64 = 1e6;

pub(super) fn us(ps: u64) -> f64 {
    ps as f64 / PS_PER_US
}
