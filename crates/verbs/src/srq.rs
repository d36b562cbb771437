//! Shared receive queues.

use crate::channel::Owed;
use crate::context::context;
use crate::cq::cq;
use crate::pd::{pd, xrcd};
use abi::{ibv_context, ibv_pd, ibv_srq, ibv_srq_attr, ibv_srq_init_attr, ibv_srq_init_attr_ex};
use core::ffi::c_void;
use door::{Errno, door};
use rnic::Event;

/// A shared receive queue.
#[repr(C)]
pub(crate) struct Srq {
    abi: ibv_srq,
    pub(crate) handle: rnic::Srq,
    pub(crate) async_events: Owed,
}

/// The queue behind a pointer of C.
///
/// # Safety
/// The pointer is one that this library gave out, and is not freed.
pub(crate) unsafe fn srq<'a>(raw: *mut ibv_srq) -> Result<&'a Srq, Errno> {
    // SAFETY: as above.
    unsafe { raw.cast::<Srq>().as_ref() }.ok_or(Errno::INVALID)
}

/// # Safety
/// `domain` is a live protection domain.
unsafe fn create(
    domain: *mut ibv_pd,
    srq_context: *mut c_void,
    attr: &ibv_srq_attr,
    xrc: Option<(rnic::Xrcd, rnic::Cq)>,
) -> Result<*mut ibv_srq, Errno> {
    // SAFETY: as above.
    let (below, raw) = unsafe { (pd(domain)?, (*domain).context) };
    // SAFETY: a domain's context lives longer than the domain.
    let owner = unsafe { context(raw) };
    let (max_wr, max_sge) = (attr.max_wr, attr.max_sge);
    let handle = owner.device.with(|rnic, _| rnic.create_srq(below.handle, max_wr, max_sge, xrc))?;
    let abi = ibv_srq {
        context: raw,
        srq_context,
        pd: domain,
        handle: handle.value(),
        mutex: [0; 5],
        cond: [0; 6],
        events_completed: 0,
    };
    let queue = Box::into_raw(Box::new(Srq { abi, handle, async_events: Owed::default() }));
    owner.objects().srqs.insert(handle.value(), queue as usize);
    Ok(queue.cast())
}

door! {
    fn ibv_create_srq(domain: *mut ibv_pd, init: *mut ibv_srq_init_attr) -> pointer(*mut ibv_srq) {
        let init = init.as_ref().ok_or(Errno::INVALID)?;
        create(domain, init.srq_context, &init.attr, None)
    }

    fn create_srq_ex(_raw: *mut ibv_context, init: *mut ibv_srq_init_attr_ex) -> pointer(*mut ibv_srq) {
        let init = init.as_ref().ok_or(Errno::INVALID)?;
        let has = |bit: u32| init.comp_mask & bit != 0;
        let kind = if has(abi::IBV_SRQ_INIT_ATTR_TYPE) { init.srq_type } else { abi::IBV_SRQT_BASIC };
        let xrc = match kind {
            abi::IBV_SRQT_BASIC => None,
            abi::IBV_SRQT_XRC if has(abi::IBV_SRQ_INIT_ATTR_XRCD) && has(abi::IBV_SRQ_INIT_ATTR_CQ) => {
                Some((xrcd(init.xrcd)?.handle, cq(init.cq)?.handle))
            }
            abi::IBV_SRQT_XRC => return Err(Errno::INVALID),
            _ => return Err(Errno::UNSUPPORTED),
        };
        if !has(abi::IBV_SRQ_INIT_ATTR_PD) {
            return Err(Errno::INVALID);
        }
        create(init.pd, init.srq_context, &init.attr, xrc)
    }

    fn get_srq_num(raw: *mut ibv_srq, number: *mut u32) -> code(i32) {
        let queue = srq(raw)?;
        *number = context((*raw).context).device.with(|rnic, _| rnic.srq_number(queue.handle)).value();
        Ok(())
    }

    fn ibv_modify_srq(raw: *mut ibv_srq, attr: *mut ibv_srq_attr, mask: i32) -> code(i32) {
        let (queue, attr) = (srq(raw)?, attr.as_ref().ok_or(Errno::INVALID)?);
        let mask = mask as u32;
        if mask & !(abi::IBV_SRQ_MAX_WR | abi::IBV_SRQ_LIMIT) != 0 {
            return Err(Errno::INVALID);
        }
        let max_wr = (mask & abi::IBV_SRQ_MAX_WR != 0).then_some(attr.max_wr);
        let limit = (mask & abi::IBV_SRQ_LIMIT != 0).then_some(attr.srq_limit);
        Ok(context((*raw).context).device.with(|rnic, _| rnic.modify_srq(queue.handle, max_wr, limit))?)
    }

    fn ibv_query_srq(raw: *mut ibv_srq, attr: *mut ibv_srq_attr) -> code(i32) {
        let queue = srq(raw)?;
        let (max_wr, max_sge, srq_limit) =
            context((*raw).context).device.with(|rnic, _| rnic.query_srq(queue.handle))?;
        *attr = ibv_srq_attr { max_wr, max_sge, srq_limit };
        Ok(())
    }

    fn ibv_destroy_srq(raw: *mut ibv_srq) -> code(i32) {
        let queue = srq(raw)?;
        let owner = context((*raw).context);
        owner.device.with(|rnic, _| rnic.destroy_srq(queue.handle))?;
        owner.objects().srqs.remove(&queue.handle.value());
        owner.device.async_events().forget(|event| {
            matches!(event, Event::SrqLimitReached(of) | Event::SrqError(of) if *of == queue.handle)
        });
        queue.async_events.settle();
        drop(Box::from_raw(raw.cast::<Srq>()));
        Ok(())
    }
}
