//! UDP sockets: options, segmentation, and steering by classic BPF.

use super::control::Control;
use crate::datagram::{Datagrams, Family, Named, Route, ScopedAddress};
use std::io;
use std::mem::{size_of, zeroed};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use wire::ROCE_PORT;

/// Requested buffer sizes in bytes, in user space's count; the kernel reserves twice as many for its own.
/// Sending takes some milliseconds at memory speed; the receive buffer is several times as large, since a
/// receiver may have to wait for a processor. Without privileges `net.core.rmem_max` and `wmem_max` are the
/// limits.
const SEND_BUFFER_BYTES: i32 = 8 << 20;
const RECEIVE_BUFFER_BYTES: i32 = 32 << 20;

fn check_result(result: i32) -> io::Result<i32> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

pub(crate) fn open() -> io::Result<(OwnedFd, Family)> {
    let make = |family: i32| {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // Not by the C library's function, which a library that turns sockets into rsockets replaces.
        // SAFETY: no pointers.
        let fd = check_result(unsafe { libc::syscall(libc::SYS_socket, family, kind, 0) } as i32)?;
        // SAFETY: a new descriptor that nothing else owns.
        Ok::<_, io::Error>(unsafe { OwnedFd::from_raw_fd(fd) })
    };
    match make(libc::AF_INET6) {
        // `ipv6.disable=1`: there is no such family. `disable_ipv6=1`: there is, but no address to bind to.
        Ok(fd) if set(&fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 0).is_ok() => {
            Ok((fd, Family::Dual))
        }
        _ => Ok((make(libc::AF_INET)?, Family::V4)),
    }
}

fn set(fd: &impl std::os::fd::AsRawFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    set_raw(fd.as_raw_fd(), level, name, value)
}

fn set_raw(fd: RawFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    let pointer = (&raw const value).cast();
    // SAFETY: an int.
    check_result(unsafe { libc::setsockopt(fd, level, name, pointer, size_of::<i32>() as u32) })
        .map(drop)
}

fn option(fd: RawFd, level: i32, name: i32) -> io::Result<i32> {
    let (mut value, mut length) = (0i32, size_of::<i32>() as u32);
    // SAFETY: room for an int, and its length.
    check_result(unsafe {
        libc::getsockopt(fd, level, name, (&raw mut value).cast(), &mut length)
    })?;
    Ok(value)
}

pub(crate) fn family(fd: RawFd) -> io::Result<Family> {
    let domain = option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN)?;
    Ok(if domain == libc::AF_INET6 {
        Family::Dual
    } else {
        Family::V4
    })
}

pub(crate) fn receive_buffer(fd: RawFd) -> io::Result<usize> {
    Ok(option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF)?.max(0) as usize)
}

pub(crate) fn can_segment(fd: RawFd) -> bool {
    option(fd, libc::SOL_UDP, libc::UDP_SEGMENT).is_ok()
}

/// Makes this segment size the one of all sends that name none, 0 for none.
pub(crate) fn keep_segment(fd: RawFd, bytes: u16) -> io::Result<()> {
    set_raw(fd, libc::SOL_UDP, libc::UDP_SEGMENT, bytes.into())
}

/// Sets the traffic class of packets, of the route's IP version, that are sent without one of their own.
pub(crate) fn keep_traffic_class(fd: RawFd, route: &Route, class: u16) -> io::Result<()> {
    match route.is_v4() {
        true => set_raw(fd, libc::IPPROTO_IP, libc::IP_TOS, class.into()),
        false => set_raw(fd, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, class.into()),
    }
}

/// As [`keep_traffic_class`], for the hop limit.
pub(crate) fn keep_hop_limit(fd: RawFd, route: &Route, hops: u16) -> io::Result<()> {
    match route.is_v4() {
        true => set_raw(fd, libc::IPPROTO_IP, libc::IP_TTL, hops.into()),
        false => set_raw(fd, libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, hops.into()),
    }
}

/// Not in every libc's headers: `linux/udp.h`, `linux/in6.h`.
const IPV6_MULTICAST_ALL: i32 = 29;
const UDP_NO_CHECK6_RX: i32 = 102;

/// Options of sockets that send: packets are never fragmented, and there is room for many. Their limit is
/// the MTU of the interface, as for an adapter, and not the path MTU that the kernel has learned from ICMP
/// (`IP_PMTUDISC_PROBE`): any host can send one that quotes an echo reply, which the kernel believes for ten
/// minutes.
pub(crate) fn configure_to_send(fd: RawFd, family: Family) -> io::Result<()> {
    set_raw(
        fd,
        libc::IPPROTO_IP,
        libc::IP_MTU_DISCOVER,
        libc::IP_PMTUDISC_PROBE,
    )?;
    if family == Family::Dual {
        set_raw(
            fd,
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_PROBE,
        )?;
    }
    set_buffer(fd, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, SEND_BUFFER_BYTES)
}

/// Joins or leaves a multicast group.
pub(crate) fn join(fd: RawFd, group: Ipv6Addr, interface: u32) -> io::Result<()> {
    let result = match group.to_ipv4_mapped() {
        Some(group) => {
            let request = libc::ip_mreqn {
                imr_multiaddr: in_addr(group),
                imr_address: in_addr(Ipv4Addr::UNSPECIFIED),
                imr_ifindex: interface as i32,
            };
            let name = libc::IP_ADD_MEMBERSHIP;
            let (pointer, length) = (
                (&raw const request).cast(),
                size_of::<libc::ip_mreqn>() as u32,
            );
            // SAFETY: a request and its length.
            unsafe { libc::setsockopt(fd, libc::IPPROTO_IP, name, pointer, length) }
        }
        None => {
            let request = libc::ipv6_mreq {
                ipv6mr_multiaddr: libc::in6_addr {
                    s6_addr: group.octets(),
                },
                ipv6mr_interface: interface,
            };
            let name = libc::IPV6_ADD_MEMBERSHIP;
            let (pointer, length) = (
                (&raw const request).cast(),
                size_of::<libc::ipv6_mreq>() as u32,
            );
            // SAFETY: a request and its length.
            unsafe { libc::setsockopt(fd, libc::IPPROTO_IPV6, name, pointer, length) }
        }
    };
    check_result(result).map(drop)
}

fn set_buffer(fd: RawFd, forced: i32, asked: i32, bytes: i32) -> io::Result<()> {
    set_raw(fd, libc::SOL_SOCKET, forced, bytes)
        .or_else(|_| set_raw(fd, libc::SOL_SOCKET, asked, bytes))
}

pub(crate) fn configure(fd: RawFd, family: Family) -> io::Result<()> {
    configure_to_send(fd, family)?;
    set_raw(fd, libc::IPPROTO_IP, libc::IP_RECVTOS, 1)?;
    set_raw(fd, libc::IPPROTO_IP, libc::IP_RECVTTL, 1)?;
    if family == Family::Dual {
        set_raw(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
        set_raw(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
        set_raw(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, 1)?;
        // The kernel's software device sends UDP checksum 0 over IPv6 too.
        set_raw(fd, libc::IPPROTO_UDP, UDP_NO_CHECK6_RX, 1)?;
    } else {
        set_raw(fd, libc::IPPROTO_IP, libc::IP_PKTINFO, 1)?;
    }
    // Datagrams of a group are delivered to its members only. Linux before 4.20 has no such option for IPv6.
    set_raw(fd, libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, 0)?;
    if family == Family::Dual {
        let _ = set_raw(fd, libc::IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0);
    }
    // Kernels before 5.0 do not coalesce datagrams: then each receive call returns one.
    let _ = set_raw(fd, libc::IPPROTO_UDP, libc::UDP_GRO, 1);
    set_buffer(
        fd,
        libc::SO_RCVBUFFORCE,
        libc::SO_RCVBUF,
        RECEIVE_BUFFER_BYTES,
    )
}

pub(crate) fn receive_singly(fd: RawFd) -> io::Result<()> {
    match set_raw(fd, libc::IPPROTO_UDP, libc::UDP_GRO, 0) {
        // Before Linux 5.0 there was no other way.
        Err(error) if error.raw_os_error() != Some(libc::ENOPROTOOPT) => Err(error),
        _ => Ok(()),
    }
}

pub(crate) fn bind(fd: RawFd, family: Family, port: u16, shared: bool) -> io::Result<()> {
    bind_to(fd, family, ScopedAddress::ANY, port, shared)
}

pub(crate) fn bind_to(
    fd: RawFd,
    family: Family,
    local: ScopedAddress,
    port: u16,
    shared: bool,
) -> io::Result<()> {
    if shared {
        set_raw(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
    }
    let (address, length) = address(family, local.ip, port, local.scope);
    // SAFETY: an address of that length.
    check_result(unsafe { libc::bind(fd, (&raw const address).cast(), length) }).map(drop)
}

/// An address of the socket's family. The storage of IPv6 has room for both.
fn address(family: Family, ip: Ipv6Addr, port: u16, scope: u32) -> (libc::sockaddr_in6, u32) {
    // SAFETY: all zeros is a valid address.
    let mut address: libc::sockaddr_in6 = unsafe { zeroed() };
    match family {
        Family::Dual => {
            address.sin6_family = libc::AF_INET6 as u16;
            address.sin6_port = port.to_be();
            address.sin6_addr.s6_addr = ip.octets();
            if ip.is_unicast_link_local() || ip.octets()[0] == 0xff {
                address.sin6_scope_id = scope;
            }
            (address, size_of::<libc::sockaddr_in6>() as u32)
        }
        Family::V4 => {
            let v4 = libc::sockaddr_in {
                sin_family: libc::AF_INET as u16,
                sin_port: port.to_be(),
                sin_addr: in_addr(ip.to_ipv4_mapped().unwrap_or(Ipv4Addr::UNSPECIFIED)),
                sin_zero: [0; 8],
            };
            // SAFETY: shorter, and both are plain bytes.
            unsafe { (&raw mut address).cast::<libc::sockaddr_in>().write(v4) };
            (address, size_of::<libc::sockaddr_in>() as u32)
        }
    }
}

fn in_addr(ip: Ipv4Addr) -> libc::in_addr {
    libc::in_addr {
        s_addr: u32::from_ne_bytes(ip.octets()),
    }
}

/// Offset of the word in the BTH that ends with the destination queue pair (IBTA 9.2.1).
const DEST_QPN_WORD: u32 = 4;

/// Attaches the BPF program to the group of sockets: the destination queue pair in the BTH, without its low
/// bits and multiplied by `factor`, modulo the largest number of the remaining bits, is the index of the
/// socket, in the order in which they were bound. An index without a socket falls back to a hash of the
/// addresses. Needs no privilege.
pub(crate) fn steer(fd: RawFd, qpn_bits: u32, factor: u32) -> io::Result<()> {
    const LOAD_WORD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
    const AND: u16 = 0x54; // BPF_ALU | BPF_AND | BPF_K
    const SHIFT_RIGHT: u16 = 0x74; // BPF_ALU | BPF_RSH | BPF_K
    const MULTIPLY: u16 = 0x24; // BPF_ALU | BPF_MUL | BPF_K
    const REMAINDER: u16 = 0x94; // BPF_ALU | BPF_MOD | BPF_K
    const RETURN: u16 = 0x16; // BPF_RET | BPF_A
    let instruction = |code, k| libc::sock_filter {
        code,
        jt: 0,
        jf: 0,
        k,
    };
    let mut program = [
        instruction(LOAD_WORD, DEST_QPN_WORD),
        instruction(AND, 0x00ff_ffff),
        instruction(SHIFT_RIGHT, qpn_bits),
        instruction(MULTIPLY, factor),
        instruction(REMAINDER, (1 << (24 - qpn_bits)) - 1),
        instruction(RETURN, 0),
    ];
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    let length = size_of::<libc::sock_fprog>() as u32;
    let pointer = (&raw const filter).cast();
    // SAFETY: a program and its length; the kernel copies and checks it.
    check_result(unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            pointer,
            length,
        )
    })
    .map(drop)
}

// `sendmsg` and `recvmsg` of the C library are cancellation points, which they prepare for in each call.
// These calls never block: the bare system calls suffice.

/// Sends bytes to a route, with control messages for the parameters that are `named`.
#[inline]
pub(crate) fn send(
    fd: RawFd,
    family: Family,
    route: &Route,
    named: Named,
    bytes: &[u8],
) -> io::Result<()> {
    let (mut name, name_length) = address(family, route.destination, ROCE_PORT, route.interface);
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // `sendto` has no control messages, and takes less time.
    if named == Named::NOTHING {
        let (data, name) = (bytes.as_ptr(), &raw const name);
        // SAFETY: bytes and an address, with their lengths.
        let sent = unsafe {
            libc::syscall(
                libc::SYS_sendto,
                fd,
                data,
                bytes.len(),
                flags,
                name,
                name_length,
            )
        };
        return if sent < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        };
    }
    let mut control = Control::new();
    if let Some(segment) = named.segment {
        control.push(libc::SOL_UDP, libc::UDP_SEGMENT, &segment.to_ne_bytes());
    }
    put_route(&mut control, route, named);
    let mut piece = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: all zeros is a valid message; every pointer is to something that lives until the call returns.
    let sent = unsafe {
        let mut message: libc::msghdr = zeroed();
        message.msg_name = (&raw mut name).cast();
        message.msg_namelen = name_length;
        message.msg_iov = &mut piece;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr();
        message.msg_controllen = control.len() as _;
        libc::syscall(libc::SYS_sendmsg, fd, &raw const message, flags)
    };
    if sent < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// TTL of a socket by default.
pub(crate) const DEFAULT_HOP_LIMIT: u8 = 64;

#[inline]
fn put_route(control: &mut Control, route: &Route, named: Named) {
    if named.source {
        put_source(control, route);
    }
    let (level, class, hops) = match route.is_v4() {
        true => (libc::SOL_IP, libc::IP_TOS, libc::IP_TTL),
        false => (libc::SOL_IPV6, libc::IPV6_TCLASS, libc::IPV6_HOPLIMIT),
    };
    if named.traffic_class {
        control.push(level, class, &i32::from(route.traffic_class).to_ne_bytes());
    }
    if named.hop_limit {
        control.push(level, hops, &i32::from(route.hop_limit).to_ne_bytes());
    }
}

fn put_source(control: &mut Control, route: &Route) {
    match route.source.to_ipv4_mapped() {
        Some(source) => {
            let mut info = [0; 12];
            // A group is on the device's network, whether there is a route to it or not.
            if route
                .destination
                .to_ipv4_mapped()
                .is_some_and(|group| group.is_multicast())
            {
                info[..4].copy_from_slice(&route.interface.to_ne_bytes());
            }
            info[4..8].copy_from_slice(&source.octets());
            control.push(libc::SOL_IP, libc::IP_PKTINFO, &info);
        }
        None => {
            let mut info = [0; 20];
            info[..16].copy_from_slice(&route.source.octets());
            if route.source.is_unicast_link_local() {
                info[16..].copy_from_slice(&route.interface.to_ne_bytes());
            }
            control.push(libc::SOL_IPV6, libc::IPV6_PKTINFO, &info);
        }
    }
}

#[inline]
pub(crate) fn receive(fd: RawFd, family: Family, buffer: &mut [u8]) -> io::Result<Datagrams> {
    let mut control = Control::new();
    let mut piece = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: all zeros is a valid address.
    let mut name: libc::sockaddr_in6 = unsafe { zeroed() };
    // SAFETY: all zeros is a valid message; every pointer is to something that lives until the call returns.
    let (received, control_length) = unsafe {
        let mut message: libc::msghdr = zeroed();
        message.msg_name = (&raw mut name).cast();
        message.msg_namelen = size_of::<libc::sockaddr_in6>() as u32;
        message.msg_iov = &mut piece;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr();
        message.msg_controllen = super::control::CONTROL_BYTES as _;
        let received = libc::syscall(libc::SYS_recvmsg, fd, &raw mut message, libc::MSG_DONTWAIT);
        (received, message.msg_controllen as usize)
    };
    if received < 0 {
        return Err(io::Error::last_os_error());
    }
    let length = received as usize;
    let mut datagrams = Datagrams {
        length,
        segment: length,
        source: Ipv6Addr::from(name.sin6_addr.s6_addr),
        source_port: u16::from_be(name.sin6_port),
        destination: Ipv6Addr::UNSPECIFIED,
        traffic_class: 0,
        hop_limit: 0,
        interface: 0,
    };
    if family == Family::V4 {
        // SAFETY: the kernel wrote an address of IPv4.
        let v4 = unsafe { (&raw const name).cast::<libc::sockaddr_in>().read() };
        datagrams.source = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes()).to_ipv6_mapped();
    }
    for (level, kind, data) in control.messages(control_length) {
        note_control(&mut datagrams, level, kind, data);
    }
    Ok(datagrams)
}

/// Decodes a control message. The traffic class is one byte over IPv4 and an int over IPv6; the first byte of
/// a little-endian int is its value.
#[inline]
fn note_control(datagrams: &mut Datagrams, level: i32, kind: i32, data: &[u8]) {
    let int = || {
        data.first_chunk()
            .map_or(0, |bytes| i32::from_ne_bytes(*bytes))
    };
    match (level, kind) {
        (libc::SOL_UDP, libc::UDP_GRO) if int() > 0 => datagrams.segment = int() as usize,
        (libc::SOL_IP, libc::IP_TOS) => {
            datagrams.traffic_class = data.first().copied().unwrap_or(0)
        }
        (libc::SOL_IPV6, libc::IPV6_TCLASS) => datagrams.traffic_class = int() as u8,
        (libc::SOL_IP, libc::IP_TTL) | (libc::SOL_IPV6, libc::IPV6_HOPLIMIT) => {
            datagrams.hop_limit = int() as u8;
        }
        (libc::SOL_IPV6, libc::IPV6_PKTINFO) => {
            if let Some(address) = data.first_chunk::<16>() {
                datagrams.destination = Ipv6Addr::from(*address);
            }
            let index = data.get(16..).and_then(|rest| rest.first_chunk::<4>());
            datagrams.interface = index.map_or(0, |bytes| u32::from_ne_bytes(*bytes));
        }
        (libc::SOL_IP, libc::IP_PKTINFO) => {
            // in_pktinfo: index, the local address of the route, the destination in the header.
            if let Some(address) = data.get(8..).and_then(|rest| rest.first_chunk::<4>()) {
                datagrams.destination = Ipv4Addr::from(*address).to_ipv6_mapped();
            }
            datagrams.interface = int() as u32;
        }
        _ => {}
    }
}
