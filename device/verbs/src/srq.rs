//! Shared receive queues.

use crate::context::{ContextArg, ContextRef};
use crate::cq::cq;
use crate::event_counts::EventCounts;
use crate::pd::{Pd, PdArg, pd, xrcd};
use abi::{ibv_pd, ibv_srq, ibv_srq_attr, ibv_srq_init_attr, ibv_srq_init_attr_ex};
use core::ffi::c_void;
use ffi::{BeginsWith, Errno, GivenUp, In, Object, Out, Subject, exports};
use rnic::Event;

/// A shared receive queue. C sees the first field.
#[repr(C)]
pub(crate) struct Srq {
    abi: ibv_srq,
    pub(crate) handle: rnic::Srq,
    pub(crate) async_events: EventCounts,
    pub(crate) context: ContextRef,
}

// SAFETY: C sees the first field; `create` makes the pointers.
unsafe impl BeginsWith<ibv_srq> for Srq {
    fn describe(&self, subject: &mut Subject) {
        self.context.describe(subject);
    }
}

/// A shared receive queue, as an argument.
pub(crate) type SrqArg<'a> = Object<'a, Srq, ibv_srq>;

/// The shared receive queue behind a C pointer.
///
/// # Safety
/// The pointer comes from this library, and the queue is not destroyed.
pub(crate) unsafe fn srq<'a>(raw: *mut ibv_srq) -> Result<&'a Srq, Errno> {
    // SAFETY: by this function's contract, the pointer comes from this library, and the queue is not
    // destroyed.
    unsafe { raw.cast::<Srq>().as_ref() }.ok_or(Errno::INVALID)
}

/// `raw` is the pointer that C has to `domain`.
fn create(
    domain: &Pd,
    raw: *mut ibv_pd,
    srq_context: *mut c_void,
    attr: &ibv_srq_attr,
    xrc: Option<(rnic::Xrcd, rnic::Cq)>,
) -> Result<*mut ibv_srq, Errno> {
    let owner = &domain.context;
    let (max_wr, max_sge) = (attr.max_wr, attr.max_sge);
    let handle = owner
        .device
        .with(|rnic, _| rnic.srqs().create(domain.handle, max_wr, max_sge, xrc))?;
    let abi = ibv_srq {
        context: owner.raw(),
        srq_context,
        pd: raw,
        handle: handle.value(),
        mutex: abi::PTHREAD_MUTEX_INITIALIZER,
        cond: [0; 6],
        events_completed: 0,
    };
    let queue = Box::into_raw(Box::new(Srq {
        abi,
        handle,
        async_events: EventCounts::default(),
        context: owner.clone(),
    }));
    owner.objects().srqs.insert(handle.value(), queue as usize);
    Ok(queue.cast())
}

exports! {
    fn ibv_create_srq(domain: PdArg<'_>, init: In<'_, *mut ibv_srq_init_attr>) -> pointer(*mut ibv_srq) {
        let init = init.get()?;
        create(domain.get()?, domain.raw(), init.srq_context, &init.attr, None)
    }

    fn create_srq_ex(_context: ContextArg<'_>, init: In<'_, *mut ibv_srq_init_attr_ex>)
        -> pointer(*mut ibv_srq) {
        let init = init.get()?;
        let has = |bit: u32| init.comp_mask & bit != 0;
        let kind = if has(abi::IBV_SRQ_INIT_ATTR_TYPE) { init.srq_type } else { abi::IBV_SRQT_BASIC };
        let xrc = match kind {
            abi::IBV_SRQT_BASIC => None,
            abi::IBV_SRQT_XRC if has(abi::IBV_SRQ_INIT_ATTR_XRCD) && has(abi::IBV_SRQ_INIT_ATTR_CQ) => {
                // SAFETY: the mask says that the attributes name a live XRC domain.
                let domain = unsafe { xrcd(init.xrcd) }?;
                // SAFETY: the mask says that the attributes name a live completion queue.
                Some((domain.handle, unsafe { cq(init.cq) }?.handle))
            }
            abi::IBV_SRQT_XRC => return Err(Errno::INVALID),
            _ => return Err(Errno::UNSUPPORTED),
        };
        if !has(abi::IBV_SRQ_INIT_ATTR_PD) {
            return Err(Errno::INVALID);
        }
        // SAFETY: the mask says that the attributes name a live protection domain.
        let domain = unsafe { pd(init.pd) }?;
        create(domain, init.pd, init.srq_context, &init.attr, xrc)
    }

    fn get_srq_num(queue: SrqArg<'_>, number: Out<'_, u32>) -> code(i32) {
        let queue = queue.get()?;
        number.write(queue.context.device.with(|rnic, _| rnic.srqs().number(queue.handle)).value())
    }

    fn ibv_modify_srq(queue: SrqArg<'_>, attr: In<'_, *mut ibv_srq_attr>, mask: i32) -> code(i32) {
        let (queue, attr) = (queue.get()?, attr.get()?);
        let mask = mask as u32;
        if mask & !(abi::IBV_SRQ_MAX_WR | abi::IBV_SRQ_LIMIT) != 0 {
            return Err(Errno::INVALID);
        }
        let max_wr = (mask & abi::IBV_SRQ_MAX_WR != 0).then_some(attr.max_wr);
        let limit = (mask & abi::IBV_SRQ_LIMIT != 0).then_some(attr.srq_limit);
        Ok(queue.context.device.with(|rnic, _| rnic.srqs().modify(queue.handle, max_wr, limit))?)
    }

    fn ibv_query_srq(queue: SrqArg<'_>, attr: Out<'_, ibv_srq_attr>) -> code(i32) {
        let queue = queue.get()?;
        let (max_wr, max_sge, srq_limit) =
            queue.context.device.with(|rnic, _| rnic.srqs().query(queue.handle))?;
        attr.write(ibv_srq_attr { max_wr, max_sge, srq_limit })
    }

    fn ibv_destroy_srq(given_up: GivenUp<Srq, ibv_srq>) -> code(i32) {
        let queue = given_up.get()?;
        let owner = &queue.context;
        owner.device.with(|rnic, _| rnic.srqs().destroy(queue.handle))?;
        owner.objects().srqs.remove(&queue.handle.value());
        owner.device.async_events().forget(|event| {
            matches!(event, Event::SrqLimitReached(of) | Event::SrqError(of) if *of == queue.handle)
        });
        queue.async_events.wait_acknowledged();
        given_up.free();
        Ok(())
    }
}
