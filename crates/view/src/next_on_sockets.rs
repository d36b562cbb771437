//! The C library's own functions that create a socket or send on it.

use crate::next::{Next, missing};
use core::ffi::{c_int, c_void};

type Socket = unsafe extern "C" fn(c_int, c_int, c_int) -> c_int;
type Send = unsafe extern "C" fn(c_int, *const c_void, usize, c_int) -> isize;
type SendTo =
    unsafe extern "C" fn(c_int, *const c_void, usize, c_int, *const libc::sockaddr, libc::socklen_t) -> isize;
type SendMessage = unsafe extern "C" fn(c_int, *const libc::msghdr, c_int) -> isize;

/// Calls the C library's function of this name.
macro_rules! next {
    ($name:literal as $kind:ty, $($argument:expr),*) => {{
        static NEXT: Next = Next::new($name);
        let original = NEXT.address();
        if original.is_null() {
            return missing();
        }
        // SAFETY: the C library's function of this name has this signature, and our caller owes it the
        // arguments.
        unsafe { core::mem::transmute::<*mut c_void, $kind>(original)($($argument),*) }
    }};
}

/// The C library's `socket(2)`.
///
/// # Safety
/// As for the C library's function.
pub(crate) unsafe fn next_socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    next!(c"socket" as Socket, domain, kind, protocol)
}

/// The C library's `sendto(2)`.
///
/// # Safety
/// As for the C library's function.
pub(crate) unsafe fn next_sendto(
    socket: c_int,
    bytes: *const c_void,
    length: usize,
    flags: c_int,
    to: *const libc::sockaddr,
    to_length: libc::socklen_t,
) -> isize {
    next!(c"sendto" as SendTo, socket, bytes, length, flags, to, to_length)
}

/// The C library's `send(2)`.
///
/// # Safety
/// As for the C library's function.
pub(crate) unsafe fn next_send(socket: c_int, bytes: *const c_void, length: usize, flags: c_int) -> isize {
    next!(c"send" as Send, socket, bytes, length, flags)
}

/// The C library's `sendmsg(2)`.
///
/// # Safety
/// As for the C library's function.
pub(crate) unsafe fn next_sendmsg(socket: c_int, message: *const libc::msghdr, flags: c_int) -> isize {
    next!(c"sendmsg" as SendMessage, socket, message, flags)
}
