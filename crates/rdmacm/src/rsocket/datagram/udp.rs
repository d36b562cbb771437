//! The kernel's UDP socket behind a socket for datagrams: its address and port are that socket's, and it
//! carries what queue pairs cannot yet.

use crate::sockaddr;
use abi::sockaddr_storage;
use core::ffi::{c_int, c_void};
use door::Errno;
use libc::{iovec, msghdr, pollfd, sockaddr as raw_sockaddr};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

/// Pieces of one datagram, as the kernel has it (UIO_MAXIOV), and its header.
const PIECES_MAX: usize = 1024;

/// The socket.
pub(super) struct Udp {
    fd: OwnedFd,
    is_v6: bool,
}

impl Udp {
    /// One of IPv4 or IPv6.
    pub(super) fn new(family: c_int, flags: c_int) -> Result<Self, Errno> {
        let kind = libc::SOCK_DGRAM | (flags & libc::SOCK_CLOEXEC);
        Ok(Self { fd: sockaddr::kernel_socket(family, kind)?, is_v6: family == libc::AF_INET6 })
    }

    pub(super) fn descriptor(&self) -> c_int {
        self.fd.as_raw_fd()
    }

    pub(super) fn pollfd(&self, events: i16) -> pollfd {
        pollfd { fd: self.descriptor(), events, revents: 0 }
    }

    /// An address as the program knows it: a socket of IPv6 sees IPv4 mapped.
    pub(super) fn seen(&self, address: SocketAddr) -> SocketAddr {
        match address.ip() {
            IpAddr::V4(v4) if self.is_v6 => SocketAddr::new(v4.to_ipv6_mapped().into(), address.port()),
            _ => address,
        }
    }

    /// Sends a datagram from pieces; `None` when there is no room for it now.
    pub(super) fn send(&self, to: SocketAddr, pieces: &[&[u8]]) -> Result<Option<()>, Errno> {
        if pieces.len() > PIECES_MAX {
            return Err(Errno(libc::EMSGSIZE));
        }
        let piece = |piece: &&[u8]| iovec { iov_base: piece.as_ptr() as *mut c_void, iov_len: piece.len() };
        let mut list: Vec<iovec> = pieces.iter().map(piece).collect();
        let address = self.seen(to);
        let mut storage = sockaddr::storage(address);
        // SAFETY: zeros are a valid value.
        let mut message: msghdr = unsafe { core::mem::zeroed() };
        message.msg_name = storage.as_mut_ptr().cast();
        message.msg_namelen = sockaddr::length(&address);
        message.msg_iov = list.as_mut_ptr();
        message.msg_iovlen = list.len() as _;
        // SAFETY: the message leads to what lives until the call returns, and is only read.
        let sent = unsafe { libc::sendmsg(self.descriptor(), &message, libc::MSG_DONTWAIT) };
        match (sent, Errno::last()) {
            (0.., _) => Ok(Some(())),
            (_, Errno(libc::EAGAIN | libc::ENOBUFS)) => Ok(None),
            (_, error) => Err(error),
        }
    }

    /// The next datagram, who sent it and how long it is; `None` when there is none.
    pub(super) fn receive(&self, room: &mut [u8]) -> Result<Option<(SocketAddr, usize)>, Errno> {
        let mut storage = sockaddr_storage::default();
        let mut length = size_of::<sockaddr_storage>() as u32;
        // SAFETY: room for the bytes and for the address, which lives until the call returns.
        let received = unsafe {
            libc::recvfrom(
                self.descriptor(),
                room.as_mut_ptr().cast(),
                room.len(),
                libc::MSG_DONTWAIT,
                storage.as_mut_ptr().cast(),
                &mut length,
            )
        };
        match (usize::try_from(received), Errno::last()) {
            (Ok(received), _) => Ok(canonical(&storage).map(|from| (from, received))),
            (_, Errno(libc::EAGAIN | libc::EINTR)) => Ok(None),
            (_, error) => Err(error),
        }
    }

    /// Its own address.
    pub(super) fn local(&self) -> Result<SocketAddr, Errno> {
        local(self.descriptor())
    }

    /// From which of this host's addresses a datagram to `to` goes.
    pub(super) fn source(&self, to: SocketAddr) -> Result<IpAddr, Errno> {
        let own = self.local()?.ip();
        if !own.is_unspecified() {
            return Ok(own);
        }
        // Connecting a socket of datagrams looks at routes, and sends nothing.
        let probe = Self::new(if to.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }, libc::SOCK_CLOEXEC)?;
        let storage = sockaddr::storage(to);
        let place: *const raw_sockaddr = storage.as_ptr().cast();
        // SAFETY: an address as long as it says.
        Errno::check(unsafe { libc::connect(probe.descriptor(), place, sockaddr::length(&to)) })?;
        Ok(probe.local()?.ip())
    }
}

/// The address of a socket, with IPv4 as IPv4.
fn local(fd: c_int) -> Result<SocketAddr, Errno> {
    let mut storage = sockaddr_storage::default();
    let mut length = size_of::<sockaddr_storage>() as u32;
    // SAFETY: room for any address.
    Errno::check(unsafe { libc::getsockname(fd, storage.as_mut_ptr().cast(), &mut length) })?;
    canonical(&storage).ok_or(Errno::INVALID)
}

fn canonical(storage: &sockaddr_storage) -> Option<SocketAddr> {
    sockaddr::stored(storage).map(plain)
}

/// IPv4 that is mapped to IPv6 is IPv4.
pub(super) fn plain(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(v4) => SocketAddr::new(v4.into(), address.port()),
        IpAddr::V6(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_is_ipv4_however_it_is_written() {
        let mapped: SocketAddr = "[::ffff:10.0.0.1]:9".parse().unwrap();
        assert_eq!(plain(mapped), "10.0.0.1:9".parse().unwrap());
        let udp = Udp::new(libc::AF_INET6, 0).unwrap();
        assert_eq!(udp.seen(plain(mapped)), mapped);
        assert_eq!(udp.local().unwrap(), "[::]:0".parse().unwrap());
        assert_eq!(udp.source("127.0.0.1:9".parse().unwrap()), Ok([127, 0, 0, 1].into()));
    }
}
