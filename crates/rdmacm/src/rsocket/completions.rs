//! The completion queue of a socket, with the descriptor that tells of it.

use crate::verbs::{self, verbs};
use abi::{ibv_comp_channel, ibv_context, ibv_cq, ibv_wc};
use core::ffi::c_int;
use door::Errno;
use std::ptr::null_mut;

/// Completions that are taken at once.
pub(super) const BATCH: usize = 32;

/// A completion queue and its channel. The queue pair that uses it is to be destroyed before.
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
        // SAFETY: as above. What is made is destroyed by `drop`.
        unsafe {
            let channel = Errno::check_pointer((verbs.ibv_create_comp_channel)(context))?;
            let mut this = Self { cq: null_mut(), channel, events_taken: 0 };
            crate::rsocket::set_nonblocking(this.descriptor())?;
            let cq = (verbs.ibv_create_cq)(context, entries as c_int, null_mut(), channel, 0);
            this.cq = Errno::check_pointer(cq)?;
            Ok(this)
        }
    }

    /// For the queue pair.
    pub(super) fn queue(&self) -> *mut ibv_cq {
        self.cq
    }

    /// For `poll`: readable while completions wait that were asked for.
    pub(super) fn descriptor(&self) -> c_int {
        // SAFETY: ours.
        unsafe { (*self.channel).fd }
    }

    /// Asks for an event with the next completion.
    pub(super) fn arm(&mut self) -> Result<(), Errno> {
        // SAFETY: ours.
        Errno::check(unsafe { verbs::req_notify_cq(self.cq, 0) })
    }

    /// Takes the events that were asked for.
    pub(super) fn quiet(&mut self) {
        let Ok(verbs) = verbs() else { return };
        let (mut cq, mut context) = (null_mut(), null_mut());
        // SAFETY: ours; the descriptor does not block.
        while unsafe { (verbs.ibv_get_cq_event)(self.channel, &mut cq, &mut context) } == 0 {
            self.events_taken += 1;
        }
    }

    /// Takes as many completions as there are, up to a batch.
    pub(super) fn take<'a>(&mut self, into: &'a mut [ibv_wc; BATCH]) -> Result<&'a [ibv_wc], Errno> {
        // SAFETY: room for as many as are asked for.
        let count = unsafe { verbs::poll_cq(self.cq, BATCH as c_int, into.as_mut_ptr()) };
        let count = usize::try_from(count).map_err(|_| Errno::INVALID)?;
        into.get(..count).ok_or(Errno::INVALID)
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        let Ok(verbs) = verbs() else { return };
        self.quiet();
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
