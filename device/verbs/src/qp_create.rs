//! Queue pairs are created, and opened by number.

use crate::context::{ContextArg, ContextRef};
use crate::cq::cq;
use crate::event_counts::EventCounts;
use crate::faulty::tables;
use crate::pd::{Pd, PdArg, pd, xrcd};
use crate::qp::Qp;
use crate::qp_attr::{capacity, kind};
use crate::qp_ex;
use crate::srq::srq;
use crate::traced;
use abi::{ibv_context, ibv_pd, ibv_qp, ibv_qp_init_attr, ibv_qp_init_attr_ex, ibv_qp_open_attr};
use core::cell::UnsafeCell;
use core::sync::atomic::AtomicBool;
use ffi::{Errno, In, InOut, exports};
use rnic::{QpInit, QpType};
use wire::Qpn;

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
        mutex: abi::PTHREAD_MUTEX_INITIALIZER,
        cond: [0; 6],
        events_completed: 0,
    }
}

/// Properties of a queue pair that the program chooses when it creates or opens one.
struct QpTraits {
    /// Every send request has a completion.
    signal_all: bool,
    /// Requests may be posted by the calls of `ibv_qp_ex`.
    extended: bool,
    /// The queue pair ends when this is destroyed: it was created, and not opened.
    owns: bool,
}

fn boxed(context: ContextRef, base: ibv_qp, qpn: Qpn, traits: QpTraits) -> *mut Qp {
    let QpTraits {
        signal_all,
        extended,
        owns,
    } = traits;
    Box::into_raw(Box::new(Qp {
        abi: tables::building(qp_ex::table(base)),
        qpn,
        context,
        signal_all,
        extended,
        owns,
        async_events: EventCounts::default(),
        building: AtomicBool::new(false),
        batch: UnsafeCell::default(),
    }))
}

/// `domain` is absent for XRC receive queue pairs; `raw` is the pointer that C has to it.
///
/// # Safety
/// The queues that `init` names are live or NULL.
unsafe fn create(
    context: ContextRef,
    init: &mut ibv_qp_init_attr,
    domain: Option<&Pd>,
    raw: *mut ibv_pd,
    xrc: Option<rnic::Xrcd>,
    extended: bool,
) -> Result<*mut Qp, Errno> {
    let kind = kind(init.qp_type)?;
    let (has_sends, has_receives) = match kind {
        QpType::XrcReceive => (false, false),
        QpType::XrcSend => (true, false),
        _ => (true, true),
    };
    if !has_receives || !init.srq.is_null() {
        (init.cap.max_recv_wr, init.cap.max_recv_sge) = (0, 0);
    }
    // SAFETY: by this function's contract, the queue is live or NULL.
    let cq_of = |raw| unsafe { cq(raw) }.map(|queue| queue.handle);
    // SAFETY: by this function's contract, the queue is live or NULL.
    let srq_of = |raw| unsafe { srq(raw) }.map(|queue| queue.handle);
    let has_srq = has_receives && !init.srq.is_null();
    let request = QpInit {
        kind,
        pd: match kind {
            QpType::XrcReceive => None,
            _ => Some(domain.ok_or(Errno::INVALID)?.handle),
        },
        xrcd: xrc,
        send_cq: has_sends.then(|| cq_of(init.send_cq)).transpose()?,
        receive_cq: has_receives.then(|| cq_of(init.recv_cq)).transpose()?,
        srq: has_srq.then(|| srq_of(init.srq)).transpose()?,
        capacity: capacity(&init.cap),
        signal_all: init.sq_sig_all != 0,
    };
    let qpn = context.device.create_qp(&request)?;
    let base = base(context.raw(), qpn, init, raw);
    let traits = QpTraits {
        signal_all: request.signal_all,
        extended,
        owns: true,
    };
    let queue = boxed(context.clone(), base, qpn, traits);
    context.objects().qps.insert(qpn.value(), queue as usize);
    if traced::is_on() {
        // SAFETY: just made, and not given to the program yet.
        let base = unsafe { &(*queue).abi.qp_base };
        traced::created(base, request.srq, request.signal_all, &request.capacity);
    }
    Ok(queue)
}

/// Common part of both calls that create a queue pair.
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

exports! {
    /// Queue sizes are granted as requested.
    fn ibv_create_qp(domain: PdArg<'_>, init: InOut<'_, ibv_qp_init_attr>) -> pointer(*mut ibv_qp) {
        let init = init.get()?;
        let (below, raw) = (domain.get()?, domain.raw());
        if init.qp_type == abi::IBV_QPT_XRC_RECV {
            return Err(Errno::INVALID);
        }
        // SAFETY: the attributes name live queues or NULL.
        Ok(unsafe { create(below.context.clone(), init, Some(below), raw, None, false) }?.cast())
    }

    fn create_qp_ex(context: ContextArg<'_>, init: InOut<'_, ibv_qp_init_attr_ex>) -> pointer(*mut ibv_qp) {
        let init = init.get()?;
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
            qp_ex::check_send_ops(kind(init.qp_type)?, init.send_ops_flags)?;
        }
        let raw = if has(abi::IBV_QP_INIT_ATTR_PD) { init.pd } else { core::ptr::null_mut() };
        // SAFETY: NULL, or the mask says that the attributes name a live domain.
        let domain = unsafe { pd(raw) }.ok();
        // SAFETY: the mask says that the attributes name a live XRC domain.
        let xrc_of = |raw| unsafe { xrcd(raw) }.map(|domain| domain.handle);
        let xrc = has(abi::IBV_QP_INIT_ATTR_XRCD).then(|| xrc_of(init.xrcd)).transpose()?;
        let mut asked = short(init);
        // SAFETY: the attributes name live queues or NULL.
        let queue = unsafe { create(context.hold(), &mut asked, domain, raw, xrc, extended) }?;
        init.cap = asked.cap;
        Ok(queue.cast())
    }

    /// Opens an XRC receive queue pair of this process by its number.
    fn open_qp(context: ContextArg<'_>, attr: In<'_, *mut ibv_qp_open_attr>) -> pointer(*mut ibv_qp) {
        let attr = attr.get()?;
        if attr.qp_type != abi::IBV_QPT_XRC_RECV {
            return Err(Errno::INVALID);
        }
        let qpn = Qpn::new(attr.qp_num);
        let (_, found) = context.device.with(|rnic, _| rnic.query_qp(qpn))?;
        // SAFETY: the attributes name a live XRC domain or NULL.
        let domain = || unsafe { xrcd(attr.xrcd) }.map(|domain| domain.handle);
        if found.kind != QpType::XrcReceive || found.xrcd != Some(domain()?) {
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
        let base = base(context.raw(), qpn, &init, core::ptr::null_mut());
        let traits = QpTraits { signal_all: false, extended: false, owns: false };
        Ok(boxed(context.hold(), base, qpn, traits).cast())
    }
}
