//! Parameters of a connection: what the path, the program and the peer's messages have set.

use rnic::{Access, Path};
use wire::cm::{Rep, Req};

/// Parameters of a connection, as far as they are known.
#[derive(Clone, Copy, Default)]
pub(crate) struct Negotiated {
    path: Option<Path>,
    /// Whether a REQ or REP of the peer has set the fields below.
    is_agreed: bool,
    /// First PSN that the peer sends: this side chose it (IBTA 12.7.31).
    pub(crate) expected_psn: u32,
    remote_qpn: u32,
    /// First PSN that this side sends: the peer chose it.
    first_psn: u32,
    /// Path MTU (`enum ibv_mtu`).
    pub(crate) mtu: u8,
    pub(crate) ack_timeout: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) packet_lifetime: u8,
}

impl Negotiated {
    /// Attributes with the path only.
    pub(crate) fn of_path(path: Path) -> Self {
        Self {
            path: Some(path),
            ..Self::default()
        }
    }

    /// Attributes with the path, its MTU and its packet lifetime: the state before a REQ is sent.
    pub(crate) fn of_route(path: Path, mtu: u8, packet_lifetime: u8) -> Self {
        Self {
            mtu,
            packet_lifetime,
            ..Self::of_path(path)
        }
    }

    /// From a peer's REQ.
    pub(crate) fn of_request(request: &Req, path: Path) -> Self {
        Self {
            path: Some(path),
            is_agreed: true,
            expected_psn: 0,
            remote_qpn: request.local_qpn.value(),
            first_psn: request.starting_psn.value(),
            mtu: request.path_mtu,
            ack_timeout: request.primary_path.local_ack_timeout,
            retry_count: request.retry_count,
            rnr_retry_count: request.rnr_retry_count,
            responder_resources: request.initiator_depth,
            initiator_depth: request.responder_resources,
            packet_lifetime: 0,
        }
    }

    /// Adds a peer's REP. The peer's responder resources limit our initiator depth, and the other way around.
    pub(crate) fn learn(&mut self, reply: &Rep) {
        self.is_agreed = true;
        // For an XRC target the queue pair is in the field EECN (IBTA A14.3.2).
        let is_target = reply.local_qpn.value() == 0;
        self.remote_qpn = if is_target {
            reply.local_eecn
        } else {
            reply.local_qpn
        }
        .value();
        self.first_psn = reply.starting_psn.value();
        self.ack_timeout = rnic::cm::ack_timeout(reply.target_ack_delay, self.packet_lifetime);
        self.rnr_retry_count = reply.rnr_retry_count;
        self.responder_resources = reply.initiator_depth;
        self.initiator_depth = reply.responder_resources;
    }

    /// The peer's queue pair; 0 until its REQ or REP is known.
    pub(crate) fn remote_qpn(&self) -> u32 {
        self.remote_qpn
    }

    /// First PSN that this side sends.
    pub(crate) fn first_psn(&self) -> u32 {
        self.first_psn
    }

    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_ref()
    }

    /// The path, once the peer has agreed to the connection.
    pub(crate) fn agreed_path(&self) -> Option<&Path> {
        self.path.as_ref().filter(|_| self.is_agreed)
    }

    /// Rights of the peer: WRITE always, READ and atomics if there are responder resources.
    pub(crate) fn access(&self) -> Access {
        match (self.is_agreed, self.responder_resources) {
            (false, _) => Access::empty(),
            (true, 0) => Access::REMOTE_WRITE,
            (true, _) => Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
        }
    }

    /// Sets what the peer's REQ offers, until the program accepts with its own values.
    pub(crate) fn offer(&mut self, responder_resources: u8, initiator_depth: u8) {
        (self.responder_resources, self.initiator_depth) = (responder_resources, initiator_depth);
    }
}
