//! What owners say, and what they are told.

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

/// Names a listener.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ListenerId(pub u32);

/// One of our addresses.
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
    /// The addresses asked for.
    pub address: ListenAddress,
    /// Requests that may wait for [`super::Cm::take`]. More are dropped: the peer repeats them.
    pub backlog: u32,
}

/// The addresses that a listener is bound to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ListenAddress {
    /// Any, of both families.
    Any,
    /// Any of IPv4.
    AnyV4,
    /// Any of IPv6.
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

/// What the active side asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connect {
    /// The way to the peer. The source is one of our addresses.
    pub path: Path,
    /// Identifier of the service that is asked for.
    pub service: ServiceId,
    /// RC, UC or XRC.
    pub transport: Service,
    /// Our queue pair.
    pub qpn: Qpn,
    /// The first PSN that the peer is to send (IBTA 12.7.31).
    pub psn: Psn,
    /// Path MTU of the connection.
    pub mtu: Mtu,
    /// Partition key of the connection.
    pub partition_key: PartitionKey,
    /// READs and atomics that we take at a time.
    pub responder_resources: u8,
    /// READs and atomics that we will have outstanding.
    pub initiator_depth: u8,
    /// How often the peer's queue pair is to retry. 0..=7.
    pub retry_count: u8,
    /// How often the peer's queue pair is to retry when we are not ready. 0..=7, 7 for ever.
    pub rnr_retry_count: u8,
    /// Whether our ACKs carry credits.
    pub flow_control: bool,
    /// Whether our queue pair has a shared receive queue.
    pub srq: bool,
    /// How long a packet lives: 4.096 µs times 2 to this power. RoCE on Linux: 16.
    pub packet_lifetime: u8,
    /// Options of a vendor.
    pub ece: Ece,
    /// Begins with a [`CmaHeader`] where the service is one of IP.
    pub private_data: [u8; REQ_PRIVATE_DATA],
}

/// With what the passive side accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Accept {
    /// Our queue pair.
    pub qpn: Qpn,
    /// The first PSN that the peer is to send (IBTA 12.7.31).
    pub psn: Psn,
    /// READs and atomics that we take at a time.
    pub responder_resources: u8,
    /// READs and atomics that we will have outstanding.
    pub initiator_depth: u8,
    /// How often the peer's queue pair is to retry when we are not ready. 0..=7, 7 for ever.
    pub rnr_retry_count: u8,
    /// Whether our ACKs carry credits.
    pub flow_control: bool,
    /// Whether our queue pair has a shared receive queue.
    pub srq: bool,
    /// Options of a vendor.
    pub ece: Ece,
    /// For the peer's program.
    pub private_data: [u8; REP_PRIVATE_DATA],
}

/// Why a connection is rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reject {
    /// The reason for the rejection.
    pub reason: RejectReason,
    /// For the peer's program.
    pub private_data: [u8; REJ_PRIVATE_DATA],
}

/// Asks for the queue pair behind a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resolve {
    /// The way to the peer. The source is one of our addresses.
    pub path: Path,
    /// Identifier of the service that is asked for.
    pub service: ServiceId,
    /// Partition key of the datagram.
    pub partition_key: PartitionKey,
    /// Begins with a [`CmaHeader`] where the service is one of IP.
    pub private_data: [u8; SIDR_REQ_PRIVATE_DATA],
}

/// Tells the queue pair behind a service, or why there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resolution {
    /// Whether there is one.
    pub status: SidrStatus,
    /// The queue pair.
    pub qpn: Qpn,
    /// What must be presented to it.
    pub qkey: u32,
    /// Options of a vendor.
    pub ece: Ece,
    /// For the peer's program.
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

/// What an owner is told. No event follows [`super::Cm::release`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CmEvent {
    /// A peer asks for a connection: [`super::Cm::take`] it, then accept or reject.
    Request {
        /// The new connection.
        id: CommId,
        /// The listener that was asked.
        listener: ListenerId,
        /// The way back.
        path: Path,
        /// What the peer said, from its view.
        request: Box<Req>,
        /// Addresses, where the service is one of IP.
        addresses: Option<CmaHeader>,
        /// Options of a vendor.
        ece: Ece,
    },
    /// A peer asks for the queue pair behind a service.
    SidrRequest {
        /// The new resolution.
        id: CommId,
        /// The listener that was asked.
        listener: ListenerId,
        /// The way back.
        path: Path,
        /// What the peer said.
        request: Box<SidrReq>,
        /// Addresses, where the service is one of IP.
        addresses: Option<CmaHeader>,
        /// Options of a vendor.
        ece: Ece,
    },
    /// The peer accepted: get ready and say so, or reject.
    Reply {
        /// Communication ID of the connection.
        id: CommId,
        /// What the peer said, from its view.
        reply: Box<Rep>,
        /// Options of a vendor.
        ece: Ece,
    },
    /// Both ends are ready. The passive side only is told.
    Established {
        /// Communication ID of the connection.
        id: CommId,
        /// What the peer said; nothing when data came before it did.
        private_data: Option<Box<[u8; RTU_PRIVATE_DATA]>>,
    },
    /// The peer rejected.
    Rejected {
        /// Communication ID of the connection.
        id: CommId,
        /// What it said.
        reject: Box<Rej>,
    },
    /// The peer did not answer a REQ, a REP or a SIDR_REQ, however often it was asked.
    Unreachable {
        /// Communication ID of the connection.
        id: CommId,
    },
    /// The connection is no more.
    Disconnected {
        /// Communication ID of the connection.
        id: CommId,
        /// Which side disconnected.
        cause: Parting,
    },
    /// The peer told the queue pair, or that there is none.
    Resolved {
        /// Communication ID of the resolution.
        id: CommId,
        /// What it said.
        answer: Box<SidrRep>,
        /// Options of a vendor.
        ece: Ece,
    },
    /// The address that the connection used is no longer ours; the connection ended without a word.
    AddressRemoved {
        /// Communication ID of the connection.
        id: CommId,
    },
    /// No packet of the connection can be on its way any more: the queue pair may be used again.
    TimeWaitOver {
        /// Communication ID of the connection.
        id: CommId,
    },
}

/// Which side disconnected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Parting {
    /// The peer; [`super::Cm::disconnect`] tells it that we know.
    Peer(Box<[u8; DREQ_PRIVATE_DATA]>),
    /// We did, and the peer knows.
    Answered(Box<[u8; DREP_PRIVATE_DATA]>),
    /// We did while the peer did the same.
    Both,
    /// We did, and the peer does not know the connection any more.
    Unknown,
    /// We did, and the peer never answered.
    TimedOut,
}

impl CmEvent {
    /// Whom it is about.
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

/// Why an owner's call is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CmError {
    /// No such connection or listener, or it was released.
    #[error("no such connection")]
    NoSuchConnection,
    /// The connection's state does not allow it.
    #[error("the connection's state does not allow this: {0:?}")]
    WrongState(super::CmState),
    /// Connections, listeners or communication IDs are used up.
    #[error("there are no more {0}")]
    Exhausted(&'static str),
    /// Another listener takes the same requests.
    #[error("another listener has the service")]
    InUse,
    /// The path's source is none of our addresses.
    #[error("the source is none of our addresses")]
    NotLocal,
    /// A service or transport for which there are no connections.
    #[error("not supported: {0}")]
    Unsupported(&'static str),
}
