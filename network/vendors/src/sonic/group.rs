//! Buffers of a priority group.

use fabric::config::Limit;

/// The buffers of a priority group.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Group {
    pub(super) reserve: u32,
    pub(super) limit: Limit,
    pub(super) headroom: Option<u32>,
    pub(super) xon_offset: u32,
    pub(super) lossless: bool,
}

/// The limit of a group for `dynamic_th` n, which stands for an alpha of 2^n.
pub(super) fn alpha(power: i64) -> Option<u32> {
    match power {
        0..=14 => Some(fabric::config::ALPHA_ONE << power),
        -16..0 => Some(fabric::config::ALPHA_ONE >> -power),
        _ => None,
    }
}

impl Group {
    /// Lossless buffers whose headroom is computed.
    pub(super) const fn computed() -> Self {
        let limit = Limit::Dynamic(fabric::config::ALPHA_ONE);
        Self {
            reserve: 0,
            limit,
            headroom: None,
            xon_offset: 0,
            lossless: true,
        }
    }
}
