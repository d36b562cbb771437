//! Queue pairs of identifiers, and their state transitions.

use crate::device::PORT;
use crate::id::{Id, IdArg};
use crate::qp_attr::extended;
use crate::state::Step;
use crate::subnet_path;
use crate::verbs::{self, verbs};
use abi::{
    IBV_QP_INIT_ATTR_PD, IBV_QP_INIT_ATTR_XRCD, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD,
    IBV_QPT_XRC_RECV, IBV_QPT_XRC_SEND, ibv_ah_attr, ibv_comp_channel, ibv_context, ibv_cq,
    ibv_gid, ibv_global_route, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_init_attr, ibv_qp_init_attr_ex,
};
use core::ffi::{c_int, c_void};
use ffi::{Errno, InOut, public_exports};
use rnic::{AttrMask, Path};
use std::ptr::null_mut;

/// Destination queue pair of multicast packets (IBTA 10.5.1).
pub(crate) const MULTICAST_QPN: u32 = 0xff_ffff;

/// Values of `enum ibv_qp_state`.
const INIT: u32 = 1;
const RTR: u32 = 2;
const RTS: u32 = 3;
const ERR: u32 = 6;

/// RNR NAK timer (IBTA table 45): 0.64 ms. Linux leaves the field 0, which is 655.36 ms.
const MIN_RNR_TIMER: u8 = 12;

/// Inline bytes per scatter/gather element: the size of the element that they replace. Devices have room for
/// as many even where a program requests none, and programs rely on that.
const INLINE_PER_SGE: u32 = 16;

/// A path as an address vector of verbs.
pub fn address_vector(this: &Id, path: &Path) -> Result<ibv_ah_attr, Errno> {
    let device = this.state().device.ok_or(Errno::INVALID)?;
    if device.is_subnet {
        let known = this.state().subnet_path;
        let found = known.map_or_else(|| subnet_path::find(path.destination), Ok)?;
        this.state().subnet_path = Some(found);
        return Ok(subnet_path::address_vector(&found, device.lmc()));
    }
    let grh = ibv_global_route {
        dgid: ibv_gid {
            raw: path.destination.0,
        },
        flow_label: path.flow_label,
        sgid_index: device.gid_index(path.source)?,
        hop_limit: path.hop_limit,
        traffic_class: path.traffic_class,
    };
    Ok(ibv_ah_attr {
        grh,
        sl: path.service_level,
        is_global: 1,
        port_num: PORT,
        ..ibv_ah_attr::default()
    })
}

/// Attributes for a state, and the mask of those that are set.
fn attributes(this: &Id, qp_type: u32, qp_state: u32) -> Result<(ibv_qp_attr, AttrMask), Errno> {
    let (negotiated, ack_timeout) = {
        let state = this.state();
        (state.negotiated, state.options.ack_timeout)
    };
    let mut attr = ibv_qp_attr {
        qp_state,
        ..ibv_qp_attr::default()
    };
    let mut mask = AttrMask::STATE;
    let is_datagram = qp_type == IBV_QPT_UD;
    match qp_state {
        INIT => {
            mask |= AttrMask::PKEY_INDEX | AttrMask::PORT;
            attr.port_num = PORT;
            if is_datagram {
                mask |= AttrMask::QKEY;
                attr.qkey = abi::RDMA_UDP_QKEY;
            } else {
                mask |= AttrMask::ACCESS_FLAGS;
                attr.qp_access_flags = negotiated.access().bits();
            }
        }
        RTR if is_datagram => {}
        RTR => {
            let path = negotiated.agreed_path().ok_or(Errno::INVALID)?;
            mask |= AttrMask::AV | AttrMask::PATH_MTU | AttrMask::DEST_QPN | AttrMask::RQ_PSN;
            attr.ah_attr = address_vector(this, path)?;
            attr.path_mtu = negotiated.mtu.into();
            attr.dest_qp_num = negotiated.remote_qpn();
            attr.rq_psn = negotiated.expected_psn;
            if matches!(qp_type, IBV_QPT_RC | IBV_QPT_XRC_RECV) {
                mask |= AttrMask::MAX_DEST_RD_ATOMIC | AttrMask::MIN_RNR_TIMER;
                attr.max_dest_rd_atomic = negotiated.responder_resources;
                attr.min_rnr_timer = MIN_RNR_TIMER;
            }
        }
        RTS => {
            mask |= AttrMask::SQ_PSN;
            attr.sq_psn = negotiated.first_psn();
            if matches!(qp_type, IBV_QPT_RC | IBV_QPT_XRC_SEND) {
                mask |= AttrMask::RETRY_CNT | AttrMask::RNR_RETRY | AttrMask::MAX_QP_RD_ATOMIC;
                attr.retry_cnt = negotiated.retry_count;
                attr.rnr_retry = negotiated.rnr_retry_count;
                attr.max_rd_atomic = negotiated.initiator_depth;
            }
            if !is_datagram && qp_type != IBV_QPT_UC {
                mask |= AttrMask::TIMEOUT;
                attr.timeout = ack_timeout.unwrap_or(negotiated.ack_timeout);
            }
        }
        ERR => {}
        _ => return Err(Errno::INVALID),
    }
    Ok((attr, mask))
}

/// Changes the state of the queue pair.
///
/// # Safety
/// The identifier's queue pair is live.
unsafe fn modify(this: &Id, state: u32) -> Result<(), Errno> {
    // SAFETY: by this function's contract, the identifier's queue pair is live.
    unsafe {
        let qp = (*this.raw()).qp;
        let (mut attr, mask) = attributes(this, (*qp).qp_type, state)?;
        Errno::check_code((verbs()?.ibv_modify_qp)(
            qp,
            &mut attr,
            mask.bits() as c_int,
        ))
    }
}

/// Brings a connection's queue pair to RTS. INIT is repeated, because access rights depend on the connection
/// parameters, which were unknown when the queue pair was created. A call that failed halfway may be
/// repeated: it goes on from the state that the first one has reached.
///
/// # Safety
/// The identifier's queue pair is live.
pub(crate) unsafe fn make_ready(this: &Id) -> Result<(), Errno> {
    // SAFETY: by this function's contract, the identifier's queue pair is live.
    unsafe {
        let reached = (*(*this.raw()).qp).state;
        let is_behind = |state| !(RTR..=RTS).contains(&reached) || reached < state;
        for state in [INIT, RTR, RTS]
            .into_iter()
            .filter(|&state| is_behind(state))
        {
            modify(this, state)?;
        }
        Ok(())
    }
}

/// Brings the queue pair, if there is one, to the error state, which flushes its work requests.
///
/// # Safety
/// The identifier's queue pair is NULL or live.
pub(crate) unsafe fn fail(this: &Id) -> Result<(), Errno> {
    // SAFETY: by this function's contract, the identifier's queue pair is NULL or live.
    unsafe {
        if (*this.raw()).qp.is_null() {
            Ok(())
        } else {
            modify(this, ERR)
        }
    }
}

/// Creates completion queues, each with a channel, where the program provides none.
///
/// # Safety
/// The identifier has a device and no completion queues.
pub(crate) unsafe fn create_cqs(
    this: &Id,
    send: Option<u32>,
    receive: Option<u32>,
) -> Result<(), Errno> {
    let raw = this.raw();
    // SAFETY: by this function's contract, the identifier has a device and no completion queues.
    unsafe {
        let (context, cookie): (*mut ibv_context, *mut c_void) = ((*raw).verbs, raw.cast());
        let make = |entries: u32| -> Result<(*mut ibv_comp_channel, *mut ibv_cq), Errno> {
            let verbs = verbs()?;
            let channel = Errno::check_pointer((verbs.ibv_create_comp_channel)(context))?;
            let entries = entries.max(1) as c_int;
            let made =
                Errno::check_pointer((verbs.ibv_create_cq)(context, entries, cookie, channel, 0));
            if made.is_err() {
                (verbs.ibv_destroy_comp_channel)(channel);
            }
            Ok((channel, made?))
        };
        if let Some(entries) = send {
            ((*raw).send_cq_channel, (*raw).send_cq) = make(entries)?;
        }
        if let Some(entries) = receive {
            ((*raw).recv_cq_channel, (*raw).recv_cq) = make(entries)?;
        }
    }
    Ok(())
}

/// # Safety
/// The identifier's own completion queues are not used any more.
pub(crate) unsafe fn destroy_cqs(this: &Id) {
    let raw = this.raw();
    let Ok(verbs) = verbs() else { return };
    // SAFETY: by this function's contract, the identifier's own completion queues are not used any more.
    unsafe {
        for (queue, channel) in [
            (&raw mut (*raw).send_cq, &raw mut (*raw).send_cq_channel),
            (&raw mut (*raw).recv_cq, &raw mut (*raw).recv_cq_channel),
        ] {
            if !(*queue).is_null() {
                (verbs.ibv_destroy_cq)(*queue);
                *queue = null_mut();
            }
            if !(*channel).is_null() {
                (verbs.ibv_destroy_comp_channel)(*channel);
                *channel = null_mut();
            }
        }
    }
}

/// Creates the identifier's queue pair.
///
/// # Safety
/// `attr` is as `ibv_create_qp_ex` requires, except that optional objects may be NULL.
pub(crate) unsafe fn create(this: &Id, attr: &mut ibv_qp_init_attr_ex) -> Result<(), Errno> {
    let raw = this.raw();
    let device = this.state().device.ok_or(Errno::INVALID)?;
    // SAFETY: by this function's contract, `attr` is as `ibv_create_qp_ex` requires, except that optional
    // objects may be NULL.
    unsafe {
        if !(*raw).qp.is_null() {
            return Err(Errno::INVALID);
        }
        if attr.comp_mask & IBV_QP_INIT_ATTR_PD == 0 {
            attr.comp_mask |= IBV_QP_INIT_ATTR_PD;
            attr.pd = if (*raw).pd.is_null() {
                device.pd()?
            } else {
                (*raw).pd
            };
        } else if attr.pd.is_null() {
            attr.pd = device.pd()?;
        } else if (*attr.pd).context != (*raw).verbs {
            return Err(Errno::INVALID);
        }
        if attr.qp_type == IBV_QPT_XRC_RECV && attr.comp_mask & IBV_QP_INIT_ATTR_XRCD == 0 {
            attr.comp_mask |= IBV_QP_INIT_ATTR_XRCD;
            attr.xrcd = crate::xrc::domain(this)?;
        }
        if attr.srq.is_null() && attr.qp_type != IBV_QPT_XRC_RECV {
            attr.srq = (*raw).srq;
        }
        attr.cap.max_inline_data = attr
            .cap
            .max_inline_data
            .max(attr.cap.max_send_sge * INLINE_PER_SGE);
        let send = attr.send_cq.is_null() && attr.qp_type != IBV_QPT_XRC_RECV;
        let is_xrc = matches!(attr.qp_type, IBV_QPT_XRC_SEND | IBV_QPT_XRC_RECV);
        let receive = attr.recv_cq.is_null() && (*raw).recv_cq.is_null() && !is_xrc;
        let made = create_cqs(
            this,
            send.then_some(attr.cap.max_send_wr),
            receive.then_some(attr.cap.max_recv_wr),
        );
        let qp = made.and_then(|()| {
            if attr.send_cq.is_null() {
                attr.send_cq = (*raw).send_cq;
            }
            if attr.recv_cq.is_null() && !is_xrc {
                attr.recv_cq = (*raw).recv_cq;
            }
            create_and_prepare(this, attr)
        });
        match &qp {
            Err(_) => destroy_cqs(this),
            Ok(()) if !attr.pd.is_null() => (*raw).pd = attr.pd,
            Ok(()) => {}
        }
        qp
    }
}

/// # Safety
/// As for [`create`], and no object is NULL.
unsafe fn create_and_prepare(this: &Id, attr: &mut ibv_qp_init_attr_ex) -> Result<(), Errno> {
    let raw = this.raw();
    // SAFETY: by this function's contract, which is that of [`create`], and no object is NULL.
    unsafe {
        let is_plain = attr.comp_mask == IBV_QP_INIT_ATTR_PD;
        (*raw).qp = if is_plain {
            let mut plain = ibv_qp_init_attr {
                qp_context: attr.qp_context,
                send_cq: attr.send_cq,
                recv_cq: attr.recv_cq,
                srq: attr.srq,
                cap: attr.cap,
                qp_type: attr.qp_type,
                sq_sig_all: attr.sq_sig_all,
            };
            let made = Errno::check_pointer((verbs()?.ibv_create_qp)(attr.pd, &mut plain))?;
            attr.cap = plain.cap;
            made
        } else {
            verbs::create_qp_ex((*raw).verbs, attr)?
        };
        let prepared = if this.is_datagram() || attr.qp_type == IBV_QPT_UD {
            modify(this, INIT)
                .and_then(|()| modify(this, RTR))
                .and_then(|()| modify(this, RTS))
        } else {
            modify(this, INIT)
        };
        if prepared.is_err() {
            (verbs()?.ibv_destroy_qp)((*raw).qp);
            (*raw).qp = null_mut();
        }
        prepared
    }
}

/// A random 24-bit packet sequence number to begin with.
pub(crate) fn random_psn() -> Result<u32, Errno> {
    let random =
        getrandom::u32().map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EIO)))?;
    Ok(random >> 8)
}

public_exports! {
    fn rdma_create_qp(id: IdArg<'_>, pd: *mut ibv_pd, attr: InOut<'_, ibv_qp_init_attr>) -> status(c_int) {
        let attr = attr.get()?;
        let mut longer = extended(pd, attr);
        // SAFETY: the attributes name live objects or NULL.
        unsafe { create(id.get()?, &mut longer) }?;
        attr.cap = longer.cap;
        (attr.send_cq, attr.recv_cq) = (longer.send_cq, longer.recv_cq);
        Ok(())
    }

    fn rdma_create_qp_ex(id: IdArg<'_>, attr: InOut<'_, ibv_qp_init_attr_ex>) -> status(c_int) {
        // SAFETY: the attributes name live objects or NULL.
        unsafe { create(id.get()?, attr.get()?) }
    }

    fn rdma_destroy_qp(id: IdArg<'_>) -> plain(()) {
        let Ok(this) = id.get() else { return };
        // SAFETY: calls on one identifier come one at a time.
        let qp: *mut ibv_qp = core::mem::replace(unsafe { &mut (*this.raw()).qp }, null_mut());
        if let Ok(verbs) = verbs()
            && !qp.is_null()
        {
            // SAFETY: the program does not use the queue pair any more.
            unsafe { (verbs.ibv_destroy_qp)(qp) };
            // SAFETY: the queues were made for that queue pair.
            unsafe { destroy_cqs(this) };
        }
    }

    /// For a program that modifies the queue pair itself: attributes for the state in `attr`.
    fn rdma_init_qp_attr(id: IdArg<'_>, attr: InOut<'_, ibv_qp_attr>, mask: InOut<'_, c_int>)
        -> status(c_int) {
        let this = id.get()?;
        let (attr, mask) = (attr.get()?, mask.get()?);
        if this.state().device.is_none() || this.state().step == Step::DeviceRemoved {
            return Err(Errno::INVALID);
        }
        // SAFETY: calls on one identifier come one at a time.
        let qp_type = unsafe { (*this.raw()).qp_type };
        let (found, fields) = attributes(this, qp_type, attr.qp_state)?;
        *attr = found;
        *mask = fields.bits() as c_int;
        Ok(())
    }
}
