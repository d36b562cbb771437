//! A small subnet manager: it gives ports LIDs and computes the forwarding tables of switches, and says which
//! loops of credits the tables have and how evenly they use links.
//!
//! It sends no packets: its driver knows the links, as a sweep would find them. Simulations use it, where no
//! program manages the subnet.

mod balance;
mod credit_loop;
mod distances;
mod fat_tree;
mod min_hop;
mod up_down;

pub use balance::LinkShare;
pub use credit_loop::CreditLoop;

use crate::subnet::End;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// Entry of a table for a LID that the switch does not forward (IBTA 14.2.5.10).
pub const NO_PORT: u8 = 0xff;

/// The LIDs of hosts and switches at most: those above are for groups.
pub const NODES_MAX: usize = crate::lid::FIRST_MULTICAST as usize - 1;

/// The cables of a subnet. Hosts are the first nodes and have port 1 alone; switches are the others.
#[derive(Clone, Debug)]
pub struct Cabling {
    hosts: usize,
    /// By node and number of port: the port at the other end.
    ports: Vec<Vec<Option<End>>>,
    /// Switches with hosts, in ascending order.
    leaves: Vec<usize>,
}

impl Cabling {
    /// The cables between so many hosts and switches. Every end has a node of those.
    pub fn new(hosts: usize, switches: usize, cables: impl Iterator<Item = [End; 2]>) -> Self {
        let mut ports: Vec<Vec<Option<End>>> = alloc::vec![Vec::new(); hosts + switches];
        for ends in cables {
            for (own, other) in [(ends[0], ends[1]), (ends[1], ends[0])] {
                let all = &mut ports[own.node];
                let number = usize::from(own.port);
                if all.len() <= number {
                    all.resize(number + 1, None);
                }
                all[number] = Some(other);
            }
        }
        let attached = |host: usize| ports[host].iter().flatten().map(|end| end.node);
        let leaves: BTreeSet<usize> = (0..hosts)
            .flat_map(attached)
            .filter(|node| *node >= hosts)
            .collect();
        let leaves = leaves.into_iter().collect();
        Self {
            hosts,
            ports,
            leaves,
        }
    }

    /// The number of hosts.
    pub fn hosts(&self) -> usize {
        self.hosts
    }

    /// The switches, as numbers of nodes.
    pub fn switches(&self) -> core::ops::Range<usize> {
        self.hosts..self.ports.len()
    }

    /// The port at the other end of a cable.
    pub fn neighbour(&self, end: End) -> Option<End> {
        let ports = self.ports.get(end.node)?;
        ports.get(usize::from(end.port)).copied().flatten()
    }

    /// The connected ports of a node, in ascending order: number and other end.
    fn connected(&self, node: usize) -> impl Iterator<Item = (u8, End)> {
        (0_u8..=u8::MAX)
            .zip(&self.ports[node])
            .filter_map(|(port, end)| Some((port, (*end)?)))
    }

    /// The ports of a switch to other switches.
    fn to_switches(&self, switch: usize) -> impl Iterator<Item = (u8, usize)> {
        self.connected(switch)
            .map(|(port, end)| (port, end.node))
            .filter(|(_, node)| *node >= self.hosts)
    }

    /// The port of a switch that a host is attached to.
    fn leaf_of(&self, host: usize) -> Option<End> {
        let mut ends = self.connected(host).map(|(_, end)| end);
        ends.find(|end| end.node >= self.hosts)
    }

    /// Hosts that are attached to a switch, in the order of ports.
    fn hosts_at(&self, switch: usize) -> impl Iterator<Item = usize> {
        self.connected(switch)
            .map(|(_, end)| end.node)
            .filter(|node| *node < self.hosts)
    }
}

/// How tables are computed: the names are those of OpenSM's `routing_engine`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engine {
    /// Shortest paths; at each switch destinations are spread over the ports that lead there.
    MinHop,
    /// Shortest paths that never go up again after they went down from a root: there are no loops of credits.
    UpDown,
    /// Paths of a fat tree: down from one switch for each destination, chosen in turn.
    FatTree,
}

/// The reason why an engine has no tables for a subnet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotRouted {
    /// A packet from a switch cannot get to a host.
    NoPath {
        /// The switch, as a node.
        from: usize,
        /// The host that is not reached.
        to: usize,
    },
    /// A cable of a fat tree connects switches of one level.
    SameLevel {
        /// The two switches, as nodes.
        switches: [usize; 2],
    },
    /// The subnet has more nodes than there are LIDs.
    TooManyNodes,
}

/// The forwarding tables of all switches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tables {
    /// The LID of each node.
    pub lids: Vec<u16>,
    /// By switch, in their order, and by LID: the port, or [`NO_PORT`].
    pub linear: Vec<Vec<u8>>,
    /// By switch and host: all ports that the engine allows, for switches that choose by load. Empty unless
    /// they were asked for.
    pub alternatives: Vec<Vec<Vec<u8>>>,
}

impl Tables {
    fn new(cabling: &Cabling) -> Self {
        let nodes = cabling.ports.len();
        Self {
            lids: (0..nodes).map(|node| node as u16 + 1).collect(),
            linear: alloc::vec![alloc::vec![NO_PORT; nodes + 1]; cabling.switches().len()],
            alternatives: Vec::new(),
        }
    }

    /// The port by which a switch, the number of a node, forwards packets for a host.
    fn port(&self, cabling: &Cabling, switch: usize, host: usize) -> Option<u8> {
        let lid = usize::from(self.lids[host]);
        let table = &self.linear[switch - cabling.hosts];
        table.get(lid).copied().filter(|port| *port != NO_PORT)
    }

    fn set_port(&mut self, cabling: &Cabling, switch: usize, host: usize, port: u8) {
        let lid = usize::from(self.lids[host]);
        self.linear[switch - cabling.hosts][lid] = port;
    }

    /// All ports by which a switch may forward packets for a host.
    fn ports(&self, cabling: &Cabling, switch: usize, host: usize) -> impl Iterator<Item = u8> {
        let only = match self.alternatives.get(switch - cabling.hosts) {
            Some(_) => None,
            None => self.port(cabling, switch, host),
        };
        let several = self.alternatives.get(switch - cabling.hosts);
        let several = several.into_iter().flat_map(move |hosts| &hosts[host]);
        several.copied().chain(only)
    }

    /// Notes all ports that lead to a host, where they are asked for, and the one of the table.
    fn add_route(&mut self, cabling: &Cabling, switch: usize, host: usize, route: &Choice<'_>) {
        self.set_port(cabling, switch, host, route.port);
        if let Some(hosts) = self.alternatives.get_mut(switch - cabling.hosts) {
            hosts[host] = route.allowed.to_vec();
        }
    }
}

/// The port of a table, and all that the engine allows.
struct Choice<'a> {
    port: u8,
    allowed: &'a [u8],
}

/// How many destinations the ports of switches lead to.
struct Load(Vec<[u32; 256]>);

impl Load {
    fn new(cabling: &Cabling) -> Self {
        Self(alloc::vec![[0; 256]; cabling.switches().len()])
    }

    fn of(&self, cabling: &Cabling, end: End) -> u32 {
        self.0[end.node - cabling.hosts][usize::from(end.port)]
    }

    /// The port with the fewest destinations, the lowest of several.
    fn least(&self, cabling: &Cabling, switch: usize, ports: &[u8]) -> Option<u8> {
        let loads = &self.0[switch - cabling.hosts];
        let least = ports.iter().min_by_key(|port| loads[usize::from(**port)]);
        least.copied()
    }

    /// A port has another destination.
    fn add(&mut self, cabling: &Cabling, switch: usize, port: u8) {
        self.0[switch - cabling.hosts][usize::from(port)] += 1;
    }
}

/// What an engine is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Order<'a> {
    /// How tables are computed.
    pub engine: Engine,
    /// [`Engine::UpDown`]: the roots, as nodes; if there are none, they are looked for.
    pub roots: &'a [usize],
    /// Whether all ports that the engine allows are wanted, for switches that choose by load.
    pub alternatives: bool,
}

/// Computes the tables of a subnet.
///
/// # Errors
/// When the engine has no path between a switch with hosts and a host, or the subnet is none for it.
pub fn route(cabling: &Cabling, order: &Order<'_>) -> Result<Tables, NotRouted> {
    if cabling.ports.len() > NODES_MAX {
        return Err(NotRouted::TooManyNodes);
    }
    let mut tables = Tables::new(cabling);
    if order.alternatives {
        let hosts = alloc::vec![Vec::new(); cabling.hosts];
        tables.alternatives = alloc::vec![hosts; cabling.switches().len()];
    }
    match order.engine {
        Engine::MinHop => min_hop::route(cabling, &mut tables),
        Engine::UpDown => up_down::route(cabling, order.roots, &mut tables),
        Engine::FatTree => fat_tree::route(cabling, &mut tables)?,
    }
    check_reached(cabling, &tables)?;
    Ok(tables)
}

/// Every switch with hosts needs a way to every host.
fn check_reached(cabling: &Cabling, tables: &Tables) -> Result<(), NotRouted> {
    for to in 0..cabling.hosts {
        if cabling.leaf_of(to).is_none() {
            continue;
        }
        let stuck = |from: &&usize| tables.port(cabling, **from, to).is_none();
        if let Some(from) = cabling.leaves.iter().find(stuck) {
            return Err(NotRouted::NoPath { from: *from, to });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
