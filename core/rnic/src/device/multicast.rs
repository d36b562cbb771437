//! Multicast groups.

use super::Device;
use crate::address::Gid;
use crate::error::Error;
use crate::qp::attr::QpType;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use wire::Qpn;

/// The members of each group that has any.
#[derive(Debug, Default)]
pub(super) struct Groups(BTreeMap<Gid, Vec<Qpn>>);

impl Groups {
    pub(super) fn members(&self, group: Gid) -> &[Qpn] {
        self.0.get(&group).map_or(&[], Vec::as_slice)
    }

    /// Whether a queue pair is attached to any group.
    pub(super) fn has_member(&self, qpn: Qpn) -> bool {
        self.0.values().any(|members| members.contains(&qpn))
    }
}

impl Device {
    /// The multicast groups that queue pairs are attached to.
    pub fn multicast(&mut self) -> Multicast<'_> {
        Multicast(self)
    }
}

/// The multicast groups of a device ([`Device::multicast`]).
#[derive(Debug)]
pub struct Multicast<'d>(&'d mut Device);

impl Multicast<'_> {
    /// Attaches a UD queue pair to a group: it receives the group's datagrams.
    pub fn attach(&mut self, qpn: Qpn, group: Gid) -> Result<(), Error> {
        let config = &self.0.resources.config;
        let (groups_max, members_max) = (
            config.max_mcast_groups as usize,
            config.max_mcast_attach as usize,
        );
        if self.0.queue_pairs.get(qpn)?.kind() != QpType::Ud || !group.is_multicast() {
            return Err(Error::Invalid(
                "only datagram queue pairs join, and only multicast groups",
            ));
        }
        let Groups(groups) = &mut self.0.groups;
        if groups.len() >= groups_max && !groups.contains_key(&group) {
            return Err(Error::Exhausted("multicast groups"));
        }
        let attached = groups.entry(group).or_default();
        if attached.len() >= members_max {
            return Err(Error::Exhausted("places in the multicast group"));
        }
        if !attached.contains(&qpn) {
            attached.push(qpn);
        }
        Ok(())
    }

    /// Whether any queue pair is attached to a group.
    pub fn has(&self, group: Gid) -> bool {
        self.0.groups.0.contains_key(&group)
    }

    /// Detaches a queue pair from a group.
    pub fn detach(&mut self, qpn: Qpn, group: Gid) -> Result<(), Error> {
        let Groups(groups) = &mut self.0.groups;
        let attached = groups
            .get_mut(&group)
            .ok_or(Error::Invalid("not attached to the group"))?;
        let position = attached.iter().position(|&member| member == qpn);
        attached.swap_remove(position.ok_or(Error::Invalid("not attached to the group"))?);
        if attached.is_empty() {
            groups.remove(&group);
        }
        Ok(())
    }
}
