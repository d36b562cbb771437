//! The nodes and links of a subnet.

use ::infiniband::LinkSpeed;
use std::collections::BTreeMap;

/// The type of a node (IBTA 14.2.5.3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum NodeKind {
    /// Forwards packets between its ports by LID.
    Switch,
    /// An adapter of a host, or one inside a switch.
    ChannelAdapter,
    /// A router between subnets.
    Router,
}

impl NodeKind {
    /// The letter that the identifiers of such nodes begin with.
    pub(super) const fn letter(self) -> char {
        match self {
            Self::Switch => 'S',
            Self::ChannelAdapter => 'H',
            Self::Router => 'R',
        }
    }
}

/// A node of a subnet.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DiscoveredNode {
    /// Whether it is a switch, an adapter or a router.
    pub kind: NodeKind,
    /// The GUID of the node, where the file has it.
    pub guid: Option<u64>,
    /// The node description, or the name in a net file.
    pub description: String,
    /// The number of its ports, not counting port 0 of a switch.
    pub ports: u8,
    /// GUIDs of ports by number; a switch has that of its node.
    pub port_guids: BTreeMap<u8, u64>,
}

/// A port of a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DiscoveredPort {
    /// The index of the node in [`Discovered::nodes`].
    pub node: usize,
    /// The number of the port, from 1.
    pub port: u8,
}

/// A link between two ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiscoveredLink {
    /// The ports that it connects.
    pub ends: [DiscoveredPort; 2],
    /// Width and speed as trained, where the file has them.
    pub speed: Option<LinkSpeed>,
    /// The line that names it first, from 1; 0 for a link that was not read.
    pub line: usize,
}

/// The nodes and links of a subnet.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Discovered {
    /// Nodes, in the order of the file.
    pub nodes: Vec<DiscoveredNode>,
    /// Links, in the order of the file.
    pub links: Vec<DiscoveredLink>,
}

impl Discovered {
    /// For each node its ports with a link, in order of numbers: the number, the other end and the link.
    pub(super) fn links_of_nodes(&self) -> Vec<BTreeMap<u8, (DiscoveredPort, DiscoveredLink)>> {
        let mut found = vec![BTreeMap::new(); self.nodes.len()];
        for link in &self.links {
            let [one, other] = link.ends;
            found[one.node].insert(one.port, (other, *link));
            found[other.node].insert(other.port, (one, *link));
        }
        found
    }
}
