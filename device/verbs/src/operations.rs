//! The function tables of a context, which `static inline` verbs call through.

use crate::context::{Context, Objects};
use crate::faulty::tables;
use crate::{
    completion_events, cq, cq_create, dm, memory, pd, post, qp_create, query, srq, window,
};
use abi::{ibv_context, ibv_context_ops, ibv_device, slot, verbs_context};
use core::ffi::c_void;
use core::mem::size_of;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex};

/// Fills table slots that only programs built before `static inline` verbs call: a function, so that such a
/// call returns an error instead of jumping to NULL.
unsafe extern "C" fn compat() -> *mut c_void {
    crate::absent::null()
}

fn operations() -> ibv_context_ops {
    let compat: slot = Some(compat);
    let operations = ibv_context_ops {
        compat_query_device: Some(query::ibv_query_device),
        compat_query_port: Some(query::ibv_query_port),
        compat_pd_mr: [compat; 5],
        alloc_mw: Some(window::alloc_mw),
        bind_mw: Some(window::bind_mw),
        dealloc_mw: Some(window::dealloc_mw),
        compat_create_cq: compat,
        poll_cq: Some(cq::poll_cq),
        req_notify_cq: Some(completion_events::req_notify_cq),
        compat_cq_srq: [compat; 7],
        post_srq_recv: Some(post::post_srq_recv),
        compat_qp: [compat; 4],
        post_send: Some(post::post_send),
        post_recv: Some(post::post_recv),
        compat_ah_mcast_event: [compat; 5],
    };
    tables::operations(operations)
}

/// A NULL slot means to `static inline` callers that a verb is not supported.
fn table(device: *mut ibv_device, async_fd: i32, cmd_fd: i32) -> verbs_context {
    let context = ibv_context {
        device,
        ops: operations(),
        cmd_fd,
        async_fd,
        num_comp_vectors: Context::VECTORS as i32,
        mutex: abi::PTHREAD_MUTEX_INITIALIZER,
        abi_compat: usize::MAX as *mut c_void,
    };
    verbs_context {
        query_port: Some(query::query_port),
        advise_mr: Some(memory::advise_mr),
        alloc_null_mr: Some(memory::alloc_null_mr),
        counters: [None; 4],
        reg_dm_mr: Some(dm::reg_dm_mr),
        alloc_dm: Some(dm::alloc_dm),
        free_dm: Some(dm::free_dm),
        flow_action: [None; 3],
        modify_qp_rate_limit: None,
        alloc_parent_domain: Some(pd::alloc_parent_domain),
        dealloc_td: Some(pd::dealloc_td),
        alloc_td: Some(pd::alloc_td),
        modify_cq: Some(cq::modify_cq),
        post_srq_ops: None,
        rwq_and_wq: [None; 5],
        query_rt_values: Some(query::query_rt_values),
        create_cq_ex: Some(cq_create::create_cq_ex),
        private: core::ptr::null_mut(),
        query_device_ex: Some(query::query_device_ex),
        flow: [None; 4],
        open_qp: Some(qp_create::open_qp),
        create_qp_ex: Some(qp_create::create_qp_ex),
        get_srq_num: Some(srq::get_srq_num),
        create_srq_ex: Some(srq::create_srq_ex),
        open_xrcd: Some(pd::open_xrcd),
        close_xrcd: Some(pd::close_xrcd),
        placeholder: 0,
        sz: size_of::<verbs_context>(),
        context,
    }
}

/// Opens a context with its tables.
pub(crate) fn opened(
    raw: *mut ibv_device,
    device: Arc<host::Device>,
    objects: Arc<Mutex<Objects>>,
    command: Option<OwnedFd>,
) -> *mut ibv_context {
    let abi = table(
        raw,
        device.async_events().fd(),
        command.as_ref().map_or(-1, AsRawFd::as_raw_fd),
    );
    Context::open(abi, device, objects, command)
}
