//! Conversion between C's socket addresses and Rust's.

use crate::sockaddr_ib::{AF_IB, GidAddress};
use abi::sockaddr_storage;
use core::ffi::{c_int, c_void};
use core::mem::size_of;
use ffi::{Argument, Errno};
use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{FromRawFd, OwnedFd};

/// An address of C, as an argument: NULL, or as long as its family requires.
#[derive(Clone, Copy, Debug)]
pub struct AddressArg(*const c_void);

impl Argument for AddressArg {
    type Raw = *const c_void;

    unsafe fn from_raw(raw: *const c_void) -> Self {
        Self(raw)
    }
}

impl AddressArg {
    /// Reads the address.
    ///
    /// # Errors
    /// `EINVAL` for NULL and for other families.
    pub(crate) fn get(self) -> Result<SocketAddr, Errno> {
        // SAFETY: by the contract of `from_raw`, which is that of `read`.
        unsafe { read(self.0) }
    }

    /// The GID, of an address that is one.
    pub(crate) fn by_gid(self) -> Option<GidAddress> {
        // SAFETY: by the contract of `from_raw`, which is that of `read`.
        unsafe { GidAddress::read(self.0) }
    }

    /// Reads the address; `None` for NULL.
    ///
    /// # Errors
    /// `EINVAL` for other families.
    pub(crate) fn optional(self) -> Result<Option<SocketAddr>, Errno> {
        (!self.0.is_null()).then(|| self.get()).transpose()
    }
}

/// Reads a C address.
///
/// # Errors
/// `EINVAL`, as in rdma-core, for NULL and for families other than IPv4, IPv6 and `AF_IB`, whose addresses
/// are those by which their ports are reached.
///
/// # Safety
/// `address` is NULL, or points to an address that is as long as its family requires.
pub unsafe fn read(raw: *const c_void) -> Result<SocketAddr, Errno> {
    // SAFETY: by this function's contract, `address` is NULL, or points to an address that is as long as its
    // family requires; every address begins with its family.
    unsafe {
        match raw
            .cast::<libc::sockaddr>()
            .as_ref()
            .map(|it| i32::from(it.sa_family))
        {
            None => Err(Errno::INVALID),
            Some(libc::AF_INET) => {
                let v4 = raw.cast::<libc::sockaddr_in>().read_unaligned();
                let address = v4.sin_addr.s_addr.to_ne_bytes().into();
                Ok(SocketAddrV4::new(address, u16::from_be(v4.sin_port)).into())
            }
            Some(libc::AF_INET6) => {
                let v6 = raw.cast::<libc::sockaddr_in6>().read_unaligned();
                let port = u16::from_be(v6.sin6_port);
                let address = v6.sin6_addr.s6_addr.into();
                Ok(SocketAddrV6::new(address, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
            }
            Some(AF_IB) => GidAddress::read(raw)
                .map(GidAddress::ip)
                .ok_or(Errno::INVALID),
            Some(_) => Err(Errno::INVALID),
        }
    }
}

/// The address as C's bytes.
pub fn storage(address: SocketAddr) -> sockaddr_storage {
    let mut storage = sockaddr_storage::default();
    let place = storage.as_mut_ptr();
    match address {
        SocketAddr::V4(v4) => {
            let raw = libc::sockaddr_in {
                sin_family: libc::AF_INET as u16,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(v4.ip().octets()),
                },
                sin_zero: [0; 8],
            };
            // SAFETY: the room is larger and aligned.
            unsafe { place.cast::<libc::sockaddr_in>().write(raw) };
        }
        SocketAddr::V6(v6) => {
            let raw = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as u16,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr {
                    s6_addr: v6.ip().octets(),
                },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: the room is larger and aligned.
            unsafe { place.cast::<libc::sockaddr_in6>().write(raw) };
        }
    }
    storage
}

/// The address in a storage; `None` if its family is 0.
pub fn stored(storage: &sockaddr_storage) -> Option<SocketAddr> {
    // SAFETY: the storage has room for any address; a family of 0 is none.
    unsafe { read(storage.as_ptr().cast()) }.ok()
}

/// Bytes of a storage that an address takes.
pub fn length(address: &SocketAddr) -> u32 {
    match address {
        SocketAddr::V4(_) => size_of::<libc::sockaddr_in>() as u32,
        SocketAddr::V6(_) => size_of::<libc::sockaddr_in6>() as u32,
    }
}

/// Creates a kernel socket by system call, since a preloaded library that replaces sockets by rsockets
/// replaces the C library's function.
pub fn kernel_socket(family: c_int, kind: c_int) -> Result<OwnedFd, Errno> {
    // SAFETY: numbers only.
    let fd = unsafe { libc::syscall(libc::SYS_socket, family, kind, 0) } as c_int;
    if fd < 0 {
        return Err(Errno::last());
    }
    // SAFETY: just made, and ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The GID of an IP address (IPv4 is mapped, RFC 4291 2.5.5.2).
pub fn gid(address: IpAddr) -> rnic::Gid {
    match address {
        IpAddr::V4(address) => rnic::Gid::from_ipv4(address.octets()),
        IpAddr::V6(address) => rnic::Gid(address.octets()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_addresses_are_read_back() {
        for text in ["10.0.0.1:7471", "[fe80::1%3]:9", "[::]:0"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(stored(&storage(address)), Some(address));
        }
        assert_eq!(stored(&sockaddr_storage::default()), None);
    }
}
