//! RoCEv2 over UDP sockets: many packets per system call in both directions.
//!
//! ```text
//! send: one buffer of equal segments (the last may be shorter) ──UDP_SEGMENT──▶ that many datagrams
//! receive: datagrams of one flow ──UDP_GRO──▶ one buffer, and the segment size
//! ```
//!
//! The socket is not connected and requests path MTU discovery: then Linux sends IPv4 Identification 0, and
//! 0, 1, 2… for the segments of one send, which the computation of the ICRC needs.

use std::io;
use std::net::Ipv6Addr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::sys;

pub use wire::ROCE_PORT;

/// Limit of segments of one send: that of Linux before 6.9 (`UDP_MAX_SEGMENTS`).
pub const SEGMENTS_MAX: usize = 64;

/// Limit of bytes of one send: a device's default `gso_max_size` of 65,536, less Ethernet, IPv6 and UDP
/// headers. The kernel would segment longer ones in software.
pub const SEND_BYTES_MAX: usize = 65_536 - 14 - 40 - 8 - 1;

/// Limit of bytes that one receive call may return.
pub const RECEIVE_BYTES_MAX: usize = 65_536;

/// Number of low bits of a queue pair number that are not part of the index of its socket in the group.
pub const QPN_BITS: u32 = 14;

/// Source and destination of a send. IPv4 addresses are IPv4-mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// Source address, one of this host.
    pub source: Ipv6Addr,
    /// Destination address, unicast or multicast.
    pub destination: Ipv6Addr,
    /// Interface index: the scope of link-local addresses.
    pub interface: u32,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Hop limit (IPv4: TTL).
    pub hop_limit: u8,
}

/// The datagrams of one receive call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagrams {
    /// Bytes in the buffer.
    pub length: usize,
    /// Bytes of each datagram but the last, which may be shorter.
    pub segment: usize,
    /// Source address of the datagrams.
    pub source: Ipv6Addr,
    /// UDP source port.
    pub source_port: u16,
    /// Destination address: one of this host, or a multicast group.
    pub destination: Ipv6Addr,
    /// DSCP and ECN of all of them: the kernel does not coalesce datagrams that differ in it.
    pub traffic_class: u8,
    /// Hop limit (IPv4: TTL) as it arrived.
    pub hop_limit: u8,
    /// The interface on which they arrived.
    pub interface: u32,
}

/// Address family of a socket. An IPv6 socket serves both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Family {
    /// IPv4 alone, where the kernel has no IPv6.
    V4,
    /// IPv6 and, by IPv4-mapped addresses, IPv4.
    Dual,
}

/// A socket on UDP port 4791.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    family: Family,
}

impl Socket {
    /// Creates one more member of the group of sockets on port 4791. The first attaches the group's BPF
    /// program, which steers by destination queue pair: the upper bits of its number, multiplied by `factor`,
    /// modulo 2^10 - 1, are the index of the member that gets a packet.
    ///
    /// # Errors
    /// `EADDRINUSE` when a socket of another user or without `SO_REUSEPORT` has the port; those of
    /// `socket(2)`, `bind(2)` and `setsockopt(2)`.
    pub fn join_group(factor: u32) -> io::Result<Self> {
        let (fd, family) = sys::udp::open()?;
        let socket = Self { fd, family };
        sys::udp::configure(socket.raw(), family)?;
        sys::udp::bind(socket.raw(), family, ROCE_PORT, true)?;
        sys::udp::steer(socket.raw(), QPN_BITS, factor)?;
        Ok(socket)
    }

    /// Makes each receive call return one datagram, for callers whose buffer has room for one.
    ///
    /// # Errors
    /// Those of `setsockopt(2)`.
    pub fn receive_singly(&self) -> io::Result<()> {
        sys::udp::receive_singly(self.raw())
    }

    /// Creates a socket that only sends, from another port than the group's. Processes may share the port.
    ///
    /// # Errors
    /// `EADDRINUSE` when a socket without `SO_REUSEPORT` or of another user has the port; those of
    /// `socket(2)`, `bind(2)` and `setsockopt(2)`.
    pub fn to_send_from(port: u16) -> io::Result<Self> {
        let (fd, family) = sys::udp::open()?;
        sys::udp::configure_to_send(fd.as_raw_fd(), family)?;
        sys::udp::bind(fd.as_raw_fd(), family, port, true)?;
        Ok(Self { fd, family })
    }

    /// Joins a multicast group on an interface, so that switches with IGMP or MLD snooping forward it, and
    /// creates a socket that receives its datagrams. The kernel would choose any one of the sockets that
    /// share port 4791, so each process has a socket of its own for a group.
    ///
    /// # Errors
    /// `ENOBUFS` when the kernel has no memory for it; those of `socket(2)`, `bind(2)` and
    /// `setsockopt(2)`.
    pub fn join(group: Ipv6Addr, interface: u32) -> io::Result<Self> {
        let (fd, family) = sys::udp::open()?;
        let socket = Self { fd, family };
        sys::udp::configure(socket.raw(), family)?;
        sys::udp::bind_to(socket.raw(), family, (group, interface), ROCE_PORT, true)?;
        sys::udp::join(socket.raw(), group, interface)?;
        Ok(socket)
    }

    /// Checks that no other socket is bound to the port.
    ///
    /// # Errors
    /// `EADDRINUSE` when one is; those of `socket(2)` and `bind(2)`.
    pub fn check_port_is_free() -> io::Result<()> {
        let (fd, family) = sys::udp::open()?;
        sys::udp::bind(fd.as_raw_fd(), family, ROCE_PORT, false)
    }

    /// Wraps a socket that [`Self::join_group`] created in another process.
    ///
    /// # Errors
    /// Those of `getsockopt(2)`: the descriptor is no socket.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        let family = sys::udp::family(fd.as_raw_fd())?;
        Ok(Self { fd, family })
    }

    /// The descriptor of the socket.
    pub fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Size of the receive buffer in bytes, the kernel's overhead included.
    ///
    /// # Errors
    /// Those of `getsockopt(2)`.
    pub fn receive_buffer(&self) -> io::Result<usize> {
        sys::udp::receive_buffer(self.raw())
    }

    /// Whether the kernel sends many datagrams with one call (UDP segmentation offload, Linux 4.18): some
    /// sandboxes do not.
    pub fn can_segment(&self) -> bool {
        sys::udp::can_segment(self.raw())
    }

    /// Sends `bytes` as datagrams of `segment` bytes each, the last one of the remaining bytes. Does not
    /// block.
    ///
    /// # Errors
    /// Those of `sendmsg(2)`; nothing was sent then. The device recovers from it as from loss on a network.
    #[inline]
    pub fn send(&self, route: &Route, bytes: &[u8], segment: usize) -> io::Result<()> {
        sys::udp::send(self.raw(), self.family, route, bytes, segment)
    }

    /// Receives datagrams; `None` when there are none. Does not block.
    ///
    /// # Errors
    /// Those of `recvmsg(2)`.
    #[inline]
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<Datagrams>> {
        match sys::udp::receive(self.raw(), self.family, buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            other => other.map(Some),
        }
    }

    /// Creates a second handle of the same socket.
    ///
    /// # Errors
    /// `EMFILE`: no descriptors left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { fd: self.fd.try_clone()?, family: self.family })
    }
}

impl From<Socket> for OwnedFd {
    fn from(socket: Socket) -> Self {
        socket.fd
    }
}
