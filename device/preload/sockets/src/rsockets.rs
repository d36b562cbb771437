//! The rsocket functions of `librdmacm.so.1`.

use core::cell::Cell;
use core::ffi::{CStr, c_int, c_void};
use libc::{iovec, msghdr, nfds_t, pollfd, sockaddr, socklen_t};
use std::sync::OnceLock;

thread_local! {
    /// Set while this thread is in a call of librdmacm, whose own sockets must stay kernel sockets.
    static IN_LIBRDMACM: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is in a call of librdmacm.
pub(crate) fn in_librdmacm() -> bool {
    IN_LIBRDMACM.try_with(Cell::get).unwrap_or(true)
}

fn within<T>(call: impl FnOnce() -> T) -> T {
    let before = IN_LIBRDMACM
        .try_with(|flag| flag.replace(true))
        .unwrap_or(true);
    let answer = call();
    _ = IN_LIBRDMACM.try_with(|flag| flag.set(before));
    answer
}

macro_rules! rsockets {
    ($(fn $name:ident($($arg:ident: $type:ty),*) -> $ret:ty;)*) => {
        struct Functions {
            $($name: unsafe extern "C-unwind" fn($($type),*) -> $ret,)*
        }

        impl Functions {
            /// # Safety
            /// `library` is a handle of `dlopen`.
            unsafe fn find(library: *mut c_void) -> Option<Self> {
                Some(Self {
                    $($name: {
                        let name = concat!(stringify!($name), "\0");
                        // SAFETY: a handle, and a string that ends with 0.
                        let symbol = unsafe { libc::dlsym(library, name.as_ptr().cast()) };
                        if symbol.is_null() {
                            return None;
                        }
                        type Function = unsafe extern "C-unwind" fn($($type),*) -> $ret;
                        // SAFETY: librdmacm has a function of this type under this name (rdma/rsocket.h).
                        unsafe { core::mem::transmute::<*mut c_void, Function>(symbol) }
                    },)*
                })
            }
        }

        $(
            /// Calls the function of rsocket(7).
            ///
            /// # Safety
            /// As for the socket function of the same name without `r`.
            pub(crate) unsafe fn $name($($arg: $type),*) -> $ret {
                match functions() {
                    // SAFETY: librdmacm has a function of this type under this name (rdma/rsocket.h).
                    Some(functions) => within(|| unsafe { (functions.$name)($($arg),*) }),
                    None => crate::next::missing::<$ret>(),
                }
            }
        )*
    };
}

rsockets! {
    fn rsocket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn rbind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int;
    fn rlisten(fd: c_int, backlog: c_int) -> c_int;
    fn raccept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
    fn rconnect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int;
    fn rshutdown(fd: c_int, how: c_int) -> c_int;
    fn rclose(fd: c_int) -> c_int;
    fn rread(fd: c_int, to: *mut c_void, length: usize) -> isize;
    fn rreadv(fd: c_int, list: *const iovec, count: c_int) -> isize;
    fn rrecv(fd: c_int, to: *mut c_void, length: usize, flags: c_int) -> isize;
    fn rrecvfrom(fd: c_int, to: *mut c_void, length: usize, flags: c_int, address: *mut sockaddr,
        address_length: *mut socklen_t) -> isize;
    fn rrecvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> isize;
    fn rwrite(fd: c_int, from: *const c_void, length: usize) -> isize;
    fn rwritev(fd: c_int, list: *const iovec, count: c_int) -> isize;
    fn rsend(fd: c_int, from: *const c_void, length: usize, flags: c_int) -> isize;
    fn rsendto(fd: c_int, from: *const c_void, length: usize, flags: c_int, address: *const sockaddr,
        address_length: socklen_t) -> isize;
    fn rsendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> isize;
    fn rpoll(list: *mut pollfd, count: nfds_t, time_ms: c_int) -> c_int;
    fn rgetpeername(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
    fn rgetsockname(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
    fn rsetsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, length: socklen_t) -> c_int;
    fn rgetsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut socklen_t) -> c_int;
    fn rfcntl(fd: c_int, command: c_int, argument: c_int) -> c_int;
}

/// The functions, looked up once; `None` if librdmacm cannot be loaded.
fn functions() -> Option<&'static Functions> {
    static FUNCTIONS: OnceLock<Option<Functions>> = OnceLock::new();
    let load = || {
        const NAME: &CStr = c"librdmacm.so.1";
        // SAFETY: a string that ends with 0.
        let library = unsafe { libc::dlopen(NAME.as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return None;
        }
        // SAFETY: the library of this name has these functions, and is never closed.
        unsafe { Functions::find(library) }
    };
    FUNCTIONS.get_or_init(|| within(load)).as_ref()
}
