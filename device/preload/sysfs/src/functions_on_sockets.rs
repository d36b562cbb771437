//! The C library's functions that create a socket or send on it, for [`crate::netlink`]. Calls on other
//! sockets are passed to the C library unchanged.

use crate::netlink::{self, REQUEST_BYTES_MAX};
use crate::next::replace;
use crate::next_on_sockets as real;
use core::ffi::{c_int, c_void};

replace! {
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
        if (domain, protocol) == (libc::AF_NETLINK, libc::NETLINK_RDMA)
            && let Some(given) = netlink::open(kind)
        {
            return given;
        }
        real::socket(domain, kind, protocol)
    }

    fn sendto(socket: c_int, bytes: *const c_void, length: usize, flags: c_int, to: *const libc::sockaddr,
        to_length: libc::socklen_t) -> isize {
        if netlink::is_given(socket) {
            return answered(socket, bytes, length);
        }
        real::sendto(socket, bytes, length, flags, to, to_length)
    }

    fn send(socket: c_int, bytes: *const c_void, length: usize, flags: c_int) -> isize {
        if netlink::is_given(socket) {
            return answered(socket, bytes, length);
        }
        real::send(socket, bytes, length, flags)
    }

    fn sendmsg(socket: c_int, message: *const libc::msghdr, flags: c_int) -> isize {
        if netlink::is_given(socket) && !message.is_null() {
            return answered_pieces(socket, &*message);
        }
        real::sendmsg(socket, message, flags)
    }
}

/// Joins the pieces of a message; `None` if it is longer than any request.
///
/// # Safety
/// Every piece of the message is readable.
unsafe fn joined(message: &libc::msghdr) -> Option<Vec<u8>> {
    let mut request = Vec::new();
    for at in 0..message.msg_iovlen {
        // SAFETY: by this function's contract, every piece of the message is readable.
        let piece = unsafe { &*message.msg_iov.add(at) };
        if piece.iov_len > REQUEST_BYTES_MAX - request.len() {
            return None;
        }
        if piece.iov_len > 0 {
            // SAFETY: by this function's contract, every piece of the message is readable.
            request.extend(unsafe {
                core::slice::from_raw_parts(piece.iov_base.cast::<u8>(), piece.iov_len)
            });
        }
    }
    Some(request)
}

/// # Safety
/// Every piece of the message is readable.
#[inline(never)]
unsafe fn answered_pieces(socket: c_int, message: &libc::msghdr) -> isize {
    // SAFETY: by this function's contract, every piece of the message is readable.
    match &unsafe { joined(message) } {
        Some(request) => reported(netlink::answer(socket, request), request.len()),
        None => too_long(),
    }
}

/// # Safety
/// So many bytes are readable.
#[inline(never)]
unsafe fn answered(socket: c_int, bytes: *const c_void, length: usize) -> isize {
    if length > REQUEST_BYTES_MAX {
        return too_long();
    }
    if bytes.is_null() || length == 0 {
        return 0;
    }
    // SAFETY: by this function's contract, so many bytes are readable.
    let request = unsafe { core::slice::from_raw_parts(bytes.cast::<u8>(), length) };
    reported(netlink::answer(socket, request), length)
}

fn reported(done: bool, length: usize) -> isize {
    if done { length as isize } else { -1 }
}

fn too_long() -> isize {
    // SAFETY: errno is a variable of this thread.
    unsafe { *libc::__errno_location() = libc::EMSGSIZE };
    -1
}
