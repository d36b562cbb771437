//! Packets of devices in an InfiniBand subnet: the hosts that LIDs lead to, and what enters by LID.

use super::Network;
use super::enter::Entering;
use infiniband::lid::FIRST_MULTICAST;
use link::lab::Header;
use rnic::{Gid, LidAddress};
use sim::world::LivePacket;
use std::collections::BTreeMap;

/// Where LIDs lead, as the manager has written it.
#[derive(Debug, Default)]
pub(crate) struct Lids {
    /// The hosts whose ports are active, by each of their LIDs.
    pub(crate) owners: BTreeMap<u16, u32>,
    /// The hosts that a group's packets reach, by the sending host and the group's LID.
    pub(crate) groups: BTreeMap<(u32, u16), Vec<u32>>,
    /// The hosts that packets of every group reach, by the sending host, where hosts are cabled to each
    /// other.
    pub(crate) cabled: BTreeMap<u32, Vec<u32>>,
    /// The first half of the GIDs of the subnet.
    pub(crate) prefix: u64,
    /// What leads by LID is numbered from here on in tables of switches.
    pub(crate) first_leaf: u32,
}

impl Lids {
    /// The first LID of a host; 0 without one.
    pub(super) fn first_of(&self, host: u32) -> u16 {
        let mut owners = self.owners.iter();
        let found = owners.find(|(_, owner)| **owner == host);
        found.map_or(0, |(lid, _)| *lid)
    }

    /// Whether a packet that arrived at a host is for it.
    pub(super) fn is_for(&self, host: u32, header: &Header) -> bool {
        let lid = header.source_port;
        let is_active = || self.owners.values().any(|owner| *owner == host);
        if lid >= FIRST_MULTICAST {
            is_active()
        } else {
            self.owners.get(&lid) == Some(&host)
        }
    }
}

impl Network {
    /// Takes a record of a device on an InfiniBand port; `None` when it is dropped or stays in its host.
    pub(super) fn take_by_lid(&mut self, place: usize, taken: &Entering<'_>) -> Option<LivePacket> {
        let from = self.ports[place].host.number;
        let lids = self.lids.as_ref()?;
        let source = LidAddress::from_gid(Gid(taken.header.source));
        let owner = source.and_then(|source| lids.owners.get(&source.lid));
        if owner != Some(&from) {
            self.ports[place].counters.forged += 1;
            return None;
        }
        let lid = taken.header.source_port;
        if lid >= FIRST_MULTICAST {
            let hosts = lids.groups.get(&(from, lid));
            let Some(hosts) = hosts.or_else(|| lids.cabled.get(&from)).cloned() else {
                self.ports[place].counters.no_destination += 1;
                return None;
            };
            let made: Vec<LivePacket> = hosts
                .into_iter()
                .filter_map(|to| self.enter(to, taken))
                .collect();
            self.ports[place].copies.extend(made);
            return self.ports[place].copies.pop_front();
        }
        let Some(to) = lids.owners.get(&lid).copied() else {
            self.ports[place].counters.no_destination += 1;
            return None;
        };
        self.enter(to, taken)
    }

    /// The number of a packet's destination in tables of switches.
    pub(super) fn leaf_of(&self, to: u32, header: &Header) -> Option<u32> {
        let lids = self.lids.as_ref()?;
        let lid = header.source_port;
        // A copy for one member of a group takes the way to the first LID of that member.
        let own = || {
            lids.owners
                .iter()
                .find(|(_, owner)| **owner == to)
                .map(|(lid, _)| *lid)
        };
        let lid = if lid >= FIRST_MULTICAST { own()? } else { lid };
        Some(lids.first_leaf + u32::from(lid))
    }
}
