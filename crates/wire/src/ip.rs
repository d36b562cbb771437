//! What IPv4 and IPv6 have in common.

use crate::frame::FrameError;
use crate::ipv4::{IPV4_SIZE, Ipv4};
use crate::ipv6::{IPV6_SIZE, Ipv6};

/// The protocol number of UDP (RFC 768).
pub const PROTOCOL_UDP: u8 = 17;

/// Explicit congestion notification (RFC 3168, section 5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Ecn {
    /// The sender does not take part: a congested switch drops.
    NotCapable = 0,
    /// ECN-capable transport, code point 1.
    Capable1 = 1,
    /// ECN-capable transport, code point 0: what RoCEv2 senders use.
    Capable0 = 2,
    /// A switch on the way was congested.
    CongestionExperienced = 3,
}

/// IPv4 type of service or IPv6 traffic class: DSCP in the upper six bits, ECN in the lower two.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct TrafficClass(pub u8);

impl TrafficClass {
    /// From a DSCP (lower six bits) and an ECN code point.
    pub const fn new(dscp: u8, ecn: Ecn) -> Self {
        Self(dscp << 2 | ecn as u8)
    }

    /// Differentiated services code point (RFC 2474).
    pub const fn dscp(self) -> u8 {
        self.0 >> 2
    }

    /// ECN code point.
    pub const fn ecn(self) -> Ecn {
        match self.0 & 3 {
            0 => Ecn::NotCapable,
            1 => Ecn::Capable1,
            2 => Ecn::Capable0,
            _ => Ecn::CongestionExperienced,
        }
    }

    /// The same DSCP with another ECN code point.
    #[must_use]
    pub const fn with_ecn(self, ecn: Ecn) -> Self {
        Self(self.0 & !3 | ecn as u8)
    }
}

/// An IP header of either version.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ip {
    /// An IPv4 header.
    V4(Ipv4),
    /// An IPv6 header.
    V6(Ipv6),
}

impl Ip {
    /// The header at the start of `bytes`, and its payload; what follows that (the padding of a short frame)
    /// is left out. The version is the one that the first byte names.
    ///
    /// # Errors
    /// [`FrameError`] names the field that is wrong.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), FrameError> {
        match bytes.first().map(|first| first >> 4) {
            Some(6) => Ipv6::parse(bytes).map(|(header, payload)| (Self::V6(header), payload)),
            _ => Ipv4::parse(bytes).map(|(header, payload)| (Self::V4(header), payload)),
        }
    }

    /// Writes the header to the start of `out` and returns its length.
    #[inline]
    pub fn encode(&self, out: &mut [u8; IPV6_SIZE]) -> usize {
        match self {
            Self::V4(header) => {
                out[..IPV4_SIZE].copy_from_slice(&header.to_bytes());
                IPV4_SIZE
            }
            Self::V6(header) => {
                *out = header.to_bytes();
                IPV6_SIZE
            }
        }
    }

    /// What the payload is: [`PROTOCOL_UDP`], for one.
    pub const fn protocol(&self) -> u8 {
        match self {
            Self::V4(header) => header.protocol,
            Self::V6(header) => header.next_header,
        }
    }

    /// DSCP and ECN.
    pub const fn traffic_class(&self) -> TrafficClass {
        match self {
            Self::V4(header) => header.traffic_class,
            Self::V6(header) => header.traffic_class,
        }
    }

    /// Time to live or hop limit.
    pub const fn hop_limit(&self) -> u8 {
        match self {
            Self::V4(header) => header.ttl,
            Self::V6(header) => header.hop_limit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dscp_and_ecn_share_a_byte() {
        let class = TrafficClass::new(26, Ecn::Capable0);
        assert_eq!(class, TrafficClass(106));
        assert_eq!(class.with_ecn(Ecn::CongestionExperienced), TrafficClass(107));
        for byte in 0..=u8::MAX {
            let class = TrafficClass(byte);
            assert_eq!(TrafficClass::new(class.dscp(), class.ecn()), class);
        }
    }
}
