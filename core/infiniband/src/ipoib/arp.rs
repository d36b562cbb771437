//! ARP with addresses of 20 bytes (RFC 826; RFC 4391, 9.2).

use super::address::{HARDWARE_BYTES, HardwareAddress};
use crate::mad::{get, put};
use alloc::vec::Vec;
use core::net::Ipv4Addr;

/// The hardware type of InfiniBand.
const INFINIBAND: u16 = 32;
const IPV4: u16 = 0x0800;
const REQUEST: u16 = 1;
const REPLY: u16 = 2;
/// Bytes of a packet.
const BYTES: usize = 8 + 2 * (HARDWARE_BYTES + 4);

/// An ARP packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Arp {
    pub(super) is_request: bool,
    pub(super) sender: HardwareAddress,
    pub(super) sender_ip: Ipv4Addr,
    /// The hardware address asked for is not known.
    pub(super) target: Option<HardwareAddress>,
    pub(super) target_ip: Ipv4Addr,
}

impl Arp {
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = alloc::vec![0; BYTES];
        put(&mut bytes, 0, INFINIBAND);
        put(&mut bytes, 2, IPV4);
        put(&mut bytes, 4, HARDWARE_BYTES as u8);
        put(&mut bytes, 5, 4_u8);
        put(&mut bytes, 6, if self.is_request { REQUEST } else { REPLY });
        bytes[8..28].copy_from_slice(&self.sender.to_bytes());
        put(&mut bytes, 28, self.sender_ip.to_bits());
        if let Some(target) = self.target {
            bytes[32..52].copy_from_slice(&target.to_bytes());
        }
        put(&mut bytes, 52, self.target_ip.to_bits());
        bytes
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..BYTES)?;
        let is_ours = get::<u16>(bytes, 0) == INFINIBAND
            && get::<u16>(bytes, 2) == IPV4
            && bytes[4..6] == [HARDWARE_BYTES as u8, 4];
        let is_request = match get(bytes, 6) {
            REQUEST => true,
            REPLY => false,
            _ => return None,
        };
        if !is_ours {
            return None;
        }
        Some(Self {
            is_request,
            sender: HardwareAddress::parse(&bytes[8..])?,
            sender_ip: Ipv4Addr::from_bits(get(bytes, 28)),
            target: HardwareAddress::parse(&bytes[32..]),
            target_ip: Ipv4Addr::from_bits(get(bytes, 52)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_read_as_they_were_written() {
        let address = |value: u8| HardwareAddress {
            qpn: u32::from(value),
            gid: [value; 16],
        };
        let packet = Arp {
            is_request: true,
            sender: address(1),
            sender_ip: Ipv4Addr::new(10, 0, 0, 1),
            target: Some(address(2)),
            target_ip: Ipv4Addr::new(10, 0, 0, 2),
        };
        let bytes = packet.to_bytes();
        assert_eq!(
            (bytes.len(), &bytes[..8]),
            (56, &[0, 32, 8, 0, 20, 4, 0, 1][..])
        );
        assert_eq!(Arp::parse(&bytes), Some(packet));
        assert_eq!(Arp::parse(&bytes[..55]), None);
        for at in 0..8 {
            let mut other = bytes.clone();
            other[at] ^= 0x10;
            assert_eq!(Arp::parse(&other), None, "{at}");
        }
    }
}
