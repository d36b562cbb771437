//! Sockets that are connected and send nothing, and the hop limit of their route.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The error of addresses between which there can be no route.
pub(crate) fn no_route() -> io::Error {
    io::Error::from_raw_os_error(libc::EINVAL)
}

/// A UDP socket of the kernel with a local address. It is created by a system call, since preloaded
/// libraries that replace sockets by rsockets replace the C library's function.
pub(crate) fn bound_socket(address: &SocketAddr) -> io::Result<UdpSocket> {
    let family = match address {
        SocketAddr::V4(_) => libc::AF_INET,
        SocketAddr::V6(_) => libc::AF_INET6,
    };
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    // SAFETY: numbers only.
    let fd = unsafe { libc::syscall(libc::SYS_socket, family, kind, 0) } as libc::c_int;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nothing else owns.
    let socket = UdpSocket::from(unsafe { OwnedFd::from_raw_fd(fd) });
    let bound = match address {
        SocketAddr::V4(v4) => {
            // SAFETY: all zeros is a valid address.
            let mut raw: libc::sockaddr_in = unsafe { std::mem::zeroed() };
            raw.sin_family = libc::AF_INET as libc::sa_family_t;
            raw.sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
            // SAFETY: an address and its length.
            unsafe { libc::bind(fd, (&raw const raw).cast(), size_of_val(&raw) as u32) }
        }
        SocketAddr::V6(v6) => {
            // SAFETY: all zeros is a valid address.
            let mut raw: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
            raw.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            raw.sin6_addr.s6_addr = v6.ip().octets();
            raw.sin6_scope_id = v6.scope_id();
            // SAFETY: an address and its length.
            unsafe { libc::bind(fd, (&raw const raw).cast(), size_of_val(&raw) as u32) }
        }
    };
    if bound < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(socket)
}

/// Sets the hop limit of a socket's packets.
pub(crate) fn set_hop_limit(socket: &UdpSocket, is_v6: bool, hops: u8) -> io::Result<()> {
    let (level, name) = hop_limit_option(is_v6);
    let value = libc::c_int::from(hops);
    let (place, length) = ((&raw const value).cast(), size_of_val(&value) as u32);
    // SAFETY: an integer and its length.
    if unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, place, length) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Level and name of the socket option.
fn hop_limit_option(is_v6: bool) -> (libc::c_int, libc::c_int) {
    match is_v6 {
        true => (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
        false => (libc::IPPROTO_IP, libc::IP_TTL),
    }
}

/// The hop limit of a connected socket's packets.
pub(crate) fn hop_limit(socket: &UdpSocket, is_v6: bool) -> io::Result<u8> {
    let (level, name) = hop_limit_option(is_v6);
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
