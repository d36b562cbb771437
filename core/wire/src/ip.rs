//! The common part of IPv4 and IPv6.

use crate::frame_error::FrameError;
use crate::ipv4::{IPV4_SIZE, Ipv4};
use crate::ipv6::{IPV6_SIZE, Ipv6};
use crate::traffic_class::TrafficClass;

/// An IP header of either version.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ip {
    /// An IPv4 header.
    V4(Ipv4),
    /// An IPv6 header.
    V6(Ipv6),
}

impl Ip {
    /// The header at the start of `bytes`, and its payload; bytes behind that (the padding of a short frame)
    /// are left out. The version is that of the first byte.
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

    /// The protocol of the payload: [`PROTOCOL_UDP`](crate::udp::PROTOCOL_UDP), for one.
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
