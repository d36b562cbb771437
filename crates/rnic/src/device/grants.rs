//! What peers on this host may do to memory without asking, for a driver that shows it to them.

use super::Device;
use crate::grant::{Change, QueueGrant, RegionGrant};
use wire::{Qpn, Rkey};

impl Device {
    /// What is granted to peers on this host.
    #[inline]
    pub fn grants(&mut self) -> Grants<'_> {
        Grants(self)
    }
}

/// The grants of a device ([`Device::grants`]).
#[derive(Debug)]
pub struct Grants<'d>(&'d mut Device);

impl Grants<'_> {
    /// Has changes noted from now on, for [`Self::poll_change`].
    pub fn watch(&mut self) {
        self.0.resources.regions.is_watched = true;
    }

    /// The next thing of which a grant may have changed. Things can be named more than once.
    pub fn poll_change(&mut self) -> Option<Change> {
        let resources = &mut self.0.resources;
        if let Some(rkey) = resources.regions.changed.pop() {
            return Some(Change::Region(rkey));
        }
        resources.changed_queues.pop().map(Change::Queue)
    }

    /// What a key grants to peers.
    pub fn region(&self, rkey: Rkey) -> Option<RegionGrant> {
        self.0.resources.regions.grant(rkey)
    }

    /// What a queue pair grants to its peer; `None` when it takes no requests now.
    pub fn queue(&self, qpn: Qpn) -> Option<QueueGrant> {
        self.0.queue_pairs.get(qpn).ok()?.grant()
    }
}
