//! Route netlink: sockets for requests that the kernel answers at once (rtnetlink(7)).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Opens a socket with these flags besides, by a system call as [`super::route::bound_socket`] does.
pub(crate) fn open(flags: libc::c_int) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | flags;
    let (family, protocol) = (libc::AF_NETLINK, libc::NETLINK_ROUTE);
    // SAFETY: numbers only; the call makes a descriptor.
    unsafe {
        let fd = libc::syscall(libc::SYS_socket, family, kind, protocol);
        os::owned(fd as libc::c_int)
    }
}

/// Sends a request, and returns how many bytes of the answer are in `room`. The kernel answers before
/// `send(2)` returns, so this does not wait.
pub(crate) fn ask(socket: &OwnedFd, request: &[u8], room: &mut [u8]) -> io::Result<usize> {
    let fd = socket.as_raw_fd();
    let (bytes, length) = (request.as_ptr().cast(), request.len());
    // SAFETY: a slice and its length.
    if unsafe { libc::send(fd, bytes, length, libc::MSG_NOSIGNAL) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a slice and its length.
    let received = unsafe {
        let place = room.as_mut_ptr().cast();
        libc::recv(fd, place, room.len(), libc::MSG_DONTWAIT)
    };
    usize::try_from(received).map_err(|_| io::Error::last_os_error())
}
