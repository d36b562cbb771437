//! Hosts, switches and the links between them, and the next hops of the shortest paths.

mod dragonfly;
mod generate;
mod rail;

pub use dragonfly::dragonfly;
pub use generate::{Speeds, fat_tree, leaf_spine, star};

pub use rail::rail_optimised;

use crate::next_hops::NextHops;
use crate::packet::Operations;
use crate::time::{Rate, Span, Time};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// A host or a switch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Node {
    /// A host, by number. It has one port.
    Host(u32),
    /// A switch, by number.
    Switch(u32),
}

/// A port of a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct End {
    /// The host or switch that the port belongs to.
    pub node: Node,
    /// The port's number, counted from 0 in the order of connection.
    pub port: u16,
}

/// Properties of a link, the same in both directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkConfig {
    /// The bit rate of the link.
    pub rate: Rate,
    /// The propagation delay in one direction.
    pub delay: Span,
    /// Chance that a frame arrives damaged, in units of 2^-32.
    pub loss: u32,
    /// Chance that a bit arrives wrong, in units of 2^-64: a frame with such a bit is damaged.
    pub bit_errors: u64,
}

impl LinkConfig {
    /// A link without losses and bit errors.
    pub const fn new(rate: Rate, delay: Span) -> Self {
        Self {
            rate,
            delay,
            loss: 0,
            bit_errors: 0,
        }
    }

    /// Chance that bit errors damage a frame of so many bytes, in units of 2^-64: 1 - (1 - p)^n, to the
    /// second order, since p is [`BIT_ERRORS_MAX`] at most.
    pub fn damage_by_bits(&self, bytes: u32) -> u64 {
        let first = self.bit_errors.saturating_mul(8 * u64::from(bytes));
        first - ((u128::from(first) * u128::from(first)) >> 65) as u64
    }
}

/// [`LinkConfig::bit_errors`] at most: one in a million.
pub const BIT_ERRORS_MAX: u64 = u64::MAX / 1_000_000;

/// A link between two ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// The two ports that the link connects.
    pub ends: [End; 2],
    /// Rate, delay and error rates of the link.
    pub config: LinkConfig,
}

/// A random delay, for each packet of its own: packets of the link then overtake each other.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum Chance {
    /// No random delay.
    #[default]
    None,
    /// Evenly distributed from zero to this.
    Uniform(Span),
    /// Normally distributed around [`Extra::base`] with this standard deviation, and never below zero.
    Normal(Span),
    /// Exponentially distributed with this mean.
    Exponential(Span),
    /// Pareto-distributed: the least delay, and the shape in thousandths.
    Pareto(Span, u32),
    /// As measured: evenly between neighbours of these, which are in ascending order.
    Measured(Arc<[Span]>),
}

/// Delay beyond a link's own, in one direction: policers, middleboxes, longer paths.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Extra {
    /// The delay of every packet.
    pub base: Span,
    /// A random delay that is added for each packet.
    pub chance: Chance,
    /// Whether the time of a packet's bits is subtracted, because the switch at the link's end acts on the
    /// first bit.
    pub cut_through: bool,
}

impl Extra {
    /// A delay of `base` for packets of all sizes.
    pub const fn of(base: Span) -> Self {
        Self {
            base,
            chance: Chance::None,
            cut_through: false,
        }
    }
}

/// Hosts, switches and links.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Topology {
    host_ports: Vec<u16>,
    switch_ports: Vec<u16>,
    links: Vec<Link>,
    /// By link and direction.
    extras: BTreeMap<(u32, u8), Extra>,
    /// By link: from when until when it is down.
    outages: BTreeMap<u32, Vec<(Time, Time)>>,
    /// By link: the operations of packets that it is for, where it is not for all.
    reserved: BTreeMap<u32, Operations>,
}

/// Why nodes cannot be linked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LinkError {
    /// One of the nodes was not added.
    #[error("a link ends at a node that was not added")]
    NoSuchNode,
    /// The host's only port is in use.
    #[error("host {0} is connected already: a host has one port")]
    HostConnected(u32),
    /// The switch has no port left.
    #[error("switch {0} has no port left: {max} at most", max = crate::config::PORTS_MAX)]
    SwitchFull(u32),
    /// A generated switch would have too many ports.
    #[error("a switch would have {0} ports: {max} at most", max = crate::config::PORTS_MAX)]
    TooManyPorts(u64),
    /// A generated topology would have too many nodes.
    #[error(
        "it would have {hosts} hosts and {switches} switches: {HOSTS_MAX} and {SWITCHES_MAX} are the most"
    )]
    TooManyNodes {
        /// Hosts of the topology.
        hosts: u64,
        /// Switches of the topology.
        switches: u64,
    },
}

/// Hosts of a generated topology, and of one fabric file, at most.
pub const HOSTS_MAX: u32 = 1 << 17;

/// Switches of a generated topology, and of one fabric file, at most.
pub const SWITCHES_MAX: u32 = 1 << 15;

/// How large a generated topology would be. Checked before anything of it is allocated: a line of text can
/// ask for billions of hosts.
#[derive(Clone, Copy, Debug)]
struct Extent {
    hosts: u64,
    switches: u64,
    /// Ports of the switch that has the most.
    ports: u64,
}

impl Extent {
    fn check_sizes(self) -> Result<(), LinkError> {
        let Self {
            hosts,
            switches,
            ports,
        } = self;
        if hosts > u64::from(HOSTS_MAX) || switches > u64::from(SWITCHES_MAX) {
            return Err(LinkError::TooManyNodes { hosts, switches });
        }
        if ports > crate::config::PORTS_MAX as u64 {
            return Err(LinkError::TooManyPorts(ports));
        }
        Ok(())
    }
}

/// The product of sizes, or the largest number where that is larger.
fn product<const N: usize>(sizes: [u32; N]) -> u64 {
    sizes
        .iter()
        .fold(1, |product, size| product.saturating_mul(u64::from(*size)))
}

/// The sum of sizes.
fn sum<const N: usize>(sizes: [u32; N]) -> u64 {
    sizes.iter().map(|size| u64::from(*size)).sum()
}

impl Topology {
    /// Adds a host; returns its number.
    pub fn add_host(&mut self) -> u32 {
        self.host_ports.push(0);
        self.host_ports.len() as u32 - 1
    }

    /// Adds a switch; returns its number.
    pub fn add_switch(&mut self) -> u32 {
        self.switch_ports.push(0);
        self.switch_ports.len() as u32 - 1
    }

    /// Connects the next free ports of two nodes.
    ///
    /// # Errors
    /// [`LinkError`] when one has none.
    pub fn connect(&mut self, from: Node, to: Node, config: LinkConfig) -> Result<(), LinkError> {
        let ends = [self.next_port(from)?, self.next_port(to)?];
        self.links.push(Link { ends, config });
        Ok(())
    }

    /// Moves one end of a link to the next free port of another node. The port of a host that was there is
    /// free again.
    ///
    /// # Errors
    /// [`LinkError`] when the other node has no port, or there is no such link.
    pub fn move_end(&mut self, link: u32, end: usize, to: Node) -> Result<(), LinkError> {
        let port = self.next_port(to)?;
        let ends = self.links.get_mut(link as usize).map(|link| &mut link.ends);
        let end = ends
            .and_then(|ends| ends.get_mut(end))
            .ok_or(LinkError::NoSuchNode)?;
        if let Node::Host(host) = core::mem::replace(end, port).node {
            self.host_ports[host as usize] = 0;
        }
        Ok(())
    }

    /// Replaces the properties of a link.
    pub fn set_config(&mut self, link: u32, config: LinkConfig) {
        if let Some(link) = self.links.get_mut(link as usize) {
            link.config = config;
        }
    }

    /// Delays one direction of a link further: 0 is from its first end to its second.
    pub fn slow_down(&mut self, link: u32, direction: u8, extra: Extra) {
        self.extras.insert((link, direction), extra);
    }

    /// Takes a link down from one time until another: frames on it or sent in that time are lost.
    pub fn take_down(&mut self, link: u32, from: Time, until: Time) {
        self.outages.entry(link).or_default().push((from, until));
    }

    /// The times during which links are down, by link.
    pub const fn outages(&self) -> &BTreeMap<u32, Vec<(Time, Time)>> {
        &self.outages
    }

    /// Reserves a link between switches for packets of some operations: [`crate::Routes::with_reserved`].
    pub fn reserve(&mut self, link: u32, operations: Operations) {
        self.reserved.insert(link, operations);
    }

    /// By switch and port: the operations that the link is reserved for. Switches without such links are
    /// left out.
    pub fn reserved_ports(&self) -> BTreeMap<u32, Vec<Operations>> {
        let mut found: BTreeMap<u32, Vec<Operations>> = BTreeMap::new();
        for (link, operations) in &self.reserved {
            for end in self
                .links
                .get(*link as usize)
                .iter()
                .flat_map(|link| link.ends)
            {
                if let Node::Switch(switch) = end.node {
                    let none =
                        || alloc::vec![Operations::default(); usize::from(self.ports(switch))];
                    found.entry(switch).or_insert_with(none)[usize::from(end.port)] = *operations;
                }
            }
        }
        found
    }

    /// The extra delay of a direction of a link.
    pub fn extra(&self, link: u32, direction: u8) -> Extra {
        self.extras
            .get(&(link, direction))
            .cloned()
            .unwrap_or_default()
    }

    /// How many hosts the topology has.
    pub fn hosts(&self) -> u32 {
        self.host_ports.len() as u32
    }

    /// How many switches the topology has.
    pub fn switches(&self) -> u32 {
        self.switch_ports.len() as u32
    }

    /// Ports in use at a switch.
    pub fn ports(&self, switch: u32) -> u16 {
        self.switch_ports.get(switch as usize).copied().unwrap_or(0)
    }

    /// Links, in the order of connection.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    fn next_port(&mut self, node: Node) -> Result<End, LinkError> {
        let (ports, full, limit) = match node {
            Node::Host(number) => (
                self.host_ports.get_mut(number as usize),
                LinkError::HostConnected(number),
                1,
            ),
            Node::Switch(number) => {
                let limit = crate::config::PORTS_MAX as u16;
                (
                    self.switch_ports.get_mut(number as usize),
                    LinkError::SwitchFull(number),
                    limit,
                )
            }
        };
        let ports = ports.ok_or(LinkError::NoSuchNode)?;
        if *ports >= limit {
            return Err(full);
        }
        *ports += 1;
        Ok(End {
            node,
            port: *ports - 1,
        })
    }

    /// For each host the switch and the port that it is attached to; `None` for one that is attached to
    /// another host, or to nothing.
    pub fn attachments(&self) -> Vec<Option<(u32, u16)>> {
        let mut found = alloc::vec![None; self.host_ports.len()];
        for Link {
            ends: [first, second],
            ..
        } in &self.links
        {
            for (one, other) in [(first, second), (second, first)] {
                if let (Node::Host(host), Node::Switch(switch)) = (one.node, other.node) {
                    found[host as usize] = Some((switch, other.port));
                }
            }
        }
        found
    }

    /// For each switch its next hops: the ports on shortest paths, by destination switch. Destinations are
    /// switches with hosts; others have no ports. Switches with the same next hops share one table.
    pub fn next_hops(&self) -> Vec<Arc<NextHops>> {
        self.next_hops_without(&BTreeSet::new())
    }

    /// The next hops when some links do not count.
    pub fn next_hops_without(&self, down: &BTreeSet<u32>) -> Vec<Arc<NextHops>> {
        let neighbours = self.neighbours(down);
        let mut leaves: Vec<u32> = self
            .attachments()
            .iter()
            .flatten()
            .map(|(switch, _)| *switch)
            .collect();
        leaves.sort_unstable();
        leaves.dedup();
        let mut next_hops = alloc::vec![NextHops::default(); neighbours.len()];
        let mut nearer = Vec::new();
        for leaf in leaves {
            let distances = distances(leaf, &neighbours);
            for ((next_hops, ports), here) in next_hops.iter_mut().zip(&neighbours).zip(&distances)
            {
                if *here == 0 {
                    next_hops.pass_over(leaf);
                } else if *here != u32::MAX {
                    nearer.clear();
                    let on_the_way = ports
                        .iter()
                        .filter(|(to, _)| distances[*to as usize] == here - 1);
                    nearer.extend(on_the_way.map(|(_, port)| *port));
                    next_hops.add(leaf, &nearer);
                }
            }
        }
        let mut shared: BTreeMap<Arc<NextHops>, Arc<NextHops>> = BTreeMap::new();
        let share = |next_hops: NextHops| {
            let next_hops = Arc::new(next_hops);
            shared.entry(next_hops.clone()).or_insert(next_hops).clone()
        };
        next_hops.into_iter().map(share).collect()
    }

    /// For each switch: its neighbours among the switches, and the ports that lead there, in order of ports.
    fn neighbours(&self, down: &BTreeSet<u32>) -> Vec<Vec<(u32, u16)>> {
        let mut neighbours = alloc::vec![Vec::new(); self.switch_ports.len()];
        let up = (0..)
            .zip(&self.links)
            .filter(|(number, _)| !down.contains(number));
        for Link {
            ends: [first, second],
            ..
        } in up.map(|(_, link)| link)
        {
            if let (Node::Switch(one), Node::Switch(other)) = (first.node, second.node) {
                neighbours[one as usize].push((other, first.port));
                neighbours[other as usize].push((one, second.port));
            }
        }
        neighbours
            .iter_mut()
            .for_each(|ports| ports.sort_by_key(|(_, port)| *port));
        neighbours
    }
}

/// Hops from each switch to `leaf`; `u32::MAX` where there is no path.
fn distances(leaf: u32, neighbours: &[Vec<(u32, u16)>]) -> Vec<u32> {
    let mut distances = alloc::vec![u32::MAX; neighbours.len()];
    distances[leaf as usize] = 0;
    let mut queue = VecDeque::from([leaf]);
    while let Some(switch) = queue.pop_front() {
        let next = distances[switch as usize] + 1;
        for (to, _) in &neighbours[switch as usize] {
            if distances[*to as usize] == u32::MAX {
                distances[*to as usize] = next;
                queue.push_back(*to);
            }
        }
    }
    distances
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parallel_links_are_all_next_hops_and_longer_paths_are_not() {
        let config = LinkConfig::new(Rate::from_gbps(100), Span::from_us(1));
        let mut topology = Topology::default();
        let switches = [(); 3].map(|()| Node::Switch(topology.add_switch()));
        let hosts = [(); 2].map(|()| Node::Host(topology.add_host()));
        topology.connect(hosts[0], switches[0], config).unwrap();
        topology.connect(switches[0], switches[1], config).unwrap();
        topology.connect(switches[0], switches[2], config).unwrap();
        topology.connect(switches[2], switches[1], config).unwrap();
        topology.connect(switches[0], switches[1], config).unwrap();
        topology.connect(hosts[1], switches[1], config).unwrap();
        let next_hops = topology.next_hops();
        assert_eq!(next_hops[0].to(1), [1, 3]);
        assert_eq!(next_hops[2].to(1), [1]);
        assert!(next_hops[0].to(2).is_empty(), "no host there");
        assert_eq!(topology.attachments(), [Some((0, 0)), Some((1, 3))]);
        assert_eq!(
            topology.connect(hosts[0], switches[2], config),
            Err(LinkError::HostConnected(0))
        );
        assert_eq!(
            topology.connect(Node::Host(9), switches[2], config),
            Err(LinkError::NoSuchNode)
        );
    }
}
