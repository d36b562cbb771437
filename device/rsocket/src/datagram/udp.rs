//! The kernel UDP socket behind a datagram socket: it has the socket's address and port, and carries the
//! datagrams that queue pairs cannot carry yet.

use abi::sockaddr_storage;
use core::ffi::{c_int, c_void};
use ffi::Errno;
use libc::{iovec, msghdr, pollfd, sockaddr as raw_sockaddr};
use rdma_cm::sockaddr;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

/// Pieces of one datagram at most: the kernel's limit (`UIO_MAXIOV`) includes the header.
const PIECES_MAX: usize = 1024;

/// The kernel UDP socket.
pub(super) struct Udp {
    fd: OwnedFd,
    is_v6: bool,
}

impl Udp {
    /// Creates a socket of IPv4 or IPv6.
    pub(super) fn new(family: c_int, flags: c_int) -> Result<Self, Errno> {
        let kind = libc::SOCK_DGRAM | (flags & libc::SOCK_CLOEXEC);
        Ok(Self {
            fd: sockaddr::kernel_socket(family, kind)?,
            is_v6: family == libc::AF_INET6,
        })
    }

    pub(super) fn descriptor(&self) -> c_int {
        self.fd.as_raw_fd()
    }

    pub(super) fn pollfd(&self, events: i16) -> pollfd {
        pollfd {
            fd: self.descriptor(),
            events,
            revents: 0,
        }
    }

    /// Converts an address for the program: on a socket of IPv6, IPv4 is mapped.
    pub(super) fn seen(&self, address: SocketAddr) -> SocketAddr {
        match address.ip() {
            IpAddr::V4(v4) if self.is_v6 => {
                SocketAddr::new(v4.to_ipv6_mapped().into(), address.port())
            }
            _ => address,
        }
    }

    /// Sends a datagram from pieces; `None` when the socket's buffer is full.
    pub(super) fn send(&self, to: SocketAddr, pieces: &[&[u8]]) -> Result<Option<()>, Errno> {
        if pieces.len() > PIECES_MAX {
            return Err(Errno(libc::EMSGSIZE));
        }
        let piece = |piece: &&[u8]| iovec {
            iov_base: piece.as_ptr() as *mut c_void,
            iov_len: piece.len(),
        };
        let mut list: Vec<iovec> = pieces.iter().map(piece).collect();
        let address = self.seen(to);
        let mut storage = sockaddr::storage(address);
        // SAFETY: zeros are a valid value.
        let mut message: msghdr = unsafe { core::mem::zeroed() };
        message.msg_name = storage.as_mut_ptr().cast();
        message.msg_namelen = sockaddr::length(&address);
        message.msg_iov = list.as_mut_ptr();
        message.msg_iovlen = list.len() as _;
        // SAFETY: the message and its pieces live until the call returns, and are only read.
        let sent = unsafe { libc::sendmsg(self.descriptor(), &message, libc::MSG_DONTWAIT) };
        match (sent, Errno::last()) {
            (0.., _) => Ok(Some(())),
            (_, Errno(libc::EAGAIN | libc::ENOBUFS)) => Ok(None),
            (_, error) => Err(error),
        }
    }

    /// Reads the next datagram: its sender and length; `None` when there is none.
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

    /// The local address.
    pub(super) fn local(&self) -> Result<SocketAddr, Errno> {
        local(self.descriptor())
    }

    /// The local address from which a datagram to `to` is sent.
    pub(super) fn source(&self, to: SocketAddr) -> Result<IpAddr, Errno> {
        let own = self.local()?.ip();
        if !own.is_unspecified() {
            return Ok(own);
        }
        // Connecting a UDP socket looks up the route and sends nothing.
        let probe = Self::new(
            if to.is_ipv4() {
                libc::AF_INET
            } else {
                libc::AF_INET6
            },
            libc::SOCK_CLOEXEC,
        )?;
        let storage = sockaddr::storage(to);
        let place: *const raw_sockaddr = storage.as_ptr().cast();
        // SAFETY: an address as long as it says.
        Errno::check_code(unsafe {
            libc::connect(probe.descriptor(), place, sockaddr::length(&to))
        })?;
        Ok(probe.local()?.ip())
    }
}

/// The local address of a socket, with mapped IPv4 as IPv4.
fn local(fd: c_int) -> Result<SocketAddr, Errno> {
    let mut storage = sockaddr_storage::default();
    let mut length = size_of::<sockaddr_storage>() as u32;
    // SAFETY: room for any address.
    Errno::check_code(unsafe { libc::getsockname(fd, storage.as_mut_ptr().cast(), &mut length) })?;
    canonical(&storage).ok_or(Errno::INVALID)
}

fn canonical(storage: &sockaddr_storage) -> Option<SocketAddr> {
    sockaddr::stored(storage).map(plain)
}

/// Converts an IPv4-mapped address to IPv4.
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
    fn mapped_ipv4_equals_ipv4() {
        let mapped: SocketAddr = "[::ffff:10.0.0.1]:9".parse().unwrap();
        assert_eq!(plain(mapped), "10.0.0.1:9".parse().unwrap());
        let udp = Udp::new(libc::AF_INET6, 0).unwrap();
        assert_eq!(udp.seen(plain(mapped)), mapped);
        assert_eq!(udp.local().unwrap(), "[::]:0".parse().unwrap());
        assert_eq!(
            udp.source("127.0.0.1:9".parse().unwrap()),
            Ok([127, 0, 0, 1].into())
        );
    }
}
