//! The hop limit of a connected socket, which is that of its route.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

/// The error of addresses between which there can be no route.
pub(crate) fn no_route() -> io::Error {
    io::Error::from_raw_os_error(libc::EINVAL)
}

/// The hop limit of a connected socket's packets.
pub(crate) fn hop_limit(socket: &UdpSocket, is_v6: bool) -> io::Result<u8> {
    let (level, name) = match is_v6 {
        true => (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
        false => (libc::IPPROTO_IP, libc::IP_TTL),
    };
    let mut value: libc::c_int = 0;
    let mut length = size_of_val(&value) as libc::socklen_t;
    let place = (&raw mut value).cast();
    // SAFETY: a place for an integer, and its length.
    if unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, place, &mut length) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // The kernel's values are 1 to 255.
    Ok(u8::try_from(value).unwrap_or(u8::MAX))
}
