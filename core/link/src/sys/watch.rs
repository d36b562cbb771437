//! Route netlink: a socket that becomes readable when interfaces or addresses change (rtnetlink(7)).

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

const GROUPS: i32 = libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR;
/// Size of the buffer for notifications, whose contents are not used.
const MESSAGE_BYTES: usize = 8 << 10;

pub(crate) fn open() -> io::Result<OwnedFd> {
    let fd = super::netlink::open(libc::SOCK_NONBLOCK)?;
    // SAFETY: all zeros is a valid address.
    let mut address: libc::sockaddr_nl = unsafe { zeroed() };
    address.nl_family = libc::AF_NETLINK as u16;
    address.nl_groups = GROUPS as u32;
    let length = size_of::<libc::sockaddr_nl>() as u32;
    // SAFETY: an address of that length.
    let bound = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length) };
    if bound < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(fd)
    }
}

/// Discards the waiting notifications. True when there were some, or so many that the kernel lost some
/// (`ENOBUFS`).
pub(crate) fn drain(fd: RawFd) -> bool {
    let mut buffer = [0u8; MESSAGE_BYTES];
    let mut any = false;
    loop {
        // SAFETY: a buffer and its length.
        let received = unsafe {
            libc::recv(
                fd,
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                libc::MSG_DONTWAIT,
            )
        };
        if received >= 0 {
            any = true;
            continue;
        }
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::ENOBUFS) => any = true,
            Some(libc::EINTR) => {}
            _ => return any,
        }
    }
}
