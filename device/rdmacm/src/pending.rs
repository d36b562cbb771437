//! Events that wait in a channel's queue, until the program takes them.

use crate::negotiated::Negotiated;
use core::ffi::c_int;
use rnic::Path;
use rnic::cm::Ece;
use std::net::SocketAddr;
use wire::cm::{CommId, Rep, Req};

/// An event in a channel's queue.
pub(crate) struct Pending {
    /// Address of the identifier that it is about; of a connection request, the listener's.
    pub(crate) id: usize,
    pub(crate) kind: u32,
    pub(crate) status: c_int,
    pub(crate) param: Param,
    /// Private data of the message, padded to the length of its field.
    pub(crate) data: Box<[u8]>,
    /// Done in the program's thread when it takes the event.
    pub(crate) action: Action,
}

/// The `param` union of the event, apart from private data.
#[derive(Clone, Copy)]
pub(crate) enum Param {
    None,
    Connection {
        responder_resources: u8,
        initiator_depth: u8,
        flow_control: bool,
        retry_count: u8,
        rnr_retry_count: u8,
        srq: bool,
        qpn: u32,
    },
    Datagram {
        path: Path,
        qpn: u32,
        qkey: u32,
    },
    /// The argument of `rdma_write_cm_event`.
    Argument(u64),
    /// `context` is the argument of `rdma_join_multicast`.
    Group {
        path: Path,
        context: usize,
    },
}

impl Param {
    /// Seen from this side: the peer's initiator depth is the limit of our responder resources.
    pub(crate) fn of_request(request: &Req) -> Self {
        Self::Connection {
            responder_resources: request.initiator_depth,
            initiator_depth: request.responder_resources,
            flow_control: request.flow_control,
            retry_count: request.retry_count,
            rnr_retry_count: request.rnr_retry_count,
            srq: request.srq,
            qpn: request.local_qpn.value(),
        }
    }

    /// `qpn` is the peer's queue pair, which for an XRC target is in another field of the REP (the EECN).
    pub(crate) fn of_reply(reply: &Rep, qpn: u32) -> Self {
        Self::Connection {
            responder_resources: reply.initiator_depth,
            initiator_depth: reply.responder_resources,
            flow_control: reply.flow_control,
            retry_count: 0,
            rnr_retry_count: reply.rnr_retry_count,
            srq: reply.srq,
            qpn,
        }
    }
}

/// Work that is done when the program takes an event, in its own thread, because it calls libibverbs.
pub(crate) enum Action {
    Nothing,
    /// Create an identifier for a connection request.
    CreateId(Box<NewRequest>),
    /// A REP came: bring the queue pair to RTS, and send the RTU.
    EstablishConnection,
    /// Forget the source address and its device: another peer may have another one.
    ForgetSource,
    /// Bring the queue pair to the error state, which flushes its work requests.
    Flush,
    /// Attach the queue pair to a multicast group.
    Join(SocketAddr),
}

/// A connection request of a peer.
pub(crate) struct NewRequest {
    pub(crate) comm: CommId,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) negotiated: Negotiated,
    pub(crate) ece: Ece,
}

impl Pending {
    /// An event without parameters.
    pub(crate) fn plain(id: usize, kind: u32, status: c_int) -> Self {
        Self {
            id,
            kind,
            status,
            param: Param::None,
            data: Box::default(),
            action: Action::Nothing,
        }
    }

    /// An event about a connection, with status 0 and without parameters.
    pub(crate) fn conn(id: usize, kind: u32) -> Self {
        Self::plain(id, kind, 0)
    }

    pub(crate) fn is_request_of(&self, comm: CommId) -> bool {
        matches!(&self.action, Action::CreateId(new_request) if new_request.comm == comm)
    }
}
