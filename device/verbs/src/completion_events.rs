//! Completion events: taken from channels, acknowledged, and requested.

use crate::channel::Channel;
use crate::cq::{Cq, CqArg};
use abi::{ibv_comp_channel, ibv_cq};
use core::ffi::c_void;
use ffi::{Object, Out, exports};

exports! {
    fn ibv_get_cq_event(
        channel: Object<'_, Channel, ibv_comp_channel>, queue: Out<'_, *mut ibv_cq>,
        cookie: Out<'_, *mut c_void>,
    ) -> number(i32) {
        let channel = channel.get()?;
        let taken = channel.context.device.next_event(&channel.queue)? as *mut Cq;
        // SAFETY: the events of a channel are addresses of its queues. A queue that is destroyed while this
        // waits for its events is detached first, and the program has no call of it running.
        let found = unsafe { &*taken };
        queue.write(taken.cast())?;
        cookie.write(found.abi.base.cq_context)?;
        found.completion_events.took();
        Ok(0)
    }

    fn ibv_ack_cq_events(queue: CqArg<'_>, count: u32) -> plain(()) {
        if let Some(found) = queue.optional() {
            let raw = queue.raw();
            // SAFETY: a field of a live queue, which the acknowledgements of the program alone change.
            unsafe { (*raw).comp_events_completed = (*raw).comp_events_completed.wrapping_add(count) };
            found.completion_events.acknowledged(count.into());
        }
    }

    fn req_notify_cq(queue: CqArg<'_>, solicited_only: i32) -> code(i32) {
        let queue = queue.get()?;
        let arm = if solicited_only == 0 { rnic::Arm::Any } else { rnic::Arm::Solicited };
        Ok(queue.context.device.arm_cq(queue.handle, arm)?)
    }
}
