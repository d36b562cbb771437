//! Queue pairs of identifiers, and the states that they go through.

use crate::id::{Id, Step, id};
use crate::verbs::{self, verbs};
use crate::world::PORT;
use abi::{
    IBV_QP_INIT_ATTR_PD, IBV_QP_INIT_ATTR_XRCD, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_RECV,
    IBV_QPT_XRC_SEND, ibv_ah_attr, ibv_comp_channel, ibv_context, ibv_cq, ibv_gid, ibv_global_route, ibv_pd,
    ibv_qp, ibv_qp_attr, ibv_qp_init_attr, ibv_qp_init_attr_ex, rdma_cm_id,
};
use core::ffi::{c_int, c_void};
use door::{Errno, door};
use rnic::{Access, AttrMask, Path};
use std::ptr::null_mut;
use wire::cm::{Rep, Req};

/// The queue pair that stands for all members of a group.
pub(crate) const MULTICAST_QPN: u32 = 0xff_ffff;

/// States of a queue pair in C.
const INIT: u32 = 1;
const RTR: u32 = 2;
const RTS: u32 = 3;
const ERR: u32 = 6;

/// How long a peer waits whose message found no receive: 0.64 ms. Linux leaves the field 0, which is 655 ms.
const MIN_RNR_TIMER: u8 = 12;

/// Inline data in bytes that fit where the elements of a request would stand. Devices have that much even
/// where nobody asks for it, and programs send so much without asking.
const INLINE_PER_SGE: u32 = 16;

/// What the two ends agreed upon, as far as it is known.
#[derive(Clone, Copy, Default)]
pub(crate) struct Link {
    path: Option<Path>,
    /// A peer has answered or asked: the rest has a meaning.
    is_agreed: bool,
    /// With which the peer begins: we told it (IBTA 12.7.31).
    pub(crate) expected_psn: u32,
    remote_qpn: u32,
    /// With which we begin: the peer told us.
    first_psn: u32,
    /// As `enum ibv_mtu` has it.
    pub(crate) mtu: u8,
    pub(crate) ack_timeout: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) packet_lifetime: u8,
}

impl Link {
    /// The way is all there is.
    pub(crate) fn of_path(path: Path) -> Self {
        Self { path: Some(path), ..Self::default() }
    }

    /// The way, and what is known of it before a peer is asked.
    pub(crate) fn of_route(path: Path, mtu: u8, packet_lifetime: u8) -> Self {
        Self { mtu, packet_lifetime, ..Self::of_path(path) }
    }

    /// What a peer proposes.
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

    /// What a peer answers; what it can serve at a time is what we may have outstanding.
    pub(crate) fn learn(&mut self, reply: &Rep) {
        self.is_agreed = true;
        // An XRC target is told in another field (IBTA A14.3.2).
        let is_target = reply.local_qpn.value() == 0;
        self.remote_qpn = if is_target { reply.local_eecn } else { reply.local_qpn }.value();
        self.first_psn = reply.starting_psn.value();
        self.ack_timeout = rnic::cm::ack_timeout(reply.target_ack_delay, self.packet_lifetime);
        self.rnr_retry_count = reply.rnr_retry_count;
        self.responder_resources = reply.initiator_depth;
        self.initiator_depth = reply.responder_resources;
    }

    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_ref()
    }

    /// What the peer asked for, until the program says what it gives.
    pub(crate) fn offer(&mut self, responder_resources: u8, initiator_depth: u8) {
        (self.responder_resources, self.initiator_depth) = (responder_resources, initiator_depth);
    }
}

/// The way as verbs have it.
pub(crate) fn address_vector(this: &Id, path: &Path) -> Result<ibv_ah_attr, Errno> {
    let device = this.state().device.ok_or(Errno::INVALID)?;
    let grh = ibv_global_route {
        dgid: ibv_gid { raw: path.destination.0 },
        flow_label: path.flow_label,
        sgid_index: device.gid_index(path.source)?,
        hop_limit: path.hop_limit,
        traffic_class: path.traffic_class,
    };
    Ok(ibv_ah_attr { grh, sl: path.service_level, is_global: 1, port_num: PORT, ..ibv_ah_attr::default() })
}

/// What a queue pair needs for a state, and the mask that says which fields those are.
fn attributes(this: &Id, qp_type: u32, qp_state: u32) -> Result<(ibv_qp_attr, AttrMask), Errno> {
    let (link, ack_timeout) = {
        let state = this.state();
        (state.link, state.options.ack_timeout)
    };
    let mut attr = ibv_qp_attr { qp_state, ..ibv_qp_attr::default() };
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
                attr.qp_access_flags = access(&link).bits();
            }
        }
        RTR if is_datagram => {}
        RTR => {
            let path = link.path().filter(|_| link.is_agreed).ok_or(Errno::INVALID)?;
            mask |= AttrMask::AV | AttrMask::PATH_MTU | AttrMask::DEST_QPN | AttrMask::RQ_PSN;
            attr.ah_attr = address_vector(this, path)?;
            attr.path_mtu = link.mtu.into();
            attr.dest_qp_num = link.remote_qpn;
            attr.rq_psn = link.expected_psn;
            if matches!(qp_type, IBV_QPT_RC | IBV_QPT_XRC_RECV) {
                mask |= AttrMask::MAX_DEST_RD_ATOMIC | AttrMask::MIN_RNR_TIMER;
                attr.max_dest_rd_atomic = link.responder_resources;
                attr.min_rnr_timer = MIN_RNR_TIMER;
            }
        }
        RTS => {
            mask |= AttrMask::SQ_PSN;
            attr.sq_psn = link.first_psn;
            if matches!(qp_type, IBV_QPT_RC | IBV_QPT_XRC_SEND) {
                mask |= AttrMask::RETRY_CNT | AttrMask::RNR_RETRY | AttrMask::MAX_QP_RD_ATOMIC;
                attr.retry_cnt = link.retry_count;
                attr.rnr_retry = link.rnr_retry_count;
                attr.max_rd_atomic = link.initiator_depth;
            }
            if !is_datagram && qp_type != IBV_QPT_UC {
                mask |= AttrMask::TIMEOUT;
                attr.timeout = ack_timeout.unwrap_or(link.ack_timeout);
            }
        }
        ERR => {}
        _ => return Err(Errno::INVALID),
    }
    Ok((attr, mask))
}

/// A peer may write; it may read where it was promised that.
fn access(link: &Link) -> Access {
    match (link.is_agreed, link.responder_resources) {
        (false, _) => Access::empty(),
        (true, 0) => Access::REMOTE_WRITE,
        (true, _) => Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
    }
}

/// Brings the queue pair into a state.
///
/// # Safety
/// The identifier's queue pair is as C says.
unsafe fn modify(this: &Id, state: u32) -> Result<(), Errno> {
    // SAFETY: as above.
    unsafe {
        let qp = (*this.raw()).qp;
        let (mut attr, mask) = attributes(this, (*qp).qp_type, state)?;
        Errno::check((verbs()?.ibv_modify_qp)(qp, &mut attr, mask.bits() as c_int))
    }
}

/// Brings the queue pair of a connection to where it can send. The rights that it grants were not known when
/// it was made, so they are given once more.
///
/// # Safety
/// The identifier's queue pair is as C says.
pub(crate) unsafe fn make_ready(this: &Id) -> Result<(), Errno> {
    // SAFETY: as above.
    unsafe {
        modify(this, INIT)?;
        modify(this, RTR)?;
        modify(this, RTS)
    }
}

/// Ends the queue pair's work, if there is one.
///
/// # Safety
/// The identifier's queue pair is as C says.
pub(crate) unsafe fn fail(this: &Id) -> Result<(), Errno> {
    // SAFETY: as above.
    unsafe { if (*this.raw()).qp.is_null() { Ok(()) } else { modify(this, ERR) } }
}

/// Completion queues for who brings none, each with a channel.
///
/// # Safety
/// The identifier has a device and none of these.
pub(crate) unsafe fn create_cqs(this: &Id, send: Option<u32>, receive: Option<u32>) -> Result<(), Errno> {
    let raw = this.raw();
    // SAFETY: as above.
    unsafe {
        let (context, cookie): (*mut ibv_context, *mut c_void) = ((*raw).verbs, raw.cast());
        let make = |entries: u32| -> Result<(*mut ibv_comp_channel, *mut ibv_cq), Errno> {
            let verbs = verbs()?;
            let channel = Errno::check_pointer((verbs.ibv_create_comp_channel)(context))?;
            let entries = entries.max(1) as c_int;
            let made = Errno::check_pointer((verbs.ibv_create_cq)(context, entries, cookie, channel, 0));
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
/// Nobody uses the identifier's own completion queues any more.
pub(crate) unsafe fn destroy_cqs(this: &Id) {
    let raw = this.raw();
    let Ok(verbs) = verbs() else { return };
    // SAFETY: as above.
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

/// Gives the identifier a queue pair.
///
/// # Safety
/// `attr` is as `ibv_create_qp_ex` wants it, but that what may be left out may be NULL.
pub(crate) unsafe fn create(this: &Id, attr: &mut ibv_qp_init_attr_ex) -> Result<(), Errno> {
    let raw = this.raw();
    let device = this.state().device.ok_or(Errno::INVALID)?;
    // SAFETY: as above.
    unsafe {
        if !(*raw).qp.is_null() {
            return Err(Errno::INVALID);
        }
        if attr.comp_mask & IBV_QP_INIT_ATTR_PD == 0 {
            attr.comp_mask |= IBV_QP_INIT_ATTR_PD;
            attr.pd = if (*raw).pd.is_null() { device.pd()? } else { (*raw).pd };
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
        attr.cap.max_inline_data = attr.cap.max_inline_data.max(attr.cap.max_send_sge * INLINE_PER_SGE);
        let send = attr.send_cq.is_null() && attr.qp_type != IBV_QPT_XRC_RECV;
        let is_xrc = matches!(attr.qp_type, IBV_QPT_XRC_SEND | IBV_QPT_XRC_RECV);
        let receive = attr.recv_cq.is_null() && (*raw).recv_cq.is_null() && !is_xrc;
        let made =
            create_cqs(this, send.then_some(attr.cap.max_send_wr), receive.then_some(attr.cap.max_recv_wr));
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
/// As [`create`], with nothing left out.
unsafe fn create_and_prepare(this: &Id, attr: &mut ibv_qp_init_attr_ex) -> Result<(), Errno> {
    let raw = this.raw();
    // SAFETY: as above.
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
            modify(this, INIT).and_then(|()| modify(this, RTR)).and_then(|()| modify(this, RTS))
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

/// The longer form of attributes.
pub(crate) fn extended(pd: *mut ibv_pd, attr: &ibv_qp_init_attr) -> ibv_qp_init_attr_ex {
    // SAFETY: all zeros is a valid value: pointers, masks, lengths.
    let empty: ibv_qp_init_attr_ex = unsafe { core::mem::zeroed() };
    ibv_qp_init_attr_ex {
        qp_context: attr.qp_context,
        send_cq: attr.send_cq,
        recv_cq: attr.recv_cq,
        srq: attr.srq,
        cap: attr.cap,
        qp_type: attr.qp_type,
        sq_sig_all: attr.sq_sig_all,
        comp_mask: if pd.is_null() { 0 } else { IBV_QP_INIT_ATTR_PD },
        pd,
        ..empty
    }
}

/// Packet sequence numbers begin anywhere: 24 random bits.
pub(crate) fn random_psn() -> Result<u32, Errno> {
    let mut bytes = [0; 4];
    // SAFETY: four bytes of room. So few come at once and without interruption.
    let count = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if count == 4 { Ok(u32::from_ne_bytes(bytes) >> 8) } else { Err(Errno::last()) }
}

door! {
    fn rdma_create_qp(raw: *mut rdma_cm_id, pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> status(c_int) {
        let attr = attr.as_mut().ok_or(Errno::INVALID)?;
        let mut longer = extended(pd, attr);
        create(id(raw)?, &mut longer)?;
        attr.cap = longer.cap;
        (attr.send_cq, attr.recv_cq) = (longer.send_cq, longer.recv_cq);
        Ok(())
    }

    fn rdma_create_qp_ex(raw: *mut rdma_cm_id, attr: *mut ibv_qp_init_attr_ex) -> status(c_int) {
        create(id(raw)?, attr.as_mut().ok_or(Errno::INVALID)?)
    }

    fn rdma_destroy_qp(raw: *mut rdma_cm_id) -> plain(()) {
        let Ok(this) = id(raw) else { return };
        let qp: *mut ibv_qp = core::mem::replace(&mut (*raw).qp, null_mut());
        if let Ok(verbs) = verbs()
            && !qp.is_null()
        {
            (verbs.ibv_destroy_qp)(qp);
            destroy_cqs(this);
        }
    }

    /// What the state in `attr` needs, for who modifies the queue pair itself.
    fn rdma_init_qp_attr(raw: *mut rdma_cm_id, attr: *mut ibv_qp_attr, mask: *mut c_int) -> status(c_int) {
        let this = id(raw)?;
        let (attr, mask) = (attr.as_mut().ok_or(Errno::INVALID)?, mask.as_mut().ok_or(Errno::INVALID)?);
        if this.state().device.is_none() || this.state().step == Step::Removed {
            return Err(Errno::INVALID);
        }
        let (found, fields) = attributes(this, (*raw).qp_type, attr.qp_state)?;
        *attr = found;
        *mask = fields.bits() as c_int;
        Ok(())
    }
}
