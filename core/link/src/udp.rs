//! RoCEv2 over UDP sockets: many packets per system call in both directions.
//!
//! ```text
//! send: one buffer of equal segments (the last may be shorter) ──UDP_SEGMENT──▶ that many datagrams
//! receive: datagrams of one flow ──UDP_GRO──▶ one buffer, and the segment size
//! ```
//!
//! The socket is not connected and sets DF: then Linux sends IPv4 Identification 0, and 0, 1, 2… for the
//! segments of one send, which the computation of the ICRC needs. ICMP errors, which any host can forge,
//! change nothing: the kernel reports them to connected sockets only, and the path MTU is ignored.

use std::io;
use std::net::Ipv6Addr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Mutex;

use crate::cached_sockopts::Kept;
use crate::datagram::{Family, Named};
use crate::sys;

pub use crate::datagram::{Datagrams, Route, ScopedAddress};
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

/// A socket on UDP port 4791.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    family: Family,
    /// `None` where each send names all parameters of its packets.
    bound: Option<Bound>,
}

/// What a socket that is bound to a source address knows of the packets that it sends.
#[derive(Debug)]
struct Bound {
    source: Ipv6Addr,
    can_segment: bool,
    /// Locked while the socket sends.
    parameters: Mutex<Parameters>,
}

/// Parameters that the kernel applies to sends which do not name them.
#[derive(Debug)]
struct Parameters {
    /// Bytes of a segment; 0 while sends are not segmented.
    segment: Kept,
    traffic_class: Kept,
    hop_limit: Kept,
}

impl Named {
    /// Those of a socket that keeps none: what differs from the kernel's default. Packets to groups have
    /// another default, a hop limit of 1.
    #[inline]
    fn by_unbound(route: &Route, size: u16) -> Self {
        let is_default = route.hop_limit == sys::udp::DEFAULT_HOP_LIMIT && !route.is_to_group();
        Self {
            source: true,
            segment: (size != 0).then_some(size),
            traffic_class: route.traffic_class != 0,
            hop_limit: !is_default,
        }
    }
}

impl Bound {
    fn new(source: Ipv6Addr, can_segment: bool) -> Self {
        let segment = Kept::new(0);
        let (traffic_class, hop_limit) =
            (Kept::new(0), Kept::new(sys::udp::DEFAULT_HOP_LIMIT.into()));
        let parameters = Mutex::new(Parameters {
            segment,
            traffic_class,
            hop_limit,
        });
        Self {
            source,
            can_segment,
            parameters,
        }
    }
}

impl Parameters {
    /// The parameters that a send of so many bytes has to name, in segments of `size`, or in one datagram
    /// where `size` is 0.
    #[inline]
    fn named(&mut self, fd: RawFd, route: &Route, bytes: usize, size: u16) -> Named {
        let Self {
            segment,
            traffic_class,
            hop_limit,
        } = self;
        let segment = match size {
            // The kernel does not segment what is no longer than a segment.
            0 => segment.own() != 0 && bytes > usize::from(segment.own()),
            _ => segment.has_to_name(size, |size| sys::udp::keep_segment(fd, size)),
        };
        let class = route.traffic_class.into();
        let hops = route.hop_limit.into();
        Named {
            source: false,
            segment: segment.then_some(size),
            traffic_class: traffic_class
                .has_to_name(class, |it| sys::udp::keep_traffic_class(fd, route, it)),
            hop_limit: hop_limit.has_to_name(hops, |it| sys::udp::keep_hop_limit(fd, route, it)),
        }
    }
}

impl Socket {
    fn of_family(fd: OwnedFd, family: Family) -> Self {
        Self {
            fd,
            family,
            bound: None,
        }
    }

    /// Creates one more member of the group of sockets on port 4791. The first attaches the group's BPF
    /// program, which steers by destination queue pair: the upper bits of its number, multiplied by `factor`,
    /// modulo 2^10 - 1, are the index of the member that gets a packet.
    ///
    /// # Errors
    /// `EADDRINUSE` when a socket of another user or without `SO_REUSEPORT` has the port; those of
    /// `socket(2)`, `bind(2)` and `setsockopt(2)`.
    pub fn join_group(factor: u32) -> io::Result<Self> {
        let (fd, family) = sys::udp::open()?;
        let socket = Self::of_family(fd, family);
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
    /// One with a source address, and the interface index as its scope, sends packets with this source only,
    /// in less time: the kernel need not be told it with each.
    ///
    /// # Errors
    /// `EADDRINUSE` when a socket without `SO_REUSEPORT` or of another user has the port; `EADDRNOTAVAIL`
    /// when the host does not have the address; those of `socket(2)`, `bind(2)` and `setsockopt(2)`.
    pub fn to_send_from(port: u16, source: Option<ScopedAddress>) -> io::Result<Self> {
        let (fd, family) = sys::udp::open()?;
        sys::udp::configure_to_send(fd.as_raw_fd(), family)?;
        let address = source.unwrap_or(ScopedAddress::ANY);
        sys::udp::bind_to(fd.as_raw_fd(), family, address, port, true)?;
        let socket = Self::of_family(fd, family);
        let bound = source.map(|source| Bound::new(source.ip, socket.can_segment()));
        Ok(Self { bound, ..socket })
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
        let socket = Self::of_family(fd, family);
        sys::udp::configure(socket.raw(), family)?;
        let local = ScopedAddress {
            ip: group,
            scope: interface,
        };
        sys::udp::bind_to(socket.raw(), family, local, ROCE_PORT, true)?;
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
        Ok(Self::of_family(fd, family))
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

    /// Whether the socket sends packets with one source address only.
    pub fn is_bound_to_address(&self) -> bool {
        self.bound.is_some()
    }

    /// Sends `bytes` as datagrams of `segment` bytes each, the last one of the remaining bytes. Does not
    /// block.
    ///
    /// # Errors
    /// Those of `sendmsg(2)`; nothing was sent then. The device recovers from it as from loss on a network.
    #[inline]
    pub fn send(&self, route: &Route, bytes: &[u8], segment: usize) -> io::Result<()> {
        let size = if bytes.len() > segment {
            segment as u16
        } else {
            0
        };
        let sent = |named| sys::udp::send(self.raw(), self.family, route, named, bytes);
        let Some(Bound {
            source,
            can_segment,
            parameters,
        }) = &self.bound
        else {
            return sent(Named::by_unbound(route, size));
        };
        // The lock keeps other threads from changing the socket's parameters until the packets have left. A
        // thread that finds it taken names all parameters. So does a send to a group, because it has to name
        // the interface.
        if let Ok(mut parameters) = parameters.try_lock()
            && source.to_bits() == route.source.to_bits()
            && !route.is_to_group()
        {
            return sent(parameters.named(self.raw(), route, bytes.len(), size));
        }
        let segment = can_segment.then_some(size);
        sent(Named {
            source: true,
            segment,
            traffic_class: true,
            hop_limit: true,
        })
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
        Ok(Self::of_family(self.fd.try_clone()?, self.family))
    }
}

impl From<Socket> for OwnedFd {
    fn from(socket: Socket) -> Self {
        socket.fd
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const PORT: u16 = 0xf900;

    /// An address of the loopback interface.
    fn scoped(ip: Ipv6Addr) -> ScopedAddress {
        ScopedAddress { ip, scope: 1 }
    }

    /// A socket on the RoCE port of one address of this host.
    fn receiver(address: Ipv6Addr) -> Socket {
        let (fd, family) = sys::udp::open().unwrap();
        sys::udp::configure(fd.as_raw_fd(), family).unwrap();
        let local = ScopedAddress {
            ip: address,
            scope: 0,
        };
        sys::udp::bind_to(fd.as_raw_fd(), family, local, ROCE_PORT, true).unwrap();
        Socket::of_family(fd, family)
    }

    fn local(last: u8) -> Ipv6Addr {
        Ipv4Addr::new(127, 77, 0, last).to_ipv6_mapped()
    }

    /// Sends to a receiver, and checks what arrives.
    fn exchange(from: &Socket, to: &Socket, route: &Route, bytes: usize, segment: usize) {
        from.send(route, &vec![7; bytes], segment).unwrap();
        let mut buffer = vec![0; RECEIVE_BYTES_MAX];
        let mut arrived = 0;
        while arrived < bytes {
            let datagrams = to
                .receive(&mut buffer)
                .unwrap()
                .expect("the loopback delivers at once");
            assert_eq!(
                datagrams.segment.min(bytes),
                segment.min(datagrams.length),
                "{datagrams:?}"
            );
            assert_eq!(
                (datagrams.source, datagrams.destination),
                (route.source, route.destination)
            );
            assert_eq!(datagrams.traffic_class, route.traffic_class);
            assert_eq!(datagrams.hop_limit, route.hop_limit);
            assert_eq!(datagrams.source_port, PORT);
            arrived += datagrams.length;
        }
        assert_eq!(arrived, bytes);
    }

    #[test]
    fn packets_to_groups_name_their_hop_limit() {
        let to = |destination: Ipv4Addr| Route {
            source: local(1),
            destination: destination.to_ipv6_mapped(),
            interface: 1,
            traffic_class: 0,
            hop_limit: 64,
        };
        assert!(!Named::by_unbound(&to(Ipv4Addr::new(10, 0, 0, 1)), 0).hop_limit);
        assert!(
            Named::by_unbound(&to(Ipv4Addr::new(239, 0, 0, 1)), 0).hop_limit,
            "the default is 1"
        );
    }

    #[test]
    fn packets_have_the_parameters_of_their_route_whatever_the_socket_keeps() {
        let ways = [
            (local(2), local(1)),
            (Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST),
        ];
        for (source, destination) in ways {
            let to = receiver(destination);
            let route = Route {
                source,
                destination,
                interface: 1,
                traffic_class: 0x20,
                hop_limit: 255,
            };
            let plain = Route {
                traffic_class: 0,
                hop_limit: 64,
                ..route
            };
            let bound = Socket::to_send_from(PORT, Some(scoped(source))).unwrap();
            assert!(bound.is_bound_to_address());
            for _ in 0..40 {
                exchange(&bound, &to, &route, 320, 100);
            }
            let Some(Bound { parameters, .. }) = &bound.bound else {
                panic!("it is bound")
            };
            let kept = |parameters: &Parameters| {
                let Parameters {
                    segment,
                    traffic_class,
                    hop_limit,
                } = parameters;
                [segment.own(), traffic_class.own(), hop_limit.own()]
            };
            assert_eq!(kept(&parameters.lock().unwrap()), [100, 0x20, 255]);
            // Longer than a segment, and not segmented; as long; other values.
            exchange(&bound, &to, &route, 250, 250);
            exchange(&bound, &to, &route, 100, 100);
            exchange(&bound, &to, &plain, 50, 50);
            exchange(&bound, &to, &plain, 1000, 300);
            // While another thread sends.
            let other = parameters.lock().unwrap();
            exchange(&bound, &to, &route, 320, 100);
            exchange(&bound, &to, &plain, 250, 250);
            exchange(&bound, &to, &plain, 1000, 300);
            drop(other);
        }
    }

    #[test]
    fn a_bound_socket_sends_from_another_address_too() {
        let (to, bound) = (
            receiver(local(3)),
            Socket::to_send_from(PORT, Some(scoped(local(4)))).unwrap(),
        );
        for source in [local(4), local(5)] {
            let route = Route {
                source,
                destination: local(3),
                interface: 1,
                traffic_class: 0,
                hop_limit: 64,
            };
            exchange(&bound, &to, &route, 100, 100);
        }
    }

    #[test]
    fn an_address_of_another_host_cannot_be_bound() {
        let foreign = Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped();
        let refused = Socket::to_send_from(PORT, Some(scoped(foreign))).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EADDRNOTAVAIL));
    }
}
