//! The port of a device: its state, addresses, MTU and counters.

use crate::address::Gid;
use crate::counters::PortCounters;
use crate::event::Event;
use crate::gids::GidTable;
use crate::qp::attr::Mtu;
use crate::subnet::{LidAddress, SubnetPort};
use alloc::collections::VecDeque;

/// The port of a device.
#[derive(Debug)]
pub struct Port {
    pub(crate) gids: GidTable,
    pub(crate) active_mtu: Mtu,
    pub(crate) counters: PortCounters,
    pub(crate) subnet: Option<SubnetPort>,
    is_active: bool,
    is_removed: bool,
}

impl Default for Port {
    fn default() -> Self {
        Self {
            gids: GidTable::default(),
            active_mtu: Mtu::B1024,
            counters: PortCounters::default(),
            subnet: None,
            is_active: true,
            is_removed: false,
        }
    }
}

impl Port {
    /// An entry of the GID table.
    pub fn gid(&self, index: u8) -> Option<Gid> {
        self.gids.get(index)
    }

    /// Whether packets with this source come from this port.
    pub(crate) fn is_own(&self, source: Gid) -> bool {
        match (&self.subnet, LidAddress::from_gid(source)) {
            (Some(port), Some(source)) => source.lid >> port.lmc == port.lid >> port.lmc,
            _ => self.gids.contains(source),
        }
    }

    /// The active MTU: the longest payload of a datagram.
    pub fn active_mtu(&self) -> Mtu {
        self.active_mtu
    }

    /// The port's place in an InfiniBand subnet; `None` for RoCE.
    pub fn subnet(&self) -> Option<&SubnetPort> {
        self.subnet.as_ref()
    }

    /// Whether the port is up.
    pub fn is_active(&self) -> bool {
        self.is_active
    }

    /// Counters of the port.
    #[inline]
    pub fn counters(&self) -> &PortCounters {
        &self.counters
    }
}

/// The port of a device, for changes ([`crate::Device::port_mut`]). Changes of attributes that programs can
/// query raise events.
#[derive(Debug)]
pub struct PortMut<'d> {
    pub(crate) port: &'d mut Port,
    pub(crate) events: &'d mut VecDeque<Event>,
}

impl PortMut<'_> {
    /// Sets or clears an entry of the GID table, without an event. Entries beyond its length are ignored.
    pub fn set_gid(&mut self, index: u8, gid: Option<Gid>) {
        self.port.gids.set(index, gid);
    }

    /// Replaces the addresses, ordered as for [`GidTable::new`]; those that remain keep their indices.
    pub fn change_gids(&mut self, addresses: &[Gid]) {
        let before = self.port.gids.clone();
        self.port.gids.follow(addresses);
        // The former addresses of indices are not visible to programs.
        if !self.port.gids.has_same_entries(&before) {
            self.events.push_back(Event::GidChange);
        }
    }

    /// Sets the place in an InfiniBand subnet, without an event. The first GID is the port's only one.
    pub fn set_subnet(&mut self, subnet: SubnetPort) {
        self.port.gids.set(0, Some(subnet.gid()));
        self.port.subnet = Some(subnet);
    }

    /// Reports an event of the port that the driver has heard of from the subnet's agent.
    pub fn report(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// Sets the active MTU: the longest payload of a datagram.
    pub fn set_active_mtu(&mut self, mtu: Mtu) {
        self.port.active_mtu = mtu;
    }

    /// Sets whether the port is up. It is up initially.
    pub fn set_active(&mut self, active: bool) {
        if core::mem::replace(&mut self.port.is_active, active) != active {
            self.events.push_back(if active {
                Event::PortActive
            } else {
                Event::PortError
            });
        }
    }

    /// Sets whether the port is up when the device opens, without an event.
    pub fn begin_active(&mut self, active: bool) {
        self.port.is_active = active;
    }

    /// Reports that the device was removed, because the interface that it represents was.
    pub fn set_removed(&mut self) {
        if !core::mem::replace(&mut self.port.is_removed, true) {
            self.events.push_back(Event::DeviceFatal);
        }
    }
}
