//! XRC domains that several devices of one host share.
//!
//! A queue pair receives for all shared receive queues (SRQ) of its domain (IBTA A14). It is the *front end*:
//! a message that names another device's SRQ is forwarded to that device, the *SRQ owner*, which executes it
//! as its own, and the front end relays the answers to the peer. The state that the SRQ owner keeps of a
//! connection, that of the responder, is a *proxy*; a *close notice* ends it.

use crate::access::Access;
use crate::qp::attr::Mtu;
use wire::Qpn;

/// Name of a domain, common to the processes that share it: a file, and the interface of the device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DomainName {
    /// The file's device and inode.
    pub file: (u64, u64),
    /// Index of the network interface.
    pub interface: u32,
}

/// Description of a forwarded request: the data about the front end and its connection that the SRQ owner
/// needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ForwardedRequest {
    /// Number of the front end: the queue pair that received the request.
    pub front_end: Qpn,
    /// Number of the connection, which distinguishes it from earlier ones of the queue pair; 24 bits.
    pub connection: u32,
    /// XRC domain of the queue pair.
    pub domain: DomainName,
    /// Access rights that the queue pair gives to its peer.
    pub access: Access,
    /// Path MTU of the queue pair.
    pub path_mtu: Mtu,
    /// Timer code of the RNR NAKs that it sends.
    pub min_rnr_timer: u8,
    /// READs and atomics that it accepts at once (`max_dest_rd_atomic`).
    pub max_dest_rd_atomic: u8,
    /// A close notice: the connection is over, and the packet is to be ignored.
    pub is_close_notice: bool,
}

/// The owner of a shared receive queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SrqOwner {
    /// The device at the other end of this shared-memory channel.
    Channel(u16),
    /// A channel was requested; the driver calls [`crate::Device::resume`] when it is open or was refused.
    Pending,
    /// No device of the host has the queue.
    Absent,
    /// A device to which no channel can be opened.
    Unreachable,
}
