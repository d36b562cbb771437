//! Requests from peers: REQ and SIDR_REQ, new or repeated.

use super::compose;
use super::config::{RETRIES_MAX, duration};
use super::connection::Connection;
use super::listen::Match;
use super::request::{CmEvent, Ece, ListenerId};
use super::state::{CmState, Input, Step};
use super::{Cm, CmCounters, Datagram, RejectReason};
use crate::address::{Arrival, Gid};
use crate::qp::attr::Mtu;
use crate::time::Instant;
use alloc::boxed::Box;
use core::net::{IpAddr, Ipv6Addr};
use wire::Qpn;
use wire::cm::{
    CMA_HEADER_SIZE, CmMad, CmaHeader, CommId, DREQ_PRIVATE_DATA, Dreq, Rej, Req, ServiceId,
    SidrRep, SidrReq, SidrStatus, Subject,
};

/// Reason why a REQ is answered with a REJ, or dropped.
enum Refusal {
    Reject(RejectReason),
    /// A REJ with additional information, of which the first bytes are valid.
    Inform(RejectReason, [u8; 16], usize),
    /// No answer: the peer repeats the REQ.
    Drop,
}

impl Cm {
    pub(super) fn handle_req(&mut self, arrival: &Arrival, mad: &CmMad, req: &Req, now: Instant) {
        if req.local_comm_id == CommId(0) {
            self.counters.unexpected += 1;
            return;
        }
        if let Some(id) = self
            .connections
            .of_remote(arrival.source, req.local_comm_id)
            && !self.has_forgotten(id, req.local_qpn)
        {
            self.handle_req_again(id, arrival, mad, req, now);
            return;
        }
        match self.admit_req(arrival, req) {
            Ok((listener, addresses)) => self.accept_req(arrival, mad, req, listener, addresses),
            Err(Refusal::Reject(reason)) => self.refuse(arrival, mad, req, reason, &[]),
            Err(Refusal::Inform(reason, information, length)) => {
                self.refuse(arrival, mad, req, reason, &information[..length]);
            }
            Err(Refusal::Drop) => {}
        }
    }

    /// Whether the peer uses the communication ID of a connection that is over for another queue pair:
    /// another of its processes has drawn the same ID. The time-wait of the local queue pair goes on without
    /// the ID.
    pub(super) fn has_forgotten(&self, id: CommId, qpn: Qpn) -> bool {
        let over = |it: &Connection| it.state == CmState::TimeWait && it.remote_qpn != qpn;
        self.connections.get(id).is_some_and(over)
    }

    /// Handles a REQ whose communication ID is already that of a connection.
    fn handle_req_again(
        &mut self,
        id: CommId,
        arrival: &Arrival,
        mad: &CmMad,
        req: &Req,
        now: Instant,
    ) {
        let Some(connection) = self.connections.get(id) else {
            return;
        };
        let (state, service_timeout) = (connection.state, self.config.service_timeout);
        if connection.active || connection.remote_qpn != req.local_qpn {
            self.refuse(
                arrival,
                mad,
                req,
                RejectReason::DUPLICATE_LOCAL_COMM_ID,
                &[],
            );
            return;
        }
        let delayed = compose::mra(id, connection, service_timeout);
        self.count_duplicate(mad);
        match super::state::step(state, Input::Req) {
            Step::To(_) => self.say(id, Input::Req, now, 0, delayed),
            Step::Again if state == CmState::TimeWait => {
                self.refuse(arrival, mad, req, RejectReason::STALE_CONNECTION, &[]);
            }
            Step::Again => self.answer_again(id, now),
            Step::Ignore => {}
            Step::Forbidden => self.counters.unexpected += 1,
        }
    }

    /// Finds the listener for a new REQ.
    fn admit_req(
        &mut self,
        arrival: &Arrival,
        req: &Req,
    ) -> Result<(ListenerId, Option<CmaHeader>), Refusal> {
        if compose::transport_of(req).is_none() {
            return Err(Refusal::Reject(RejectReason::INVALID_TRANSPORT));
        }
        if let Some(other) = self
            .connections
            .of_remote_qpn(arrival.source, req.local_qpn)
        {
            self.inquire(other);
            return Err(Refusal::Reject(RejectReason::STALE_CONNECTION));
        }
        let Some(local) = self.address(arrival.destination) else {
            return Err(Refusal::Drop);
        };
        if req.primary_path.remote_gid != local.gid.0 {
            return Err(Refusal::Inform(RejectReason::INVALID_GID, local.gid.0, 16));
        }
        if Mtu::from_code(req.path_mtu.into()).is_none_or(|mtu| mtu > local.mtu) {
            let mut most = [0; 16];
            // The field has the MTU in the upper half of the byte, as the REQ has (IBTA table 109).
            most[0] = (local.mtu as u8) << 4;
            return Err(Refusal::Inform(RejectReason::INVALID_MTU, most, 1));
        }
        let addresses =
            addresses_of(arrival, req.service_id, &req.private_data).map_err(Refusal::Reject)?;
        match self
            .listeners
            .admit(req.service_id, addresses.map(|it| it.destination()))
        {
            Match::Taken(listener) => Ok((listener, addresses)),
            Match::Nobody => Err(Refusal::Reject(RejectReason::INVALID_SERVICE_ID)),
            Match::Full => {
                self.counters.backlog_full += 1;
                Err(Refusal::Drop)
            }
        }
    }

    /// Creates a connection from a REQ that a listener takes.
    fn accept_req(
        &mut self,
        arrival: &Arrival,
        mad: &CmMad,
        req: &Req,
        listener: ListenerId,
        addresses: Option<CmaHeader>,
    ) {
        let mut path = compose::path_back(arrival, self.config.hop_limit);
        path.traffic_class = req.primary_path.traffic_class;
        path.service_level = req.primary_path.service_level;
        path.flow_label = req.primary_path.flow_label;
        let mut connection =
            Connection::new(CmState::ReqReceived, path, req.service_id, &self.config);
        connection.transaction = mad.transaction;
        connection.waits_at = Some(listener);
        connection.response_time = duration(req.local_response_timeout);
        connection.retries = req.max_cm_retries.min(RETRIES_MAX);
        connection.time_wait = duration(req.primary_path.local_ack_timeout);
        connection.transport = compose::transport_of(req).unwrap_or(connection.transport);
        let Ok(id) = self
            .connections
            .add(connection, &self.config, &mut self.ids)
        else {
            self.listeners.taken(listener);
            self.counters.table_full += 1;
            return;
        };
        self.connections.name(id, req.local_comm_id);
        self.connections.name_queue_pair(id, req.local_qpn);
        let ece = Ece {
            vendor_id: req.vendor_id,
            options: mad.modifier,
        };
        self.tell(
            id,
            CmEvent::Request {
                id,
                listener,
                path,
                request: Box::new(*req),
                addresses,
                ece,
            },
        );
    }

    fn refuse(
        &mut self,
        arrival: &Arrival,
        mad: &CmMad,
        req: &Req,
        reason: RejectReason,
        more: &[u8],
    ) {
        let rej = Rej {
            remote_comm_id: req.local_comm_id,
            subject: Subject::Request,
            reason,
            ..Rej::default()
        };
        self.answer(
            arrival,
            mad.transaction,
            compose::with_information(rej, more),
        );
    }

    /// Handles a new connection that names a peer's queue pair which is already in a connection. Either the
    /// peer has lost the state of the old one (stale connection, IBTA 12.9.8.3.1), or a third host has forged
    /// the message: queue pair numbers are few enough to try them all. So the peer is queried before a
    /// working connection is given up.
    ///
    /// The query is a DREQ for a queue pair that the connection does not have. A peer that knows the
    /// connection drops it, and one that does not answers with a DREP at once (Linux as well), which must
    /// have both communication IDs and the transaction. A lost query or answer is repeated with the next
    /// message of the new connection.
    pub(super) fn inquire(&mut self, id: CommId) {
        let transaction = u64::from(!self.transactions) << 32 | u64::from(id.0);
        let established = |it: &&mut Connection| it.state == CmState::Established;
        let Some(connection) = self.connections.get_mut(id).filter(established) else {
            return;
        };
        connection.inquiry = Some(transaction);
        let dreq = Dreq {
            remote_qpn: Qpn::new(!connection.remote_qpn.value()),
            ..compose::dreq(id, connection, [0; DREQ_PRIVATE_DATA])
        };
        let mad = CmMad {
            transaction,
            modifier: 0,
            message: dreq.into(),
        };
        let datagram = Datagram {
            path: connection.path,
            mad: mad.to_bytes(),
        };
        self.send(mad.message.attribute(), datagram);
    }

    pub(super) fn handle_sidr_req(
        &mut self,
        arrival: &Arrival,
        mad: &CmMad,
        req: &SidrReq,
        now: Instant,
    ) {
        if let Some(id) = self.connections.of_request(arrival.source, req.request_id) {
            self.count_duplicate(mad);
            if self.connections.advance(id, Input::SidrReq, now) == Step::Again {
                self.answer_again(id, now);
            }
            return;
        }
        if self.address(arrival.destination).is_none() || req.request_id == CommId(0) {
            self.counters.unexpected += 1;
            return;
        }
        let addresses = match addresses_of(arrival, req.service_id, &req.private_data) {
            Ok(addresses) => addresses,
            Err(_) => return self.refuse_sidr(arrival, mad, req),
        };
        match self
            .listeners
            .admit(req.service_id, addresses.map(|it| it.destination()))
        {
            Match::Taken(listener) => self.accept_sidr(arrival, mad, req, listener, addresses),
            Match::Nobody => self.refuse_sidr(arrival, mad, req),
            Match::Full => self.counters.backlog_full += 1,
        }
    }

    fn accept_sidr(
        &mut self,
        arrival: &Arrival,
        mad: &CmMad,
        req: &SidrReq,
        listener: ListenerId,
        addresses: Option<CmaHeader>,
    ) {
        let path = compose::path_back(arrival, self.config.hop_limit);
        let mut connection =
            Connection::new(CmState::SidrReqReceived, path, req.service_id, &self.config);
        connection.transaction = mad.transaction;
        connection.waits_at = Some(listener);
        let Ok(id) = self
            .connections
            .add(connection, &self.config, &mut self.ids)
        else {
            self.listeners.taken(listener);
            self.counters.table_full += 1;
            return;
        };
        self.connections.name(id, req.request_id);
        // SIDR_REQ has no field for a vendor ID (IBTA A18).
        let ece = Ece {
            vendor_id: 0,
            options: mad.modifier,
        };
        self.tell(
            id,
            CmEvent::SidrRequest {
                id,
                listener,
                path,
                request: Box::new(*req),
                addresses,
                ece,
            },
        );
    }

    fn refuse_sidr(&mut self, arrival: &Arrival, mad: &CmMad, req: &SidrReq) {
        let rep = SidrRep {
            request_id: req.request_id,
            status: SidrStatus::UNSUPPORTED,
            service_id: req.service_id,
            ..SidrRep::default()
        };
        self.answer(arrival, mad.transaction, rep);
    }

    pub(super) fn count_duplicate(&mut self, mad: &CmMad) {
        self.counters.duplicates[CmCounters::index(mad.message.attribute())] += 1;
    }
}

/// The addresses in front of the private data, for services that have them. They have to be those that the
/// datagram came with: programs take them for the peer's.
fn addresses_of(
    arrival: &Arrival,
    service: ServiceId,
    private_data: &[u8],
) -> Result<Option<CmaHeader>, RejectReason> {
    if service.port().is_none() {
        return Ok(None);
    }
    let header: Option<&[u8; CMA_HEADER_SIZE]> = private_data.first_chunk();
    let header = header
        .and_then(|bytes| CmaHeader::parse(bytes).ok())
        .ok_or(RejectReason::UNSUPPORTED)?;
    if header.source() != ip_of(arrival.source)
        || header.destination() != ip_of(arrival.destination)
    {
        return Err(RejectReason::INVALID_GID);
    }
    Ok(Some(header))
}

/// The IP address that a GID is.
fn ip_of(gid: Gid) -> IpAddr {
    match gid.ipv4() {
        Some(address) => IpAddr::V4(address.into()),
        None => IpAddr::V6(Ipv6Addr::from(gid.0)),
    }
}
