//! The queue pair of a stream, with its completion queue.

use super::completions::Completions;
use super::sizes::{REQUESTS, Sizes};
use abi::{
    IBV_QPT_RC, ibv_context, ibv_qp_cap, ibv_qp_init_attr, ibv_recv_wr, ibv_send_wr, rdma_cm_id,
};
use ffi::Errno;
use rdma_cm::id;
use rdma_cm::verbs;
use rdma_cm::{rdma_create_qp, rdma_destroy_qp};
use std::ptr::null_mut;

/// Marks work request IDs of receives.
pub(super) const RECEIVE: u64 = 1 << 63;

/// The queue pair of an identifier.
pub(super) struct QueuePair {
    id: *mut rdma_cm_id,
    pub(super) completions: Completions,
    inline_bytes: usize,
    /// Whether the send queue has room for two requests for each message.
    takes_two: bool,
}

impl QueuePair {
    /// Creates the queue pair of an identifier.
    ///
    /// # Safety
    /// `id` has a device, no queue pair, and outlives this. Memory that requests name outlives this too.
    pub(super) unsafe fn new(id: *mut rdma_cm_id, sizes: &Sizes) -> Result<Self, Errno> {
        // SAFETY: by this function's contract, `id` is an identifier.
        let context: *mut ibv_context = unsafe { (*id).verbs };
        // If the queue pair fails, every posted request completes.
        // SAFETY: by this function's contract, the identifier has a device, which stays open.
        let completions = unsafe { Completions::new(context, 2 * sizes.sends + sizes.receives) }?;
        let takes_two = 2 * sizes.sends <= *REQUESTS.end();
        let mut attr = ibv_qp_init_attr {
            qp_context: null_mut(),
            send_cq: completions.queue(),
            recv_cq: completions.queue(),
            srq: null_mut(),
            cap: ibv_qp_cap {
                max_send_wr: if takes_two {
                    2 * sizes.sends
                } else {
                    sizes.sends
                },
                max_recv_wr: sizes.receives,
                max_send_sge: 2,
                max_recv_sge: 1,
                max_inline_data: sizes.inline_bytes,
            },
            qp_type: IBV_QPT_RC,
            sq_sig_all: 0,
        };
        // SAFETY: by this function's contract, the identifier has a device and no queue pair.
        Errno::check_code(unsafe { rdma_create_qp(id, null_mut(), &mut attr) })?;
        let mut this = Self {
            id,
            completions,
            inline_bytes: attr.cap.max_inline_data as usize,
            takes_two,
        };
        this.post_receives(sizes.receives)?;
        this.completions.arm()?;
        Ok(this)
    }

    /// Bytes that a request may have inline.
    pub(super) fn inline_bytes(&self) -> usize {
        self.inline_bytes
    }

    /// Path MTU, once both queue pairs are connected; `None` unless the send queue has room for two requests
    /// for each longer message.
    pub(super) fn mtu(&self) -> Option<usize> {
        // SAFETY: the identifier outlives the queue pair.
        let id = unsafe { id(self.id) }.ok().filter(|_| self.takes_two)?;
        Some(128 << id.path_mtu())
    }

    /// Posts receives without memory: messages are immediate data.
    pub(super) fn post_receives(&mut self, count: u32) -> Result<(), Errno> {
        let mut request = ibv_recv_wr {
            wr_id: RECEIVE,
            next: null_mut(),
            sg_list: null_mut(),
            num_sge: 0,
        };
        for _ in 0..count {
            let mut bad = null_mut();
            // SAFETY: the queue pair is ours, and the request is read before the call returns.
            Errno::check_code(unsafe { verbs::post_recv((*self.id).qp, &mut request, &mut bad) })?;
        }
        Ok(())
    }

    /// Posts a list of sends.
    ///
    /// # Safety
    /// The elements of each request are registered until it completes, or inline.
    pub(super) unsafe fn post(&mut self, requests: &mut ibv_send_wr) -> Result<(), Errno> {
        let mut bad = null_mut();
        // SAFETY: by this function's contract, the elements of each request are registered until it
        // completes, or inline.
        Errno::check_code(unsafe { verbs::post_send((*self.id).qp, requests, &mut bad) })
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: created by this; its completion queue is dropped later.
        unsafe { rdma_destroy_qp(self.id) };
    }
}
