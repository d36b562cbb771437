//! Addresses of `AF_IB`: a GID, and a service ID in which the port space and the port are (IBTA annex A11).
//!
//! Messages of connection management go by IP here. So an identifier whose program names a GID has the
//! link-local address of that port, which follows from the GUID, and shows the GID.

use abi::sockaddr_storage;
use core::ffi::{c_int, c_void};
use core::mem::size_of;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use wire::cm::PortSpace;

/// The address family in Linux.
pub(crate) const AF_IB: c_int = 27;
/// The partition that every port is in.
const PARTITION: u16 = 0xffff;
/// The bits of a service ID that are a port space, and those that are a port (`RDMA_IB_IP_PS_MASK`,
/// `RDMA_IB_IP_PORT_MASK`).
const SPACE_MASK: u64 = 0xffff_ffff_ffff_0000;
const PORT_MASK: u64 = 0xffff;
/// The interface of IP over InfiniBand.
const INTERFACE: &core::ffi::CStr = c"ib0";

/// `struct sockaddr_ib` (`rdma/ib.h` of Linux); all but the family and the scope in network byte order.
#[repr(C)]
#[derive(Clone, Copy)]
struct SockaddrIb {
    family: u16,
    p_key: u16,
    flow_info: u32,
    gid: [u8; 16],
    service_id: u64,
    service_mask: u64,
    scope: u64,
}

const _: () = assert!(size_of::<SockaddrIb>() == 48 && size_of::<SockaddrIb>() <= 128);

/// Bytes of such an address.
pub(crate) const BYTES: u32 = size_of::<SockaddrIb>() as u32;

/// A GID and a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GidAddress {
    pub(crate) gid: [u8; 16],
    pub(crate) port: u16,
}

impl GidAddress {
    /// Reads an address; `None` for NULL, and for one of another family.
    ///
    /// # Safety
    /// `raw` is NULL, or points to an address that is as long as its family requires.
    pub(crate) unsafe fn read(raw: *const c_void) -> Option<Self> {
        // SAFETY: by this function's contract; every address begins with its family.
        let family = unsafe { raw.cast::<libc::sockaddr>().as_ref() }?.sa_family;
        if i32::from(family) != AF_IB {
            return None;
        }
        // SAFETY: by this function's contract, the address is as long as its family requires.
        let ib = unsafe { raw.cast::<SockaddrIb>().read_unaligned() };
        Some(Self {
            gid: ib.gid,
            port: (u64::from_be(ib.service_id) & PORT_MASK) as u16,
        })
    }

    /// The address as C's bytes, for a port space.
    pub(crate) fn storage(self, space: PortSpace) -> sockaddr_storage {
        let service_id = u64::from(space.value()) << 16 | u64::from(self.port);
        let port_mask = if self.port == 0 { 0 } else { PORT_MASK };
        let raw = SockaddrIb {
            family: AF_IB as u16,
            p_key: PARTITION.to_be(),
            flow_info: 0,
            gid: self.gid,
            service_id: service_id.to_be(),
            service_mask: (SPACE_MASK | port_mask).to_be(),
            scope: 0,
        };
        let mut storage = sockaddr_storage::default();
        // SAFETY: the room is larger and aligned.
        unsafe { storage.as_mut_ptr().cast::<SockaddrIb>().write(raw) };
        storage
    }

    /// The IP address by which messages of connection management reach the port.
    pub(crate) fn ip(self) -> SocketAddr {
        let gid = Ipv6Addr::from(self.gid);
        if gid.is_unspecified() || gid.is_loopback() {
            return SocketAddrV6::new(gid, self.port, 0, 0).into();
        }
        let guid = u64::from_be_bytes(core::array::from_fn(|byte| self.gid[8 + byte]));
        // SAFETY: a C string.
        let scope = unsafe { libc::if_nametoindex(INTERFACE.as_ptr()) };
        SocketAddrV6::new(link_local(guid), self.port, 0, scope).into()
    }

    /// The GID of the host's own port; all zeros where it has none.
    pub(crate) fn own_gid() -> [u8; 16] {
        let port = link::management::port_state();
        let gid = port.map(|port| u128::from(port.prefix) << 64 | u128::from(port.guid));
        gid.unwrap_or_default().to_be_bytes()
    }
}

/// The link-local address of a port with a GUID, as Linux makes it (RFC 4391, 8).
fn link_local(guid: u64) -> Ipv6Addr {
    Ipv6Addr::from_bits(0xfe80 << 112 | u128::from(guid | 1 << 57))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_was_written() {
        for (port, space) in [(7471, PortSpace::Tcp), (0, PortSpace::Udp)] {
            let address = GidAddress { gid: [7; 16], port };
            let storage = address.storage(space);
            // SAFETY: an address in its storage.
            let read = unsafe { GidAddress::read(storage.as_ptr().cast()) };
            assert_eq!(read, Some(address));
        }
        let storage = GidAddress {
            gid: [7; 16],
            port: 0x1234,
        }
        .storage(PortSpace::Tcp);
        let bytes: Vec<u8> = storage.iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(bytes[..8], [27, 0, 0xff, 0xff, 0, 0, 0, 0]);
        assert_eq!(bytes[24..32], [0, 0, 0, 0, 1, 6, 0x12, 0x34]);
        assert_eq!(bytes[32..40], [0xff; 8]);
        // SAFETY: a storage of no family.
        let none = unsafe { GidAddress::read(sockaddr_storage::default().as_ptr().cast()) };
        assert_eq!(none, None);
    }

    #[test]
    fn a_port_is_reached_by_its_link_local_address() {
        let gid: Ipv6Addr = "fe80::2:c903:a:1b21".parse().unwrap();
        let address = GidAddress {
            gid: gid.octets(),
            port: 5,
        };
        let reached: Ipv6Addr = "fe80::202:c903:a:1b21".parse().unwrap();
        assert_eq!(
            (address.ip().ip(), address.ip().port()),
            (reached.into(), 5)
        );
        let any = GidAddress {
            gid: [0; 16],
            port: 9,
        };
        assert_eq!(any.ip(), "[::]:9".parse().unwrap());
    }
}
