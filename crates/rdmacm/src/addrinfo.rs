//! `rdma_getaddrinfo`: names to addresses.

use crate::sockaddr;
use abi::{
    IBV_QPT_RC, IBV_QPT_UD, RAI_FAMILY, RAI_NUMERICHOST, RAI_PASSIVE, RDMA_PS_TCP, RDMA_PS_UDP,
    rdma_addrinfo, sockaddr_storage,
};
use core::ffi::{c_char, c_int, c_void};
use core::mem::zeroed;
use door::{Errno, door};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ptr::null_mut;

/// What a pointer of C leads to; the addresses lie behind it.
#[repr(C)]
struct Info {
    abi: rdma_addrinfo,
    source: sockaddr_storage,
    destination: sockaddr_storage,
}

/// Kind of queue pair and port space, each as asked for or as the other one says.
fn kind(hints: Option<&rdma_addrinfo>) -> (c_int, c_int) {
    let (qp_type, space) = hints.map_or((0, 0), |hints| (hints.ai_qp_type, hints.ai_port_space));
    let space = match (space, qp_type) {
        (0, qp_type) if qp_type == IBV_QPT_UD as c_int => RDMA_PS_UDP as c_int,
        (0, _) => RDMA_PS_TCP as c_int,
        (space, _) => space,
    };
    let usual = if space == RDMA_PS_UDP as c_int { IBV_QPT_UD } else { IBV_QPT_RC };
    (if qp_type == 0 { usual as c_int } else { qp_type }, space)
}

/// Asks the C library, whose answers are an error number of its own, told through `errno`.
///
/// # Safety
/// `node` and `service` are NULL or strings of C.
unsafe fn look_up(
    node: *const c_char,
    service: *const c_char,
    flags: u32,
    family: c_int,
) -> Result<SocketAddr, c_int> {
    // SAFETY: as above; the list is read before it is freed.
    unsafe {
        let mut hints: libc::addrinfo = zeroed();
        hints.ai_socktype = libc::SOCK_STREAM;
        if flags & RAI_PASSIVE != 0 {
            hints.ai_flags |= libc::AI_PASSIVE;
        }
        if flags & RAI_NUMERICHOST != 0 {
            hints.ai_flags |= libc::AI_NUMERICHOST;
        }
        if flags & RAI_FAMILY != 0 {
            hints.ai_family = family;
        }
        let mut list = null_mut();
        let code = libc::getaddrinfo(node, service, &hints, &mut list);
        if code != 0 {
            return Err(code);
        }
        let mut found = Err(libc::EAI_NONAME);
        let mut place = list;
        while let Some(info) = place.as_ref() {
            if found.is_err() {
                found = sockaddr::read(info.ai_addr.cast()).map_err(|_| libc::EAI_FAMILY);
            }
            place = info.ai_next;
        }
        libc::freeaddrinfo(list);
        found
    }
}

/// # Safety
/// As the manual page asks.
unsafe fn resolve(
    node: *const c_char,
    service: *const c_char,
    hints: Option<&rdma_addrinfo>,
) -> Result<Box<Info>, c_int> {
    let flags = hints.map_or(0, |hints| hints.ai_flags as u32);
    let family = hints.map_or(0, |hints| hints.ai_family);
    let is_passive = flags & RAI_PASSIVE != 0;
    // SAFETY: as above.
    let given = unsafe {
        if node.is_null() && service.is_null() { None } else { Some(look_up(node, service, flags, family)?) }
    };
    let hinted = |address: *mut c_void, length: u32| {
        // SAFETY: an address as long as it says, as the manual page asks.
        if length == 0 { None } else { unsafe { sockaddr::read(address) }.ok() }
    };
    let (mut source, mut destination) = hints.map_or((None, None), |hints| {
        (hinted(hints.ai_src_addr, hints.ai_src_len), hinted(hints.ai_dst_addr, hints.ai_dst_len))
    });
    if is_passive {
        let any = if family == libc::AF_INET6 {
            SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0))
        } else {
            SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))
        };
        source = given.or(source).or(Some(any));
        destination = None;
    } else {
        destination = given.or(destination);
    }
    let known = if is_passive { source } else { destination };
    let (ai_qp_type, ai_port_space) = kind(hints);
    // SAFETY: all zeros is a valid value: numbers and pointers.
    let mut abi: rdma_addrinfo = unsafe { zeroed() };
    (abi.ai_flags, abi.ai_qp_type, abi.ai_port_space) = (flags as c_int, ai_qp_type, ai_port_space);
    abi.ai_family = match known {
        Some(SocketAddr::V6(_)) => libc::AF_INET6,
        Some(SocketAddr::V4(_)) => libc::AF_INET,
        None => family,
    };
    let (source_storage, destination_storage) =
        (source.map(sockaddr::storage), destination.map(sockaddr::storage));
    let mut info = Box::new(Info {
        abi,
        source: source_storage.unwrap_or_default(),
        destination: destination_storage.unwrap_or_default(),
    });
    if let Some(source) = source {
        info.abi.ai_src_len = sockaddr::length(&source);
        info.abi.ai_src_addr = (&raw mut info.source).cast();
    }
    if let Some(destination) = destination {
        info.abi.ai_dst_len = sockaddr::length(&destination);
        info.abi.ai_dst_addr = (&raw mut info.destination).cast();
    }
    Ok(info)
}

/// Error numbers of `getaddrinfo(3)` are returned as they are.
///
/// # Safety
/// As the manual page asks.
pub(crate) unsafe extern "C" fn rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    place: *mut *mut rdma_addrinfo,
) -> c_int {
    // SAFETY: as above.
    unsafe {
        let hints = hints.as_ref();
        let is_empty = |hints: &rdma_addrinfo| hints.ai_src_len == 0 && hints.ai_dst_len == 0;
        if place.is_null() || (node.is_null() && service.is_null() && hints.is_none_or(is_empty)) {
            Errno::INVALID.set();
            return -1;
        }
        match resolve(node, service, hints) {
            Ok(info) => {
                *place = Box::into_raw(info).cast();
                0
            }
            Err(code) => code,
        }
    }
}

door! {
    fn rdma_freeaddrinfo(info: *mut rdma_addrinfo) -> plain(()) {
        let mut next = info;
        while !next.is_null() {
            let info = Box::from_raw(next.cast::<Info>());
            next = info.abi.ai_next;
        }
    }
}
