//! The balance of forwarding tables: for each link between switches, the pairs of hosts whose packets use the
//! link when every host sends to every other one.

use super::distances::FAR;
use super::{Cabling, Tables};
use crate::subnet::End;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// The share of a link among those of its kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkShare {
    /// The port that sends into the link.
    pub port: End,
    /// Pairs of hosts whose packets use the link.
    pub pairs: u64,
    /// The mean over the links between switches of the same levels, in the same direction.
    pub mean: u64,
}

impl Tables {
    /// Links between switches by their share of all pairs of hosts, the busiest first. A level is the
    /// distance from the nearest host.
    pub fn shares(&self, cabling: &Cabling) -> Vec<LinkShare> {
        let mut pairs: BTreeMap<End, u64> = BTreeMap::new();
        for node in cabling.switches() {
            let ports = cabling.to_switches(node);
            pairs.extend(ports.map(|(port, _)| (End { node, port }, 0)));
        }
        for host in 0..cabling.hosts() {
            self.add_pairs(cabling, host, &mut pairs);
        }
        let leaves = cabling.leaves.iter().copied();
        let levels = super::distances::distances(cabling, leaves, |_, _| true);
        let kind = |end: &End| {
            let other = cabling.neighbour(*end).map_or(FAR, |end| levels[end.node]);
            (levels[end.node], other)
        };
        let mut sums: BTreeMap<(u32, u32), (u64, u64)> = BTreeMap::new();
        for (end, count) in &pairs {
            let (sum, links) = sums.entry(kind(end)).or_default();
            *sum += count;
            *links += 1;
        }
        let mut shares: Vec<LinkShare> = pairs
            .iter()
            .map(|(port, pairs)| {
                let (sum, links) = sums.get(&kind(port)).copied().unwrap_or((0, 1));
                LinkShare {
                    port: *port,
                    pairs: *pairs,
                    mean: sum / links.max(1),
                }
            })
            .collect();
        shares.sort_by_key(|share| core::cmp::Reverse(share.pairs));
        shares
    }

    /// Adds the pairs of hosts that send to one.
    fn add_pairs(&self, cabling: &Cabling, host: usize, pairs: &mut BTreeMap<End, u64>) {
        let Some(end) = cabling.leaf_of(host) else {
            return;
        };
        for leaf in cabling.leaves.iter().filter(|leaf| **leaf != end.node) {
            let sources = cabling.hosts_at(*leaf).count() as u64;
            let mut switch = *leaf;
            for _ in cabling.switches() {
                let Some(port) = self.port(cabling, switch, host) else {
                    break;
                };
                let out = End { node: switch, port };
                let next = cabling.neighbour(out).map(|end| end.node);
                let Some(next) = next.filter(|node| *node >= cabling.hosts()) else {
                    break;
                };
                pairs.entry(out).and_modify(|count| *count += sources);
                switch = next;
            }
        }
    }
}
