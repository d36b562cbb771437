//! Data of programs in the subnet: switches of the simulated network forward as the manager has written it,
//! and devices hear of changes of their ports.

use super::{LiveSubnet, PORT};
use crate::network::{Lids, Network};
use fabric::NextHops;
use infiniband::lid::FIRST_MULTICAST;
use infiniband::node::{Port, PortState as LinkState};
use infiniband::sma::PortEvent as AgentEvent;
use infiniband::subnet::End;
use link::port_state::{PortEvent, PortState};
use sim::world::World;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What hosts' devices were told of their ports.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// The last state, by host.
    states: BTreeMap<usize, PortState>,
    /// Events since then.
    events: BTreeMap<usize, BTreeSet<PortEvent>>,
    /// The network's tables are to be written again, because it is another one.
    is_stale: bool,
}

impl Told {
    /// Notes an event at a host.
    pub(super) fn add(&mut self, host: usize, event: AgentEvent) {
        let event = match event {
            AgentEvent::Active => PortEvent::Active,
            AgentEvent::Error => PortEvent::Error,
            AgentEvent::LidChange => PortEvent::LidChange,
            AgentEvent::PartitionChange => PortEvent::PartitionChange,
            AgentEvent::ManagerChange => PortEvent::ManagerChange,
            AgentEvent::ClientReregister => PortEvent::ClientReregister,
        };
        self.events.entry(host).or_default().insert(event);
    }
}

impl LiveSubnet {
    /// The state of a host's port.
    pub(crate) fn port_state(&self, host: usize) -> PortState {
        let node = self.subnet.node(host);
        state_of(node.identity.guid, &node.ports[usize::from(PORT)])
    }

    /// The network is another one, whose switches have no tables yet.
    pub(crate) fn renew(&mut self) {
        self.told.is_stale = true;
        self.counted.renew();
    }

    /// Has the network and the devices follow what agents of the subnet were told since the last call.
    pub(crate) fn follow(&mut self, world: &mut World, network: &mut Network) {
        let mut changed = self.subnet.take_changed();
        if std::mem::take(&mut self.told.is_stale) {
            changed.extend(0..self.subnet.len());
        }
        if !changed.is_empty() {
            let switches = changed.range(self.hosts..);
            switches.for_each(|node| self.write_forwarding(*node, world));
            network.lids = Some(self.lids(world, network));
        }
        let hosts = self.told.events.keys().chain(&changed);
        let hosts: BTreeSet<usize> = hosts.copied().filter(|node| *node < self.hosts).collect();
        hosts.into_iter().for_each(|host| self.tell(host, network));
    }

    fn write_forwarding(&self, node: usize, world: &mut World) {
        let first = world.leaf_of_lid(0) as usize;
        let mut by_lid: Vec<Option<u16>> = Vec::new();
        for (lid, port) in self.subnet.forwarding(node) {
            by_lid.resize(first + usize::from(lid) + 1, None);
            by_lid[first + usize::from(lid)] = self.ports.get(&End { node, port }).copied();
        }
        let next_hops = NextHops::new(by_lid.iter().map(Option::as_slice));
        world.set_forwarding((node - self.hosts) as u32, Arc::new(next_hops));
    }

    /// Where LIDs lead, among live hosts.
    fn lids(&self, world: &World, network: &Network) -> Lids {
        let mut lids = Lids {
            first_leaf: world.leaf_of_lid(0),
            ..Lids::default()
        };
        let live = network.ports.iter().map(|port| port.host.number);
        let end = |host: u32| End {
            node: host as usize,
            port: PORT,
        };
        let active: Vec<u32> = live
            .filter(|host| self.subnet.carries(end(*host)))
            .collect();
        let is_active = |node: &usize| active.binary_search(&(*node as u32)).is_ok();
        let groups: BTreeSet<u16> = (self.hosts..self.subnet.len())
            .filter_map(|node| self.subnet.node(node).switch_tables())
            .flat_map(|tables| tables.multicast_lids())
            .collect();
        for host in &active {
            let port = &self.subnet.node(*host as usize).ports[usize::from(PORT)];
            lids.prefix = port.gid_prefix;
            let paths = (0..1_u16 << port.lmc).filter(|_| port.lid != 0);
            lids.owners
                .extend(paths.map(|path| (port.lid + path, *host)));
            let reached = |lid: u16| -> Vec<u32> {
                let reached = self.subnet.reached_by_group(end(*host), lid);
                let others = reached.into_iter().filter(is_active);
                // An adapter hands packets of a group to its own queue pairs as well.
                others.map(|node| node as u32).chain([*host]).collect()
            };
            if self.subnet.len() == self.hosts {
                // On a cable without switches every group reaches the other end.
                lids.cabled.insert(*host, reached(FIRST_MULTICAST));
            }
            lids.groups
                .extend(groups.iter().map(|lid| ((*host, *lid), reached(*lid))));
        }
        lids
    }

    /// Tells the devices of a host what has changed at its port.
    fn tell(&mut self, host: usize, network: &mut Network) {
        let mut state = self.port_state(host);
        let events = self.told.events.remove(&host).unwrap_or_default();
        let before = self.told.states.insert(host, state.clone());
        let has_new_prefix = before
            .as_ref()
            .is_some_and(|before| before.prefix != state.prefix);
        if before.as_ref() == Some(&state) && events.is_empty() {
            return;
        }
        let prefix = has_new_prefix.then_some(PortEvent::GidChange);
        events
            .into_iter()
            .chain(prefix)
            .for_each(|event| state.add_event(event));
        let Some(place) = network.index_of_host(host as u32) else {
            return;
        };
        for device in &network.ports[place].devices {
            device.tell(&state.to_bytes());
        }
    }
}

/// What devices are told of a port.
fn state_of(node_guid: u64, port: &Port) -> PortState {
    let mut state = PortState::default();
    (state.node_guid, state.guid, state.prefix) = (node_guid, port.guid, port.gid_prefix);
    (state.lid, state.lmc) = (port.lid, port.lmc);
    (state.manager_lid, state.manager_level) = (port.sm_lid, port.sm_sl);
    (state.state, state.physical) = (port.state as u8, port.physical as u8);
    (state.max_mtu, state.active_mtu) = (port.mtu_cap, port.neighbor_mtu);
    state.width = port.active.width.code();
    state.speed = 1 << port.active.speed as u16;
    state.capabilities = port.capabilities.0;
    state.virtual_lanes = port.vl_cap;
    state.subnet_timeout = port.subnet_timeout;
    state.partitions = port.partitions.0;
    if port.state == LinkState::Down {
        state.active_mtu = port.mtu_cap;
    }
    state
}
