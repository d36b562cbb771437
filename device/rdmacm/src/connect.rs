//! Connection establishment and release: REQ, REP, RTU, REJ, DREQ. For datagram services, SIDR resolves the
//! peer's queue pair instead.

use crate::device::OpenDevice;
use crate::establish::establish;
use crate::id::{Id, IdArg};
use crate::qp;
use crate::state::Step;
use crate::synchronous::complete;
use crate::verbs::verbs;
use abi::{RDMA_MAX_INIT_DEPTH, RDMA_MAX_RESP_RES, ibv_ece, rdma_conn_param};
use core::ffi::{c_int, c_void};
use ffi::{Errno, public_exports};
use rnic::Mtu;
use rnic::cm::{Accept, Connect, Ece, Reject, Resolution, Resolve};
use wire::cm::{
    CMA_HEADER_SIZE, CmaHeader, DREQ_PRIVATE_DATA, REJ_PRIVATE_DATA, REP_PRIVATE_DATA,
    REQ_PRIVATE_DATA, RejectReason, SIDR_REP_PRIVATE_DATA, SIDR_REQ_PRIVATE_DATA, ServiceId,
    SidrStatus,
};
use wire::{PartitionKey, Psn, Qpn, Service};

/// Complete parameters of a connection: from the program's `rdma_conn_param`, its queue pair, or defaults.
struct Parameters {
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

/// Numbers of READs and atomics that a connection may have outstanding.
#[derive(Clone, Copy)]
struct Depths {
    /// Responder resources of the peer.
    responder_resources: u8,
    /// Initiator depth of this side.
    initiator_depth: u8,
}

impl Depths {
    const MAX: Self = Self {
        responder_resources: u8::MAX,
        initiator_depth: u8::MAX,
    };
}

/// Default number of retries: the maximum of the 3-bit field.
const RETRIES: u8 = 7;

/// # Safety
/// `param` is NULL or as the manual page requires; the identifier's queue pair is NULL or live.
unsafe fn parameters(
    this: &Id,
    param: *const rdma_conn_param,
    offered: Depths,
) -> Result<Parameters, Errno> {
    let device = this.state().device.ok_or(Errno::INVALID)?;
    // SAFETY: by this function's contract, `param` is NULL or as the manual page requires; the identifier's
    // queue pair is NULL or live.
    unsafe {
        let param = param.as_ref();
        let Depths {
            responder_resources,
            initiator_depth,
        } = depths(device, param, offered)?;
        let raw = this.raw();
        let (qpn, srq) = match ((*raw).qp.as_ref(), param) {
            (Some(qp), _) => (qp.qp_num, !qp.srq.is_null()),
            (None, Some(param)) => (param.qp_num, param.srq != 0),
            (None, None) => return Err(Errno::INVALID),
        };
        let qp_type = (*raw).qp.as_ref().map_or((*raw).qp_type, |qp| qp.qp_type);
        Ok(Parameters {
            qpn: Qpn::new(qpn),
            srq,
            transport: match qp_type {
                abi::IBV_QPT_UC => Service::Uc,
                abi::IBV_QPT_XRC_SEND | abi::IBV_QPT_XRC_RECV => Service::Xrc,
                _ => Service::Rc,
            },
            responder_resources,
            initiator_depth,
            flow_control: param.is_none_or(|param| param.flow_control != 0),
            retry_count: param.map_or(RETRIES, |param| param.retry_count.min(RETRIES)),
            rnr_retry_count: param.map_or(RETRIES, |param| param.rnr_retry_count.min(RETRIES)),
            qkey: abi::RDMA_UDP_QKEY,
        })
    }
}

/// Responder resources and initiator depth: as in `param`, or the most that both the device and the peer
/// support.
fn depths(
    device: &OpenDevice,
    param: Option<&rdma_conn_param>,
    offered: Depths,
) -> Result<Depths, Errno> {
    let pick = |asked: Option<u8>, most: u8, offered: u8| match asked {
        Some(asked) if asked != RDMA_MAX_RESP_RES as u8 && asked > most => Err(Errno::INVALID),
        Some(asked) if asked != RDMA_MAX_RESP_RES as u8 => Ok(asked),
        _ => Ok(most.min(offered)),
    };
    const _: () = assert!(RDMA_MAX_RESP_RES == RDMA_MAX_INIT_DEPTH);
    let resources = param.map(|param| param.responder_resources);
    let depth = param.map(|param| param.initiator_depth);
    Ok(Depths {
        responder_resources: pick(
            resources,
            device.responder_resources_max,
            offered.responder_resources,
        )?,
        initiator_depth: pick(depth, device.initiator_depth_max, offered.initiator_depth)?,
    })
}

/// Copies C's private data into a field of fixed length, after `skip` bytes; `EINVAL` when it does not fit.
///
/// # Safety
/// `data` is NULL or points to `length` bytes.
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
    // SAFETY: by this function's contract, `data` is NULL or points to `length` bytes.
    place.copy_from_slice(unsafe { core::slice::from_raw_parts(data.cast(), length) });
    Ok(field)
}

/// # Safety
/// `param` is NULL or as the manual page requires.
unsafe fn private_data_of<const N: usize>(
    param: *const rdma_conn_param,
    skip: usize,
) -> Result<[u8; N], Errno> {
    // SAFETY: by this function's contract, `param` is NULL or as the manual page requires.
    unsafe {
        match param.as_ref() {
            Some(param) => private_data(param.private_data, param.private_data_len, skip),
            None => Ok([0; N]),
        }
    }
}

/// The RDMA-CM header with both addresses, which precedes the private data, and the service ID (IBTA A11).
fn header(this: &Id) -> Result<([u8; CMA_HEADER_SIZE], ServiceId), Errno> {
    let (local, remote) = this.local().zip(this.remote()).ok_or(Errno::INVALID)?;
    let header = CmaHeader::new(local.ip(), local.port(), remote.ip()).ok_or(Errno::INVALID)?;
    Ok((
        header.to_bytes(),
        ServiceId::ip(this.state().space, remote.port()),
    ))
}

/// The ECE options of the queue pair, for the REQ or REP.
///
/// # Safety
/// The identifier's queue pair is NULL or live.
unsafe fn local_ece(this: &Id) -> Ece {
    // SAFETY: by this function's contract, the identifier's queue pair is NULL or live.
    unsafe {
        let qp = (*this.raw()).qp;
        let mut ece = ibv_ece::default();
        match verbs() {
            Ok(verbs) if !qp.is_null() && (verbs.ibv_query_ece)(qp, &mut ece) == 0 => Ece {
                vendor_id: ece.vendor_id,
                options: ece.options,
            },
            _ => this.state().options.local_ece,
        }
    }
}

/// # Safety
/// `param` is NULL or as the manual page requires; the identifier's queue pair is NULL or live.
unsafe fn connect(this: &Id, param: *const rdma_conn_param) -> Result<(), Errno> {
    if this.state().step != Step::RouteResolved {
        return Err(Errno::INVALID);
    }
    // SAFETY: by this function's contract, `param` is NULL or as the manual page requires; the identifier's
    // queue pair is NULL or live.
    unsafe {
        if this.is_datagram() {
            return resolve(this, param);
        }
        let parameters = parameters(this, param, Depths::MAX)?;
        let mut data: [u8; REQ_PRIVATE_DATA] = private_data_of(param, CMA_HEADER_SIZE)?;
        let (header, service) = header(this)?;
        data[..CMA_HEADER_SIZE].copy_from_slice(&header);
        let (psn, ece) = (qp::random_psn()?, local_ece(this));
        this.process.with(|session, now| {
            let mut state = this.state();
            let negotiated = &mut state.negotiated;
            (
                negotiated.expected_psn,
                negotiated.retry_count,
                negotiated.rnr_retry_count,
            ) = (psn, parameters.retry_count, parameters.rnr_retry_count);
            let connect = Connect {
                path: *negotiated.path().ok_or(Errno::INVALID)?,
                service,
                transport: parameters.transport,
                qpn: parameters.qpn,
                psn: Psn::new(psn),
                mtu: Mtu::from_code(negotiated.mtu.into()).ok_or(Errno::INVALID)?,
                partition_key: PartitionKey::DEFAULT,
                responder_resources: parameters.responder_resources,
                initiator_depth: parameters.initiator_depth,
                retry_count: parameters.retry_count,
                rnr_retry_count: parameters.rnr_retry_count,
                flow_control: parameters.flow_control,
                srq: parameters.srq,
                packet_lifetime: negotiated.packet_lifetime,
                ece,
                private_data: data,
            };
            let comm = session.cm.connect(&connect, now)?;
            session.owner.connections.insert(comm, this.entry());
            state.comm = Some(comm);
            state.step = Step::Connecting;
            Ok(())
        })
    }
}

/// Sends a SIDR_REQ, which requests the queue pair of a datagram service.
///
/// # Safety
/// `param` is NULL or as the manual page requires.
unsafe fn resolve(this: &Id, param: *const rdma_conn_param) -> Result<(), Errno> {
    // SAFETY: by this function's contract, `param` is NULL or as the manual page requires.
    let mut data: [u8; SIDR_REQ_PRIVATE_DATA] = unsafe { private_data_of(param, CMA_HEADER_SIZE) }?;
    let (header, service) = header(this)?;
    data[..CMA_HEADER_SIZE].copy_from_slice(&header);
    this.process.with(|session, now| {
        let mut state = this.state();
        let path = *state.negotiated.path().ok_or(Errno::INVALID)?;
        let partition_key = PartitionKey::DEFAULT;
        let resolve = Resolve {
            path,
            service,
            partition_key,
            private_data: data,
        };
        let comm = session.cm.resolve(&resolve, state.options.local_ece, now)?;
        session.owner.connections.insert(comm, this.entry());
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
        let negotiated = this.state().negotiated;
        Depths {
            responder_resources: negotiated.responder_resources,
            initiator_depth: negotiated.initiator_depth,
        }
    };
    // SAFETY: by this function's contract, which is that of [`connect`].
    unsafe {
        let parameters = parameters(this, param, offered)?;
        if this.is_datagram() {
            let data: [u8; SIDR_REP_PRIVATE_DATA] = private_data_of(param, 0)?;
            return answer(this, SidrStatus::VALID, &parameters, data);
        }
        let data: [u8; REP_PRIVATE_DATA] = private_data_of(param, 0)?;
        let ece = local_ece(this);
        let psn = {
            let negotiated = &mut this.state().negotiated;
            negotiated.responder_resources = parameters.responder_resources;
            negotiated.initiator_depth = parameters.initiator_depth;
            negotiated.expected_psn
        };
        if !(*this.raw()).qp.is_null() {
            qp::make_ready(this)?;
        }
        this.process.with(|session, now| {
            let mut state = this.state();
            let comm = state.comm.ok_or(Errno::INVALID)?;
            let accept = Accept {
                qpn: parameters.qpn,
                psn: Psn::new(psn),
                responder_resources: parameters.responder_resources,
                initiator_depth: parameters.initiator_depth,
                rnr_retry_count: parameters.rnr_retry_count,
                flow_control: parameters.flow_control,
                srq: parameters.srq,
                ece,
                private_data: data,
            };
            session.cm.accept(comm, &accept, now)?;
            state.step = Step::Accepted;
            state.is_unaccepted = false;
            Ok(())
        })
    }
}

/// Sends a SIDR_REP, with a queue pair or a refusal.
fn answer(
    this: &Id,
    status: SidrStatus,
    parameters: &Parameters,
    private_data: [u8; SIDR_REP_PRIVATE_DATA],
) -> Result<(), Errno> {
    this.process.with(|session, now| {
        let mut state = this.state();
        let comm = state.comm.ok_or(Errno::INVALID)?;
        let (qpn, qkey) = if status == SidrStatus::VALID {
            (parameters.qpn, parameters.qkey)
        } else {
            (Qpn::new(0), 0)
        };
        let resolution = Resolution {
            status,
            qpn,
            qkey,
            ece: state.options.local_ece,
            private_data,
        };
        session.cm.answer_resolution(comm, &resolution, now)?;
        state.is_unaccepted &= status != SidrStatus::VALID;
        state.step = if status == SidrStatus::VALID {
            Step::Connected
        } else {
            Step::Disconnected
        };
        Ok(())
    })
}

/// # Safety
/// `data` is NULL or points to `length` bytes.
unsafe fn reject(
    this: &Id,
    data: *const c_void,
    length: u8,
    reason: RejectReason,
) -> Result<(), Errno> {
    if this.is_datagram() {
        // SAFETY: by this function's contract, `data` is NULL or points to `length` bytes.
        let private_data = unsafe { private_data(data, length, 0) }?;
        let nothing = Parameters {
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
    // SAFETY: by this function's contract, `data` is NULL or points to `length` bytes.
    let private_data: [u8; REJ_PRIVATE_DATA] = unsafe { private_data(data, length, 0) }?;
    this.process.with(|session, now| {
        let mut state = this.state();
        let comm = state.comm.ok_or(Errno::INVALID)?;
        session.cm.reject(
            comm,
            &Reject {
                reason,
                private_data,
            },
            now,
        )?;
        state.step = Step::Disconnected;
        Ok(())
    })
}

/// Sends a DREQ, or answers the peer's with a DREP. Does nothing if the connection has ended already.
fn disconnect(this: &Id) -> Result<(), Errno> {
    this.process.with(|session, now| {
        let comm = this.state().comm.ok_or(Errno::INVALID)?;
        match session.cm.disconnect(comm, [0; DREQ_PRIVATE_DATA], now) {
            Err(rnic::cm::CmError::WrongState(_)) => Ok(()),
            other => Ok(other?),
        }
    })
}

public_exports! {
    fn rdma_connect(id: IdArg<'_>, param: *const rdma_conn_param) -> status(c_int) {
        let this = id.get()?;
        // SAFETY: the parameters are as the manual page requires.
        unsafe { connect(this, param) }?;
        // SAFETY: no lock is held, and the program is done with the event of its last call.
        unsafe { complete(this) }
    }

    fn rdma_accept(id: IdArg<'_>, param: *const rdma_conn_param) -> status(c_int) {
        let this = id.get()?;
        // SAFETY: the parameters are as the manual page requires.
        unsafe { accept(this, param) }?;
        // A SIDR_REP has no answer to wait for.
        if this.is_datagram() {
            return Ok(());
        }
        // SAFETY: no lock is held, and the program is done with the event of its last call.
        unsafe { complete(this) }
    }

    fn rdma_establish(id: IdArg<'_>) -> status(c_int) {
        establish(id.get()?)
    }

    fn rdma_reject(id: IdArg<'_>, data: *const c_void, length: u8) -> status(c_int) {
        // SAFETY: the program passes `length` bytes or NULL.
        unsafe { reject(id.get()?, data, length, RejectReason::CONSUMER) }
    }

    fn rdma_reject_ece(id: IdArg<'_>, data: *const c_void, length: u8) -> status(c_int) {
        // SAFETY: the program passes `length` bytes or NULL.
        unsafe { reject(id.get()?, data, length, RejectReason::VENDOR_OPTION) }
    }

    fn rdma_disconnect(id: IdArg<'_>) -> status(c_int) {
        let this = id.get()?;
        if this.is_datagram() || this.state().comm.is_none() {
            return Err(Errno::INVALID);
        }
        // SAFETY: the identifier's queue pair is NULL or live.
        unsafe { qp::fail(this) }?;
        disconnect(this)?;
        // SAFETY: no lock is held, and the program is done with the event of its last call.
        unsafe { complete(this) }
    }

    /// `IBV_EVENT_COMM_EST`: data arrived before the peer's RTU, and has the same effect.
    fn rdma_notify(id: IdArg<'_>, event: u32) -> status(c_int) {
        let this = id.get()?;
        if event != abi::IBV_EVENT_COMM_EST {
            return Err(Errno::INVALID);
        }
        this.process.with(|session, now| {
            let comm = this.state().comm.ok_or(Errno::INVALID)?;
            Ok(session.cm.data_arrived(comm, now)?)
        })
    }
}
