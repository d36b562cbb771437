//! XRC domains that several devices of one host share.
//!
//! A queue pair receives for all shared receive queues of its domain (IBTA A14). Its device is the *holder*;
//! a message that names another device's queue is handed on to that device, the *owner*, which executes it as
//! if it were its own, and the holder passes the answers back to the peer. Such a request is a *visit*. What
//! the owner keeps of a connection that visits it, the responder's state, is a *guest*.

use crate::access::Access;
use crate::qp::attr::Mtu;
use wire::Qpn;

/// What names a domain to the processes that share it: a file, and the interface of the device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DomainName {
    /// The file's device and inode.
    pub file: (u64, u64),
    /// Index of the network interface.
    pub interface: u32,
}

/// What an owner is told with each request that visits it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Visit {
    /// The queue pair that the request came to.
    pub holder: Qpn,
    /// Tells this connection of the queue pair from those before it, 24 bits.
    pub connection: u32,
    /// The domain of the queue pair.
    pub domain: DomainName,
    /// What the queue pair permits.
    pub access: Access,
    /// Its path MTU.
    pub path_mtu: Mtu,
    /// Its time for RNR NAKs.
    pub min_rnr_timer: u8,
    /// READs and atomics that it takes at once.
    pub max_dest_rd_atomic: u8,
    /// The connection is over; the packet means nothing.
    pub ends: bool,
}

/// Who has a shared receive queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// The device at the other end of this lane, if any.
    Lane(u16),
    /// There will be a lane, or none; [`crate::Device::resume`] when that is known.
    Asked,
    /// Nobody.
    Nobody,
    /// Somebody who cannot be reached.
    OutOfReach,
}
