//! The invariant CRC of RoCEv2 (Annex A17.3.3): the last four bytes of a packet, over everything from the IP
//! header on that no router changes.
//!
//! It is a CRC-32 over eight bytes of ones (where InfiniBand's local route header would be), IP header, UDP
//! header, and BTH to padding, with the fields that change on the way taken as ones: IPv4 type of service,
//! time to live and header checksum; IPv6 traffic class, flow label and hop limit; the UDP checksum; the byte
//! with FECN and BECN in the BTH.
//!
//! ```text
//! Flow::ipv4(…) ──seed(length, identification)──▶ Icrc ──transport(…)──update(…)──▶ finish() ──▶ 4 bytes
//! ```
//!
//! IPv4 Identification and its flags are covered, yet a UDP socket sees neither. So
//! [`explain_identification`] returns the identification with which a received ICRC is right, if there is
//! one. Its price: a packet with random damage passes if its CRC happens to fit one of 2^17 headers, so with
//! a probability of 2^-15 instead of 2^-32. A receiver that sees the header, or has a peer that sends 0,
//! compares exactly instead.

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::bth::{BTH_SIZE, BTH_VARIANT_BYTE};
use crate::crc32;
use crate::ipv4::{IPV4_SIZE, Identification};
use crate::ipv6::IPV6_SIZE;
use crate::udp::{PROTOCOL_UDP, UDP_SIZE};

/// Size of the ICRC in bytes.
pub const ICRC_SIZE: usize = 4;

/// Offsets in an IPv4 header (RFC 791).
const IPV4_TOTAL_LENGTH: usize = 2;
const IPV4_IDENTIFICATION: usize = 4;
const IPV4_FLAGS: usize = 6;
const IPV4_DONT_FRAGMENT: u8 = 0x40;
/// Offset in an IPv6 header (RFC 8200).
const IPV6_PAYLOAD_LENGTH: usize = 4;
/// Offset in a UDP header (RFC 768).
const UDP_LENGTH: usize = 4;

/// An ICRC on the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Icrc {
    crc: u32,
}

impl Icrc {
    /// From an IPv4 header without options and a UDP header as they are on the wire.
    pub fn over_ipv4(mut header: [u8; IPV4_SIZE], udp: [u8; UDP_SIZE]) -> Self {
        header[1] = 0xff;
        header[8] = 0xff;
        header[10] = 0xff;
        header[11] = 0xff;
        Self::over_headers(&header, udp)
    }

    /// From an IPv6 header without extensions and a UDP header as they are on the wire.
    pub fn over_ipv6(mut header: [u8; IPV6_SIZE], udp: [u8; UDP_SIZE]) -> Self {
        header[0] |= 0x0f;
        header[1] = 0xff;
        header[2] = 0xff;
        header[3] = 0xff;
        header[7] = 0xff;
        Self::over_headers(&header, udp)
    }

    fn over_headers(ip: &[u8], mut udp: [u8; UDP_SIZE]) -> Self {
        udp[6] = 0xff;
        udp[7] = 0xff;
        Self {
            crc: crc32::update(crc32::update(crc32::update(0, &[0xff; 8]), ip), &udp),
        }
    }

    /// From the value that a CRC-32 has so far.
    pub(crate) const fn from_crc(crc: u32) -> Self {
        Self { crc }
    }

    /// Continues over bytes that begin with a BTH, whatever follows it in the same piece.
    #[inline]
    pub fn transport(&mut self, bytes: &[u8]) {
        // Nearly always the byte to be taken as ones is zero. Then one pass over the bytes as they are is
        // corrected afterwards by the difference that ones make, which depends on the length alone. Half the
        // time of two passes for a small packet.
        let masked_later = match bytes.get(BTH_VARIANT_BYTE) {
            Some(0) if bytes.len().is_multiple_of(4) => {
                VARIANT_ONES.get((bytes.len() / 4).wrapping_sub(2))
            }
            _ => None,
        };
        match masked_later {
            Some(difference) => {
                self.update(bytes);
                self.crc ^= difference;
            }
            None => self.transport_in_two_passes(bytes),
        }
    }

    fn transport_in_two_passes(&mut self, bytes: &[u8]) {
        let (head, rest) = bytes.split_at(bytes.len().min(BTH_SIZE));
        let mut bth = [0; BTH_SIZE];
        bth[..head.len()].copy_from_slice(head);
        bth[BTH_VARIANT_BYTE] = 0xff;
        self.update(&bth[..head.len()]);
        self.update(rest);
    }

    /// Continues over more bytes: extended headers, payload, padding.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        self.crc = crc32::update(self.crc, bytes);
    }

    /// Continues over `length` bytes whose CRC-32 is already known to be `crc` (see [`crc32::update`]),
    /// without touching them.
    pub fn append(&mut self, crc: u32, length: usize) {
        self.crc = crc32::combine(self.crc, crc, length);
    }

    /// The four bytes that follow the padding.
    #[inline]
    pub const fn finish(self) -> [u8; ICRC_SIZE] {
        self.crc.to_le_bytes()
    }
}

/// The bytes from BTH to padding, and the ICRC behind them; `None` when there are fewer than four bytes.
#[inline]
pub const fn split_icrc(udp_payload: &[u8]) -> Option<(&[u8], [u8; ICRC_SIZE])> {
    match udp_payload.split_last_chunk() {
        Some((packet, icrc)) => Some((packet, *icrc)),
        None => None,
    }
}

/// Which IPv4 Identification and DF flag the sender used, when `received` is right for some and `computed`
/// was computed with `assumed`; `None` when no value makes it right: the packet is damaged.
/// `transport_length` is the number of bytes from the BTH to the end of the padding, a multiple of four in
/// every RoCEv2 packet.
pub fn explain_identification(
    computed: [u8; ICRC_SIZE],
    received: [u8; ICRC_SIZE],
    assumed: Identification,
    transport_length: usize,
) -> Option<Identification> {
    if computed == received {
        return Some(assumed);
    }
    if !transport_length.is_multiple_of(4) {
        return None;
    }
    let after = IPV4_SIZE - IPV4_IDENTIFICATION - 4 + UDP_SIZE + transport_length;
    let difference = u32::from_le_bytes(computed) ^ u32::from_le_bytes(received);
    let [high, low, flags, fragment] = crc32::bits_that_explain(difference, after / 4);
    let only_dont_fragment = flags & !IPV4_DONT_FRAGMENT == 0 && fragment == 0;
    only_dont_fragment.then(|| Identification {
        value: assumed.value ^ u16::from_be_bytes([high, low]),
        dont_fragment: assumed.dont_fragment ^ (flags & IPV4_DONT_FRAGMENT != 0),
    })
}

/// The part of IP and UDP headers that is constant between two ports: its ICRC is computed once, the fields
/// that vary per packet are then a few table look-ups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// The ICRC over the headers with lengths and identification 0 and DF clear.
    crc: u32,
    family: Family,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Family {
    Ipv4,
    Ipv6,
}

impl Flow {
    /// Between two IPv4 addresses and UDP ports.
    pub fn ipv4(
        source: Ipv4Addr,
        destination: Ipv4Addr,
        source_port: u16,
        destination_port: u16,
    ) -> Self {
        let mut header = [0; IPV4_SIZE];
        header[0] = 0x45;
        header[9] = PROTOCOL_UDP;
        header[12..16].copy_from_slice(&source.octets());
        header[16..].copy_from_slice(&destination.octets());
        let udp = udp_without_length(source_port, destination_port);
        Self {
            crc: Icrc::over_ipv4(header, udp).crc,
            family: Family::Ipv4,
        }
    }

    /// Between two IPv6 addresses and UDP ports.
    pub fn ipv6(
        source: Ipv6Addr,
        destination: Ipv6Addr,
        source_port: u16,
        destination_port: u16,
    ) -> Self {
        let mut header = [0; IPV6_SIZE];
        header[0] = 0x60;
        header[6] = PROTOCOL_UDP;
        header[8..24].copy_from_slice(&source.octets());
        header[24..].copy_from_slice(&destination.octets());
        let udp = udp_without_length(source_port, destination_port);
        Self {
            crc: Icrc::over_ipv6(header, udp).crc,
            family: Family::Ipv6,
        }
    }

    /// The ICRC of a packet of this flow up to the BTH. `transport_length` is the number of bytes from the
    /// BTH to the end of the padding, ICRC excluded, below 65,000; IPv6 does not look at `identification`.
    #[inline]
    pub fn seed(&self, transport_length: u16, identification: Identification) -> Icrc {
        let udp_length = transport_length.wrapping_add((UDP_SIZE + ICRC_SIZE) as u16);
        let varying = match self.family {
            Family::Ipv4 => {
                let total_length = udp_length.wrapping_add(IPV4_SIZE as u16);
                let flags = if identification.dont_fragment {
                    V4_DONT_FRAGMENT
                } else {
                    0
                };
                V4_TOTAL_LENGTH.difference_of(total_length)
                    ^ V4_IDENTIFICATION.difference_of(identification.value)
                    ^ flags
            }
            Family::Ipv6 => V6_PAYLOAD_LENGTH.difference_of(udp_length),
        };
        Icrc {
            crc: self.crc ^ varying ^ UDP_LENGTH_FIELD.difference_of(udp_length),
        }
    }
}

fn udp_without_length(source_port: u16, destination_port: u16) -> [u8; UDP_SIZE] {
    let mut udp = [0; UDP_SIZE];
    udp[..2].copy_from_slice(&source_port.to_be_bytes());
    udp[2..4].copy_from_slice(&destination_port.to_be_bytes());
    udp
}

/// CRC differences of the headers for each value of a 16-bit field that is so many bytes before the BTH.
struct Field {
    high: [u32; 256],
    low: [u32; 256],
}

impl Field {
    const fn new(bytes_after: usize) -> Self {
        Self {
            high: crc32::byte_differences(bytes_after + 1),
            low: crc32::byte_differences(bytes_after),
        }
    }

    #[inline]
    fn difference_of(&self, value: u16) -> u32 {
        let [high, low] = value.to_be_bytes();
        self.high[usize::from(high)] ^ self.low[usize::from(low)]
    }
}

/// CRC differences of ones instead of zeros in the variant byte of the BTH, by the number of words that
/// follow the word that it begins.
static VARIANT_ONES: [u32; crc32::WORDS] = crc32::differences_of([0xff, 0, 0, 0]);
const _: () = assert!(BTH_VARIANT_BYTE == 4);

static V4_TOTAL_LENGTH: Field = Field::new(IPV4_SIZE - IPV4_TOTAL_LENGTH - 2 + UDP_SIZE);
static V4_IDENTIFICATION: Field = Field::new(IPV4_SIZE - IPV4_IDENTIFICATION - 2 + UDP_SIZE);
static V6_PAYLOAD_LENGTH: Field = Field::new(IPV6_SIZE - IPV6_PAYLOAD_LENGTH - 2 + UDP_SIZE);
static UDP_LENGTH_FIELD: Field = Field::new(UDP_SIZE - UDP_LENGTH - 2);
const V4_DONT_FRAGMENT: u32 =
    crc32::byte_differences(IPV4_SIZE - IPV4_FLAGS - 1 + UDP_SIZE)[IPV4_DONT_FRAGMENT as usize];

#[cfg(test)]
mod tests {
    use super::*;

    /// The headers of an RC SEND of 32 bytes; its ICRCs were made by two implementations that are not ours.
    const IPV4: [u8; 28] = [
        0x45, 0, 0, 0x4c, 0, 0, 0x40, 0, 0x40, 0x11, 0xb9, 0x41, 0xc0, 0xa8, 0, 7, 0xc0, 0xa8, 0,
        8, // IP
        0xc0, 0, 0x12, 0xb7, 0, 0x38, 0, 0, // UDP
    ];
    const BTH: [u8; 12] = [4, 0x40, 0xff, 0xff, 0, 0, 0, 0x12, 0x80, 0, 3, 0x45];
    const ICRC_IPV4: [u8; 4] = [0x04, 0xea, 0x40, 0x2b];
    const ICRC_IPV6: [u8; 4] = [0x30, 0x6c, 0xbf, 0xe4];

    fn transport() -> [u8; 44] {
        let mut bytes = [0; 44];
        bytes[..12].copy_from_slice(&BTH);
        (0..32).for_each(|index| bytes[12 + index] = index as u8);
        bytes
    }

    fn headers_ipv4() -> ([u8; 20], [u8; 8]) {
        (
            core::array::from_fn(|index| IPV4[index]),
            core::array::from_fn(|index| IPV4[20 + index]),
        )
    }

    fn finish(mut icrc: Icrc, bytes: &[u8]) -> [u8; 4] {
        icrc.transport(bytes);
        icrc.finish()
    }

    #[test]
    fn a_send_over_ipv4() {
        let (ip, udp) = headers_ipv4();
        assert_eq!(finish(Icrc::over_ipv4(ip, udp), &transport()), ICRC_IPV4);
        let flow = Flow::ipv4(
            Ipv4Addr::new(192, 168, 0, 7),
            Ipv4Addr::new(192, 168, 0, 8),
            0xc000,
            4791,
        );
        assert_eq!(
            finish(flow.seed(44, Identification::ZERO), &transport()),
            ICRC_IPV4
        );
    }

    #[test]
    fn the_same_over_ipv6() {
        let source = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
        let destination = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
        let flow = Flow::ipv6(source, destination, 0xc000, 4791);
        let seed = flow.seed(44, Identification::ZERO);
        assert_eq!(finish(seed, &transport()), ICRC_IPV6);
        let mut ip = [0; 40];
        ip[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, 0x38, 0x11, 0x40]);
        ip[8..24].copy_from_slice(&source.octets());
        ip[24..].copy_from_slice(&destination.octets());
        let (_, udp) = headers_ipv4();
        assert_eq!(Icrc::over_ipv6(ip, udp), seed);
    }

    #[test]
    fn pieces_give_what_the_whole_gives() {
        let (ip, udp) = headers_ipv4();
        let bytes = transport();
        for split in [12, 13, 16, 20, 43, 44] {
            let mut icrc = Icrc::over_ipv4(ip, udp);
            icrc.transport(&bytes[..split]);
            let mut appended = icrc;
            icrc.update(&bytes[split..]);
            assert_eq!(icrc.finish(), ICRC_IPV4);
            appended.append(crc32::update(0, &bytes[split..]), bytes.len() - split);
            assert_eq!(appended.finish(), ICRC_IPV4);
        }
    }

    #[test]
    fn long_packets_are_masked_like_short_ones() {
        let mut bytes = [0x5a; 4 * (crc32::WORDS + 4)];
        let (ip, udp) = headers_ipv4();
        for length in [
            8,
            12,
            4 * (crc32::WORDS + 1),
            4 * (crc32::WORDS + 2),
            bytes.len(),
        ] {
            bytes[BTH_VARIANT_BYTE] = 0;
            let zero = finish(Icrc::over_ipv4(ip, udp), &bytes[..length]);
            bytes[BTH_VARIANT_BYTE] = 0xff;
            let mut plain = Icrc::over_ipv4(ip, udp);
            plain.update(&bytes[..length]);
            assert_eq!(zero, plain.finish(), "{length}");
        }
    }

    #[test]
    fn what_routers_change_does_not_count() {
        let (mut ip, mut udp) = headers_ipv4();
        let mut bytes = transport();
        ip[1] = 0x6a;
        ip[8] = 3;
        ip[10] ^= 0x55;
        udp[6] = 0x12;
        for marks in [0x40, 0x80, 0xc0, 0xff] {
            bytes[BTH_VARIANT_BYTE] = marks;
            assert_eq!(finish(Icrc::over_ipv4(ip, udp), &bytes), ICRC_IPV4);
        }
    }

    #[test]
    fn the_identification_is_found_and_damage_is_not_excused() {
        let flow = Flow::ipv4(
            Ipv4Addr::new(10, 0, 0, 1),
            Ipv4Addr::new(10, 0, 0, 2),
            0xc000,
            4791,
        );
        let bytes = transport();
        let computed = finish(flow.seed(44, Identification::ZERO), &bytes);
        for value in [0, 1, 2, 0x1234, 0xffff] {
            for dont_fragment in [true, false] {
                let sent = Identification {
                    value,
                    dont_fragment,
                };
                let received = finish(flow.seed(44, sent), &bytes);
                let found = explain_identification(computed, received, Identification::ZERO, 44);
                assert_eq!(found, Some(sent));
            }
        }
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            let received = finish(flow.seed(44, Identification::ZERO), &damaged);
            let found = explain_identification(computed, received, Identification::ZERO, 44);
            let outside = bit / 8 == BTH_VARIANT_BYTE;
            assert_eq!(found.is_some(), outside, "bit {bit}");
        }
        assert_eq!(
            explain_identification(computed, [0; 4], Identification::ZERO, 43),
            None
        );
    }

    #[test]
    fn a_batch_counts_up() {
        assert_eq!(
            Identification::ZERO.plus(3),
            Identification {
                value: 3,
                dont_fragment: true
            }
        );
        assert_eq!(split_icrc(&[1, 2, 3]), None);
        assert_eq!(split_icrc(&[1, 2, 3, 4, 5]), Some((&[1][..], [2, 3, 4, 5])));
    }
}
