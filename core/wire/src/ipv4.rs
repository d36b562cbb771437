//! IPv4 headers without options (RFC 791): RoCEv2 allows no others (CA17-3).

use core::net::Ipv4Addr;

use crate::frame_error::FrameError;
use crate::traffic_class::TrafficClass;

/// Size of the header in bytes.
pub const IPV4_SIZE: usize = 20;

const VERSION_AND_LENGTH: u8 = 0x45;
const DONT_FRAGMENT: u16 = 0x4000;

/// IPv4 Identification and DF flag of a packet, which the ICRC covers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Identification {
    /// The identification field of the IPv4 header.
    pub value: u16,
    /// The DF flag. RoCEv2 demands it (CA17-7); not every sender sets it.
    pub dont_fragment: bool,
}

impl Identification {
    /// The identification that Linux sends from an unconnected UDP socket with path MTU discovery set to
    /// "do".
    pub const ZERO: Self = Self {
        value: 0,
        dont_fragment: true,
    };

    /// The identification of packet `index` of a batch that begins with this one: segmentation offload counts
    /// up.
    #[inline]
    #[must_use]
    pub const fn plus(self, index: u16) -> Self {
        Self {
            value: self.value.wrapping_add(index),
            ..self
        }
    }
}

/// An IPv4 header. The header checksum is not a field: it is checked on parsing and computed on encoding.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ipv4 {
    /// DSCP and ECN.
    pub traffic_class: TrafficClass,
    /// Header and payload, in bytes; never below 20.
    pub total_length: u16,
    /// Identification, and whether routers may fragment.
    pub identification: Identification,
    /// Time to live.
    pub ttl: u8,
    /// The protocol number of the payload.
    pub protocol: u8,
    /// Address of the sender.
    pub source: Ipv4Addr,
    /// Address of the receiver.
    pub destination: Ipv4Addr,
}

impl Ipv4 {
    /// The header at the start of `bytes`, and its payload, as long as the total length.
    ///
    /// # Errors
    /// [`FrameError`] names the field that is wrong. Options and fragments are errors: no part of rockery
    /// reassembles.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), FrameError> {
        let Some((header, _)) = bytes.split_first_chunk() else {
            return Err(FrameError::Ip {
                length: bytes.len(),
            });
        };
        let parsed = Self::parse_header(header)?;
        let length = parsed.total_length;
        match bytes.get(IPV4_SIZE..usize::from(length)) {
            Some(payload) => Ok((parsed, payload)),
            None => Err(FrameError::IpLength {
                length,
                available: bytes.len(),
            }),
        }
    }

    /// The header alone; its length field is not compared with anything.
    #[inline]
    pub(crate) fn parse_header(header: &[u8; IPV4_SIZE]) -> Result<Self, FrameError> {
        let field = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        if header[0] != VERSION_AND_LENGTH {
            return Err(FrameError::IpVersion { first: header[0] });
        }
        if checksum(header) != 0 {
            return Err(FrameError::Ipv4Checksum { carried: field(10) });
        }
        let flags = field(6);
        if flags & !DONT_FRAGMENT != 0 {
            return Err(FrameError::Ipv4Fragment { flags });
        }
        let address =
            |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
        Ok(Self {
            traffic_class: TrafficClass(header[1]),
            total_length: field(2),
            identification: Identification {
                value: field(4),
                dont_fragment: flags & DONT_FRAGMENT != 0,
            },
            ttl: header[8],
            protocol: header[9],
            source: address(12),
            destination: address(16),
        })
    }

    /// The header's bytes, with its checksum.
    #[inline]
    pub fn to_bytes(&self) -> [u8; IPV4_SIZE] {
        let mut header = [0; IPV4_SIZE];
        header[0] = VERSION_AND_LENGTH;
        header[1] = self.traffic_class.0;
        header[2..4].copy_from_slice(&self.total_length.to_be_bytes());
        header[4..6].copy_from_slice(&self.identification.value.to_be_bytes());
        let flags = if self.identification.dont_fragment {
            DONT_FRAGMENT
        } else {
            0
        };
        header[6..8].copy_from_slice(&flags.to_be_bytes());
        header[8] = self.ttl;
        header[9] = self.protocol;
        header[12..16].copy_from_slice(&self.source.octets());
        header[16..].copy_from_slice(&self.destination.octets());
        let sum = checksum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        header
    }
}

/// The Internet checksum of a header (RFC 1071): 0 when its checksum field is right.
#[inline]
fn checksum(header: &[u8; IPV4_SIZE]) -> u16 {
    let words = header
        .chunks_exact(2)
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: [u8; 20] = [
        0x45, 0, 0, 0x4c, 0, 0, 0x40, 0, 0x40, 0x11, 0xb9, 0x41, 0xc0, 0xa8, 0, 7, 0xc0, 0xa8, 0, 8,
    ];

    fn packet() -> [u8; 80] {
        let mut bytes = [0; 80];
        bytes[..20].copy_from_slice(&HEADER);
        bytes
    }

    #[test]
    fn a_header_comes_apart_and_together_again() {
        let bytes = packet();
        let (header, payload) = Ipv4::parse(&bytes).unwrap();
        assert_eq!(payload.len(), 0x4c - 20);
        assert_eq!(header.source, Ipv4Addr::new(192, 168, 0, 7));
        assert_eq!(
            (header.identification, header.ttl),
            (Identification::ZERO, 64)
        );
        assert_eq!(header.to_bytes(), HEADER);
    }

    #[test]
    fn each_error_names_its_field() {
        let parse = |change: fn(&mut [u8; 80])| {
            let mut bytes = packet();
            change(&mut bytes);
            bytes[10] = 0;
            bytes[11] = 0;
            let sum = checksum(bytes.first_chunk().unwrap());
            bytes[10..12].copy_from_slice(&sum.to_be_bytes());
            Ipv4::parse(&bytes).map(|_| ()).unwrap_err()
        };
        assert_eq!(
            parse(|b| b[0] = 0x46),
            FrameError::IpVersion { first: 0x46 }
        );
        assert_eq!(
            parse(|b| b[6] = 0x20),
            FrameError::Ipv4Fragment { flags: 0x2000 }
        );
        assert_eq!(
            parse(|b| b[3] = 81),
            FrameError::IpLength {
                length: 81,
                available: 80
            }
        );
        assert_eq!(
            parse(|b| b[3] = 19),
            FrameError::IpLength {
                length: 19,
                available: 80
            }
        );
        let mut bytes = packet();
        bytes[8] = 63;
        assert_eq!(
            Ipv4::parse(&bytes),
            Err(FrameError::Ipv4Checksum { carried: 0xb941 })
        );
        assert_eq!(
            Ipv4::parse(&bytes[..19]),
            Err(FrameError::Ip { length: 19 })
        );
    }
}
