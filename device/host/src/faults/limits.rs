//! Limits of a small card.

use super::live;
use crate::sys::fork;
use ::faults::Limit;
use rnic::{Config, Mtu};

/// The limits of a device.
fn limits(device: &str) -> Vec<(Limit, u64)> {
    let _inside = fork::enter();
    live().map_or(Vec::new(), |live| live.plan().limits(device))
}

/// Lowers the limits of a device that is opened.
pub(crate) fn lower(device: &str, config: &mut Config) {
    for (limit, value) in limits(device) {
        let value = u32::try_from(value).unwrap_or(u32::MAX);
        let place = match limit {
            Limit::MaxQp => &mut config.max_qp,
            Limit::MaxQpWr => &mut config.max_qp_wr,
            Limit::MaxSge => &mut config.max_sge,
            Limit::MaxInline => &mut config.max_inline,
            Limit::MaxCq => &mut config.max_cq,
            Limit::MaxCqe => &mut config.max_cqe,
            Limit::MaxMr => &mut config.max_mr,
            Limit::MaxPd => &mut config.max_pd,
            Limit::MaxSrq => &mut config.max_srq,
            Limit::MaxSrqWr => &mut config.max_srq_wr,
            Limit::MaxRdAtom => {
                let value = u8::try_from(value).unwrap_or(u8::MAX);
                config.max_rd_atomic = config.max_rd_atomic.min(value);
                continue;
            }
            Limit::ActiveMtu | Limit::RegisteredBytes => continue,
        };
        *place = (*place).min(value);
    }
}

/// The active MTU of a device: `mtu`, which fits its interface, or less where a rule lowers it.
pub(crate) fn active_mtu(device: &str, mtu: Mtu) -> Mtu {
    let lowered = limits(device)
        .into_iter()
        .filter(|(limit, _)| *limit == Limit::ActiveMtu)
        .filter_map(|(_, bytes)| mtu_of(bytes));
    lowered.fold(mtu, Mtu::min)
}

fn mtu_of(bytes: u64) -> Option<Mtu> {
    let codes = 1..=5;
    codes
        .filter_map(Mtu::from_code)
        .find(|mtu| u64::from(mtu.bytes()) == bytes)
}

/// Bytes that a device may have registered at most; `None` without a rule.
pub fn registered_bytes(device: &str) -> Option<u64> {
    let limits = limits(device).into_iter();
    limits
        .filter(|(limit, _)| *limit == Limit::RegisteredBytes)
        .map(|(_, bytes)| bytes)
        .min()
}
