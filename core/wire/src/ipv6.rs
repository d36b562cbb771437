//! IPv6 headers without extensions (RFC 8200).

use core::net::Ipv6Addr;

use crate::frame_error::FrameError;
use crate::traffic_class::TrafficClass;

/// Size of the header in bytes.
pub const IPV6_SIZE: usize = 40;

const VERSION: u8 = 6;

/// An IPv6 header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ipv6 {
    /// DSCP and ECN.
    pub traffic_class: TrafficClass,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Everything behind this header, in bytes.
    pub payload_length: u16,
    /// The protocol number of the payload.
    pub next_header: u8,
    /// Hop limit, which each router lowers by one.
    pub hop_limit: u8,
    /// Address of the sender.
    pub source: Ipv6Addr,
    /// Address of the receiver.
    pub destination: Ipv6Addr,
}

impl Ipv6 {
    /// The header at the start of `bytes`, and its payload, as long as the payload length.
    ///
    /// # Errors
    /// [`FrameError`] names the field that is wrong.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), FrameError> {
        let Some((header, rest)) = bytes.split_first_chunk() else {
            return Err(FrameError::Ip {
                length: bytes.len(),
            });
        };
        let parsed = Self::parse_header(header)?;
        let length = parsed.payload_length;
        match rest.get(..usize::from(length)) {
            Some(payload) => Ok((parsed, payload)),
            None => Err(FrameError::IpLength {
                length,
                available: rest.len(),
            }),
        }
    }

    /// The header alone; its length field is not compared with anything.
    #[inline]
    pub(crate) fn parse_header(header: &[u8; IPV6_SIZE]) -> Result<Self, FrameError> {
        if header[0] >> 4 != VERSION {
            return Err(FrameError::IpVersion { first: header[0] });
        }
        let address = |at: usize| {
            Ipv6Addr::from(core::array::from_fn::<u8, 16, _>(|index| {
                header[at + index]
            }))
        };
        Ok(Self {
            traffic_class: TrafficClass(header[0] << 4 | header[1] >> 4),
            flow_label: u32::from_be_bytes([0, header[1] & 0x0f, header[2], header[3]]),
            payload_length: u16::from_be_bytes([header[4], header[5]]),
            next_header: header[6],
            hop_limit: header[7],
            source: address(8),
            destination: address(24),
        })
    }

    /// The header's bytes; only the low 20 bits of the flow label are taken.
    #[inline]
    pub fn to_bytes(&self) -> [u8; IPV6_SIZE] {
        let mut header = [0; IPV6_SIZE];
        let class = u32::from(self.traffic_class.0);
        let first = u32::from(VERSION) << 28 | class << 20 | self.flow_label & 0x000f_ffff;
        header[..4].copy_from_slice(&first.to_be_bytes());
        header[4..6].copy_from_slice(&self.payload_length.to_be_bytes());
        header[6] = self.next_header;
        header[7] = self.hop_limit;
        header[8..24].copy_from_slice(&self.source.octets());
        header[24..].copy_from_slice(&self.destination.octets());
        header
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_goes_out_and_comes_back() {
        let header = Ipv6 {
            traffic_class: TrafficClass(0xa5),
            flow_label: 0xb_cdef,
            payload_length: 3,
            next_header: 17,
            hop_limit: 64,
            source: Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 0x12),
            destination: Ipv6Addr::LOCALHOST,
        };
        let mut bytes = [0; 45];
        bytes[..40].copy_from_slice(&header.to_bytes());
        assert_eq!(bytes[..8], [0x6a, 0x5b, 0xcd, 0xef, 0, 3, 17, 64]);
        assert_eq!(Ipv6::parse(&bytes), Ok((header, &[0; 3][..])));
        assert_eq!(
            Ipv6::parse(&bytes[..42]),
            Err(FrameError::IpLength {
                length: 3,
                available: 2
            })
        );
        assert_eq!(
            Ipv6::parse(&bytes[..39]),
            Err(FrameError::Ip { length: 39 })
        );
        bytes[0] = 0x45;
        assert_eq!(
            Ipv6::parse(&bytes),
            Err(FrameError::IpVersion { first: 0x45 })
        );
    }
}
