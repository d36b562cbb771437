//! A subnet: nodes and links, and the management packets between them, in time.

mod captured;
mod carried;
mod links;
mod packet;
mod queue;
mod route;
mod traps;
mod ways;

pub use captured::{CROSSED_MAX, Crossed};
pub use carried::Carried;
pub use packet::{GlobalRoute, Packet};
pub use route::unhandled;

use crate::node::{Capabilities, Node};
use crate::sma::PortEvent;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use fabric::{Span, Time};
use queue::{Event, Queue};
use traps::PendingTrap;

/// Where a link ends: a node and its port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct End {
    /// Index of the node.
    pub node: usize,
    /// Number of the port.
    pub port: u8,
}

/// A cable with what is on it.
#[derive(Clone, Debug)]
struct Link {
    ends: [End; 2],
    delay: Span,
    /// The cable is in its ports.
    is_plugged: bool,
    /// Counts how often the link went down.
    generation: u32,
    /// By direction: until when the sender is busy.
    busy: [Time; 2],
}

/// A packet that a host of the subnet receives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// A packet for the programs of a host.
    Received {
        /// The port of the host at which the packet arrived.
        at: End,
        /// The packet as it arrived.
        packet: Packet,
    },
    /// A port's event for the programs of a host.
    Event {
        /// The port of the host.
        at: End,
        /// What happened to the port.
        event: PortEvent,
    },
}

/// Nodes, links, and packets on their way.
#[derive(Debug)]
pub struct Subnet {
    nodes: Vec<Node>,
    links: Vec<Link>,
    /// The cable at each port, and which of the cable's ends the port is.
    cables: BTreeMap<End, (usize, usize)>,
    queue: Queue,
    now: Time,
    outputs: Vec<Output>,
    /// By node: until when its agents are busy.
    busy_agents: Vec<Time>,
    traps: BTreeMap<(usize, u64), PendingTrap>,
    /// Nodes with ports or tables that may have changed since the last [`Self::take_changed`].
    changed: BTreeSet<usize>,
    next_trap: u64,
    captures: captured::Captures,
}

/// A link of a subnet's description: its two ends, and its delay in one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cable {
    /// The two ports that it connects.
    pub ends: [End; 2],
    /// The delay in one direction.
    pub delay: Span,
}

impl Subnet {
    /// Makes a subnet. Its links are trained: every port with a link is in the state Initialize.
    pub fn new(nodes: Vec<Node>, cables: &[Cable]) -> Self {
        let mut subnet = Self {
            busy_agents: alloc::vec![Time(0); nodes.len()],
            nodes,
            links: Vec::new(),
            cables: BTreeMap::new(),
            queue: Queue::default(),
            now: Time(0),
            outputs: Vec::new(),
            traps: BTreeMap::new(),
            changed: BTreeSet::new(),
            next_trap: 1,
            captures: captured::Captures::default(),
        };
        for cable in cables {
            let link = subnet.links.len();
            subnet.links.push(Link {
                ends: cable.ends,
                delay: cable.delay,
                is_plugged: true,
                generation: 0,
                busy: [Time(0); 2],
            });
            for (side, end) in cable.ends.into_iter().enumerate() {
                subnet.cables.insert(end, (link, side));
            }
            subnet.bring_up(link);
        }
        subnet
    }

    /// A node with its ports and tables.
    pub fn node(&self, node: usize) -> &Node {
        &self.nodes[node]
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Where the link of a port ends.
    pub fn neighbour(&self, end: End) -> Option<End> {
        let (link, side) = self.cables.get(&end)?;
        Some(self.links[*link].ends[1 - side])
    }

    /// The time of the next event.
    pub fn next_event(&self) -> Time {
        self.queue.next()
    }

    /// Runs to a time. What came out for hosts is then taken by [`Self::take_outputs`].
    pub fn run(&mut self, until: Time) {
        while self.queue.next() <= until {
            let Some((at, event)) = self.queue.take() else {
                break;
            };
            self.now = self.now.max(at);
            match event {
                Event::Arrive { node, port, packet } => self.arrive(End { node, port }, packet),
                Event::Process {
                    node,
                    port,
                    is_local,
                    packet,
                } => self.process(End { node, port }, is_local, packet),
                Event::Answer { node, port, packet } => {
                    self.send_from(End { node, port }, packet, true)
                }
                Event::Trained { link, generation } => {
                    if self.links[link].generation == generation {
                        self.bring_up(link);
                    }
                }
                Event::RepeatTrap { node, trap } => self.send_trap(node, trap),
            }
        }
        self.now = self.now.max(until);
    }

    /// Takes what came out for hosts, in order.
    pub fn take_outputs(&mut self) -> Vec<Output> {
        core::mem::take(&mut self.outputs)
    }

    /// Takes the nodes with ports or tables that may have changed: the driver has to route data anew there.
    pub fn take_changed(&mut self) -> BTreeSet<usize> {
        core::mem::take(&mut self.changed)
    }

    /// Sends a packet of a program on a host, now.
    pub fn send(&mut self, now: Time, from: End, packet: Packet) {
        self.now = self.now.max(now);
        self.send_from(from, Box::new(packet), false);
    }

    /// Says whether a manager runs behind a port. The present manager hears of it by a trap.
    pub fn set_is_manager(&mut self, now: Time, at: End, is_manager: bool) {
        self.now = self.now.max(now);
        let Some(port) = self.nodes[at.node].ports.get_mut(usize::from(at.port)) else {
            return;
        };
        let before = port.capabilities;
        port.capabilities = before.with(Capabilities::IS_SM, is_manager);
        if port.capabilities != before {
            self.capabilities_changed(at);
        }
    }
}
