//! Grants: the rights of a peer to access local memory, in a form that can be published to it.
//!
//! A peer on the same host that can reach local memory executes a WRITE or READ itself, if it finds that the
//! responder would. Both sides use these rules; where they refuse, the request goes to the responder, which
//! decides.

use crate::access::Access;
use crate::address::Gid;
use crate::handle::Pd;
use crate::memory::{Backing, Piece};
use wire::{Qpn, Rkey};

/// Grant of a region, or of a bound window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionGrant {
    /// Remote key of the region or window.
    pub rkey: Rkey,
    /// Protection domain of the region.
    pub pd: Pd,
    /// Address of its first byte in local memory.
    pub start: u64,
    /// Length in bytes.
    pub length: u64,
    /// Address by which peers name the first byte.
    pub iova: u64,
    /// Access rights of peers.
    pub access: Access,
    /// The only queue pair that may use it (a window of type 2).
    pub only: Option<Qpn>,
}

/// Grant of a queue pair that accepts requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueGrant {
    /// Queue pair number.
    pub qpn: Qpn,
    /// Number of the connected queue pair.
    pub peer: Qpn,
    /// Local address, as configured for the connection.
    pub source: Gid,
    /// Address of the peer.
    pub destination: Gid,
    /// Its protection domain.
    pub pd: Pd,
    /// Its rights. Those to READ and to atomics are left out where it accepts none.
    pub access: Access,
}

/// An object whose grant has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// The region or window with this key.
    Region(Rkey),
    /// A queue pair.
    Queue(Qpn),
}

impl RegionGrant {
    /// The memory of a range, if a queue pair of this protection domain has the rights `need` to all of it.
    #[inline(always)]
    pub fn piece(
        &self,
        pd: Pd,
        qpn: Qpn,
        address: u64,
        length: u32,
        need: Access,
    ) -> Option<Piece> {
        let granted =
            self.pd == pd && self.access.contains(need) && self.only.is_none_or(|only| only == qpn);
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
