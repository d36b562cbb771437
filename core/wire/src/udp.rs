//! UDP headers (RFC 768).

use crate::frame_error::FrameError;

/// Size of the header in bytes.
pub const UDP_SIZE: usize = 8;

/// The protocol number of UDP (RFC 768).
pub const PROTOCOL_UDP: u8 = 17;

/// The destination port of RoCEv2 (Annex A17.3.2.2).
pub const ROCE_PORT: u16 = 4791;

/// A UDP header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Udp {
    /// Sender's port: for RoCEv2 only entropy.
    pub source_port: u16,
    /// Port of the receiver: 4791 for RoCEv2.
    pub destination_port: u16,
    /// Header and payload, in bytes; never below 8.
    pub length: u16,
    /// The checksum field; 0 for none, which RoCEv2 requires (Annex A17.3.2.4) (the ICRC covers more).
    pub checksum: u16,
}

impl Udp {
    /// The header at the start of `bytes`, and its payload, as long as the length field. The checksum is not
    /// checked.
    ///
    /// # Errors
    /// [`FrameError::Udp`] when the datagram ends within the header, [`FrameError::UdpLength`] when the
    /// length field is below 8 or exceeds the bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), FrameError> {
        let Some(([s0, s1, d0, d1, l0, l1, c0, c1], _)) = bytes.split_first_chunk::<UDP_SIZE>()
        else {
            return Err(FrameError::Udp {
                length: bytes.len(),
            });
        };
        let length = u16::from_be_bytes([*l0, *l1]);
        let Some(payload) = bytes.get(UDP_SIZE..usize::from(length)) else {
            return Err(FrameError::UdpLength {
                length,
                available: bytes.len(),
            });
        };
        let parsed = Self {
            source_port: u16::from_be_bytes([*s0, *s1]),
            destination_port: u16::from_be_bytes([*d0, *d1]),
            length,
            checksum: u16::from_be_bytes([*c0, *c1]),
        };
        Ok((parsed, payload))
    }

    /// The header's bytes.
    #[inline]
    pub const fn to_bytes(&self) -> [u8; UDP_SIZE] {
        let [s0, s1] = self.source_port.to_be_bytes();
        let [d0, d1] = self.destination_port.to_be_bytes();
        let [l0, l1] = self.length.to_be_bytes();
        let [c0, c1] = self.checksum.to_be_bytes();
        [s0, s1, d0, d1, l0, l1, c0, c1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_goes_out_and_comes_back() {
        let header = Udp {
            source_port: 0xc001,
            destination_port: ROCE_PORT,
            length: 10,
            checksum: 0x1234,
        };
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&header.to_bytes());
        assert_eq!(bytes[..8], [0xc0, 1, 0x12, 0xb7, 0, 10, 0x12, 0x34]);
        assert_eq!(Udp::parse(&bytes), Ok((header, &[0; 2][..])));
        assert_eq!(
            Udp::parse(&bytes[..9]),
            Err(FrameError::UdpLength {
                length: 10,
                available: 9
            })
        );
        assert_eq!(Udp::parse(&bytes[..7]), Err(FrameError::Udp { length: 7 }));
        bytes[5] = 7;
        assert_eq!(
            Udp::parse(&bytes),
            Err(FrameError::UdpLength {
                length: 7,
                available: 12
            })
        );
    }
}
