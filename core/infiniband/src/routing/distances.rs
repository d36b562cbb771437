//! Distances between switches.

use super::Cabling;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// The distance of a node that no path leads to.
pub(super) const FAR: u32 = u32::MAX;

/// By node: the cables on the shortest path from one of `from`, over those that `leads` allows from one
/// switch to the next. Hosts are [`FAR`].
pub(super) fn distances(
    cabling: &Cabling,
    from: impl Iterator<Item = usize>,
    leads: impl Fn(usize, usize) -> bool,
) -> Vec<u32> {
    let mut found = alloc::vec![FAR; cabling.switches().end];
    let mut queue: VecDeque<usize> = from.collect();
    queue.iter().for_each(|switch| found[*switch] = 0);
    while let Some(switch) = queue.pop_front() {
        for (_, next) in cabling.to_switches(switch) {
            if found[next] == FAR && leads(switch, next) {
                found[next] = found[switch] + 1;
                queue.push_back(next);
            }
        }
    }
    found
}

/// [`distances`] from one switch over all cables.
pub(super) fn distances_from(cabling: &Cabling, switch: usize) -> Vec<u32> {
    distances(cabling, core::iter::once(switch), |_, _| true)
}
