//! What a peer may do to memory here, in a form that can be shown to it.
//!
//! A peer on the same host that can reach our memory executes a WRITE or READ itself, if it finds that we
//! would. The rules are these, here and there; where they say no, the request goes to the responder, whose
//! refusal is the one that counts.

use crate::access::Access;
use crate::address::Gid;
use crate::handle::Pd;
use crate::memory::{Backing, Piece};
use wire::{Qpn, Rkey};

/// A region, or a bound window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionGrant {
    /// Key by which peers name it.
    pub rkey: Rkey,
    /// Its protection domain.
    pub pd: Pd,
    /// Where its first byte is.
    pub start: u64,
    /// Length in bytes.
    pub length: u64,
    /// The address by which peers find the first byte.
    pub iova: u64,
    /// Access rights of peers.
    pub access: Access,
    /// The one queue pair that may use it (a window of type 2).
    pub only: Option<Qpn>,
}

/// A queue pair that takes requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueGrant {
    /// Queue pair number.
    pub qpn: Qpn,
    /// Number of the connected queue pair.
    pub peer: Qpn,
    /// Our address, as the peer was told.
    pub source: Gid,
    /// Address of the peer.
    pub destination: Gid,
    /// Its protection domain.
    pub pd: Pd,
    /// Its rights. Those to READ and to atomics are left out where it takes none.
    pub access: Access,
}

/// What happened to things that can be granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// To the region or window with this key.
    Region(Rkey),
    /// To a queue pair.
    Queue(Qpn),
}

impl RegionGrant {
    /// The memory behind a range, if a queue pair of this protection domain may do this to all of it.
    #[inline(always)]
    pub fn piece(&self, pd: Pd, qpn: Qpn, address: u64, length: u32, need: Access) -> Option<Piece> {
        let granted = self.pd == pd && self.access.contains(need) && self.only.is_none_or(|only| only == qpn);
        let offset = address.checked_sub(self.iova)?;
        let end = offset.checked_add(u64::from(length))?;
        (granted && end <= self.length).then(|| Piece {
            address: self.start.wrapping_add(offset),
            length,
            backing: if self.access.contains(Access::ON_DEMAND) {
                Backing::OnDemand
            } else {
                Backing::Pinned
            },
        })
    }
}
