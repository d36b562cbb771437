//! Ethernet II headers with at most one 802.1Q tag (IEEE 802.3 clause 3, 802.1Q clause 9). The preamble and
//! the frame check sequence are the network's and are never seen here.

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};

use crate::ethertype::EtherType;
use crate::frame_error::FrameError;

/// Size of the header without a tag in bytes.
pub const ETHERNET_SIZE: usize = 14;
/// Size of an 802.1Q tag in bytes.
pub const VLAN_TAG_SIZE: usize = 4;
/// Size of the longest header in bytes.
pub const ETHERNET_SIZE_MAX: usize = ETHERNET_SIZE + VLAN_TAG_SIZE;
/// The shortest frame in bytes, frame check sequence left out: shorter ones are padded (802.3 clause
/// 4.2.3.3).
pub const FRAME_SIZE_MIN: usize = 60;

/// A station, or a group of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// The broadcast address, ff:ff:ff:ff:ff:ff.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Whether it is a group address: the lowest bit of the first byte.
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// The group of an IPv4 multicast address: its lower 23 bits (RFC 1112, section 6.4).
    pub const fn of_ipv4_group(group: Ipv4Addr) -> Self {
        let [_, b, c, d] = group.octets();
        Self([0x01, 0x00, 0x5e, b & 0x7f, c, d])
    }

    /// The group of an IPv6 multicast address: its lower 32 bits (RFC 2464, section 7).
    pub const fn of_ipv6_group(group: Ipv6Addr) -> Self {
        let octets = group.octets();
        Self([0x33, 0x33, octets[12], octets[13], octets[14], octets[15]])
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An 802.1Q tag.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct VlanTag {
    /// Priority code point, 0 to 7: PFC and ETS use it where DSCP is not trusted.
    pub pcp: u8,
    /// Drop eligible indicator (IEEE 802.1Q, DEI).
    pub dei: bool,
    /// VLAN identifier, 12 bits; 0 when only the priority counts.
    pub vid: u16,
}

impl VlanTag {
    const fn parse([high, low]: [u8; 2]) -> Self {
        let tag = u16::from_be_bytes([high, low]);
        Self {
            pcp: (tag >> 13) as u8,
            dei: tag & 0x1000 != 0,
            vid: tag & 0x0fff,
        }
    }

    const fn to_bytes(self) -> [u8; 2] {
        ((self.pcp as u16) << 13 | (self.dei as u16) << 12 | self.vid & 0x0fff).to_be_bytes()
    }
}

/// An Ethernet header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ethernet {
    /// Address of the receiver.
    pub destination: MacAddress,
    /// Address of the sender.
    pub source: MacAddress,
    /// The tag, if there is one.
    pub vlan: Option<VlanTag>,
    /// Type of the payload, behind the VLAN tag.
    pub ethertype: EtherType,
}

impl Ethernet {
    /// The header at the start of `frame`, and the rest.
    ///
    /// # Errors
    /// [`FrameError::Ethernet`] when the frame ends within the header.
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<(Self, &[u8]), FrameError> {
        let truncated = FrameError::Ethernet {
            length: frame.len(),
        };
        let (fixed, mut rest) = frame
            .split_first_chunk::<ETHERNET_SIZE>()
            .ok_or(truncated)?;
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1] = *fixed;
        let mut ethertype = EtherType(u16::from_be_bytes([t0, t1]));
        let mut vlan = None;
        if ethertype == EtherType::VLAN {
            let (tag, behind) = rest.split_first_chunk::<VLAN_TAG_SIZE>().ok_or(truncated)?;
            vlan = Some(VlanTag::parse([tag[0], tag[1]]));
            ethertype = EtherType(u16::from_be_bytes([tag[2], tag[3]]));
            rest = behind;
        }
        let destination = MacAddress([d0, d1, d2, d3, d4, d5]);
        let source = MacAddress([s0, s1, s2, s3, s4, s5]);
        Ok((
            Self {
                destination,
                source,
                vlan,
                ethertype,
            },
            rest,
        ))
    }

    /// Writes the header to the start of `out` and returns its length.
    #[inline]
    pub fn encode(&self, out: &mut [u8; ETHERNET_SIZE_MAX]) -> usize {
        out[..6].copy_from_slice(&self.destination.0);
        out[6..12].copy_from_slice(&self.source.0);
        let ethertype = self.ethertype.0.to_be_bytes();
        let Some(tag) = self.vlan else {
            out[12..14].copy_from_slice(&ethertype);
            return ETHERNET_SIZE;
        };
        out[12..14].copy_from_slice(&EtherType::VLAN.0.to_be_bytes());
        out[14..16].copy_from_slice(&tag.to_bytes());
        out[16..18].copy_from_slice(&ethertype);
        ETHERNET_SIZE_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tagged_header_goes_out_and_comes_back() {
        let header = Ethernet {
            destination: MacAddress::BROADCAST,
            source: MacAddress([2, 0, 0, 0, 0, 1]),
            vlan: Some(VlanTag {
                pcp: 3,
                dei: true,
                vid: 100,
            }),
            ethertype: EtherType::IPV4,
        };
        let mut out = [0; ETHERNET_SIZE_MAX];
        assert_eq!(header.encode(&mut out), 18);
        assert_eq!(out[12..], [0x81, 0, 0x70, 0x64, 0x08, 0]);
        assert_eq!(Ethernet::parse(&out), Ok((header, &[][..])));
        assert_eq!(
            Ethernet::parse(&out[..17]),
            Err(FrameError::Ethernet { length: 17 })
        );
    }

    #[test]
    fn groups_of_ip_have_groups_of_ethernet() {
        let ipv4 = MacAddress::of_ipv4_group(Ipv4Addr::new(239, 129, 2, 3));
        assert_eq!(ipv4, MacAddress([0x01, 0, 0x5e, 1, 2, 3]));
        let ipv6 = MacAddress::of_ipv6_group(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0x102, 0x304));
        assert_eq!(ipv6, MacAddress([0x33, 0x33, 1, 2, 3, 4]));
        assert!(ipv4.is_group() && ipv6.is_group());
    }
}
