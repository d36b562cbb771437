//! Nodes of a subnet: channel adapters and switches.

mod capabilities;
mod counters;
mod partitions;
mod port;
mod switch;

pub use capabilities::Capabilities;
pub use counters::Counters;
pub use partitions::{BLOCK as PARTITION_BLOCK, PARTITIONS, PartitionTable};
pub use port::{
    ARBITRATION_ENTRIES, DEFAULT_PREFIX, Enabled, LANES, ManagerKey, PhysicalState, Port, PortState,
};
pub use switch::{
    DROP, FORWARDING_BLOCK, LINEAR_LIDS, MULTICAST_BLOCK, MULTICAST_LIDS, SwitchTables,
};

use crate::LinkSpeed;
use alloc::string::String;
use alloc::vec::Vec;

/// The identity of a node as the fabric file gives it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The node's GUID.
    pub guid: u64,
    /// The GUID of the only port of a channel adapter, or of port 0 of a switch.
    pub port_guid: u64,
    /// The node description: text of 64 bytes at most.
    pub description: String,
}

/// Our OUI in VendorID: a locally administered one. Tools ask nodes of known vendors for attributes of their
/// own.
pub const VENDOR: u32 = 0x02_726b;
/// The device that NodeInfo names.
pub const DEVICE: u16 = 1;

/// The kind of a node, with what only this kind has.
#[derive(Clone, Debug)]
pub enum NodeKind {
    /// A channel adapter.
    Adapter,
    /// A switch with its tables.
    Switch(SwitchTables),
}

/// A channel adapter or a switch.
#[derive(Clone, Debug)]
pub struct Node {
    /// The kind of the node.
    pub kind: NodeKind,
    /// What the fabric file says about the node.
    pub identity: Identity,
    /// Ports by number. Port 0 of a channel adapter does not exist and is not used.
    pub ports: Vec<Port>,
}

impl Node {
    /// A channel adapter with one port.
    pub fn adapter(identity: Identity, supported: LinkSpeed) -> Self {
        let port = Port::new(identity.port_guid, supported, Capabilities::ADAPTER, 1);
        Self {
            kind: NodeKind::Adapter,
            identity,
            ports: alloc::vec![port.clone(), port],
        }
    }

    /// A switch; `supported` has what each of its ports supports.
    pub fn switch(identity: Identity, supported: &[LinkSpeed]) -> Self {
        let inputs = supported.len() + 1;
        let fastest = supported
            .iter()
            .copied()
            .max_by_key(|speed| speed.rate().bps());
        let fastest = fastest.unwrap_or(LinkSpeed {
            width: crate::Width::X4,
            speed: crate::Speed::Sdr,
        });
        let mut own = Port::new(identity.port_guid, fastest, Capabilities::SWITCH, inputs);
        // Port 0 has no link: it is the way to the switch itself.
        own.state = PortState::Active;
        own.physical = PhysicalState::LinkUp;
        own.active = fastest;
        let external = supported
            .iter()
            .map(|supported| Port::new(identity.guid, *supported, Capabilities::SWITCH, inputs));
        let ports = core::iter::once(own.clone()).chain(external).collect();
        Self {
            kind: NodeKind::Switch(SwitchTables::default()),
            identity,
            ports,
        }
    }

    /// Whether this is a switch.
    pub fn is_switch(&self) -> bool {
        matches!(self.kind, NodeKind::Switch(_))
    }

    /// The tables of a switch.
    pub fn switch_tables(&self) -> Option<&SwitchTables> {
        match &self.kind {
            NodeKind::Switch(tables) => Some(tables),
            NodeKind::Adapter => None,
        }
    }

    /// The tables of a switch, to be written.
    pub fn switch_tables_mut(&mut self) -> Option<&mut SwitchTables> {
        match &mut self.kind {
            NodeKind::Switch(tables) => Some(tables),
            NodeKind::Adapter => None,
        }
    }

    /// The code of NodeInfo: 1 channel adapter, 2 switch.
    pub fn type_code(&self) -> u8 {
        if self.is_switch() { 2 } else { 1 }
    }

    /// The number of external ports.
    pub fn port_count(&self) -> u8 {
        (self.ports.len() - 1) as u8
    }

    /// The number of the port that has the node's LID: 0 of a switch, and the port of arrival of an adapter.
    pub fn addressed_port(&self, arrival: u8) -> u8 {
        if self.is_switch() { 0 } else { arrival }
    }
}
