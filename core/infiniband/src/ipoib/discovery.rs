//! Neighbour discovery of IPv6 with addresses of 20 bytes (RFC 4861; RFC 4391, 9.3).

use super::address::{HARDWARE_BYTES, HardwareAddress};
use crate::mad::{get, put};
use alloc::vec::Vec;
use core::net::Ipv6Addr;

const IPV6_BYTES: usize = 40;
const ICMPV6: u8 = 58;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// The hop limit that shows that no router has passed the packet on.
const HOP_LIMIT: u8 = 255;
/// Bytes of the message before its options.
const FIXED_BYTES: usize = 24;
/// Units of 8 bytes of the option with a hardware address: type, length, two bytes of zeros, and 20 of the
/// address.
const OPTION_UNITS: usize = 3;
const SOURCE_OPTION: u8 = 1;
const TARGET_OPTION: u8 = 2;
/// Flags of an advertisement: solicited, and one that overrides what is known.
const SOLICITED: u8 = 0x40;
const OVERRIDES: u8 = 0x20;

/// What a message says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Asks for a hardware address.
    Solicitation,
    /// Gives it; as an answer to a solicitation, or unasked.
    Advertisement { is_solicited: bool },
}

/// A neighbour solicitation or advertisement, with its IPv6 header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Discovery {
    pub(super) kind: Kind,
    pub(super) source: Ipv6Addr,
    pub(super) destination: Ipv6Addr,
    pub(super) target: Ipv6Addr,
    /// That of the sender of a solicitation, or of the target of an advertisement.
    pub(super) hardware: Option<HardwareAddress>,
}

impl Discovery {
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let option = if self.hardware.is_some() {
            OPTION_UNITS * 8
        } else {
            0
        };
        let mut bytes = alloc::vec![0; IPV6_BYTES + FIXED_BYTES + option];
        bytes[0] = 0x60;
        put(&mut bytes, 4, (FIXED_BYTES + option) as u16);
        bytes[6..8].copy_from_slice(&[ICMPV6, HOP_LIMIT]);
        put(&mut bytes, 8, self.source.to_bits());
        put(&mut bytes, 24, self.destination.to_bits());
        let message = &mut bytes[IPV6_BYTES..];
        let (kind, flags, option) = match self.kind {
            Kind::Solicitation => (SOLICITATION, 0, SOURCE_OPTION),
            Kind::Advertisement { is_solicited: true } => {
                (ADVERTISEMENT, SOLICITED | OVERRIDES, TARGET_OPTION)
            }
            Kind::Advertisement { .. } => (ADVERTISEMENT, OVERRIDES, TARGET_OPTION),
        };
        (message[0], message[4]) = (kind, flags);
        put(message, 8, self.target.to_bits());
        if let Some(hardware) = self.hardware {
            message[FIXED_BYTES..FIXED_BYTES + 2].copy_from_slice(&[option, OPTION_UNITS as u8]);
            message[FIXED_BYTES + 4..].copy_from_slice(&hardware.to_bytes());
        }
        let sum = checksum(&bytes);
        put(&mut bytes, IPV6_BYTES + 2, sum);
        bytes
    }

    /// The message of an IPv6 packet; `None` for any other packet, and for one that is not valid
    /// (RFC 4861, 7.1).
    pub(super) fn parse(packet: &[u8]) -> Option<Self> {
        let (header, rest) = packet.split_at_checked(IPV6_BYTES)?;
        let message = rest.get(..usize::from(get::<u16>(header, 4)))?;
        let is_sent_here = header[0] >> 4 == 6 && header[6..8] == [ICMPV6, HOP_LIMIT];
        if !is_sent_here || message.len() < FIXED_BYTES || message[1] != 0 {
            return None;
        }
        let (kind, option) = match message[0] {
            SOLICITATION => (Kind::Solicitation, SOURCE_OPTION),
            ADVERTISEMENT => {
                let is_solicited = message[4] & SOLICITED != 0;
                (Kind::Advertisement { is_solicited }, TARGET_OPTION)
            }
            _ => return None,
        };
        if checksum(&packet[..IPV6_BYTES + message.len()]) != 0 {
            return None;
        }
        Some(Self {
            kind,
            source: Ipv6Addr::from_bits(get(header, 8)),
            destination: Ipv6Addr::from_bits(get(header, 24)),
            target: Ipv6Addr::from_bits(get(message, 8)),
            hardware: hardware_of(&message[FIXED_BYTES..], option),
        })
    }
}

/// Whether an IPv6 packet is a message that neighbours exchange, valid or not: such are not for the host.
pub(super) fn is_discovery(packet: &[u8]) -> bool {
    get::<u8>(packet, 0) >> 4 == 6
        && get::<u8>(packet, 6) == ICMPV6
        && matches!(get(packet, IPV6_BYTES), SOLICITATION | ADVERTISEMENT)
}

/// The hardware address of an option of this type.
fn hardware_of(mut options: &[u8], wanted: u8) -> Option<HardwareAddress> {
    while let [kind, units, ..] = *options {
        let (option, rest) = options.split_at_checked(usize::from(units) * 8)?;
        if option.is_empty() {
            return None;
        }
        if kind == wanted && option.len() == OPTION_UNITS * 8 {
            return HardwareAddress::parse(&option[option.len() - HARDWARE_BYTES..]);
        }
        options = rest;
    }
    None
}

/// The checksum of an ICMPv6 packet; 0 where the packet contains its right one.
fn checksum(packet: &[u8]) -> u16 {
    let (header, message) = packet.split_at(IPV6_BYTES);
    let words = header[8..].chunks(2).chain(message.chunks(2));
    let mut sum: u64 = words.map(|word| u64::from(get::<u16>(word, 0))).sum();
    sum += message.len() as u64 + u64::from(ICMPV6);
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::str::FromStr;

    fn message(kind: Kind) -> Discovery {
        let address = |text: &str| Ipv6Addr::from_str(text).unwrap();
        Discovery {
            kind,
            source: address("fe80::1"),
            destination: address("ff02::1:ff00:2"),
            target: address("fe80::2"),
            hardware: Some(HardwareAddress {
                qpn: 5,
                gid: [9; 16],
            }),
        }
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        for kind in [
            Kind::Solicitation,
            Kind::Advertisement { is_solicited: true },
            Kind::Advertisement {
                is_solicited: false,
            },
        ] {
            let message = message(kind);
            let bytes = message.to_bytes();
            assert!(is_discovery(&bytes));
            assert_eq!(Discovery::parse(&bytes), Some(message));
            let without = Discovery {
                hardware: None,
                ..message
            };
            assert_eq!(Discovery::parse(&without.to_bytes()), Some(without));
        }
    }

    #[test]
    fn a_message_with_a_wrong_byte_is_none() {
        let bytes = message(Kind::Solicitation).to_bytes();
        for at in (0..bytes.len()).filter(|at| !(1..4).contains(at)) {
            let mut other = bytes.clone();
            other[at] ^= 0x41;
            assert_eq!(Discovery::parse(&other), None, "{at}");
        }
        for length in 0..bytes.len() {
            assert_eq!(Discovery::parse(&bytes[..length]), None, "{length}");
        }
    }
}
