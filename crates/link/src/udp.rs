//! RoCEv2 over UDP sockets: many packets per system call in both directions.
//!
//! ```text
//! send: one buffer of equal segments (the last may be shorter) ──UDP_SEGMENT──▶ that many datagrams
//! receive: datagrams of one flow ──UDP_GRO──▶ one buffer, and the segment size
//! ```
//!
//! The socket is not connected and asks for path MTU discovery: then Linux sends IPv4 Identification 0, and
//! 0, 1, 2… for the segments of one send, which the ICRC has to know.

use std::io;
use std::net::Ipv6Addr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::sys;

pub use wire::ROCE_PORT;

/// Segments that one send may have: what Linux before 6.9 takes (`UDP_MAX_SEGMENTS`).
pub const SEGMENTS_MAX: usize = 64;

/// Bytes that one send may have: a device's default `gso_max_size` of 65,536, less Ethernet, IPv6 and UDP
/// headers. Longer ones are cut up in software on their way.
pub const SEND_BYTES_MAX: usize = 65_536 - 14 - 40 - 8 - 1;

/// Bytes that one receive may give.
pub const RECEIVE_BYTES_MAX: usize = 65_536;

/// Queue pair numbers that a socket of the group takes: its index in the group is the number without these
/// bits.
pub const QPN_BITS: u32 = 14;

/// Where a send goes. IPv4 addresses are mapped ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// Our address.
    pub source: Ipv6Addr,
    /// The peer's.
    pub destination: Ipv6Addr,
    /// Interface index: the scope of link-local addresses.
    pub interface: u32,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// TTL.
    pub hop_limit: u8,
}

/// What one receive gave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagrams {
    /// Bytes in the buffer.
    pub length: usize,
    /// Bytes of each datagram but the last, which may be shorter.
    pub segment: usize,
    /// The sender.
    pub source: Ipv6Addr,
    /// Its port.
    pub source_port: u16,
    /// Whom they were sent to.
    pub destination: Ipv6Addr,
    /// DSCP and ECN of all of them: the kernel does not join datagrams that differ in it.
    pub traffic_class: u8,
    /// TTL as it arrived.
    pub hop_limit: u8,
    /// The interface it came in on.
    pub interface: u32,
}

/// Which family the socket has. A socket of IPv6 serves both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Family {
    /// IPv4 alone: where the kernel has no IPv6.
    V4,
    /// Both.
    Dual,
}

/// A socket on UDP port 4791.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    family: Family,
}

impl Socket {
    /// Makes one more member of the group of sockets on port 4791. The first gives the group its program,
    /// which steers by destination queue pair.
    ///
    /// # Errors
    /// `EADDRINUSE` when a socket of another user or without `SO_REUSEPORT` has the port; what `socket(2)`,
    /// `bind(2)` and `setsockopt(2)` say.
    pub fn join_group() -> io::Result<Self> {
        let (fd, family) = sys::udp::open()?;
        let socket = Self { fd, family };
        sys::udp::configure(socket.raw(), family)?;
        sys::udp::bind(socket.raw(), family, ROCE_PORT, true)?;
        sys::udp::steer(socket.raw(), QPN_BITS)?;
        Ok(socket)
    }

    /// Has each receive give one datagram: for who has no room for more.
    ///
    /// # Errors
    /// What `setsockopt(2)` says.
    pub fn receive_singly(&self) -> io::Result<()> {
        sys::udp::receive_singly(self.raw())
    }

    /// A socket that only sends, from another port than the group's. Processes may share the port.
    ///
    /// # Errors
    /// `EADDRINUSE` when a socket without `SO_REUSEPORT` or of another user has the port; what `socket(2)`,
    /// `bind(2)` and `setsockopt(2)` say.
    pub fn to_send_from(port: u16) -> io::Result<Self> {
        let (fd, family) = sys::udp::open()?;
        sys::udp::configure_to_send(fd.as_raw_fd(), family)?;
        sys::udp::bind(fd.as_raw_fd(), family, port, true)?;
        Ok(Self { fd, family })
    }

    /// Joins a multicast group on an interface, so that switches that listen in (IGMP, MLD) pass it on, and
    /// receives what is sent there. Of the group of sockets that share the port, the kernel would give it to
    /// any one; every process has a socket of its own for it.
    ///
    /// # Errors
    /// `ENOBUFS` when the kernel has no memory for it; what `socket(2)`, `bind(2)` and `setsockopt(2)` say.
    pub fn join(group: Ipv6Addr, interface: u32) -> io::Result<Self> {
        let (fd, family) = sys::udp::open()?;
        let socket = Self { fd, family };
        sys::udp::configure(socket.raw(), family)?;
        sys::udp::bind_to(socket.raw(), family, (group, interface), ROCE_PORT, true)?;
        sys::udp::join(socket.raw(), group, interface)?;
        Ok(socket)
    }

    /// Whether nobody has the port.
    ///
    /// # Errors
    /// `EADDRINUSE` when somebody has; what `socket(2)` and `bind(2)` say.
    pub fn check_port_is_free() -> io::Result<()> {
        let (fd, family) = sys::udp::open()?;
        sys::udp::bind(fd.as_raw_fd(), family, ROCE_PORT, false)
    }

    /// A socket that [`Self::join_group`] made in another process.
    ///
    /// # Errors
    /// What `getsockopt(2)` says: it is no socket.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        let family = sys::udp::family(fd.as_raw_fd())?;
        Ok(Self { fd, family })
    }

    /// The descriptor.
    pub fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Bytes that the kernel keeps for us while we are away, its own overhead included.
    ///
    /// # Errors
    /// What `getsockopt(2)` says.
    pub fn receive_buffer(&self) -> io::Result<usize> {
        sys::udp::receive_buffer(self.raw())
    }

    /// Whether the kernel sends many datagrams with one call (UDP segmentation offload, Linux 4.18): some
    /// sandboxes do not.
    pub fn can_segment(&self) -> bool {
        sys::udp::can_segment(self.raw())
    }

    /// Sends `bytes` as datagrams of `segment` bytes each, the last one of what is left. Does not wait.
    ///
    /// # Errors
    /// What `sendmsg(2)` says; nothing was sent then. Datagrams get lost anyway: the device recovers from it.
    #[inline]
    pub fn send(&self, route: &Route, bytes: &[u8], segment: usize) -> io::Result<()> {
        sys::udp::send(self.raw(), self.family, route, bytes, segment)
    }

    /// Takes datagrams that are there; `None` when none is. Does not wait.
    ///
    /// # Errors
    /// What `recvmsg(2)` says.
    #[inline]
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<Datagrams>> {
        match sys::udp::receive(self.raw(), self.family, buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            other => other.map(Some),
        }
    }

    /// A second handle on the same socket.
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
