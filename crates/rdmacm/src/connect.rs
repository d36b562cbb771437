//! Connections: asking, accepting, rejecting, parting. Datagrams have no connection; who asks learns the
//! peer's queue pair.

use crate::events::establish;
use crate::id::{Id, Step, id};
use crate::qp;
use crate::verbs::verbs;
use crate::world::Opened;
use abi::{RDMA_MAX_INIT_DEPTH, RDMA_MAX_RESP_RES, ibv_ece, rdma_cm_id, rdma_conn_param};
use core::ffi::{c_int, c_void};
use door::{Errno, door};
use rnic::Mtu;
use rnic::cm::{Accept, Connect, Ece, Reject, Resolution, Resolve};
use wire::cm::{
    CMA_HEADER_SIZE, CmaHeader, DREQ_PRIVATE_DATA, REJ_PRIVATE_DATA, REP_PRIVATE_DATA, REQ_PRIVATE_DATA,
    RejectReason, SIDR_REP_PRIVATE_DATA, SIDR_REQ_PRIVATE_DATA, ServiceId, SidrStatus,
};
use wire::{PartitionKey, Psn, Qpn, Service};

/// What a program asks for, complete: as it said, as its queue pair is, or as is usual.
struct Wish {
    qpn: Qpn,
    srq: bool,
    transport: Service,
    responder_resources: u8,
    initiator_depth: u8,
    flow_control: bool,
    retry_count: u8,
    rnr_retry_count: u8,
    qkey: u32,
}

/// Retries of who says nothing: the most.
const RETRIES: u8 = 7;

/// # Safety
/// `param` is NULL or as the manual page asks; the identifier's queue pair is as C says.
unsafe fn wish(this: &Id, param: *const rdma_conn_param, offered: (u8, u8)) -> Result<Wish, Errno> {
    let device = this.state().device.ok_or(Errno::INVALID)?;
    // SAFETY: as above.
    unsafe {
        let param = param.as_ref();
        let (resources, depth) = depths(device, param, offered)?;
        let raw = this.raw();
        let (qpn, srq) = match ((*raw).qp.as_ref(), param) {
            (Some(qp), _) => (qp.qp_num, !qp.srq.is_null()),
            (None, Some(param)) => (param.qp_num, param.srq != 0),
            (None, None) => return Err(Errno::INVALID),
        };
        let qp_type = (*raw).qp.as_ref().map_or((*raw).qp_type, |qp| qp.qp_type);
        Ok(Wish {
            qpn: Qpn::new(qpn),
            srq,
            transport: match qp_type {
                abi::IBV_QPT_UC => Service::Uc,
                abi::IBV_QPT_XRC_SEND | abi::IBV_QPT_XRC_RECV => Service::Xrc,
                _ => Service::Rc,
            },
            responder_resources: resources,
            initiator_depth: depth,
            flow_control: param.is_none_or(|param| param.flow_control != 0),
            retry_count: param.map_or(RETRIES, |param| param.retry_count.min(RETRIES)),
            rnr_retry_count: param.map_or(RETRIES, |param| param.rnr_retry_count.min(RETRIES)),
            qkey: abi::RDMA_UDP_QKEY,
        })
    }
}

/// READs and atomics at a time: as the program says, or the most that the device and the peer can.
fn depths(
    device: &Opened,
    param: Option<&rdma_conn_param>,
    (resources_offered, depth_offered): (u8, u8),
) -> Result<(u8, u8), Errno> {
    let pick = |asked: Option<u8>, most: u8, offered: u8| match asked {
        Some(asked) if asked != RDMA_MAX_RESP_RES as u8 && asked > most => Err(Errno::INVALID),
        Some(asked) if asked != RDMA_MAX_RESP_RES as u8 => Ok(asked),
        _ => Ok(most.min(offered)),
    };
    const _: () = assert!(RDMA_MAX_RESP_RES == RDMA_MAX_INIT_DEPTH);
    let resources = param.map(|param| param.responder_resources);
    let depth = param.map(|param| param.initiator_depth);
    Ok((
        pick(resources, device.responder_resources_max, resources_offered)?,
        pick(depth, device.initiator_depth_max, depth_offered)?,
    ))
}

/// What C points to, in a field of fixed length behind `skip` bytes; `EINVAL` when it does not fit.
///
/// # Safety
/// `data` is NULL or leads to `length` bytes.
unsafe fn private_data<const N: usize>(
    data: *const c_void,
    length: u8,
    skip: usize,
) -> Result<[u8; N], Errno> {
    let mut field = [0; N];
    let length = usize::from(length);
    if length == 0 || data.is_null() {
        return Ok(field);
    }
    let place = field.get_mut(skip..skip + length).ok_or(Errno::INVALID)?;
    // SAFETY: as above.
    place.copy_from_slice(unsafe { core::slice::from_raw_parts(data.cast(), length) });
    Ok(field)
}

/// # Safety
/// `param` is NULL or as the manual page asks.
unsafe fn private_data_of<const N: usize>(
    param: *const rdma_conn_param,
    skip: usize,
) -> Result<[u8; N], Errno> {
    // SAFETY: as above.
    unsafe {
        match param.as_ref() {
            Some(param) => private_data(param.private_data, param.private_data_len, skip),
            None => Ok([0; N]),
        }
    }
}

/// The addresses before the private data.
fn header(this: &Id) -> Result<([u8; CMA_HEADER_SIZE], ServiceId), Errno> {
    let (local, remote) = this.local().zip(this.remote()).ok_or(Errno::INVALID)?;
    let header = CmaHeader::new(local.ip(), local.port(), remote.ip()).ok_or(Errno::INVALID)?;
    Ok((header.to_bytes(), ServiceId::ip(this.state().space, remote.port())))
}

/// What a queue pair's vendor has to say to the peer's.
///
/// # Safety
/// The identifier's queue pair is as C says.
unsafe fn local_ece(this: &Id) -> Ece {
    // SAFETY: as above.
    unsafe {
        let qp = (*this.raw()).qp;
        let mut ece = ibv_ece::default();
        match verbs() {
            Ok(verbs) if !qp.is_null() && (verbs.ibv_query_ece)(qp, &mut ece) == 0 => {
                Ece { vendor_id: ece.vendor_id, options: ece.options }
            }
            _ => this.state().options.local_ece,
        }
    }
}

/// # Safety
/// `param` is NULL or as the manual page asks; the identifier's queue pair is as C says.
unsafe fn connect(this: &Id, param: *const rdma_conn_param) -> Result<(), Errno> {
    if this.state().step != Step::RouteResolved {
        return Err(Errno::INVALID);
    }
    // SAFETY: as above.
    unsafe {
        if this.is_datagram() {
            return resolve(this, param);
        }
        let wish = wish(this, param, (u8::MAX, u8::MAX))?;
        let mut data: [u8; REQ_PRIVATE_DATA] = private_data_of(param, CMA_HEADER_SIZE)?;
        let (header, service) = header(this)?;
        data[..CMA_HEADER_SIZE].copy_from_slice(&header);
        let (psn, ece) = (qp::random_psn()?, local_ece(this));
        this.world.with(|session, now| {
            let mut state = this.state();
            let link = &mut state.link;
            (link.expected_psn, link.retry_count, link.rnr_retry_count) =
                (psn, wish.retry_count, wish.rnr_retry_count);
            let connect = Connect {
                path: *link.path().ok_or(Errno::INVALID)?,
                service,
                transport: wish.transport,
                qpn: wish.qpn,
                psn: Psn::new(psn),
                mtu: Mtu::from_code(link.mtu.into()).ok_or(Errno::INVALID)?,
                partition_key: PartitionKey::DEFAULT,
                responder_resources: wish.responder_resources,
                initiator_depth: wish.initiator_depth,
                retry_count: wish.retry_count,
                rnr_retry_count: wish.rnr_retry_count,
                flow_control: wish.flow_control,
                srq: wish.srq,
                packet_lifetime: link.packet_lifetime,
                ece,
                private_data: data,
            };
            let comm = session.cm.connect(&connect, now)?;
            session.owner.connections.insert(comm, this.key());
            state.comm = Some(comm);
            state.step = Step::Connecting;
            Ok(())
        })
    }
}

/// Asks for the queue pair behind a datagram service.
///
/// # Safety
/// `param` is NULL or as the manual page asks.
unsafe fn resolve(this: &Id, param: *const rdma_conn_param) -> Result<(), Errno> {
    // SAFETY: as above.
    let mut data: [u8; SIDR_REQ_PRIVATE_DATA] = unsafe { private_data_of(param, CMA_HEADER_SIZE) }?;
    let (header, service) = header(this)?;
    data[..CMA_HEADER_SIZE].copy_from_slice(&header);
    this.world.with(|session, now| {
        let mut state = this.state();
        let path = *state.link.path().ok_or(Errno::INVALID)?;
        let partition_key = PartitionKey::DEFAULT;
        let resolve = Resolve { path, service, partition_key, private_data: data };
        let comm = session.cm.resolve(&resolve, state.options.local_ece, now)?;
        session.owner.connections.insert(comm, this.key());
        state.comm = Some(comm);
        state.step = Step::Connecting;
        Ok(())
    })
}

/// # Safety
/// As [`connect`].
unsafe fn accept(this: &Id, param: *const rdma_conn_param) -> Result<(), Errno> {
    if this.state().step != Step::Requested {
        return Err(Errno::INVALID);
    }
    let offered = {
        let link = this.state().link;
        (link.responder_resources, link.initiator_depth)
    };
    // SAFETY: as above.
    unsafe {
        let wish = wish(this, param, offered)?;
        if this.is_datagram() {
            let data: [u8; SIDR_REP_PRIVATE_DATA] = private_data_of(param, 0)?;
            return answer(this, SidrStatus::VALID, &wish, data);
        }
        let data: [u8; REP_PRIVATE_DATA] = private_data_of(param, 0)?;
        let ece = local_ece(this);
        let psn = {
            let link = &mut this.state().link;
            link.responder_resources = wish.responder_resources;
            link.initiator_depth = wish.initiator_depth;
            link.expected_psn
        };
        if !(*this.raw()).qp.is_null() {
            qp::make_ready(this)?;
        }
        this.world.with(|session, now| {
            let mut state = this.state();
            let comm = state.comm.ok_or(Errno::INVALID)?;
            let accept = Accept {
                qpn: wish.qpn,
                psn: Psn::new(psn),
                responder_resources: wish.responder_resources,
                initiator_depth: wish.initiator_depth,
                rnr_retry_count: wish.rnr_retry_count,
                flow_control: wish.flow_control,
                srq: wish.srq,
                ece,
                private_data: data,
            };
            session.cm.accept(comm, &accept, now)?;
            state.step = Step::Accepted;
            Ok(())
        })
    }
}

/// Answers who asked for a queue pair for datagrams.
fn answer(
    this: &Id,
    status: SidrStatus,
    wish: &Wish,
    private_data: [u8; SIDR_REP_PRIVATE_DATA],
) -> Result<(), Errno> {
    this.world.with(|session, now| {
        let mut state = this.state();
        let comm = state.comm.ok_or(Errno::INVALID)?;
        let (qpn, qkey) = if status == SidrStatus::VALID { (wish.qpn, wish.qkey) } else { (Qpn::new(0), 0) };
        let resolution = Resolution { status, qpn, qkey, ece: state.options.local_ece, private_data };
        session.cm.answer_resolution(comm, &resolution, now)?;
        state.step = if status == SidrStatus::VALID { Step::Connected } else { Step::Parted };
        Ok(())
    })
}

/// # Safety
/// `data` is NULL or leads to `length` bytes.
unsafe fn reject(this: &Id, data: *const c_void, length: u8, reason: RejectReason) -> Result<(), Errno> {
    if this.is_datagram() {
        // SAFETY: as above.
        let private_data = unsafe { private_data(data, length, 0) }?;
        let nothing = Wish {
            qpn: Qpn::new(0),
            srq: false,
            transport: Service::Ud,
            responder_resources: 0,
            initiator_depth: 0,
            flow_control: false,
            retry_count: 0,
            rnr_retry_count: 0,
            qkey: 0,
        };
        return answer(this, SidrStatus::REJECTED, &nothing, private_data);
    }
    // SAFETY: as above.
    let private_data: [u8; REJ_PRIVATE_DATA] = unsafe { private_data(data, length, 0) }?;
    this.world.with(|session, now| {
        let mut state = this.state();
        let comm = state.comm.ok_or(Errno::INVALID)?;
        session.cm.reject(comm, &Reject { reason, private_data }, now)?;
        state.step = Step::Parted;
        Ok(())
    })
}

/// Parts, or confirms that the peer did. Who is not connected any more has nothing to say.
fn disconnect(this: &Id) -> Result<(), Errno> {
    this.world.with(|session, now| {
        let comm = this.state().comm.ok_or(Errno::INVALID)?;
        match session.cm.disconnect(comm, [0; DREQ_PRIVATE_DATA], now) {
            Err(rnic::cm::CmError::WrongState(_)) => Ok(()),
            other => Ok(other?),
        }
    })
}

door! {
    fn rdma_connect(raw: *mut rdma_cm_id, param: *const rdma_conn_param) -> status(c_int) {
        let this = id(raw)?;
        connect(this, param)?;
        this.complete()
    }

    fn rdma_accept(raw: *mut rdma_cm_id, param: *const rdma_conn_param) -> status(c_int) {
        let this = id(raw)?;
        accept(this, param)?;
        // Nobody answers an answer about datagrams.
        if this.is_datagram() { Ok(()) } else { this.complete() }
    }

    fn rdma_establish(raw: *mut rdma_cm_id) -> status(c_int) {
        establish(id(raw)?)
    }

    fn rdma_reject(raw: *mut rdma_cm_id, data: *const c_void, length: u8) -> status(c_int) {
        reject(id(raw)?, data, length, RejectReason::CONSUMER)
    }

    fn rdma_reject_ece(raw: *mut rdma_cm_id, data: *const c_void, length: u8) -> status(c_int) {
        reject(id(raw)?, data, length, RejectReason::VENDOR_OPTION)
    }

    fn rdma_disconnect(raw: *mut rdma_cm_id) -> status(c_int) {
        let this = id(raw)?;
        if this.is_datagram() || this.state().comm.is_none() {
            return Err(Errno::INVALID);
        }
        qp::fail(this)?;
        disconnect(this)?;
        this.complete()
    }

    /// Data came before the peer said that it is ready.
    fn rdma_notify(raw: *mut rdma_cm_id, event: u32) -> status(c_int) {
        let this = id(raw)?;
        if event != abi::IBV_EVENT_COMM_EST {
            return Err(Errno::INVALID);
        }
        this.world.with(|session, now| {
            let comm = this.state().comm.ok_or(Errno::INVALID)?;
            Ok(session.cm.data_arrived(comm, now)?)
        })
    }
}
