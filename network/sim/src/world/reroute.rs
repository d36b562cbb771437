//! Rerouting around links that are down: when switches change their next hops, and to which.

use fabric::topology::Topology;
use fabric::{NextHops, Span, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The changes of next hops that are still to come.
#[derive(Debug)]
pub(super) struct Rerouting {
    topology: Topology,
    /// When a link is no longer counted on (1) or again (-1), the last first.
    changes: Vec<(Time, u32, i32)>,
    /// How many outages each link is in.
    down: BTreeMap<u32, i32>,
}

impl Rerouting {
    /// Switches reroute so long `after` a link goes down or up. `None` where no link ever goes down.
    pub(super) fn new(topology: &Topology, after: Span) -> Option<Self> {
        let outages = topology
            .outages()
            .iter()
            .flat_map(|(link, all)| all.iter().map(move |one| (*link, *one)));
        let mut changes: Vec<(Time, u32, i32)> = outages
            .flat_map(|(link, (down, up))| [(down + after, link, 1), (up + after, link, -1)])
            .collect();
        changes.sort_unstable();
        changes.reverse();
        (!changes.is_empty()).then(|| Self {
            topology: topology.clone(),
            changes,
            down: BTreeMap::new(),
        })
    }

    /// When next hops change next.
    pub(super) fn next_at(&self) -> Time {
        self.changes.last().map_or(Time::NEVER, |(at, ..)| *at)
    }

    /// The next hops of all switches from `now` on.
    pub(super) fn next_hops(&mut self, now: Time) -> Vec<Arc<NextHops>> {
        while let Some((_, link, by)) = self.changes.pop_if(|(at, ..)| *at <= now) {
            *self.down.entry(link).or_default() += by;
        }
        let down: BTreeSet<u32> = self
            .down
            .iter()
            .filter(|(_, count)| **count > 0)
            .map(|(link, _)| *link)
            .collect();
        self.topology.next_hops_without(&down)
    }
}
