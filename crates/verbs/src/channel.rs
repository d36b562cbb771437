//! Completion channels, and the counting of the events that programs owe.

use crate::context::context;
use crate::cq::cq;
use abi::{ibv_comp_channel, ibv_context, ibv_cq};
use core::ffi::{c_int, c_void};
use door::{Errno, door};
use host::CompletionChannel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// A lock whose data stays usable after a panic elsewhere: the door stops panics, and programs go on.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Events that a program has taken, against those that it has acknowledged: destroying waits until they
/// are equal.
#[derive(Default)]
pub(crate) struct Owed {
    outstanding: Mutex<u64>,
    settled: Condvar,
}

impl Owed {
    pub(crate) fn took(&self) {
        *lock(&self.outstanding) += 1;
    }

    pub(crate) fn acknowledged(&self, count: u64) {
        let mut outstanding = lock(&self.outstanding);
        *outstanding = outstanding.saturating_sub(count);
        self.settled.notify_all();
    }

    pub(crate) fn settle(&self) {
        let outstanding = lock(&self.outstanding);
        drop(self.settled.wait_while(outstanding, |outstanding| *outstanding > 0));
    }
}

/// A completion channel. Its events are the addresses of completion queues.
#[repr(C)]
pub(crate) struct Channel {
    abi: ibv_comp_channel,
    pub(crate) queue: Arc<CompletionChannel>,
    /// Completion queues on this channel; C sees a copy.
    users: Mutex<c_int>,
}

impl Channel {
    /// One queue more or fewer.
    ///
    /// # Safety
    /// `raw` is a live channel.
    pub(crate) unsafe fn count(raw: *mut Self, change: c_int) {
        // SAFETY: as above; the fields are distinct.
        let mut users = lock(unsafe { &(*raw).users });
        *users += change;
        // SAFETY: as above; only this function writes the field, and it holds the lock.
        unsafe { (*raw).abi.refcnt = *users };
    }
}

door! {
    fn ibv_create_comp_channel(raw: *mut ibv_context) -> pointer(*mut ibv_comp_channel) {
        let queue = Arc::new(CompletionChannel::new()?);
        let abi = ibv_comp_channel { context: raw, fd: queue.fd(), refcnt: 0 };
        Ok(Box::into_raw(Box::new(Channel { abi, queue, users: Mutex::new(0) })).cast())
    }

    fn ibv_destroy_comp_channel(raw: *mut ibv_comp_channel) -> code(i32) {
        let channel = raw.cast::<Channel>();
        if *lock(&channel.as_ref().ok_or(Errno::INVALID)?.users) > 0 {
            return Err(Errno::BUSY);
        }
        drop(Box::from_raw(channel));
        Ok(())
    }

    fn ibv_get_cq_event(raw: *mut ibv_comp_channel, queue: *mut *mut ibv_cq, cookie: *mut *mut c_void)
        -> number(i32) {
        let channel = raw.cast::<Channel>().as_ref().ok_or(Errno::INVALID)?;
        let taken = context(channel.abi.context).device.next_event(&channel.queue)? as *mut ibv_cq;
        *queue = taken;
        *cookie = (*taken).cq_context;
        cq(taken)?.completion_events.took();
        Ok(0)
    }

    fn ibv_ack_cq_events(raw: *mut ibv_cq, count: u32) -> plain(()) {
        if let Ok(queue) = cq(raw) {
            (*raw).comp_events_completed = (*raw).comp_events_completed.wrapping_add(count);
            queue.completion_events.acknowledged(count.into());
        }
    }

    fn req_notify_cq(raw: *mut ibv_cq, solicited_only: i32) -> code(i32) {
        let queue = cq(raw)?;
        let arm = if solicited_only == 0 { rnic::Arm::Any } else { rnic::Arm::Solicited };
        Ok(context((*raw).context).device.arm_cq(queue.handle, arm)?)
    }
}
