//! Composition of messages from the state of a connection.

use super::config::ack_timeout;
use super::connection::Connection;
use super::request::{Accept, Connect, LocalAddress, Reject, Resolution, Resolve};
use super::{CmConfig, CmState};
use crate::address::{Arrival, Path};
use wire::cm::{
    Apr, AprStatus, CommId, Drep, Dreq, INFORMATION, Mra, Rej, RejectReason, Rep, Req, RequestPath,
    Rtu, SidrRep, SidrReq, Subject,
};
use wire::{Qpn, Service};

/// RoCE has no LIDs: all bits set (IBTA A16.5.2).
const LID_PERMISSIVE: u16 = 0xffff;

/// The transport service types of a REQ (IBTA 12.7.20).
const TRANSPORT_RC: u8 = 0;
const TRANSPORT_UC: u8 = 1;
const TRANSPORT_EXTENDED: u8 = 3;
/// The extended type of XRC (IBTA A14.3.1).
const EXTENDED_XRC: u8 = 1;

/// UDP source port of queue pair 1: the lowest of those that RoCEv2 uses (IBTA A17.3.2.1). One is enough
/// where no flow is large.
const SOURCE_PORT: u16 = 0xc000;

/// The reverse path, to the sender of a datagram.
pub(super) fn path_back(arrival: &Arrival, hop_limit: u8) -> Path {
    Path {
        source: arrival.destination,
        destination: arrival.source,
        source_port: SOURCE_PORT,
        // The DSCP is kept, a congestion mark is not returned.
        traffic_class: arrival.traffic_class & !3,
        hop_limit,
        service_level: 0,
        flow_label: 0,
        channel: 0,
    }
}

/// The transport service that a REQ requests, if it is supported.
pub(super) fn transport_of(req: &Req) -> Option<Service> {
    match (req.transport, req.extended_transport) {
        (TRANSPORT_RC, _) => Some(Service::Rc),
        (TRANSPORT_UC, _) => Some(Service::Uc),
        (TRANSPORT_EXTENDED, EXTENDED_XRC) => Some(Service::Xrc),
        _ => None,
    }
}

pub(super) fn req(id: CommId, connect: &Connect, local: &LocalAddress, config: &CmConfig) -> Req {
    let (transport, extended_transport) = match connect.transport {
        Service::Uc => (TRANSPORT_UC, 0),
        Service::Xrc => (TRANSPORT_EXTENDED, EXTENDED_XRC),
        _ => (TRANSPORT_RC, 0),
    };
    Req {
        local_comm_id: id,
        vendor_id: connect.ece.vendor_id,
        service_id: connect.service,
        local_ca_guid: local.ca_guid,
        local_qpn: connect.qpn,
        responder_resources: connect.responder_resources,
        initiator_depth: connect.initiator_depth,
        remote_response_timeout: config.response_timeout,
        transport,
        flow_control: connect.flow_control,
        starting_psn: connect.psn,
        local_response_timeout: config.response_timeout,
        retry_count: connect.retry_count,
        partition_key: connect.partition_key,
        path_mtu: connect.mtu as u8,
        rnr_retry_count: connect.rnr_retry_count,
        max_cm_retries: config.retries,
        srq: connect.srq,
        extended_transport,
        primary_path: RequestPath {
            local_lid: LID_PERMISSIVE,
            remote_lid: LID_PERMISSIVE,
            local_gid: connect.path.source.0,
            remote_gid: connect.path.destination.0,
            flow_label: connect.path.flow_label,
            packet_rate: 0,
            traffic_class: connect.path.traffic_class,
            hop_limit: connect.path.hop_limit,
            service_level: connect.path.service_level,
            subnet_local: connect.path.hop_limit <= 1,
            local_ack_timeout: ack_timeout(local.ack_delay, connect.packet_lifetime),
        },
        private_data: connect.private_data,
        ..Req::default()
    }
}

pub(super) fn rep(
    id: CommId,
    connection: &Connection,
    accept: &Accept,
    local: &LocalAddress,
) -> Rep {
    // The number of an XRC target is in a field of its own, and it always has shared receive queues (IBTA
    // A14.3.2).
    let is_target = connection.transport == Service::Xrc;
    let (local_qpn, local_eecn) = if is_target {
        (Qpn::new(0), accept.qpn)
    } else {
        (accept.qpn, Qpn::new(0))
    };
    Rep {
        local_comm_id: id,
        remote_comm_id: connection.remote,
        local_qpn,
        local_eecn,
        vendor_id: accept.ece.vendor_id,
        starting_psn: accept.psn,
        responder_resources: accept.responder_resources,
        initiator_depth: accept.initiator_depth,
        target_ack_delay: local.ack_delay,
        flow_control: accept.flow_control,
        rnr_retry_count: accept.rnr_retry_count,
        srq: accept.srq || is_target,
        local_ca_guid: local.ca_guid,
        private_data: accept.private_data,
        ..Rep::default()
    }
}

pub(super) fn rtu(
    id: CommId,
    connection: &Connection,
    private_data: [u8; wire::cm::RTU_PRIVATE_DATA],
) -> Rtu {
    Rtu {
        local_comm_id: id,
        remote_comm_id: connection.remote,
        private_data,
    }
}

pub(super) fn mra(id: CommId, connection: &Connection, service_timeout: u8) -> Mra {
    let subject = match connection.state {
        CmState::RepReceived | CmState::RepMraSent => Subject::Reply,
        _ => Subject::Request,
    };
    Mra {
        local_comm_id: id,
        remote_comm_id: connection.remote,
        subject,
        service_timeout,
        ..Mra::default()
    }
}

/// The rejection of the last message of the peer, composed in the state before it is sent.
pub(super) fn rej(id: CommId, connection: &Connection, reject: &Reject) -> Rej {
    let (local_comm_id, subject) = match connection.state {
        // The peer has not received the local communication ID yet.
        CmState::ReqReceived => (CommId(0), Subject::Request),
        CmState::ReqMraSent => (id, Subject::Request),
        CmState::RepReceived | CmState::RepMraSent => (id, Subject::Reply),
        _ => (id, Subject::Other),
    };
    Rej {
        local_comm_id,
        remote_comm_id: connection.remote,
        subject,
        reason: reject.reason,
        private_data: reject.private_data,
        ..Rej::default()
    }
}

/// The rejection after a timeout. The peer, which knows only its own communication ID, finds the connection
/// by the GUID.
pub(super) fn rej_timeout(
    id: CommId,
    connection: &Connection,
    local: Option<&LocalAddress>,
) -> Rej {
    let guid = local.map_or(0, |local| local.ca_guid).to_be_bytes();
    let reject = Reject {
        reason: RejectReason::TIMEOUT,
        private_data: [0; wire::cm::REJ_PRIVATE_DATA],
    };
    with_information(rej(id, connection, &reject), &guid)
}

/// Adds the additional information of a rejection (ARI); it is truncated to the field.
pub(super) fn with_information(mut rej: Rej, information: &[u8]) -> Rej {
    let length = information.len().min(INFORMATION);
    rej.information[..length].copy_from_slice(&information[..length]);
    rej.information_length = length as u8;
    rej
}

pub(super) fn dreq(
    id: CommId,
    connection: &Connection,
    private_data: [u8; wire::cm::DREQ_PRIVATE_DATA],
) -> Dreq {
    Dreq {
        local_comm_id: id,
        remote_comm_id: connection.remote,
        remote_qpn: connection.remote_qpn,
        private_data,
    }
}

/// The answer to a DREQ, whether the connection is known or not: in both cases it is over.
pub(super) fn drep(dreq: &Dreq) -> Drep {
    Drep {
        local_comm_id: dreq.remote_comm_id,
        remote_comm_id: dreq.local_comm_id,
        ..Drep::default()
    }
}

pub(super) fn sidr_req(id: CommId, resolve: &Resolve) -> SidrReq {
    SidrReq {
        request_id: id,
        partition_key: resolve.partition_key,
        service_id: resolve.service,
        private_data: resolve.private_data,
    }
}

pub(super) fn sidr_rep(connection: &Connection, resolution: &Resolution) -> SidrRep {
    SidrRep {
        request_id: connection.remote,
        status: resolution.status,
        vendor_id: resolution.ece.vendor_id,
        qpn: resolution.qpn,
        service_id: connection.service,
        qkey: resolution.qkey,
        private_data: resolution.private_data,
        ..SidrRep::default()
    }
}

/// The answer to a LAP: alternate paths are not supported, since the IP network reroutes below RoCEv2.
pub(super) fn apr(lap: &wire::cm::Lap, known: bool) -> Apr {
    Apr {
        local_comm_id: lap.remote_comm_id,
        remote_comm_id: lap.local_comm_id,
        status: if known {
            AprStatus::UNSUPPORTED
        } else {
            AprStatus::INVALID_COMM_ID
        },
        ..Apr::default()
    }
}
