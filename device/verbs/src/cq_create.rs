//! Completion queues are created.

use crate::channel::Channel;
use crate::context::{Context, ContextArg};
use crate::cq::Cq;
use crate::cq_ex;
use crate::event_counts::EventCounts;
use crate::faulty::tables;
use abi::{ibv_comp_channel, ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex};
use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::sync::atomic::AtomicBool;
use ffi::{Errno, In, exports};

/// Fields that a completion can have: all up to the path bits, and the time stamps.
const FIELDS: u64 = 0x7f
    | abi::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP as u64
    | abi::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK as u64;

/// Attributes of a new completion queue.
struct CqInit {
    entries: u32,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: u32,
}

/// # Safety
/// The channel is NULL or a live one of the context.
unsafe fn create(owner: ContextArg<'_>, init: &CqInit) -> Result<*mut Cq, Errno> {
    if init.entries == 0 || init.vector >= Context::VECTORS {
        return Err(Errno::INVALID);
    }
    let handle = owner
        .device
        .with(|rnic, _| rnic.cqs_mut().create(init.entries))?;
    let base = ibv_cq {
        context: owner.raw(),
        channel: init.channel,
        cq_context: init.cq_context,
        handle: handle.value(),
        cqe: init.entries as i32,
        mutex: abi::PTHREAD_MUTEX_INITIALIZER,
        cond: [0; 6],
        comp_events_completed: 0,
        async_events_completed: 0,
    };
    let queue = Box::into_raw(Box::new(Cq {
        abi: tables::polling(cq_ex::table(base)),
        handle,
        context: owner.hold(),
        completion_events: EventCounts::default(),
        async_events: EventCounts::default(),
        polling: AtomicBool::new(false),
        current: UnsafeCell::default(),
        current_at_ns: UnsafeCell::default(),
    }));
    let channel = init.channel.cast::<Channel>();
    // SAFETY: by this function's contract, the channel is NULL or a live one.
    if let Some(shared) = unsafe { channel.as_ref() } {
        owner.device.attach_cq(handle, &shared.queue, queue as u64);
        // SAFETY: by this function's contract, the channel is a live one.
        unsafe { Channel::count(channel, 1) };
    }
    owner.objects().cqs.insert(handle.value(), queue as usize);
    Ok(queue)
}

exports! {
    fn ibv_create_cq(
        context: ContextArg<'_>, entries: i32, cq_context: *mut c_void, channel: *mut ibv_comp_channel,
        vector: i32,
    ) -> pointer(*mut ibv_cq) {
        let (entries, vector) = (u32::try_from(entries), u32::try_from(vector));
        let (Ok(entries), Ok(vector)) = (entries, vector) else { return Err(Errno::INVALID) };
        let init = CqInit { entries, cq_context, channel, vector };
        // SAFETY: the program passes NULL or a channel of this context.
        Ok(unsafe { create(context, &init) }?.cast())
    }

    fn create_cq_ex(context: ContextArg<'_>, attr: In<'_, *mut ibv_cq_init_attr_ex>)
        -> pointer(*mut ibv_cq_ex) {
        let attr = attr.get()?;
        let known = abi::IBV_CQ_INIT_ATTR_MASK_FLAGS | abi::IBV_CQ_INIT_ATTR_MASK_PD;
        if attr.wc_flags & !FIELDS != 0 || attr.comp_mask & !known != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        let init = CqInit {
            entries: attr.cqe,
            cq_context: attr.cq_context,
            channel: attr.channel,
            vector: attr.comp_vector,
        };
        // SAFETY: the attributes name no channel, or one of this context.
        Ok(unsafe { create(context, &init) }?.cast())
    }
}
