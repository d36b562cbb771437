//! Open devices: the structure that C sees, with its tables, and the objects in it.

use crate::channel::lock;
use crate::device::{Listed, listed};

use crate::dm::DeviceMemory;
use crate::{channel, cq, cq_ex, dm, import, memory, pd, post, qp, query, srq};
use abi::{ibv_context, ibv_context_ops, ibv_device, slot, verbs_context};
use core::ffi::c_void;
use core::mem::{offset_of, size_of};
use door::{Errno, door};
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};

/// An open device.
#[repr(C)]
pub(crate) struct Context {
    abi: verbs_context,
    pub(crate) device: Arc<host::Device>,
    /// Those that import the device have the same.
    objects: Arc<Mutex<Objects>>,
    /// `cmd_fd`: what a program imports the device by.
    _command: Option<OwnedFd>,
}

/// Addresses of what C has pointers to, by the device's numbers.
#[derive(Default)]
pub(crate) struct Objects {
    pub(crate) cqs: HashMap<u32, usize>,
    pub(crate) qps: HashMap<u32, usize>,
    pub(crate) srqs: HashMap<u32, usize>,
    pub(crate) xrcds: Vec<OpenXrcd>,
    /// What can be imported.
    pub(crate) pds: HashSet<u32>,
    /// Bytes of each region.
    pub(crate) regions: HashMap<u32, usize>,
    pub(crate) device_memories: HashMap<u32, Arc<DeviceMemory>>,
    pub(crate) device_memories_made: u32,
}

/// An XRC domain.
pub(crate) struct OpenXrcd {
    /// Device and inode of the file that names it, if one does.
    pub(crate) file: Option<(u64, u64)>,
    pub(crate) handle: rnic::Xrcd,
    /// How often it is open.
    pub(crate) users: u32,
}

impl Context {
    /// Completion vectors: one thread makes all progress.
    pub(crate) const VECTORS: u32 = 1;

    pub(crate) fn objects(&self) -> MutexGuard<'_, Objects> {
        lock(&self.objects)
    }
}

/// The context behind a pointer of C, which points into its middle.
///
/// # Safety
/// The pointer is one that [`ibv_open_device`] gave out, and is not closed.
pub(crate) unsafe fn context<'a>(raw: *mut ibv_context) -> &'a Context {
    // SAFETY: as above.
    unsafe { &*raw.byte_sub(offset_of!(verbs_context, context)).cast::<Context>() }
}

/// What very old programs would call, and nobody does: a function, so that a call fails instead of
/// crashing.
unsafe extern "C" fn compat() -> *mut c_void {
    crate::absent::null()
}

fn operations() -> ibv_context_ops {
    let compat: slot = Some(compat);
    ibv_context_ops {
        compat_query_device: Some(query::ibv_query_device),
        compat_query_port: Some(query::ibv_query_port),
        compat_pd_mr: [compat; 5],
        alloc_mw: Some(memory::alloc_mw),
        bind_mw: Some(memory::bind_mw),
        dealloc_mw: Some(memory::dealloc_mw),
        compat_create_cq: compat,
        poll_cq: Some(cq::poll_cq),
        req_notify_cq: Some(channel::req_notify_cq),
        compat_cq_srq: [compat; 7],
        post_srq_recv: Some(post::post_srq_recv),
        compat_qp: [compat; 4],
        post_send: Some(post::post_send),
        post_recv: Some(post::post_recv),
        compat_ah_mcast_event: [compat; 5],
    }
}

/// An empty slot tells `static inline` callers that a verb is not supported.
fn table(device: *mut ibv_device, async_fd: i32, cmd_fd: i32) -> verbs_context {
    let context = ibv_context {
        device,
        ops: operations(),
        cmd_fd,
        async_fd,
        num_comp_vectors: Context::VECTORS as i32,
        mutex: [0; 5],
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
        create_cq_ex: Some(cq_ex::create_cq_ex),
        private: core::ptr::null_mut(),
        query_device_ex: Some(query::query_device_ex),
        flow: [None; 4],
        open_qp: Some(qp::open_qp),
        create_qp_ex: Some(qp::create_qp_ex),
        get_srq_num: Some(srq::get_srq_num),
        create_srq_ex: Some(srq::create_srq_ex),
        open_xrcd: Some(pd::open_xrcd),
        close_xrcd: Some(pd::close_xrcd),
        placeholder: 0,
        sz: size_of::<verbs_context>(),
        context,
    }
}

/// What C gets, which holds `raw`.
pub(crate) fn opened(
    raw: *mut ibv_device,
    device: Arc<host::Device>,
    objects: Arc<Mutex<Objects>>,
    command: Option<OwnedFd>,
) -> *mut ibv_context {
    let abi = table(raw, device.async_events().fd(), command.as_ref().map_or(-1, AsRawFd::as_raw_fd));
    let opened = Box::into_raw(Box::new(Context { abi, device, objects, _command: command }));
    // SAFETY: just made.
    unsafe { &raw mut (*opened).abi.context }
}

door! {
    /// Why a device does not open is told on standard error: `errno` cannot say it.
    fn ibv_open_device(raw: *mut ibv_device) -> pointer(*mut ibv_context) {
        let entry = listed(raw)?;
        let device = host::Device::open(&entry.info).map_err(|error| {
            eprintln!("rockery: {}: {error}", entry.info.name);
            Errno(libc::EIO)
        })?;
        let objects = Arc::default();
        let command = import::offer(&device, &objects);
        entry.hold();
        Ok(opened(raw, device, objects, command))
    }

    fn ibv_close_device(raw: *mut ibv_context) -> code(i32) {
        let device = (*raw).device;
        let opened = core::ptr::from_ref(context(raw)).cast_mut();
        drop(Box::from_raw(opened));
        Listed::release(device);
        Ok(())
    }
}
