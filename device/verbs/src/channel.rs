//! Completion channels.

use crate::context::{ContextArg, ContextRef};
use abi::ibv_comp_channel;
use core::ffi::c_int;
use ffi::lock;
use ffi::{BeginsWith, Errno, GivenUp, Subject, exports};
use host::CompletionChannel;
use std::sync::{Arc, Mutex};

/// A completion channel. Its event queue holds the addresses of completion queues.
#[repr(C)]
pub(crate) struct Channel {
    abi: ibv_comp_channel,
    pub(crate) queue: Arc<CompletionChannel>,
    /// Number of completion queues on this channel; C sees a copy.
    users: Mutex<c_int>,
    pub(crate) context: ContextRef,
}

// SAFETY: C sees the first field; `ibv_create_comp_channel` makes the pointers.
unsafe impl BeginsWith<ibv_comp_channel> for Channel {
    fn describe(&self, subject: &mut Subject) {
        self.context.describe(subject);
    }
}

impl Channel {
    /// Adds `change` to the number of completion queues on the channel.
    ///
    /// # Safety
    /// `raw` is a live channel.
    pub(crate) unsafe fn count(raw: *mut Self, change: c_int) {
        // SAFETY: by this function's contract, `raw` is a live channel; the fields are distinct.
        let mut users = lock(unsafe { &(*raw).users });
        *users += change;
        // SAFETY: by this function's contract, `raw` is a live channel; only this function writes the field,
        // and it holds the lock.
        unsafe { (*raw).abi.refcnt = *users };
    }
}

exports! {
    fn ibv_create_comp_channel(context: ContextArg<'_>) -> pointer(*mut ibv_comp_channel) {
        let queue = Arc::new(CompletionChannel::new()?);
        let abi = ibv_comp_channel { context: context.raw(), fd: queue.fd(), refcnt: 0 };
        let (users, context) = (Mutex::new(0), context.hold());
        Ok(Box::into_raw(Box::new(Channel { abi, queue, users, context })).cast())
    }

    fn ibv_destroy_comp_channel(given_up: GivenUp<Channel, ibv_comp_channel>) -> code(i32) {
        if *lock(&given_up.get()?.users) > 0 {
            return Err(Errno::BUSY);
        }
        given_up.free();
        Ok(())
    }
}
