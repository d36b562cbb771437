//! Addresses of IP over InfiniBand (RFC 4391, 4 and 9.1): 20 bytes of hardware address, and the multicast
//! GIDs of IP groups.

use crate::mad::{get, put};
use crate::sa::Gid;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes of a hardware address.
pub const HARDWARE_BYTES: usize = 20;
/// The queue pair number of packets for a multicast group (IBTA 10.5.2).
pub const MULTICAST_QP: u32 = 0x00ff_ffff;
/// The bit of full members of a partition.
const FULL_MEMBER: u16 = 0x8000;
/// Signatures in GIDs of groups.
const IPV4: u16 = 0x401b;
const IPV6: u16 = 0x601b;

/// The hardware address of an interface. The byte before the queue pair has flags, of which none is used: it
/// says that there is no connected mode (RFC 4755, 3.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HardwareAddress {
    /// The queue pair of the interface.
    pub qpn: u32,
    /// The GID of its port.
    pub gid: Gid,
}

impl HardwareAddress {
    /// The address as it is on the wire.
    pub fn to_bytes(self) -> [u8; HARDWARE_BYTES] {
        let mut bytes = [0; HARDWARE_BYTES];
        put(&mut bytes, 0, self.qpn & MULTICAST_QP);
        put(&mut bytes, 4, u128::from_be_bytes(self.gid));
        bytes
    }

    /// The address at the beginning of bytes.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..HARDWARE_BYTES)?;
        Some(Self {
            qpn: get::<u32>(bytes, 0) & MULTICAST_QP,
            gid: get::<u128>(bytes, 4).to_be_bytes(),
        })
    }

    /// The hardware address of the group of all interfaces of a partition.
    pub fn broadcast(p_key: u16) -> Self {
        Self {
            qpn: MULTICAST_QP,
            gid: broadcast_gid(p_key),
        }
    }
}

/// The GID of a group: transient, of the link, with the partition (RFC 4391, 4).
fn gid(signature: u16, p_key: u16, group: u128) -> Gid {
    let mut gid = (0xff12_u128 << 112 | group).to_be_bytes();
    put(&mut gid, 2, signature);
    put(&mut gid, 4, p_key | FULL_MEMBER);
    gid
}

/// The group of all interfaces of a partition.
pub fn broadcast_gid(p_key: u16) -> Gid {
    gid(IPV4, p_key, u128::from(u32::MAX))
}

/// The group of an IP multicast address: its lower 28 or 80 bits.
pub fn group_gid(p_key: u16, address: IpAddr) -> Gid {
    match address {
        IpAddr::V4(address) => gid(IPV4, p_key, u128::from(address.to_bits() & 0x0fff_ffff)),
        IpAddr::V6(address) => gid(IPV6, p_key, address.to_bits() & ((1 << 80) - 1)),
    }
}

/// The group in which the neighbours of an IPv6 address are asked (RFC 4291, 2.7.1).
pub(super) fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    let pair = |high: u8, low: u8| u16::from_be_bytes([high, low]);
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, pair(0xff, a), pair(b, c))
}

/// The link-local address of a port, as Linux makes it: the GUID with the bit that says "universal"
/// (RFC 4391, 8).
pub fn link_local(guid: u64) -> Ipv6Addr {
    Ipv6Addr::from_bits(0xfe80 << 112 | u128::from(guid | 1 << 57))
}

/// An address of a host, with the bits that its network shares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OwnAddress {
    /// The address that programs of the host use.
    pub address: IpAddr,
    /// The length of the prefix.
    pub prefix: u8,
}

impl OwnAddress {
    /// Whether an address means all hosts of this one's network.
    pub fn is_broadcast(&self, address: Ipv4Addr) -> bool {
        let IpAddr::V4(own) = self.address else {
            return false;
        };
        let hosts = u32::MAX.checked_shr(u32::from(self.prefix)).unwrap_or(0);
        hosts > 1 && address.to_bits() == own.to_bits() | hosts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::str::FromStr;

    fn text(gid: Gid) -> alloc::string::String {
        alloc::format!("{}", Ipv6Addr::from(gid))
    }

    #[test]
    fn groups_have_the_gids_of_the_standard() {
        let of = |address: &str| text(group_gid(0x7fff, IpAddr::from_str(address).unwrap()));
        assert_eq!(text(broadcast_gid(0xffff)), "ff12:401b:ffff::ffff:ffff");
        assert_eq!(of("224.0.0.1"), "ff12:401b:ffff::1");
        assert_eq!(of("239.255.1.2"), "ff12:401b:ffff::fff:102");
        assert_eq!(of("ff02::1"), "ff12:601b:ffff::1");
        assert_eq!(of("ff05::1:2:3"), "ff12:601b:ffff::1:2:3");
        let node = solicited_node(Ipv6Addr::from_str("fe80::1234:5678").unwrap());
        assert_eq!(node, Ipv6Addr::from_str("ff02::1:ff34:5678").unwrap());
        let own = link_local(0x0002_c903_000a_1b21);
        assert_eq!(own, Ipv6Addr::from_str("fe80::202:c903:a:1b21").unwrap());
    }

    #[test]
    fn hardware_addresses_are_read_as_they_were_written() {
        let address = HardwareAddress {
            qpn: 0x0012_3456,
            gid: [7; 16],
        };
        assert_eq!(HardwareAddress::parse(&address.to_bytes()), Some(address));
        assert_eq!(HardwareAddress::parse(&[0; 19]), None);
    }

    #[test]
    fn the_last_address_of_a_network_means_all() {
        let own = |prefix: u8| OwnAddress {
            address: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
            prefix,
        };
        assert!(own(8).is_broadcast(Ipv4Addr::new(10, 255, 255, 255)));
        assert!(!own(8).is_broadcast(Ipv4Addr::new(10, 0, 0, 255)));
        assert!(!own(32).is_broadcast(Ipv4Addr::new(10, 0, 0, 1)));
        assert!(!own(31).is_broadcast(Ipv4Addr::new(10, 0, 0, 1)));
    }
}
