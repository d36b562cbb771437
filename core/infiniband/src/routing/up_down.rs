//! Paths that go up towards roots and then down, and never up again (Schroeder et al., Autonet, 1991), as
//! OpenSM's `updn`. No loop of credits can arise: a packet that waits on its way down waits for one that is
//! further down, and so on to a host.

use super::distances::{FAR, distances, distances_from};
use super::{Cabling, Tables, min_hop};
use alloc::vec::Vec;

/// A root has more than this share of all hosts at one distance, and no more than the other share at any
/// other one, in percent: OpenSM recognises roots so.
const ROOT_SHARE: usize = 90;
const OTHER_SHARE: usize = 5;

/// The order of switches, the roots first: a cable leads up to the earlier one.
struct Levels {
    /// By node: the place in the order.
    place: Vec<u32>,
    /// Switches in the order.
    order: Vec<usize>,
}

impl Levels {
    fn new(cabling: &Cabling, roots: &[usize]) -> Self {
        let ranks = distances(cabling, roots.iter().copied(), |_, _| true);
        let mut order: Vec<usize> = cabling.switches().collect();
        order.sort_by_key(|switch| (ranks[*switch], *switch));
        let mut place = alloc::vec![FAR; cabling.switches().end];
        (0..)
            .zip(&order)
            .for_each(|(at, switch)| place[*switch] = at);
        Self { place, order }
    }

    fn is_up(&self, from: usize, to: usize) -> bool {
        self.place[to] < self.place[from]
    }
}

pub(super) fn route(cabling: &Cabling, roots: &[usize], tables: &mut Tables) {
    let found;
    let roots = if roots.is_empty() {
        found = find_roots(cabling);
        &found
    } else {
        roots
    };
    let levels = &Levels::new(cabling, roots);
    min_hop::balance(cabling, tables, |leaf| {
        // From the leaf up: these switches reach it without going up.
        let down = distances(cabling, core::iter::once(leaf), |from, to| {
            levels.is_up(from, to)
        });
        // The others go up, to a switch that is earlier in the order and has its path already.
        let mut hops = down.clone();
        for switch in &levels.order {
            if down[*switch] != FAR {
                continue;
            }
            let ups = cabling.to_switches(*switch).map(|(_, next)| next);
            let ups = ups.filter(|next| levels.is_up(*switch, *next));
            let least = ups.map(|next| hops[next]).min().unwrap_or(FAR);
            hops[*switch] = least.saturating_add(1);
        }
        move |switch, next: usize| {
            let is_step = hops[next] != FAR && hops[next].wrapping_add(1) == hops[switch];
            // A switch that can go down does so, even where going up would be shorter: a packet that came
            // down to it must not go up.
            let goes_down = down[switch] != FAR;
            is_step
                && if goes_down {
                    down[next] != FAR && levels.is_up(next, switch)
                } else {
                    levels.is_up(switch, next)
                }
        }
    });
}

/// The roots of a tree: switches from which nearly all hosts are at one distance, and of those the ones
/// without hosts, if there are some: a leaf of many has nearly all hosts at one distance, too. Where there
/// are no such switches, the one in the middle.
pub(super) fn find_roots(cabling: &Cabling) -> Vec<usize> {
    let (mut roots, mut middle) = (Vec::new(), None);
    for switch in cabling.switches() {
        let hops = distances_from(cabling, switch);
        let mut at: Vec<usize> = Vec::new();
        for leaf in &cabling.leaves {
            let (distance, hosts) = (hops[*leaf], cabling.hosts_at(*leaf).count());
            if distance != FAR {
                at.resize(at.len().max(distance as usize + 1), 0);
                at[distance as usize] += hosts;
            }
        }
        let above = |share: usize| {
            at.iter()
                .filter(|hosts| **hosts * 100 > cabling.hosts * share)
                .count()
        };
        if above(ROOT_SHARE) == 1 && above(OTHER_SHARE) == 1 {
            roots.push(switch);
        }
        let sum: usize = at
            .iter()
            .enumerate()
            .map(|(hops, hosts)| hops * hosts)
            .sum();
        let key = (at.len(), sum);
        if middle.is_none_or(|(least, _)| key < least) {
            middle = Some((key, switch));
        }
    }
    let has_hosts = |switch: &usize| cabling.leaves.binary_search(switch).is_ok();
    if !roots.iter().all(has_hosts) {
        roots.retain(|switch| !has_hosts(switch));
    }
    if roots.is_empty() {
        roots.extend(middle.map(|(_, switch)| switch));
    }
    roots
}
