//! `rdma_getaddrinfo`: resolves names to addresses.

use crate::sockaddr;
use crate::sockaddr_ib::{self, AF_IB, GidAddress};
use abi::{
    IBV_QPT_RC, IBV_QPT_UD, RAI_FAMILY, RAI_NUMERICHOST, RAI_PASSIVE, RDMA_PS_TCP, RDMA_PS_UDP,
    rdma_addrinfo, sockaddr_storage,
};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::zeroed;
use ffi::{Errno, cancellation, public_exports};
use std::ffi::CString;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ptr::{null, null_mut};
use wire::cm::PortSpace;

/// An `rdma_addrinfo` for C, with the memory that its addresses are in.
#[repr(C)]
struct Info {
    abi: rdma_addrinfo,
    source: sockaddr_storage,
    destination: sockaddr_storage,
}

/// Queue pair type and port space; where one is not set it is derived from the other.
fn kind(hints: Option<&rdma_addrinfo>) -> (c_int, c_int) {
    let (qp_type, space) = hints.map_or((0, 0), |hints| (hints.ai_qp_type, hints.ai_port_space));
    let space = match (space, qp_type) {
        (0, qp_type) if qp_type == IBV_QPT_UD as c_int => RDMA_PS_UDP as c_int,
        (0, _) => RDMA_PS_TCP as c_int,
        (space, _) => space,
    };
    let usual = if space == RDMA_PS_UDP as c_int {
        IBV_QPT_UD
    } else {
        IBV_QPT_RC
    };
    (
        if qp_type == 0 {
            usual as c_int
        } else {
            qp_type
        },
        space,
    )
}

/// An address of C; a GID as the IPv6 address that it is written as.
///
/// # Safety
/// As [`sockaddr::read`].
unsafe fn read(address: *const c_void) -> Option<SocketAddr> {
    // SAFETY: by this function's contract.
    let by_gid = unsafe { GidAddress::read(address) };
    match by_gid {
        Some(GidAddress { gid, port }) => Some(SocketAddr::from((Ipv6Addr::from(gid), port))),
        // SAFETY: by this function's contract.
        None => unsafe { sockaddr::read(address) }.ok(),
    }
}

/// Arguments of `rdma_getaddrinfo`, copied, so that the name can be resolved after the call has returned.
pub(crate) struct Question {
    node: Option<CString>,
    service: Option<CString>,
    pub(crate) flags: u32,
    family: c_int,
    qp_type: c_int,
    space: c_int,
    source: Option<SocketAddr>,
    destination: Option<SocketAddr>,
}

impl Question {
    /// # Safety
    /// `node` and `service` are NULL or C strings, and the addresses of `hints` have the lengths that it
    /// names.
    pub(crate) unsafe fn read(
        node: *const c_char,
        service: *const c_char,
        hints: Option<&rdma_addrinfo>,
    ) -> Result<Self, Errno> {
        let is_empty = |hints: &rdma_addrinfo| hints.ai_src_len == 0 && hints.ai_dst_len == 0;
        if node.is_null() && service.is_null() && hints.is_none_or(is_empty) {
            return Err(Errno::INVALID);
        }
        let text = |place: *const c_char| {
            // SAFETY: by this function's contract, `node` and `service` are NULL or C strings, and the
            // addresses of `hints` have the lengths that it names.
            (!place.is_null()).then(|| unsafe { CStr::from_ptr(place) }.to_owned())
        };
        let hinted = |address: *mut c_void, length: u32| {
            if length == 0 {
                None
            } else {
                // SAFETY: by this function's contract, `node` and `service` are NULL or C strings, and the
                // addresses of `hints` have the lengths that it names.
                unsafe { read(address) }
            }
        };
        let (qp_type, space) = kind(hints);
        Ok(Self {
            node: text(node),
            service: text(service),
            flags: hints.map_or(0, |hints| hints.ai_flags as u32),
            family: hints.map_or(0, |hints| hints.ai_family),
            qp_type,
            space,
            source: hints.and_then(|hints| hinted(hints.ai_src_addr, hints.ai_src_len)),
            destination: hints.and_then(|hints| hinted(hints.ai_dst_addr, hints.ai_dst_len)),
        })
    }

    /// Whether GIDs are asked for, which are written as IPv6 addresses.
    fn is_by_gid(&self) -> bool {
        self.flags & RAI_FAMILY != 0 && self.family == AF_IB
    }

    /// Calls `getaddrinfo(3)`, whose error numbers (`EAI_…`) are returned unchanged.
    fn look_up(&self) -> Result<SocketAddr, c_int> {
        let pointer = |text: &Option<CString>| text.as_ref().map_or(null(), |text| text.as_ptr());
        // SAFETY: strings of C that live until the call returns; the list is read before it is freed.
        unsafe {
            let mut hints: libc::addrinfo = zeroed();
            hints.ai_socktype = libc::SOCK_STREAM;
            if self.flags & RAI_PASSIVE != 0 {
                hints.ai_flags |= libc::AI_PASSIVE;
            }
            if self.flags & RAI_NUMERICHOST != 0 {
                hints.ai_flags |= libc::AI_NUMERICHOST;
            }
            if self.is_by_gid() {
                hints.ai_family = libc::AF_INET6;
            } else if self.flags & RAI_FAMILY != 0 {
                hints.ai_family = self.family;
            }
            let mut list = null_mut();
            // It is a cancellation point; the thread must not end in the middle of our call.
            let code = cancellation::without(|| {
                libc::getaddrinfo(
                    pointer(&self.node),
                    pointer(&self.service),
                    &hints,
                    &mut list,
                )
            });
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

    /// Resolves the name, which takes as long as name servers do.
    pub(crate) fn resolve(&self) -> Result<Answer, c_int> {
        let is_asked = self.node.is_some() || self.service.is_some();
        let given = if is_asked {
            Some(self.look_up()?)
        } else {
            None
        };
        let is_passive = self.flags & RAI_PASSIVE != 0;
        let (source, destination) = if is_passive {
            let any = if self.family == libc::AF_INET6 || self.is_by_gid() {
                SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0))
            } else {
                SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))
            };
            (given.or(self.source).or(Some(any)), None)
        } else {
            (self.source, given.or(self.destination))
        };
        let family = match if is_passive { source } else { destination } {
            _ if self.is_by_gid() => AF_IB,
            Some(SocketAddr::V6(_)) => libc::AF_INET6,
            Some(SocketAddr::V4(_)) => libc::AF_INET,
            None => self.family,
        };
        let (flags, qp_type, space) = (self.flags, self.qp_type, self.space);
        Ok(Answer {
            flags,
            family,
            qp_type,
            space,
            source,
            destination,
        })
    }
}

/// Addresses that a name was resolved to.
#[derive(Clone, Copy)]
pub(crate) struct Answer {
    flags: u32,
    family: c_int,
    qp_type: c_int,
    space: c_int,
    source: Option<SocketAddr>,
    destination: Option<SocketAddr>,
}

impl Answer {
    /// The answer as C's list, freed by `rdma_freeaddrinfo`.
    pub(crate) fn in_c(&self) -> *mut rdma_addrinfo {
        // SAFETY: all zeros is a valid value: numbers and pointers.
        let mut abi: rdma_addrinfo = unsafe { zeroed() };
        (abi.ai_flags, abi.ai_family) = (self.flags as c_int, self.family);
        (abi.ai_qp_type, abi.ai_port_space) = (self.qp_type, self.space);
        let space = PortSpace::of(self.space as u16).unwrap_or(PortSpace::Tcp);
        let is_by_gid = self.family == AF_IB;
        let written = |address: SocketAddr| match is_by_gid {
            true => GidAddress {
                gid: sockaddr::gid(address.ip()).0,
                port: address.port(),
            }
            .storage(space),
            false => sockaddr::storage(address),
        };
        let length = |address: &SocketAddr| match is_by_gid {
            true => sockaddr_ib::BYTES,
            false => sockaddr::length(address),
        };
        let storage = |address: Option<SocketAddr>| address.map(written).unwrap_or_default();
        let (source, destination) = (storage(self.source), storage(self.destination));
        let mut info = Box::new(Info {
            abi,
            source,
            destination,
        });
        if let Some(source) = self.source {
            info.abi.ai_src_len = length(&source);
            info.abi.ai_src_addr = (&raw mut info.source).cast();
        }
        if let Some(destination) = self.destination {
            info.abi.ai_dst_len = length(&destination);
            info.abi.ai_dst_addr = (&raw mut info.destination).cast();
        }
        Box::into_raw(info).cast()
    }
}

/// Error numbers of `getaddrinfo(3)` are returned unchanged.
///
/// # Safety
/// As the manual page asks.
pub unsafe extern "C" fn rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    place: *mut *mut rdma_addrinfo,
) -> c_int {
    // SAFETY: by this function's contract, as the manual page asks.
    unsafe {
        if place.is_null() {
            Errno::INVALID.set();
            return -1;
        }
        let question = match Question::read(node, service, hints.as_ref()) {
            Ok(question) => question,
            Err(error) => {
                error.set();
                return -1;
            }
        };
        match question.resolve() {
            Ok(answer) => {
                *place = answer.in_c();
                0
            }
            Err(code) => code,
        }
    }
}

public_exports! {
    fn rdma_freeaddrinfo(info: *mut rdma_addrinfo) -> plain(()) {
        let mut next = info;
        while !next.is_null() {
            // SAFETY: the program gives up the list, whose entries this library made.
            let info = unsafe { Box::from_raw(next.cast::<Info>()) };
            next = info.abi.ai_next;
        }
    }
}
