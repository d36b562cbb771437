//! Requests of owners, and their events.

use crate::address::{Gid, Path};
use crate::qp::attr::Mtu;
use alloc::boxed::Box;
use core::net::IpAddr;
use wire::cm::{
    CmaHeader, CommId, DREP_PRIVATE_DATA, DREQ_PRIVATE_DATA, REJ_PRIVATE_DATA, REP_PRIVATE_DATA,
    REQ_PRIVATE_DATA, RTU_PRIVATE_DATA, Rej, RejectReason, Rep, Req, SIDR_REP_PRIVATE_DATA,
    SIDR_REQ_PRIVATE_DATA, ServiceId, SidrRep, SidrReq, SidrStatus,
};
use wire::{PartitionKey, Psn, Qpn, Service};

/// Identifier of a listener.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ListenerId(pub u32);

/// A local address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalAddress {
    /// The address, as a GID.
    pub gid: Gid,
    /// The device it belongs to.
    pub ca_guid: u64,
    /// The longest payload per packet.
    pub mtu: Mtu,
    /// How long the device takes to acknowledge: 4.096 µs times 2 to this power.
    pub ack_delay: u8,
}

/// Which requests a listener takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listen {
    /// Identifier of the service to listen on.
    pub service: ServiceId,
    /// The addresses to listen at.
    pub address: ListenAddress,
    /// Requests that may wait for [`super::Cm::take`]. More are dropped: the peer repeats them.
    pub backlog: u32,
}

/// The addresses that a listener is bound to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ListenAddress {
    /// Any address of both families.
    Any,
    /// Any IPv4 address.
    AnyV4,
    /// Any IPv6 address.
    AnyV6,
    /// This address alone.
    One(IpAddr),
}

impl ListenAddress {
    /// Whether a request for `address` is taken.
    pub fn takes(&self, address: IpAddr) -> bool {
        match self {
            Self::Any => true,
            Self::AnyV4 => address.is_ipv4(),
            Self::AnyV6 => address.is_ipv6(),
            Self::One(own) => *own == address,
        }
    }

    /// Whether two listeners would both take some request.
    pub fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any, _) | (_, Self::Any) => true,
            (Self::AnyV4, Self::AnyV4) | (Self::AnyV6, Self::AnyV6) => true,
            (Self::AnyV4, Self::AnyV6) | (Self::AnyV6, Self::AnyV4) => false,
            (any, Self::One(address)) => any.takes(*address),
            (Self::One(address), any) => any.takes(*address),
        }
    }
}

/// Enhanced connection establishment (IBTA A18): options that a vendor defined.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Ece {
    /// The vendor: 24 bits.
    pub vendor_id: u32,
    /// The options, which the vendor defines.
    pub options: u32,
}

/// Parameters of a connection request, on the active side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connect {
    /// The path to the peer. The source is a local address.
    pub path: Path,
    /// Identifier of the requested service.
    pub service: ServiceId,
    /// RC, UC or XRC.
    pub transport: Service,
    /// The local queue pair.
    pub qpn: Qpn,
    /// The first PSN that the peer is to send (IBTA 12.7.31).
    pub psn: Psn,
    /// Path MTU of the connection.
    pub mtu: Mtu,
    /// Partition key of the connection.
    pub partition_key: PartitionKey,
    /// READs and atomics that the local side accepts at a time.
    pub responder_resources: u8,
    /// READs and atomics that the local side will have outstanding.
    pub initiator_depth: u8,
    /// Retry count for the peer's queue pair. 0..=7.
    pub retry_count: u8,
    /// RNR retry count for the peer's queue pair. 0..=7, 7 is unlimited.
    pub rnr_retry_count: u8,
    /// Whether ACKs of the local side carry credits.
    pub flow_control: bool,
    /// Whether the local queue pair has a shared receive queue.
    pub srq: bool,
    /// Packet lifetime: 4.096 µs times 2 to this power. RoCE on Linux: 16.
    pub packet_lifetime: u8,
    /// Options of a vendor.
    pub ece: Ece,
    /// Private data; it begins with a [`CmaHeader`] where the service is an IP service.
    pub private_data: [u8; REQ_PRIVATE_DATA],
}

/// Parameters with which the passive side accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Accept {
    /// The local queue pair.
    pub qpn: Qpn,
    /// The first PSN that the peer is to send (IBTA 12.7.31).
    pub psn: Psn,
    /// READs and atomics that the local side accepts at a time.
    pub responder_resources: u8,
    /// READs and atomics that the local side will have outstanding.
    pub initiator_depth: u8,
    /// RNR retry count for the peer's queue pair. 0..=7, 7 is unlimited.
    pub rnr_retry_count: u8,
    /// Whether ACKs of the local side carry credits.
    pub flow_control: bool,
    /// Whether the local queue pair has a shared receive queue.
    pub srq: bool,
    /// Options of a vendor.
    pub ece: Ece,
    /// Private data for the peer's program.
    pub private_data: [u8; REP_PRIVATE_DATA],
}

/// Parameters of a rejection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reject {
    /// The reason for the rejection.
    pub reason: RejectReason,
    /// Private data for the peer's program.
    pub private_data: [u8; REJ_PRIVATE_DATA],
}

/// Parameters of a service ID resolution (SIDR_REQ): finds the queue pair of a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resolve {
    /// The path to the peer. The source is a local address.
    pub path: Path,
    /// Identifier of the requested service.
    pub service: ServiceId,
    /// Partition key of the datagram.
    pub partition_key: PartitionKey,
    /// Private data; it begins with a [`CmaHeader`] where the service is an IP service.
    pub private_data: [u8; SIDR_REQ_PRIVATE_DATA],
}

/// Answer to a service ID resolution (SIDR_REP): the queue pair of a service, or the reason why there is
/// none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resolution {
    /// Status: whether there is a queue pair.
    pub status: SidrStatus,
    /// The queue pair.
    pub qpn: Qpn,
    /// Queue key of the queue pair.
    pub qkey: u32,
    /// Options of a vendor.
    pub ece: Ece,
    /// Private data for the peer's program.
    pub private_data: [u8; SIDR_REP_PRIVATE_DATA],
}

/// A datagram to send from queue pair 1 to queue pair 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagram {
    /// The path on which the datagram leaves.
    pub path: Path,
    /// The management datagram, 256 bytes.
    pub mad: [u8; wire::mad::MAD_SIZE],
}

/// Events for an owner. No event follows [`super::Cm::release`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CmEvent {
    /// A peer requests a connection: [`super::Cm::take`] it, then accept or reject.
    Request {
        /// The new connection.
        id: CommId,
        /// The listener that takes the request.
        listener: ListenerId,
        /// The path to the peer.
        path: Path,
        /// The received REQ; its fields are from the peer's view.
        request: Box<Req>,
        /// Addresses, where the service is an IP service.
        addresses: Option<CmaHeader>,
        /// Options of a vendor.
        ece: Ece,
    },
    /// A peer requests the queue pair of a service.
    SidrRequest {
        /// The new resolution.
        id: CommId,
        /// The listener that takes the request.
        listener: ListenerId,
        /// The path to the peer.
        path: Path,
        /// The received SIDR_REQ.
        request: Box<SidrReq>,
        /// Addresses, where the service is an IP service.
        addresses: Option<CmaHeader>,
        /// Options of a vendor.
        ece: Ece,
    },
    /// The peer accepted: prepare the queue pair and call [`super::Cm::ready`], or reject.
    Reply {
        /// Communication ID of the connection.
        id: CommId,
        /// The received REP; its fields are from the peer's view.
        reply: Box<Rep>,
        /// Options of a vendor.
        ece: Ece,
    },
    /// Both ends are ready. Only the passive side gets this event.
    Established {
        /// Communication ID of the connection.
        id: CommId,
        /// Private data of the RTU; `None` when data arrived before it.
        private_data: Option<Box<[u8; RTU_PRIVATE_DATA]>>,
    },
    /// The peer rejected.
    Rejected {
        /// Communication ID of the connection.
        id: CommId,
        /// The received REJ.
        reject: Box<Rej>,
    },
    /// The peer did not answer a REQ, a REP or a SIDR_REQ nor any of its repetitions.
    Unreachable {
        /// Communication ID of the connection.
        id: CommId,
    },
    /// The connection has ended.
    Disconnected {
        /// Communication ID of the connection.
        id: CommId,
        /// Which side disconnected.
        cause: Parting,
    },
    /// The peer answered with the queue pair of the service, or that there is none.
    Resolved {
        /// Communication ID of the resolution.
        id: CommId,
        /// The received SIDR_REP.
        answer: Box<SidrRep>,
        /// Options of a vendor.
        ece: Ece,
    },
    /// The address that the connection used is no longer local; the connection ended without a message.
    AddressRemoved {
        /// Communication ID of the connection.
        id: CommId,
    },
    /// No packet of the connection can be in the network any more: the queue pair may be used again.
    TimeWaitOver {
        /// Communication ID of the connection.
        id: CommId,
    },
}

/// Which side disconnected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Parting {
    /// The peer; [`super::Cm::disconnect`] confirms it.
    Peer(Box<[u8; DREQ_PRIVATE_DATA]>),
    /// The local side, and the peer has confirmed it.
    Answered(Box<[u8; DREP_PRIVATE_DATA]>),
    /// Both sides at the same time.
    Both,
    /// The local side, and the peer does not know the connection any more.
    Unknown,
    /// The local side, and the peer never answered.
    TimedOut,
}

impl CmEvent {
    /// The connection or resolution that the event belongs to.
    pub const fn id(&self) -> CommId {
        match self {
            Self::Request { id, .. }
            | Self::SidrRequest { id, .. }
            | Self::Reply { id, .. }
            | Self::Established { id, .. }
            | Self::Rejected { id, .. }
            | Self::Unreachable { id }
            | Self::Disconnected { id, .. }
            | Self::Resolved { id, .. }
            | Self::AddressRemoved { id }
            | Self::TimeWaitOver { id } => *id,
        }
    }
}

/// Errors of owners' calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CmError {
    /// No such connection or listener, or it was released.
    #[error("the handle names no connection or listener: it was released")]
    NoSuchConnection,
    /// The connection's state does not allow it.
    #[error("the connection does not allow this call in state {0:?}")]
    WrongState(super::CmState),
    /// Connections, listeners or communication IDs are used up.
    #[error("the device has no more {0}")]
    Exhausted(&'static str),
    /// Another listener takes the same requests.
    #[error("another listener of this device has the same service ID")]
    InUse,
    /// The path's source is not a local address.
    #[error("the source of the path is no address of this device")]
    NotLocal,
    /// A service or transport that has no connections.
    #[error("not supported: {0}")]
    Unsupported(&'static str),
}
