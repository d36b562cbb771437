//! The two libraries and their functions, loaded at run time.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;
use std::sync::OnceLock;

use abi::*;

use crate::Error;

type Cq = *mut ibv_cq;

/// Its arguments are the queue, other descriptors and their number, for how long the thread polls before it
/// sleeps, and the longest wait or -1, both in nanoseconds. It returns the sum of 1 if the queue has
/// completions, and of 2 if the descriptors were looked at.
pub(crate) type WaitCq = unsafe extern "C" fn(Cq, *mut libc::pollfd, u32, u64, i64) -> c_int;

const WAIT_CQ: &CStr = c"rockery_await_cq";
/// The version of rockery's own functions.
const PRIVATE: &CStr = c"IBVERBS_PRIVATE_ROCKERY";
const VERBS: &CStr = c"libibverbs.so.1";
const CM: &CStr = c"librdmacm.so.1";

macro_rules! functions {
    ($($library:ident $name:ident: fn($($argument:ty),*) -> $result:ty;)*) => {
        /// The functions of both libraries.
        #[derive(Debug)]
        #[allow(non_snake_case, reason = "names of C")]
        pub(crate) struct Library {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) -> $result,)*
            /// Only rockery's library has it: waits for a completion queue and descriptors at once.
            pub(crate) wait_cq: Option<WaitCq>,
        }

        impl Library {
            fn open() -> Result<Self, Error> {
                let verbs = handle(VERBS, "libibverbs.so.1")?;
                let cm = handle(CM, "librdmacm.so.1")?;
                let of = |library: &str| match library {
                    "verbs" => (verbs, "libibverbs.so.1"),
                    _ => (cm, "librdmacm.so.1"),
                };
                Ok(Self {
                    $($name: {
                        let (handle, library) = of(stringify!($library));
                        let found = symbol(handle, library, concat!(stringify!($name), "\0"))?;
                        type Function = unsafe extern "C" fn($($argument),*) -> $result;
                        // SAFETY: the header of this library declares the function with this type.
                        unsafe { std::mem::transmute::<*mut c_void, Function>(found) }
                    },)*
                    wait_cq: {
                        // SAFETY: a handle of dlopen, and strings that end with zero.
                        let found = unsafe { libc::dlvsym(verbs, WAIT_CQ.as_ptr(), PRIVATE.as_ptr()) };
                        if found.is_null() {
                            None
                        } else {
                            // SAFETY: rockery's library has a function of this type under this name.
                            Some(unsafe { std::mem::transmute::<*mut c_void, WaitCq>(found) })
                        }
                    },
                })
            }
        }
    };
}

functions! {
    verbs ibv_alloc_pd: fn(*mut ibv_context) -> *mut ibv_pd;
    verbs ibv_dealloc_pd: fn(*mut ibv_pd) -> c_int;
    verbs ibv_reg_mr: fn(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
    verbs ibv_dereg_mr: fn(*mut ibv_mr) -> c_int;
    verbs ibv_create_comp_channel: fn(*mut ibv_context) -> *mut ibv_comp_channel;
    verbs ibv_destroy_comp_channel: fn(*mut ibv_comp_channel) -> c_int;
    verbs ibv_create_srq: fn(*mut ibv_pd, *mut ibv_srq_init_attr) -> *mut ibv_srq;
    verbs ibv_destroy_srq: fn(*mut ibv_srq) -> c_int;
    verbs ibv_create_cq: fn(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> Cq;
    verbs ibv_destroy_cq: fn(*mut ibv_cq) -> c_int;
    verbs ibv_get_cq_event: fn(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
    verbs ibv_ack_cq_events: fn(*mut ibv_cq, u32) -> ();
    cm rdma_create_event_channel: fn() -> *mut rdma_event_channel;
    cm rdma_destroy_event_channel: fn(*mut rdma_event_channel) -> ();
    cm rdma_create_id: fn(*mut rdma_event_channel, *mut *mut rdma_cm_id, *mut c_void, u32) -> c_int;
    cm rdma_destroy_id: fn(*mut rdma_cm_id) -> c_int;
    cm rdma_migrate_id: fn(*mut rdma_cm_id, *mut rdma_event_channel) -> c_int;
    cm rdma_bind_addr: fn(*mut rdma_cm_id, *const c_void) -> c_int;
    cm rdma_listen: fn(*mut rdma_cm_id, c_int) -> c_int;
    cm rdma_resolve_addr: fn(*mut rdma_cm_id, *const c_void, *const c_void, c_int) -> c_int;
    cm rdma_resolve_route: fn(*mut rdma_cm_id, c_int) -> c_int;
    cm rdma_get_cm_event: fn(*mut rdma_event_channel, *mut *mut rdma_cm_event) -> c_int;
    cm rdma_ack_cm_event: fn(*mut rdma_cm_event) -> c_int;
    cm rdma_create_qp: fn(*mut rdma_cm_id, *mut ibv_pd, *mut ibv_qp_init_attr) -> c_int;
    cm rdma_destroy_qp: fn(*mut rdma_cm_id) -> ();
    cm rdma_connect: fn(*mut rdma_cm_id, *const rdma_conn_param) -> c_int;
    cm rdma_accept: fn(*mut rdma_cm_id, *const rdma_conn_param) -> c_int;
    cm rdma_reject: fn(*mut rdma_cm_id, *const c_void, u8) -> c_int;
    cm rdma_disconnect: fn(*mut rdma_cm_id) -> c_int;
}

fn handle(name: &CStr, library: &'static str) -> Result<*mut c_void, Error> {
    // SAFETY: a string that ends with zero. The library's constructors are part of its ABI; it is never
    // unloaded, so its functions stay valid.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if !handle.is_null() {
        return Ok(handle);
    }
    // SAFETY: dlerror's text lives until the next call of this thread.
    let reason = unsafe {
        let text = libc::dlerror();
        if text.is_null() {
            String::new()
        } else {
            CStr::from_ptr(text).to_string_lossy().into_owned()
        }
    };
    Err(Error::Library { library, reason })
}

fn symbol(
    handle: *mut c_void,
    library: &'static str,
    name: &'static str,
) -> Result<*mut c_void, Error> {
    // SAFETY: a handle of dlopen, and a string that ends with zero.
    let found = unsafe { libc::dlsym(handle, name.as_ptr().cast::<c_char>()) };
    let function = name.trim_end_matches('\0');
    if found.is_null() {
        Err(Error::Function { library, function })
    } else {
        Ok(found)
    }
}

/// The libraries, opened once.
pub(crate) fn library() -> Result<&'static Library, Error> {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    if let Some(library) = LIBRARY.get() {
        return Ok(library);
    }
    let opened = Library::open()?;
    Ok(LIBRARY.get_or_init(|| opened))
}

/// The error of a call that returned -1 or NULL, from `errno`.
pub(crate) fn failed(call: &'static str) -> Error {
    Error::Call {
        call,
        source: io::Error::last_os_error(),
    }
}

/// Checks a call that returns 0, or -1 with `errno`.
pub(crate) fn check_call(call: &'static str, code: c_int) -> Result<(), Error> {
    if code == 0 { Ok(()) } else { Err(failed(call)) }
}

/// Makes reads of a descriptor non-blocking.
pub(crate) fn set_nonblocking(fd: c_int) -> Result<(), Error> {
    // SAFETY: flags of a descriptor that the caller has open.
    let code = unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK)
    };
    check_call("fcntl", if code < 0 { -1 } else { 0 })
}
