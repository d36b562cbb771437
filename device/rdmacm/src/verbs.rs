//! The `libibverbs.so.1` of the process, whichever it is. All verbs objects, the program's and those created
//! here, then belong to one library.

use abi::{
    ibv_ah, ibv_ah_attr, ibv_comp_channel, ibv_context, ibv_cq, ibv_device, ibv_device_attr,
    ibv_ece, ibv_gid, ibv_mr, ibv_pd, ibv_port_attr, ibv_qp, ibv_qp_attr, ibv_qp_init_attr,
    ibv_qp_init_attr_ex, ibv_recv_wr, ibv_send_wr, ibv_srq, ibv_srq_init_attr,
    ibv_srq_init_attr_ex, ibv_wc, ibv_xrcd, ibv_xrcd_init_attr, verbs_context,
};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::offset_of;
use ffi::Errno;
use std::sync::OnceLock;

macro_rules! functions {
    ($(fn $name:ident($($arg:ident: $type:ty),*) $(-> $ret:ty)?;)*) => {
        /// The functions of libibverbs that this library calls.
        pub struct Verbs {
            $(#[doc = concat!("`", stringify!($name), "(3)`.")]
            pub $name: unsafe extern "C" fn($($arg: $type),*) $(-> $ret)?,)*
        }

        impl Verbs {
            /// # Safety
            /// `library` is a handle of `dlopen`, and the library has the ABI of libibverbs.
            unsafe fn find(library: *mut c_void) -> Option<Self> {
                Some(Self {
                    $($name: {
                        let name = concat!(stringify!($name), "\0");
                        // SAFETY: a handle and a string that ends with 0.
                        let symbol = unsafe { libc::dlsym(library, name.as_ptr().cast()) };
                        if symbol.is_null() {
                            return None;
                        }
                        type Function = unsafe extern "C" fn($($arg: $type),*) $(-> $ret)?;
                        // SAFETY: libibverbs has a function of this type under this name.
                        unsafe { core::mem::transmute::<*mut c_void, Function>(symbol) }
                    },)*
                })
            }
        }
    };
}

functions! {
    fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device;
    fn ibv_free_device_list(list: *mut *mut ibv_device);
    fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char;
    fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context;
    fn ibv_query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int;
    fn ibv_query_port(context: *mut ibv_context, port: u8, attr: *mut ibv_port_attr) -> c_int;
    fn ibv_query_gid(context: *mut ibv_context, port: u8, index: c_int, gid: *mut ibv_gid) -> c_int;
    fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd;
    fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int;
    fn ibv_reg_mr(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr;
    fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int;
    fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel;
    fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int;
    fn ibv_get_cq_event(channel: *mut ibv_comp_channel, cq: *mut *mut ibv_cq, context: *mut *mut c_void)
        -> c_int;
    fn ibv_ack_cq_events(cq: *mut ibv_cq, count: u32);
    fn ibv_create_cq(context: *mut ibv_context, entries: c_int, cookie: *mut c_void,
        channel: *mut ibv_comp_channel, vector: c_int) -> *mut ibv_cq;
    fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int;
    fn ibv_create_srq(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq;
    fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int;
    fn ibv_create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp;
    fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int;
    fn ibv_query_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int, init: *mut ibv_qp_init_attr)
        -> c_int;
    fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int;
    fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah;
    fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int;
    fn ibv_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int;
    fn ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int;
    fn ibv_set_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int;
    fn ibv_query_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int;
}

/// The functions, looked up once.
pub fn verbs() -> Result<&'static Verbs, Errno> {
    static VERBS: OnceLock<Option<Verbs>> = OnceLock::new();
    let load = || {
        const NAME: &CStr = c"libibverbs.so.1";
        // SAFETY: a string that ends with 0.
        let library = unsafe { libc::dlopen(NAME.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if library.is_null() {
            return None;
        }
        // SAFETY: the library of this name has the ABI of libibverbs, and is never closed.
        unsafe { Verbs::find(library) }
    };
    VERBS.get_or_init(load).as_ref().ok_or(Errno::NO_DEVICE)
}

/// Processes the packets that have arrived for a queue pair. Only rockery's libibverbs has this function;
/// devices of others process packets by themselves.
pub fn take_arrived(qpn: u32) {
    type Function = unsafe extern "C" fn(u32);
    static FOUND: OnceLock<Option<Function>> = OnceLock::new();
    let find = || {
        verbs().ok()?;
        // SAFETY: strings that end with 0; the library was loaded for everybody.
        let symbol = unsafe {
            libc::dlvsym(
                libc::RTLD_DEFAULT,
                c"rockery_take_arrived".as_ptr(),
                c"IBVERBS_PRIVATE_ROCKERY".as_ptr(),
            )
        };
        // SAFETY: our libibverbs has a function of this type under this name.
        (!symbol.is_null())
            .then(|| unsafe { core::mem::transmute::<*mut c_void, Function>(symbol) })
    };
    if let Some(take_arrived) = FOUND.get_or_init(find) {
        // SAFETY: the function accepts any number.
        unsafe { take_arrived(qpn) };
    }
}

/// The extended function table of a context.
///
/// # Safety
/// `context` is an open device.
unsafe fn table<'a>(context: *mut ibv_context) -> Result<&'a verbs_context, Errno> {
    // SAFETY: by this function's contract, `context` is an open device: every provider of this ABI has the
    // table around its context, and says so.
    unsafe {
        let is_extended = (*context).abi_compat as usize == usize::MAX;
        let table = context
            .byte_sub(offset_of!(verbs_context, context))
            .cast::<verbs_context>();
        is_extended.then(|| &*table).ok_or(Errno::UNSUPPORTED)
    }
}

/// `ibv_create_qp_ex`, an inline function in C.
///
/// # Safety
/// As for `ibv_create_qp_ex(3)`.
pub unsafe fn create_qp_ex(
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> Result<*mut ibv_qp, Errno> {
    // SAFETY: by this function's contract, which is that of `ibv_create_qp_ex(3)`.
    unsafe {
        let create = table(context)?.create_qp_ex.ok_or(Errno::UNSUPPORTED)?;
        Errno::check_pointer(create(context, attr))
    }
}

/// `ibv_create_srq_ex`, an inline function in C.
///
/// # Safety
/// As for `ibv_create_srq_ex(3)`.
pub unsafe fn create_srq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_srq_init_attr_ex,
) -> Result<*mut ibv_srq, Errno> {
    // SAFETY: by this function's contract, which is that of `ibv_create_srq_ex(3)`.
    unsafe {
        let create = table(context)?.create_srq_ex.ok_or(Errno::UNSUPPORTED)?;
        Errno::check_pointer(create(context, attr))
    }
}

/// `ibv_open_xrcd`, an inline function in C.
///
/// # Safety
/// As for `ibv_open_xrcd(3)`.
pub unsafe fn open_xrcd(
    context: *mut ibv_context,
    attr: *mut ibv_xrcd_init_attr,
) -> Result<*mut ibv_xrcd, Errno> {
    // SAFETY: by this function's contract, which is that of `ibv_open_xrcd(3)`.
    unsafe {
        let open = table(context)?.open_xrcd.ok_or(Errno::UNSUPPORTED)?;
        Errno::check_pointer(open(context, attr))
    }
}

macro_rules! data_path {
    ($(
        $(#[$doc:meta])*
        fn $name:ident through $slot:ident($object:ident: $type:ty, $($arg:ident: $arg_type:ty),*);
    )*) => {
        $($(#[$doc])*
        ///
        /// # Safety
        /// As its manual page requires.
        pub unsafe fn $name($object: $type, $($arg: $arg_type),*) -> c_int {
            // SAFETY: by this function's contract, which is that of `ibv_open_xrcd(3)`; a context's table is
            // never empty here.
            unsafe {
                match (*(*$object).context).ops.$slot {
                    Some(call) => call($object, $($arg),*),
                    None => libc::EOPNOTSUPP,
                }
            }
        })*
    };
}

data_path! {
    /// `ibv_post_send`, an inline function in C.
    fn post_send through post_send(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr);
    /// `ibv_post_recv`, an inline function in C.
    fn post_recv through post_recv(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr);
    /// `ibv_poll_cq`, an inline function in C: the number of completions, or a negative error number.
    fn poll_cq through poll_cq(cq: *mut ibv_cq, most: c_int, completions: *mut ibv_wc);
    /// `ibv_req_notify_cq`, an inline function in C.
    fn req_notify_cq through req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int);
}
