//! Grants: rights of peers on this host to access memory directly, for a driver that publishes them to these
//! peers.

use super::Device;
use crate::grant::{Change, QueueGrant, RegionGrant};
use wire::{Qpn, Rkey};

impl Device {
    /// The grants to peers on this host.
    #[inline]
    pub fn grants(&mut self) -> Grants<'_> {
        Grants(self)
    }
}

/// The grants of a device ([`Device::grants`]).
#[derive(Debug)]
pub struct Grants<'d>(&'d mut Device);

impl Grants<'_> {
    /// Records changes from now on, for [`Self::poll_change`].
    pub fn watch(&mut self) {
        self.0.resources.regions.is_watched = true;
    }

    /// The next object whose grant may have changed. The same object can be reported more than once.
    pub fn poll_change(&mut self) -> Option<Change> {
        let resources = &mut self.0.resources;
        if let Some(rkey) = resources.regions.changed.pop() {
            return Some(Change::Region(rkey));
        }
        resources.changed_queues.pop().map(Change::Queue)
    }

    /// The grant of a key to peers.
    pub fn region(&self, rkey: Rkey) -> Option<RegionGrant> {
        self.0.resources.regions.grant(rkey)
    }

    /// The grant of a queue pair to its peer; `None` when it accepts no requests now.
    pub fn queue(&self, qpn: Qpn) -> Option<QueueGrant> {
        self.0.queue_pairs.get(qpn).ok()?.grant()
    }
}
