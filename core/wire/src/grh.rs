//! The forty bytes that verbs put before the payload of a received UD packet: InfiniBand's global route
//! header, or what RoCEv2 has in its place (Annex A17.4.5.2): the IPv6 header, or 20 bytes without meaning
//! and the IPv4 header.
//!
//! Programs read addresses from it (`ibv_init_ah_from_wc`, UCX): they take it for IPv6 when the first four
//! bits are 6, and otherwise for IPv4 if the header at offset 20 has a valid checksum.

use crate::frame_error::FrameError;
use crate::ip::Ip;
use crate::ipv4::{IPV4_SIZE, Ipv4};
use crate::ipv6::{IPV6_SIZE, Ipv6};

/// Size of the area in bytes.
pub const GRH_SIZE: usize = 40;

const _: () = assert!(GRH_SIZE == IPV6_SIZE && GRH_SIZE == 2 * IPV4_SIZE);

/// The area for a packet that came with `ip`.
pub fn to_bytes(ip: &Ip) -> [u8; GRH_SIZE] {
    match ip {
        Ip::V6(header) => header.to_bytes(),
        Ip::V4(header) => {
            let mut bytes = [0; GRH_SIZE];
            bytes[GRH_SIZE - IPV4_SIZE..].copy_from_slice(&header.to_bytes());
            bytes
        }
    }
}

/// The IP header in the area. Its length field is not compared with anything: the payload lies elsewhere.
///
/// # Errors
/// [`FrameError`] of the header that should be there.
pub fn parse(bytes: &[u8; GRH_SIZE]) -> Result<Ip, FrameError> {
    if bytes[0] >> 4 == 6 {
        return Ipv6::parse_header(bytes).map(Ip::V6);
    }
    let ipv4 = core::array::from_fn(|index| bytes[GRH_SIZE - IPV4_SIZE + index]);
    Ipv4::parse_header(&ipv4).map(Ip::V4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipv4::Identification;
    use crate::traffic_class::TrafficClass;
    use crate::udp::PROTOCOL_UDP;
    use core::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn an_ipv4_header_stands_in_the_second_half_with_its_checksum() {
        let header = Ipv4 {
            traffic_class: TrafficClass(2),
            total_length: 300,
            identification: Identification::ZERO,
            ttl: 64,
            protocol: PROTOCOL_UDP,
            source: Ipv4Addr::new(10, 0, 0, 1),
            destination: Ipv4Addr::new(10, 0, 0, 2),
        };
        let mut bytes = to_bytes(&Ip::V4(header));
        assert_eq!(bytes[..20], [0; 20]);
        assert_eq!(bytes[20], 0x45);
        assert_eq!(parse(&bytes), Ok(Ip::V4(header)));
        bytes[39] ^= 1;
        assert!(matches!(
            parse(&bytes),
            Err(FrameError::Ipv4Checksum { .. })
        ));
    }

    #[test]
    fn an_ipv6_header_fills_it() {
        let header = Ipv6 {
            traffic_class: TrafficClass(0),
            flow_label: 5,
            payload_length: 300,
            next_header: PROTOCOL_UDP,
            hop_limit: 1,
            source: Ipv6Addr::LOCALHOST,
            destination: Ipv6Addr::LOCALHOST,
        };
        assert_eq!(parse(&to_bytes(&Ip::V6(header))), Ok(Ip::V6(header)));
    }
}
