//! The C library's own functions that create a socket or send on it.

use crate::next::real;
use core::ffi::{c_int, c_void};
use libc::{msghdr, sockaddr, socklen_t};

real! {
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn sendto(socket: c_int, bytes: *const c_void, length: usize, flags: c_int, to: *const sockaddr,
        to_length: socklen_t) -> isize;
    fn send(socket: c_int, bytes: *const c_void, length: usize, flags: c_int) -> isize;
    fn sendmsg(socket: c_int, message: *const msghdr, flags: c_int) -> isize;
}
