//! The next hops of a switch: by destination switch, the ports on shortest paths.

use alloc::vec::Vec;

/// No next hop was added.
const UNKNOWN: u16 = u16::MAX;

/// The next hops of a switch. Most destinations share one of few groups of ports, and most switches of a
/// regular network share their table with others: a network of 65,536 hosts has some dozens of these tables,
/// so that lookups stay in the cache.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct NextHops {
    /// By destination switch: the group of ports that leads to it.
    group_of_leaf: Vec<u16>,
    /// By group: its first index in `ports`, and its length.
    groups: Vec<(u32, u16)>,
    ports: Vec<u16>,
}

impl NextHops {
    /// From the ports by destination switch, in ascending order; none means that the destination cannot be
    /// reached.
    pub fn new<'a>(next_hops: impl Iterator<Item = &'a [u16]>) -> Self {
        let mut known = Self::default();
        (0..)
            .zip(next_hops)
            .for_each(|(leaf, ports)| known.add(leaf, ports));
        known
    }

    /// Records the ports that lead to `leaf`, in ascending order.
    pub(crate) fn add(&mut self, leaf: u32, ports: &[u16]) {
        let group = self.group(ports);
        self.set_group(leaf, group);
    }

    /// Records that `leaf` is the switch itself. It is never looked up; an equal entry makes most tables
    /// equal.
    pub(crate) fn pass_over(&mut self, leaf: u32) {
        self.set_group(leaf, 0);
    }

    /// The ports that lead to a switch; without meaning for the switch itself.
    #[inline]
    pub fn to(&self, leaf: u32) -> &[u16] {
        let group = self
            .group_of_leaf
            .get(leaf as usize)
            .copied()
            .unwrap_or(UNKNOWN);
        let (from, count) = self
            .groups
            .get(usize::from(group))
            .copied()
            .unwrap_or((0, 0));
        &self.ports[from as usize..from as usize + usize::from(count)]
    }

    /// The groups of ports that lead to some destination, each once, in the order in which they were added.
    pub fn groups(&self) -> impl Iterator<Item = &[u16]> {
        self.groups
            .iter()
            .map(|(from, count)| &self.ports[*from as usize..][..usize::from(*count)])
    }

    fn set_group(&mut self, leaf: u32, group: u16) {
        let leaf = leaf as usize;
        if self.group_of_leaf.len() <= leaf {
            self.group_of_leaf.resize(leaf + 1, UNKNOWN);
        }
        self.group_of_leaf[leaf] = group;
    }

    /// The number of the group with these ports.
    fn group(&mut self, ports: &[u16]) -> u16 {
        // Searched from the last group on: destinations with successive numbers often have the same ports.
        let same = |(from, count): &(u32, u16)| {
            &self.ports[*from as usize..*from as usize + usize::from(*count)] == ports
        };
        if let Some(found) = self.groups.iter().rposition(same) {
            return found as u16;
        }
        self.groups
            .push((self.ports.len() as u32, ports.len() as u16));
        self.ports.extend_from_slice(ports);
        self.groups.len() as u16 - 1
    }
}
