//! Paths of fat trees, as OpenSM's `ftree` (Zahavi et al., Optimized InfiniBand fat-tree routing for shift
//! all-to-all communication patterns, 2010): all packets for a host come down from one switch. Hosts, in the
//! order of leaves and ports, take these switches in turn, so that in a shift of a whole tree no two flows
//! share a link.

use super::distances::{FAR, distances};
use super::{Cabling, Choice, Load, NotRouted, Tables};
use crate::subnet::End;
use alloc::vec::Vec;

/// The levels of a fat tree, and how many destinations its links have so far.
struct Tree<'a> {
    cabling: &'a Cabling,
    /// By node: cables up from the nearest leaf.
    levels: Vec<u32>,
    /// By switch and port: destinations behind it. A link has those of its upper end on the way down.
    down: Load,
    up: Load,
    /// By node: whether the present destination is routed there, and only goes down from there.
    routed: Vec<Option<bool>>,
}

pub(super) fn route(cabling: &Cabling, tables: &mut Tables) -> Result<(), NotRouted> {
    let levels = distances(cabling, cabling.leaves.iter().copied(), |_, _| true);
    for switch in cabling.switches() {
        let mut others = cabling.to_switches(switch).map(|(_, next)| next);
        if let Some(other) = others.find(|next| levels[*next] == levels[switch]) {
            return Err(NotRouted::SameLevel {
                switches: [switch, other],
            });
        }
    }
    let mut tree = Tree {
        cabling,
        levels,
        down: Load::new(cabling),
        up: Load::new(cabling),
        routed: Vec::new(),
    };
    for leaf in &cabling.leaves {
        for host in cabling.hosts_at(*leaf) {
            if let Some(End { port, .. }) = cabling.leaf_of(host) {
                tree.route_host(*leaf, host, port, tables);
            }
        }
    }
    Ok(())
}

impl Tree<'_> {
    fn is_above(&self, switch: usize, other: usize) -> bool {
        let [own, other] = [switch, other].map(|node| self.levels[node]);
        own != FAR && other == own + 1
    }

    /// The ports of a switch to those above it, or below it.
    fn ports(&self, switch: usize, above: bool) -> Vec<(u8, usize)> {
        let all = self.cabling.to_switches(switch);
        let wanted = all.filter(|(_, next)| match above {
            true => self.is_above(switch, *next),
            false => self.is_above(*next, switch),
        });
        wanted.collect()
    }

    fn route_host(&mut self, leaf: usize, host: usize, port: u8, tables: &mut Tables) {
        self.routed.clear();
        self.routed.resize(self.cabling.switches().end, None);
        self.routed[leaf] = Some(true);
        let only = [port];
        let choice = Choice {
            port,
            allowed: &only,
        };
        tables.add_route(self.cabling, leaf, host, &choice);
        // Up from the leaf: at each level one switch, the one that has the fewest destinations below.
        let mut main = alloc::vec![leaf];
        let mut switch = leaf;
        while let Some(parent) = self.lead_down(switch, host, tables) {
            main.push(parent);
            switch = parent;
        }
        // Down from these: what is below goes up to them.
        for switch in main {
            self.lead_up_to(switch, host, tables);
        }
        // The rest, where links are missing: down where that is possible, else up.
        self.route_rest(host, tables);
    }

    /// Has one of the switches above forward packets for a host down to this one. Returns that switch.
    fn lead_down(&mut self, switch: usize, host: usize, tables: &mut Tables) -> Option<usize> {
        let parents = self.ports(switch, true);
        let load = |(port, parent): &(u8, usize)| {
            let end = End {
                node: switch,
                port: *port,
            };
            let upper = self.cabling.neighbour(end).map_or(0, |end| end.port);
            let below: u32 = parents
                .iter()
                .filter(|(_, other)| other == parent)
                .filter_map(|(port, _)| {
                    let end = End {
                        node: switch,
                        port: *port,
                    };
                    let upper = self.cabling.neighbour(end)?;
                    Some(self.down.of(self.cabling, upper))
                })
                .sum();
            let own = self.down.of(
                self.cabling,
                End {
                    node: *parent,
                    port: upper,
                },
            );
            (below, *parent, own, *port)
        };
        let (_, parent) = parents.iter().copied().min_by_key(load)?;
        self.forward(parent, switch, host, true, tables);
        Some(parent)
    }

    /// Has a switch forward packets for a host to one below or above it, by the port with the fewest
    /// destinations.
    fn forward(&mut self, from: usize, to: usize, host: usize, down: bool, tables: &mut Tables) {
        let port = self.add_route(from, to, host, down, tables);
        let load = if down { &mut self.down } else { &mut self.up };
        port.into_iter()
            .for_each(|port| load.add(self.cabling, from, port));
    }

    /// The same without counting the destination: packets of hosts take other ways in a whole tree.
    fn add_route(
        &mut self,
        from: usize,
        to: usize,
        host: usize,
        down: bool,
        tables: &mut Tables,
    ) -> Option<u8> {
        let ports = self.cabling.to_switches(from);
        let ports: Vec<u8> = ports
            .filter(|(_, next)| *next == to)
            .map(|(port, _)| port)
            .collect();
        let load = if down { &self.down } else { &self.up };
        let port = load.least(self.cabling, from, &ports)?;
        let choice = Choice {
            port,
            allowed: &self.allowed(from, down, &ports),
        };
        tables.add_route(self.cabling, from, host, &choice);
        self.routed[from] = Some(down);
        Some(port)
    }

    /// On the way up every switch above may be taken that is routed; on the way down the ports to one switch.
    fn allowed(&self, from: usize, down: bool, ports: &[u8]) -> Vec<u8> {
        if down {
            return ports.to_vec();
        }
        let above = self.ports(from, true).into_iter();
        let routed = above.filter(|(_, next)| self.routed[*next].is_some());
        routed.map(|(port, _)| port).collect()
    }

    /// Has all switches below one that are not routed yet forward packets for a host up to it.
    fn lead_up_to(&mut self, switch: usize, host: usize, tables: &mut Tables) {
        let mut next = alloc::vec![switch];
        while let Some(above) = next.pop() {
            for (_, below) in self.ports(above, false) {
                if self.routed[below].is_none() {
                    self.forward(below, above, host, false, tables);
                    next.push(below);
                }
            }
        }
    }

    fn route_rest(&mut self, host: usize, tables: &mut Tables) {
        let mut order: Vec<usize> = self.cabling.switches().collect();
        order.retain(|switch| self.levels[*switch] != FAR && self.routed[*switch].is_none());
        order.sort_by_key(|switch| self.levels[*switch]);
        for switch in &order {
            let below = self.ports(*switch, false).into_iter();
            let mut below = below.filter(|(_, next)| self.routed[*next] == Some(true));
            if let Some((_, to)) = below.next() {
                self.add_route(*switch, to, host, true, tables);
            }
        }
        for switch in order.iter().rev() {
            if self.routed[*switch].is_none() {
                let above = self.ports(*switch, true).into_iter();
                let mut above = above.filter(|(_, next)| self.routed[*next].is_some());
                if let Some((_, to)) = above.next() {
                    self.add_route(*switch, to, host, false, tables);
                }
            }
        }
    }
}
