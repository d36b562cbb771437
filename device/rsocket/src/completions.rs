//! A socket's completion queue, with its completion channel.

use abi::{ibv_comp_channel, ibv_context, ibv_cq, ibv_wc};
use core::ffi::c_int;
use ffi::{Errno, cancellation};
use rdma_cm::verbs::{self, verbs};
use std::ptr::null_mut;

/// Completions of one poll.
pub(super) const BATCH: usize = 32;

/// A completion queue and its channel. The queue pair that uses it has to be destroyed first.
pub(super) struct Completions {
    cq: *mut ibv_cq,
    channel: *mut ibv_comp_channel,
    events_taken: u32,
}

impl Completions {
    /// # Safety
    /// `context` is an open device.
    pub(super) unsafe fn new(context: *mut ibv_context, entries: u32) -> Result<Self, Errno> {
        let verbs = verbs()?;
        // SAFETY: by this function's contract, `context` is an open device. The objects are destroyed by
        // `drop`.
        unsafe {
            let channel = Errno::check_pointer((verbs.ibv_create_comp_channel)(context))?;
            let mut this = Self {
                cq: null_mut(),
                channel,
                events_taken: 0,
            };
            crate::set_nonblocking(this.descriptor())?;
            let cq = (verbs.ibv_create_cq)(context, entries as c_int, null_mut(), channel, 0);
            this.cq = Errno::check_pointer(cq)?;
            Ok(this)
        }
    }

    /// The completion queue, for creating the queue pair.
    pub(super) fn queue(&self) -> *mut ibv_cq {
        self.cq
    }

    /// The channel's descriptor, for `poll(2)`: readable when there is an event for which the queue was
    /// armed.
    pub(super) fn descriptor(&self) -> c_int {
        // SAFETY: ours.
        unsafe { (*self.channel).fd }
    }

    /// Arms the queue: the next completion makes an event.
    pub(super) fn arm(&mut self) -> Result<(), Errno> {
        // SAFETY: ours.
        Errno::check_code(unsafe { verbs::req_notify_cq(self.cq, 0) })
    }

    /// Takes and acknowledges the events.
    pub(super) fn take_events(&mut self) {
        let Ok(verbs) = verbs() else { return };
        let (mut cq, mut context) = (null_mut(), null_mut());
        // A thread must not end in the middle of our call.
        cancellation::without(|| {
            // SAFETY: ours; the descriptor does not block.
            while unsafe { (verbs.ibv_get_cq_event)(self.channel, &mut cq, &mut context) } == 0 {
                self.events_taken += 1;
            }
        });
    }

    /// Takes completions, at most a batch.
    pub(super) fn take<'a>(
        &mut self,
        into: &'a mut [ibv_wc; BATCH],
    ) -> Result<&'a [ibv_wc], Errno> {
        // SAFETY: room for `BATCH` completions.
        let count = unsafe { verbs::poll_cq(self.cq, BATCH as c_int, into.as_mut_ptr()) };
        let count = usize::try_from(count).map_err(|_| Errno::INVALID)?;
        into.get(..count).ok_or(Errno::INVALID)
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        let Ok(verbs) = verbs() else { return };
        self.take_events();
        // SAFETY: ours, in the order in which they use each other.
        unsafe {
            if !self.cq.is_null() {
                (verbs.ibv_ack_cq_events)(self.cq, self.events_taken);
                (verbs.ibv_destroy_cq)(self.cq);
            }
            (verbs.ibv_destroy_comp_channel)(self.channel);
        }
    }
}
