//! Queue pairs.

use crate::address::complain_of_gid;
use crate::channel::Owed;
use crate::context::context;
use crate::cq::cq;
use crate::pd::{pd, xrcd};
use crate::qp_attr::{cap, capacity, from_c, kind, to_c};
use crate::qp_ex::{self, Batch};
use crate::srq::srq;
use abi::{
    ibv_context, ibv_ece, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_ex, ibv_qp_init_attr, ibv_qp_init_attr_ex,
    ibv_qp_open_attr,
};
use core::cell::UnsafeCell;
use core::sync::atomic::AtomicBool;
use door::{Errno, door};
use rnic::{Event, QpInit, QpType};
use wire::Qpn;

/// A queue pair. Always the long form: what `ibv_create_qp` gives out is its beginning.
#[repr(C)]
pub(crate) struct Qp {
    pub(crate) abi: ibv_qp_ex,
    pub(crate) qpn: Qpn,
    /// Whether the `ibv_wr_…` functions were asked for.
    extended: bool,
    /// Whether destroying it destroys the device's: a queue pair opened by number is someone else's.
    owns: bool,
    pub(crate) async_events: Owed,
    /// Between `wr_start` and `wr_complete`.
    pub(crate) building: AtomicBool,
    pub(crate) batch: UnsafeCell<Batch>,
}

/// The queue pair behind a pointer of C.
///
/// # Safety
/// The pointer is one that this library gave out, and is not freed.
pub(crate) unsafe fn qp<'a>(raw: *mut ibv_qp) -> Result<&'a Qp, Errno> {
    // SAFETY: as above.
    unsafe { raw.cast::<Qp>().as_ref() }.ok_or(Errno::INVALID)
}

fn base(raw: *mut ibv_context, qpn: Qpn, init: &ibv_qp_init_attr, domain: *mut ibv_pd) -> ibv_qp {
    ibv_qp {
        context: raw,
        qp_context: init.qp_context,
        pd: domain,
        send_cq: init.send_cq,
        recv_cq: init.recv_cq,
        srq: init.srq,
        handle: qpn.value(),
        qp_num: qpn.value(),
        state: 0,
        qp_type: init.qp_type,
        mutex: [0; 5],
        cond: [0; 6],
        events_completed: 0,
    }
}

fn boxed(base: ibv_qp, qpn: Qpn, extended: bool, owns: bool) -> *mut Qp {
    Box::into_raw(Box::new(Qp {
        abi: qp_ex::table(base),
        qpn,
        extended,
        owns,
        async_events: Owed::default(),
        building: AtomicBool::new(false),
        batch: UnsafeCell::default(),
    }))
}

/// # Safety
/// The objects that `init` names are live.
unsafe fn create(
    raw: *mut ibv_context,
    init: &mut ibv_qp_init_attr,
    domain: *mut ibv_pd,
    xrc: Option<rnic::Xrcd>,
    extended: bool,
) -> Result<*mut Qp, Errno> {
    // SAFETY: as above.
    let owner = unsafe { context(raw) };
    let kind = kind(init.qp_type)?;
    let (has_sends, has_receives) = match kind {
        QpType::XrcReceive => (false, false),
        QpType::XrcSend => (true, false),
        _ => (true, true),
    };
    if !has_receives || !init.srq.is_null() {
        (init.cap.max_recv_wr, init.cap.max_recv_sge) = (0, 0);
    }
    // SAFETY: as above.
    let request = unsafe {
        QpInit {
            kind,
            pd: if kind == QpType::XrcReceive { None } else { Some(pd(domain)?.handle) },
            xrcd: xrc,
            send_cq: if has_sends { Some(cq(init.send_cq)?.handle) } else { None },
            receive_cq: if has_receives { Some(cq(init.recv_cq)?.handle) } else { None },
            srq: if has_receives && !init.srq.is_null() { Some(srq(init.srq)?.handle) } else { None },
            capacity: capacity(&init.cap),
            signal_all: init.sq_sig_all != 0,
        }
    };
    let qpn = owner.device.create_qp(&request)?;
    let queue = boxed(base(raw, qpn, init, domain), qpn, extended, true);
    owner.objects().qps.insert(qpn.value(), queue as usize);
    Ok(queue)
}

/// The part that both ways of creating have in common.
fn short(init: &ibv_qp_init_attr_ex) -> ibv_qp_init_attr {
    ibv_qp_init_attr {
        qp_context: init.qp_context,
        send_cq: init.send_cq,
        recv_cq: init.recv_cq,
        srq: init.srq,
        cap: init.cap,
        qp_type: init.qp_type,
        sq_sig_all: init.sq_sig_all,
    }
}

/// Sends the acknowledgements that wait for company, before the queue pair that owes them changes or goes:
/// the peer would repeat its last message to nobody.
fn settle(device: &host::Device) {
    device.with(|_, _| ());
}

fn is_about(event: &Event, qpn: Qpn) -> bool {
    matches!(event,
        Event::QpFatal(of)
        | Event::QpRequestError(of)
        | Event::QpAccessError(of)
        | Event::CommunicationEstablished(of)
        | Event::SendQueueDrained(of)
        | Event::LastWqeReached(of) if *of == qpn)
}

door! {
    /// Sizes are granted as asked.
    fn ibv_create_qp(domain: *mut ibv_pd, init: *mut ibv_qp_init_attr) -> pointer(*mut ibv_qp) {
        let init = init.as_mut().ok_or(Errno::INVALID)?;
        pd(domain)?;
        if init.qp_type == abi::IBV_QPT_XRC_RECV {
            return Err(Errno::INVALID);
        }
        Ok(create((*domain).context, init, domain, None, false)?.cast())
    }

    fn create_qp_ex(raw: *mut ibv_context, init: *mut ibv_qp_init_attr_ex) -> pointer(*mut ibv_qp) {
        let init = init.as_mut().ok_or(Errno::INVALID)?;
        let has = |bit: u32| init.comp_mask & bit != 0;
        let known = abi::IBV_QP_INIT_ATTR_PD
            | abi::IBV_QP_INIT_ATTR_XRCD
            | abi::IBV_QP_INIT_ATTR_CREATE_FLAGS
            | abi::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        let extended = has(abi::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS);
        let flags = has(abi::IBV_QP_INIT_ATTR_CREATE_FLAGS) && init.create_flags != 0;
        if init.comp_mask & !known != 0 || flags {
            return Err(Errno::UNSUPPORTED);
        }
        if extended {
            qp_ex::check(kind(init.qp_type)?, init.send_ops_flags)?;
        }
        let domain = if has(abi::IBV_QP_INIT_ATTR_PD) { init.pd } else { core::ptr::null_mut() };
        let xrc = if has(abi::IBV_QP_INIT_ATTR_XRCD) { Some(xrcd(init.xrcd)?.handle) } else { None };
        let mut asked = short(init);
        let queue = create(raw, &mut asked, domain, xrc, extended)?;
        init.cap = asked.cap;
        Ok(queue.cast())
    }

    /// An XRC receive queue pair of this process, by its number.
    fn open_qp(raw: *mut ibv_context, attr: *mut ibv_qp_open_attr) -> pointer(*mut ibv_qp) {
        let attr = attr.as_ref().ok_or(Errno::INVALID)?;
        if attr.qp_type != abi::IBV_QPT_XRC_RECV {
            return Err(Errno::INVALID);
        }
        let qpn = Qpn::new(attr.qp_num);
        let (_, found) = context(raw).device.with(|rnic, _| rnic.query_qp(qpn))?;
        if found.kind != QpType::XrcReceive || found.xrcd != Some(xrcd(attr.xrcd)?.handle) {
            return Err(Errno::INVALID);
        }
        let init = ibv_qp_init_attr {
            qp_context: attr.qp_context,
            send_cq: core::ptr::null_mut(),
            recv_cq: core::ptr::null_mut(),
            srq: core::ptr::null_mut(),
            cap: Default::default(),
            qp_type: attr.qp_type,
            sq_sig_all: 0,
        };
        Ok(boxed(base(raw, qpn, &init, core::ptr::null_mut()), qpn, false, false).cast())
    }

    fn ibv_modify_qp(raw: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: i32) -> code(i32) {
        let (attr, mask) = from_c(attr.as_ref().ok_or(Errno::INVALID)?, mask, (*raw).qp_type)?;
        let queue = qp(raw)?;
        let device = &context((*raw).context).device;
        settle(device);
        if mask.contains(rnic::AttrMask::AV) {
            complain_of_gid(device, attr.vector.source_index);
        }
        device.modify_qp(queue.qpn, &attr, mask)?;
        if mask.contains(rnic::AttrMask::STATE) {
            (*raw).state = attr.state as u32;
        }
        Ok(())
    }

    fn ibv_query_qp(raw: *mut ibv_qp, attr: *mut ibv_qp_attr, _mask: i32, init: *mut ibv_qp_init_attr)
        -> code(i32) {
        let queue = qp(raw)?;
        let (current, made) = context((*raw).context).device.with(|rnic, _| rnic.query_qp(queue.qpn))?;
        *attr = to_c(&current, &made.capacity);
        *init = ibv_qp_init_attr {
            qp_context: (*raw).qp_context,
            send_cq: (*raw).send_cq,
            recv_cq: (*raw).recv_cq,
            srq: (*raw).srq,
            cap: cap(&made.capacity),
            qp_type: (*raw).qp_type,
            sq_sig_all: made.signal_all.into(),
        };
        (*raw).state = current.state as u32;
        Ok(())
    }

    fn ibv_destroy_qp(raw: *mut ibv_qp) -> code(i32) {
        let queue = qp(raw)?;
        if queue.owns {
            let owner = context((*raw).context);
            settle(&owner.device);
            owner.device.destroy_qp(queue.qpn)?;
            owner.objects().qps.remove(&queue.qpn.value());
            owner.device.async_events().forget(|event| is_about(event, queue.qpn));
            queue.async_events.settle();
        }
        drop(Box::from_raw(raw.cast::<Qp>()));
        Ok(())
    }

    /// NULL for a queue pair that was not created for `ibv_wr_…`.
    fn ibv_qp_to_qp_ex(raw: *mut ibv_qp) -> plain(Option<core::ptr::NonNull<ibv_qp_ex>>) {
        qp(raw).ok().filter(|queue| queue.extended).and_then(|_| core::ptr::NonNull::new(raw.cast()))
    }

    /// There are no options to agree on: the answer is an empty set, and that it is not supported.
    fn ibv_query_ece(_raw: *mut ibv_qp, ece: *mut ibv_ece) -> code(i32) {
        *ece = ibv_ece::default();
        Err(Errno::UNSUPPORTED)
    }

    fn ibv_set_ece(_raw: *mut ibv_qp, _ece: *mut ibv_ece) -> code(i32) {
        Err(Errno::UNSUPPORTED)
    }

    /// No promise is made: with out-of-order placement packets are stored as they arrive.
    fn ibv_query_qp_data_in_order(_raw: *mut ibv_qp, _opcode: u32, _flags: u32) -> plain(i32) {
        0
    }
}
