//! What packets of InfiniBand subnets have around their transport headers (IBTA 7.7 to 7.9): the local route
//! header, the invariant and the variant CRC, and the packets with which a port grants credits.
//!
//! ```text
//!      0        1          2    3
//!  0   VVVV LLLL SSSS rrNN  destination LID     V virtual lane, L version, S service level, N next header
//!  4   rrrrr length         source LID          length in words of four bytes, from here to the ICRC
//! ```
//!
//! [`LocalRoute::to_bytes`], [`Icrc::over_local`] and [`variant_crc`] make a packet; a global route header,
//! if there is one, is an [`Ipv6`](crate::Ipv6) header whose next header is [`TRANSPORT`].

use crate::crc32;
use crate::icrc::{ICRC_SIZE, Icrc};
use crate::ipv6::IPV6_SIZE;

/// Size of the local route header in bytes.
pub const LRH_SIZE: usize = 8;
/// Size of the variant CRC in bytes.
pub const VCRC_SIZE: usize = 2;
/// Size of a flow control packet in bytes.
pub const FLOW_CONTROL_SIZE: usize = 6;
/// The next header of a global route header before a base transport header (IBTA 8.3).
pub const TRANSPORT: u8 = 0x1b;

/// What follows the local route header (LNH, IBTA table 17): a base or a global route header.
const NEXT_TRANSPORT: u8 = 2;
const NEXT_GLOBAL: u8 = 3;
/// Bytes of a word of the length.
const WORD: usize = 4;
/// The generator x^16 + x^12 + x^3 + x + 1 of the variant CRC, reflected.
const GENERATOR: u16 = 0xd008;
/// The low bits of a count of credits.
const BLOCKS: u16 = 0xfff;

/// The local route header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalRoute {
    /// The virtual lane on this link.
    pub virtual_lane: u8,
    /// The service level.
    pub service_level: u8,
    /// Whether a global route header follows.
    pub is_global: bool,
    /// The LID of the destination.
    pub destination: u16,
    /// The LID of the source.
    pub source: u16,
}

impl LocalRoute {
    /// The header's bytes before so many bytes of headers, payload and padding; the ICRC is not among them.
    pub const fn to_bytes(&self, following: usize) -> [u8; LRH_SIZE] {
        let words = ((LRH_SIZE + following + ICRC_SIZE) / WORD) as u16 & 0x7ff;
        let next = if self.is_global {
            NEXT_GLOBAL
        } else {
            NEXT_TRANSPORT
        };
        let [d0, d1] = self.destination.to_be_bytes();
        let [l0, l1] = words.to_be_bytes();
        let [s0, s1] = self.source.to_be_bytes();
        let lane = self.virtual_lane << 4;
        [lane, self.service_level << 4 | next, d0, d1, l0, l1, s0, s1]
    }
}

impl Icrc {
    /// From the headers before the base transport header as they are on the link: the virtual lane, and in a
    /// global route header the traffic class, the flow label and the hop limit, are taken as ones.
    pub fn over_local(mut local: [u8; LRH_SIZE], global: Option<[u8; IPV6_SIZE]>) -> Self {
        local[0] |= 0xf0;
        let crc = crc32::update(0, &local);
        let global = global.map(|mut global| {
            global[0] |= 0x0f;
            global[1..4].fill(0xff);
            global[7] = 0xff;
            global
        });
        Self::from_crc(global.map_or(crc, |global| crc32::update(crc, &global)))
    }
}

/// The variant CRC over everything from the local route header to the ICRC, or over the first four bytes of a
/// flow control packet. Each port computes it anew.
pub fn variant_crc(bytes: &[u8]) -> [u8; VCRC_SIZE] {
    let after_bit = |crc: u16| crc >> 1 ^ if crc & 1 == 1 { GENERATOR } else { 0 };
    let after = |crc: u16, byte: &u8| {
        let crc = crc ^ u16::from(*byte);
        (0..8).fold(crc, |crc, _| after_bit(crc))
    };
    (!bytes.iter().fold(u16::MAX, after)).to_le_bytes()
}

/// A flow control packet: how much of a lane was sent, and how far its peer may send (IBTA 7.9.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowControl {
    /// The virtual lane.
    pub virtual_lane: u8,
    /// Blocks of 64 bytes that were sent since the link came up, modulo 4,096 (FCTBS).
    pub sent: u16,
    /// The block up to which the peer may send, modulo 4,096 (FCCL).
    pub limit: u16,
}

impl FlowControl {
    /// The packet's bytes, check included.
    pub fn to_bytes(&self) -> [u8; FLOW_CONTROL_SIZE] {
        let [s0, s1] = (self.sent & BLOCKS).to_be_bytes();
        let [l0, l1] = (u16::from(self.virtual_lane) << 12 | self.limit & BLOCKS).to_be_bytes();
        let [c0, c1] = variant_crc(&[s0, s1, l0, l1]);
        [s0, s1, l0, l1, c0, c1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sample packet of IBTA 7.8.1: a WRITE of 14 bytes.
    const SAMPLE: [u8; 52] = [
        0x70, 0x12, 0x37, 0x5c, 0x00, 0x0e, 0x17, 0xd2, 0x0a, 0x20, 0x24, 0x87, 0x00, 0x87, 0xb1,
        0xb3, 0x00, 0x0d, 0xec, 0x2a, 0x01, 0x71, 0x0a, 0x1c, 0x01, 0x5d, 0x40, 0x02, 0x38, 0xf2,
        0x7a, 0x05, 0x00, 0x00, 0x00, 0x0e, 0xbb, 0x88, 0x4d, 0x85, 0xfd, 0x5c, 0xfb, 0xa4, 0x72,
        0x8b, 0xc0, 0x69, 0x0e, 0xd4, 0x00, 0x00,
    ];
    const SAMPLE_ICRC: [u8; ICRC_SIZE] = [0x96, 0x25, 0xb7, 0x5a];

    #[test]
    fn the_sample_packet_of_the_specification_has_its_header_and_icrc() {
        let route = LocalRoute {
            virtual_lane: 7,
            service_level: 1,
            is_global: false,
            destination: 0x375c,
            source: 0x17d2,
        };
        let (header, transport) = SAMPLE.split_at(LRH_SIZE);
        let local = route.to_bytes(transport.len());
        assert_eq!(local, *header);
        let mut icrc = Icrc::over_local(local, None);
        icrc.transport(transport);
        assert_eq!(icrc.finish(), SAMPLE_ICRC);
    }

    /// The CRC of a shift register into which bits go from the lowest of each byte on, as the specification
    /// draws it.
    fn shifted(bytes: &[u8]) -> u16 {
        let bits = bytes
            .iter()
            .flat_map(|byte| (0..8).map(move |bit| u16::from(byte >> bit & 1)));
        let register = bits.fold(u16::MAX, |register, bit| {
            let feedback = register >> 15 ^ bit;
            register << 1 ^ if feedback == 1 { 0x100b } else { 0 }
        });
        !register
    }

    #[test]
    fn the_variant_crc_is_that_of_the_shift_register() {
        let whole = [&SAMPLE[..], &SAMPLE_ICRC].concat();
        for length in [4, 8, 52, 56] {
            let bytes = &whole[..length];
            assert_eq!(
                u16::from_le_bytes(variant_crc(bytes)),
                shifted(bytes).reverse_bits()
            );
        }
    }

    #[test]
    fn a_global_route_header_is_covered_but_for_what_routers_change() {
        let route = LocalRoute {
            virtual_lane: 0,
            service_level: 2,
            is_global: true,
            destination: 1,
            source: 2,
        };
        let global: [u8; IPV6_SIZE] = core::array::from_fn(|at| at as u8);
        let local = route.to_bytes(IPV6_SIZE + 12);
        assert_eq!((local[1], local[5]), (0x23, (8 + 40 + 12 + 4) / 4));
        let of = |local, global| Icrc::over_local(local, Some(global)).finish();
        let known = of(local, global);
        for at in 0..IPV6_SIZE {
            let mut changed = global;
            changed[at] ^= 0x0f;
            let is_variant = matches!(at, 0..=3 | 7);
            assert_eq!(of(local, changed) == known, is_variant, "byte {at}");
        }
        let other_lane = LocalRoute {
            virtual_lane: 5,
            ..route
        };
        assert_eq!(of(other_lane.to_bytes(IPV6_SIZE + 12), global), known);
    }

    #[test]
    fn a_flow_control_packet_has_its_counts_and_its_check() {
        let packet = FlowControl {
            virtual_lane: 3,
            sent: 0x1123,
            limit: 0x456,
        };
        let bytes = packet.to_bytes();
        assert_eq!(bytes[..4], [0x01, 0x23, 0x34, 0x56]);
        assert_eq!(bytes[4..], variant_crc(&bytes[..4]));
    }
}
