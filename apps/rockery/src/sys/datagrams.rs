//! UDP sockets that see what std does not show: DSCP and ECN, TTL, the address that a packet was sent to,
//! ICMP errors with their sender, and what the kernel dropped for want of room.

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// The requested size of receive buffers in bytes; `net.core.rmem_max` may allow fewer.
const RECEIVE_BUFFER: i32 = 8 << 20;

/// A packet that arrived.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    /// Address of the sender.
    pub(crate) source: SocketAddr,
    /// The address that it was sent to.
    pub(crate) destination: IpAddr,
    /// DSCP and ECN.
    pub(crate) traffic_class: u8,
    /// TTL or hop limit.
    pub(crate) hop_limit: u8,
    /// Packets that the kernel has dropped at this socket so far.
    pub(crate) dropped: u32,
    /// Bytes of the payload, which is in the caller's buffer.
    pub(crate) length: usize,
}

/// An error that the network has reported for a packet that was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Report {
    /// The error number that the kernel gives it.
    pub(crate) error: i32,
    /// The address that reports it; this machine where it is `None`.
    pub(crate) from: Option<IpAddr>,
    /// The MTU, where the packet was too long.
    pub(crate) mtu: u32,
}

fn check_result(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn set(fd: RawFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    let length = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the value is an int that lives until the call returns, and the length is its own.
    check_result(unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), length) })
        .map(drop)
}

/// Prepares a socket that receives packets of both families if it is one of IPv6.
///
/// # Errors
/// As setsockopt(2).
pub(crate) fn show_headers(socket: &UdpSocket, is_v6: bool) -> io::Result<()> {
    let fd = socket.as_raw_fd();
    set(fd, libc::SOL_IP, libc::IP_RECVTOS, 1)?;
    set(fd, libc::SOL_IP, libc::IP_RECVTTL, 1)?;
    set(fd, libc::SOL_IP, libc::IP_PKTINFO, 1)?;
    if is_v6 {
        set(fd, libc::SOL_IPV6, libc::IPV6_RECVTCLASS, 1)?;
        set(fd, libc::SOL_IPV6, libc::IPV6_RECVHOPLIMIT, 1)?;
        set(fd, libc::SOL_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
    }
    set(fd, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)?;
    set(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, RECEIVE_BUFFER)
        .or_else(|_| set(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, RECEIVE_BUFFER))
}

/// Sets DF on packets of a socket, and keeps ICMP errors with their senders (`IP_RECVERR`). The kernel's
/// cached path MTU is ignored (`IP_PMTUDISC_PROBE`), because the probe measures it.
///
/// # Errors
/// As setsockopt(2).
pub(crate) fn ask_plainly(socket: &impl AsRawFd, is_v6: bool, hop_limit: u8) -> io::Result<()> {
    let (fd, hops) = (socket.as_raw_fd(), hop_limit.into());
    if is_v6 {
        set(
            fd,
            libc::SOL_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_PROBE,
        )?;
        set(fd, libc::SOL_IPV6, libc::IPV6_RECVERR, 1)?;
        return set(fd, libc::SOL_IPV6, libc::IPV6_UNICAST_HOPS, hops);
    }
    set(
        fd,
        libc::SOL_IP,
        libc::IP_MTU_DISCOVER,
        libc::IP_PMTUDISC_PROBE,
    )?;
    set(fd, libc::SOL_IP, libc::IP_RECVERR, 1)?;
    set(fd, libc::SOL_IP, libc::IP_TTL, hops)
}

/// Sets DSCP and ECN of the packets that follow.
///
/// # Errors
/// As setsockopt(2).
pub(crate) fn set_traffic_class(
    socket: &impl AsRawFd,
    is_v6: bool,
    traffic_class: u8,
) -> io::Result<()> {
    let (level, name) = if is_v6 {
        (libc::SOL_IPV6, libc::IPV6_TCLASS)
    } else {
        (libc::SOL_IP, libc::IP_TOS)
    };
    set(socket.as_raw_fd(), level, name, traffic_class.into())
}

/// A socket for ICMP echo requests, which needs no privilege where `net.ipv4.ping_group_range` allows it.
///
/// # Errors
/// `EACCES` where it is not allowed.
pub(crate) fn echo_socket(is_v6: bool) -> io::Result<OwnedFd> {
    let (family, protocol) = match is_v6 {
        true => (libc::AF_INET6, libc::IPPROTO_ICMPV6),
        false => (libc::AF_INET, libc::IPPROTO_ICMP),
    };
    // SAFETY: numbers only.
    let fd = check_result(unsafe {
        libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, protocol)
    })?;
    // SAFETY: a new descriptor, which nothing else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Waits until one of the sockets has a packet, or an error report, or (where requested) room to send.
///
/// # Errors
/// As poll(2).
pub(crate) fn wait(sockets: &[(RawFd, bool)], most: Duration) -> io::Result<()> {
    let events = |for_room| {
        if for_room {
            libc::POLLOUT
        } else {
            libc::POLLIN
        }
    };
    let mut polled: Vec<libc::pollfd> = sockets
        .iter()
        .map(|(fd, for_room)| libc::pollfd {
            fd: *fd,
            events: events(*for_room),
            revents: 0,
        })
        .collect();
    // Rounded up, so that a wait for part of a millisecond does not become a busy loop.
    let millis = most.as_micros().div_ceil(1000).min(60_000) as libc::c_int;
    // SAFETY: the entries live until the call returns, and their number is right.
    match check_result(unsafe {
        libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, millis)
    }) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
    }
}

/// Room for control messages, aligned as the kernel writes them.
#[repr(C, align(8))]
struct Room([u8; 512]);

/// Lengths and contents of what recvmsg(2) gives.
struct Message {
    length: usize,
    name: libc::sockaddr_storage,
    control: Room,
    control_length: usize,
}

fn receive_message(fd: RawFd, buffer: &mut [u8], flags: i32) -> io::Result<Message> {
    let mut piece = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: zero is a value of each field of an address.
    let name: libc::sockaddr_storage = unsafe { zeroed() };
    let mut out = Message {
        length: 0,
        name,
        control: Room([0; 512]),
        control_length: 0,
    };
    // SAFETY: zero is a value of each field of a message.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_name = (&raw mut out.name).cast();
    message.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    message.msg_control = out.control.0.as_mut_ptr().cast();
    message.msg_controllen = out.control.0.len() as _;
    // SAFETY: all pointers of the message are to values of this function that live until the call returns.
    let received = unsafe { libc::recvmsg(fd, &raw mut message, flags | libc::MSG_DONTWAIT) };
    out.length = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    out.control_length = message.msg_controllen as usize;
    Ok(out)
}

impl Message {
    /// The control messages: level, type, data.
    fn control(&self) -> impl Iterator<Item = (i32, i32, &[u8])> {
        const HEADER: usize = size_of::<libc::cmsghdr>();
        let mut rest = &self.control.0[..self.control_length.min(self.control.0.len())];
        std::iter::from_fn(move || {
            let total = usize::from_ne_bytes(*rest.first_chunk()?);
            let level = i32::from_ne_bytes(*rest.get(size_of::<usize>()..)?.first_chunk()?);
            let kind = i32::from_ne_bytes(*rest.get(size_of::<usize>() + 4..)?.first_chunk()?);
            let data = rest.get(HEADER..total)?;
            rest = rest
                .get(total.next_multiple_of(size_of::<usize>())..)
                .unwrap_or_default();
            Some((level, kind, data))
        })
    }

    /// The source address of the message, from the bytes of its structure.
    fn source(&self) -> Option<SocketAddr> {
        let start = (&raw const self.name).cast::<u8>();
        // SAFETY: the structure is at least as long as one of IPv6, and plain bytes.
        let bytes = unsafe { std::slice::from_raw_parts(start, size_of::<libc::sockaddr_in6>()) };
        socket_address(bytes)
    }
}

/// An address in the layout of `sockaddr_in` or `sockaddr_in6`; IPv4-mapped ones become IPv4.
fn socket_address(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(*bytes.first_chunk()?);
    let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
    let address = match i32::from(family) {
        libc::AF_INET => IpAddr::from(*bytes.get(4..)?.first_chunk::<4>()?),
        libc::AF_INET6 => IpAddr::from(*bytes.get(8..)?.first_chunk::<16>()?).to_canonical(),
        _ => return None,
    };
    Some(SocketAddr::new(address, port))
}

fn int(data: &[u8]) -> u32 {
    data.first_chunk()
        .map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

/// Takes a packet; `None` when none is there.
///
/// # Errors
/// As recvmsg(2).
pub(crate) fn receive(socket: &impl AsRawFd, buffer: &mut [u8]) -> io::Result<Option<Packet>> {
    let message = match receive_message(socket.as_raw_fd(), buffer, 0) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
        other => other?,
    };
    let Some(source) = message.source() else {
        return Ok(None);
    };
    let mut packet = Packet {
        source,
        destination: Ipv4Addr::UNSPECIFIED.into(),
        traffic_class: 0,
        hop_limit: 0,
        dropped: 0,
        length: message.length,
    };
    for (level, kind, data) in message.control() {
        match (level, kind) {
            (libc::SOL_IP, libc::IP_TOS) => {
                packet.traffic_class = data.first().copied().unwrap_or(0)
            }
            (libc::SOL_IPV6, libc::IPV6_TCLASS) => packet.traffic_class = int(data) as u8,
            (libc::SOL_IP, libc::IP_TTL) | (libc::SOL_IPV6, libc::IPV6_HOPLIMIT) => {
                packet.hop_limit = int(data) as u8;
            }
            (libc::SOL_IP, libc::IP_PKTINFO) => {
                if let Some(address) = data.get(8..).and_then(|rest| rest.first_chunk::<4>()) {
                    packet.destination = Ipv4Addr::from(*address).into();
                }
            }
            (libc::SOL_IPV6, libc::IPV6_PKTINFO) => {
                if let Some(address) = data.first_chunk::<16>() {
                    packet.destination = IpAddr::from(Ipv6Addr::from(*address)).to_canonical();
                }
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => packet.dropped = int(data),
            _ => {}
        }
    }
    Ok(Some(packet))
}

/// Takes an error report; `None` when none is there.
///
/// # Errors
/// As recvmsg(2).
pub(crate) fn report(socket: &impl AsRawFd) -> io::Result<Option<Report>> {
    let mut buffer = [0; 64];
    let message = match receive_message(socket.as_raw_fd(), &mut buffer, libc::MSG_ERRQUEUE) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
        other => other?,
    };
    let extended = message.control().find(|(level, kind, _)| {
        matches!(
            (*level, *kind),
            (libc::SOL_IP, libc::IP_RECVERR) | (libc::SOL_IPV6, libc::IPV6_RECVERR)
        )
    });
    // struct sock_extended_err: error 0..4, origin 4, type 5, code 6, info 8..12, data 12..16, then the
    // address of the sender.
    Ok(extended.map(|(_, _, data)| Report {
        error: int(data) as i32,
        from: match data.get(4) {
            Some(&libc::SO_EE_ORIGIN_LOCAL) | None => None,
            Some(_) => data
                .get(16..)
                .and_then(socket_address)
                .map(|address| address.ip()),
        },
        mtu: int(data.get(8..).unwrap_or_default()),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_and_addresses_of_a_packet_are_seen() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        show_headers(&receiver, false).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        ask_plainly(&sender, false, 17).unwrap();
        set_traffic_class(&sender, false, 106).unwrap();
        sender
            .send_to(b"text", receiver.local_addr().unwrap())
            .unwrap();
        wait(&[(receiver.as_raw_fd(), false)], Duration::from_secs(60)).unwrap();
        let mut buffer = [0; 16];
        let packet = receive(&receiver, &mut buffer).unwrap().unwrap();
        assert_eq!(
            (packet.traffic_class, packet.hop_limit, packet.length),
            (106, 17, 4)
        );
        assert_eq!(packet.source, sender.local_addr().unwrap());
        assert_eq!(packet.destination, IpAddr::from(Ipv4Addr::LOCALHOST));
        assert!(receive(&receiver, &mut buffer).unwrap().is_none());
    }

    #[test]
    fn a_closed_port_is_reported_with_its_host() {
        let closed = UdpSocket::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        ask_plainly(&sender, false, 64).unwrap();
        sender.send_to(b"text", closed).unwrap();
        wait(&[(sender.as_raw_fd(), false)], Duration::from_secs(60)).unwrap();
        let report = report(&sender).unwrap().unwrap();
        assert_eq!(
            (report.error, report.from),
            (libc::ECONNREFUSED, Some(Ipv4Addr::LOCALHOST.into()))
        );
    }
}
