//! Reports of a host's kernel about the IP groups that its programs have joined: IGMP (RFC 2236, 3376) and
//! MLD (RFC 2710, 3810). The interface learns from them, because no kernel tells it.

use crate::mad::get;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Groups of a packet that count; a report of more is split by no kernel that there is.
const RECORDS_MAX: usize = 64;

const IGMP: u8 = 2;
const HOP_BY_HOP: u8 = 0;
const ICMPV6: u8 = 58;
const IPV6_BYTES: usize = 40;

/// Types of records of a version that names sources (RFC 3376, 4.2.12).
const INCLUDES: u8 = 1;
const EXCLUDES: u8 = 2;
const BECOMES_INCLUDE: u8 = 3;
const BECOMES_EXCLUDE: u8 = 4;
const ALLOWS_SOURCES: u8 = 5;

/// A group that a host has joined or left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Report {
    pub(super) group: IpAddr,
    pub(super) is_member: bool,
}

/// What a packet of a host reports; nothing for other packets.
pub(super) fn reports_of(packet: &[u8]) -> Vec<Report> {
    let found = match packet.first().map(|byte| byte >> 4) {
        Some(4) => igmp(packet),
        Some(6) => mld(packet),
        _ => None,
    };
    let mut found = found.unwrap_or_default();
    found.retain(|report| report.group.is_multicast());
    found
}

fn igmp(packet: &[u8]) -> Option<Vec<Report>> {
    let header = usize::from(packet[0] & 0xf) * 4;
    if get::<u8>(packet, 9) != IGMP {
        return None;
    }
    let message = packet.get(header..)?;
    let group = |at: usize| IpAddr::V4(Ipv4Addr::from_bits(get(message, at)));
    let one = |is_member: bool| {
        alloc::vec![Report {
            group: group(4),
            is_member
        }]
    };
    match message.first()? {
        0x12 | 0x16 => Some(one(true)),
        0x17 => Some(one(false)),
        0x22 => Some(records(message, 4, group)),
        _ => None,
    }
}

fn mld(packet: &[u8]) -> Option<Vec<Report>> {
    let (mut next, mut at) = (*packet.get(6)?, IPV6_BYTES);
    if next == HOP_BY_HOP {
        next = *packet.get(at)?;
        at += 8 * (1 + usize::from(*packet.get(at + 1)?));
    }
    if next != ICMPV6 {
        return None;
    }
    let message = packet.get(at..)?;
    let group = |at: usize| IpAddr::V6(Ipv6Addr::from_bits(get(message, at)));
    let one = |is_member: bool| {
        alloc::vec![Report {
            group: group(8),
            is_member
        }]
    };
    match message.first()? {
        131 => Some(one(true)),
        132 => Some(one(false)),
        143 => Some(records(message, 16, group)),
        _ => None,
    }
}

/// The records of a membership report; an address in it has so many bytes.
fn records(message: &[u8], address: usize, group: impl Fn(usize) -> IpAddr) -> Vec<Report> {
    let count = usize::from(get::<u16>(message, 6)).min(RECORDS_MAX);
    let (mut at, mut found) = (8, Vec::new());
    for _ in 0..count {
        if message.len() < at + 4 + address {
            break;
        }
        let (kind, more) = (message[at], usize::from(message[at + 1]) * 4);
        let sources = usize::from(get::<u16>(message, at + 2));
        let is_member = match kind {
            EXCLUDES | BECOMES_EXCLUDE => Some(true),
            INCLUDES | BECOMES_INCLUDE => Some(sources > 0),
            ALLOWS_SOURCES => Some(true),
            _ => None,
        };
        found.extend(is_member.map(|is_member| Report {
            group: group(at + 4),
            is_member,
        }));
        at += 4 + address * (1 + sources) + more;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(message: &[u8]) -> Vec<u8> {
        let mut packet = alloc::vec![0; 24];
        (packet[0], packet[9]) = (0x46, IGMP);
        packet.extend(message);
        packet
    }

    fn v6(message: &[u8]) -> Vec<u8> {
        let mut packet = alloc::vec![0; IPV6_BYTES + 8];
        (packet[0], packet[IPV6_BYTES]) = (0x60, ICMPV6);
        packet.extend(message);
        packet
    }

    fn texts(packet: &[u8]) -> Vec<alloc::string::String> {
        let reports = reports_of(packet).into_iter();
        reports
            .map(|report| {
                let sign = if report.is_member { '+' } else { '-' };
                alloc::format!("{sign}{}", report.group)
            })
            .collect()
    }

    #[test]
    fn reports_of_all_versions_are_read() {
        assert_eq!(texts(&v4(&[0x16, 0, 0, 0, 239, 1, 2, 3])), ["+239.1.2.3"]);
        assert_eq!(texts(&v4(&[0x17, 0, 0, 0, 239, 1, 2, 3])), ["-239.1.2.3"]);
        let mut three = alloc::vec![0x22, 0, 0, 0, 0, 0, 0, 3];
        three.extend([BECOMES_EXCLUDE, 0, 0, 0, 239, 0, 0, 1]);
        three.extend([
            ALLOWS_SOURCES,
            1,
            0,
            1,
            239,
            0,
            0,
            2,
            10,
            0,
            0,
            1,
            0,
            0,
            0,
            0,
        ]);
        three.extend([BECOMES_INCLUDE, 0, 0, 0, 239, 0, 0, 3]);
        assert_eq!(
            texts(&v4(&three)),
            ["+239.0.0.1", "+239.0.0.2", "-239.0.0.3"]
        );
        let group = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
        let old = |kind: u8| [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &group].concat();
        assert_eq!(texts(&v6(&old(131))), ["+ff02::9"]);
        assert_eq!(texts(&v6(&old(132))), ["-ff02::9"]);
        let new = [&[143, 0, 0, 0, 0, 0, 0, 1, EXCLUDES, 0, 0, 0][..], &group].concat();
        assert_eq!(texts(&v6(&new)), ["+ff02::9"]);
    }

    #[test]
    fn other_and_cut_packets_report_nothing() {
        assert!(reports_of(&[]).is_empty() && reports_of(&[0x45; 4]).is_empty());
        assert!(
            texts(&v4(&[0x16, 0, 0, 0, 10, 1, 2, 3])).is_empty(),
            "no group"
        );
        let cut = v4(&[0x22, 0, 0, 0, 0, 0, 255, 255, 4, 0, 0, 0, 239]);
        assert!(texts(&cut).is_empty());
    }
}
