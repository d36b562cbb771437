//! The port of a device: its state, addresses, MTU and counters.

use crate::address::Gid;
use crate::counters::PortCounters;
use crate::event::Event;
use crate::gids::GidTable;
use crate::qp::attr::Mtu;
use alloc::collections::VecDeque;

/// The port of a device.
#[derive(Debug)]
pub struct Port {
    pub(crate) gids: GidTable,
    pub(crate) active_mtu: Mtu,
    pub(crate) counters: PortCounters,
    is_active: bool,
    is_removed: bool,
}

impl Default for Port {
    fn default() -> Self {
        Self {
            gids: GidTable::default(),
            active_mtu: Mtu::B1024,
            counters: PortCounters::default(),
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

    /// The MTU: the longest datagram.
    pub fn active_mtu(&self) -> Mtu {
        self.active_mtu
    }

    /// Whether the port is up.
    pub fn is_active(&self) -> bool {
        self.is_active
    }

    /// What the port has counted.
    #[inline]
    pub fn counters(&self) -> &PortCounters {
        &self.counters
    }
}

/// The port of a device, for changes ([`crate::Device::port_mut`]). Changes of what programs have read raise
/// events.
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

    /// Replaces the addresses, ordered as for [`GidTable::new`]; those that stay keep their indices.
    pub fn change_gids(&mut self, addresses: &[Gid]) {
        let before = self.port.gids.clone();
        self.port.gids.follow(addresses);
        // What indices had before does not concern programs.
        if !self.port.gids.has_same_entries(&before) {
            self.events.push_back(Event::GidChange);
        }
    }

    /// Sets the MTU: the longest datagram.
    pub fn set_active_mtu(&mut self, mtu: Mtu) {
        self.port.active_mtu = mtu;
    }

    /// Says whether the port is up. It is at birth.
    pub fn set_active(&mut self, active: bool) {
        if core::mem::replace(&mut self.port.is_active, active) != active {
            self.events.push_back(if active { Event::PortActive } else { Event::PortError });
        }
    }

    /// Says that the device is gone for good: what it stood for is no more.
    pub fn set_removed(&mut self) {
        if !core::mem::replace(&mut self.port.is_removed, true) {
            self.events.push_back(Event::DeviceFatal);
        }
    }
}
