//! Packets with which other hosts change the state of a kernel, as an attacker makes them: ICMP and ICMPv6
//! with any source address, ARP replies, fragments, datagrams of new flows and queries for multicast groups.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};

use wire::ipv4::Identification;
use wire::{Ipv4, Ipv6, ROCE_PORT, TrafficClass};

/// Protocol numbers of IP.
const ICMP: u8 = 1;
const IGMP: u8 = 2;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
/// Hop limit that neighbour discovery requires (RFC 4861), and the default of other packets.
const NEVER_FORWARDED: u8 = 255;

/// The internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

fn ipv4(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, body: &[u8]) -> Vec<u8> {
    let header = Ipv4 {
        traffic_class: TrafficClass(0),
        total_length: 20 + body.len() as u16,
        identification: Identification {
            value: 0,
            dont_fragment: true,
        },
        ttl: 64,
        protocol,
        source,
        destination,
    };
    [&header.to_bytes()[..], body].concat()
}

fn ipv6(source: Ipv6Addr, destination: Ipv6Addr, next_header: u8, body: &[u8]) -> Vec<u8> {
    let header = Ipv6 {
        traffic_class: TrafficClass(0),
        flow_label: 0,
        payload_length: body.len() as u16,
        next_header,
        hop_limit: NEVER_FORWARDED,
        source,
        destination,
    };
    [&header.to_bytes()[..], body].concat()
}

/// The first eight bytes behind an IP header: an echo reply, or a RoCEv2 datagram from this port.
fn quoted_transport(port: Option<u16>, echo_reply: u8) -> (u8, [u8; 8]) {
    match port {
        None => (0, [echo_reply, 0, 0, 0, 0, 1, 0, 1]),
        Some(port) => {
            let mut udp = [0; 8];
            udp[..2].copy_from_slice(&port.to_be_bytes());
            udp[2..4].copy_from_slice(&ROCE_PORT.to_be_bytes());
            udp[4..6].copy_from_slice(&1052_u16.to_be_bytes());
            (UDP, udp)
        }
    }
}

/// A packet that the victim may have sent, as ICMP quotes it: a RoCEv2 datagram from this source port, or an
/// echo reply.
pub fn quote_v4(victim: Ipv4Addr, peer: Ipv4Addr, port: Option<u16>) -> Vec<u8> {
    let (protocol, transport) = quoted_transport(port, 0);
    ipv4(
        victim,
        peer,
        if protocol == 0 { ICMP } else { protocol },
        &transport,
    )
}

/// The same over IPv6.
pub fn quote_v6(victim: Ipv6Addr, peer: Ipv6Addr, port: Option<u16>) -> Vec<u8> {
    let (protocol, transport) = quoted_transport(port, 129);
    ipv6(
        victim,
        peer,
        if protocol == 0 { ICMPV6 } else { protocol },
        &transport,
    )
}

/// An ICMP message: its type and code, the four bytes behind the checksum, and the rest.
pub fn icmp(
    from: Ipv4Addr,
    to: Ipv4Addr,
    kind: u8,
    code: u8,
    word: [u8; 4],
    rest: &[u8],
) -> Vec<u8> {
    ipv4(from, to, ICMP, &message(kind, code, word, rest, &[]))
}

/// An ICMPv6 message.
pub fn icmpv6(
    from: Ipv6Addr,
    to: Ipv6Addr,
    kind: u8,
    code: u8,
    word: [u8; 4],
    rest: &[u8],
) -> Vec<u8> {
    let length = (8 + rest.len() as u32).to_be_bytes();
    let pseudo = [
        &from.octets()[..],
        &to.octets(),
        &length,
        &[0, 0, 0, ICMPV6],
    ]
    .concat();
    ipv6(from, to, ICMPV6, &message(kind, code, word, rest, &pseudo))
}

fn message(kind: u8, code: u8, word: [u8; 4], rest: &[u8], pseudo: &[u8]) -> Vec<u8> {
    let mut bytes = [&[kind, code, 0, 0], &word[..], rest].concat();
    let sum = checksum(&[pseudo, &bytes].concat());
    bytes[2..4].copy_from_slice(&sum);
    bytes
}

/// An IGMP query for a group, in version 1 (`seconds` 0) or 2.
pub fn group_query(from: Ipv4Addr, group: Ipv4Addr, seconds: u8) -> Vec<u8> {
    let to = if group.is_unspecified() {
        Ipv4Addr::new(224, 0, 0, 1)
    } else {
        group
    };
    ipv4(
        from,
        to,
        IGMP,
        &message(0x11, 10 * seconds, group.octets(), &[], &[]),
    )
}

/// The first fragment of a datagram to the RoCE port whose other fragments never come.
pub fn fragment(from: Ipv4Addr, to: Ipv4Addr, identification: u16) -> Vec<u8> {
    let (_, udp) = quoted_transport(Some(0xc000), 0);
    let mut packet = ipv4(from, to, UDP, &[&udp[..], &[0; 1024]].concat());
    packet[4..6].copy_from_slice(&identification.to_be_bytes());
    packet[6..8].copy_from_slice(&0x2000_u16.to_be_bytes());
    packet[10..12].fill(0);
    let sum = checksum(&packet[..20]);
    packet[10..12].copy_from_slice(&sum);
    packet
}

/// A gratuitous ARP reply: `address` is at `mac` (RFC 826).
pub fn arp_reply(mac: [u8; 6], address: Ipv4Addr) -> Vec<u8> {
    let own = address.octets();
    [&[0, 1, 8, 0, 6, 4, 0, 2][..], &mac, &own, &[0xff; 6], &own].concat()
}

/// A neighbour advertisement that overrides what is known: `address` is at `mac` (RFC 4861, 4.4).
pub fn neighbour_advertisement(mac: [u8; 6], address: Ipv6Addr, to: Ipv6Addr) -> Vec<u8> {
    let rest = [&address.octets()[..], &[2, 1], &mac].concat();
    icmpv6(address, to, 136, 0, [0x20, 0, 0, 0], &rest)
}

/// A router advertisement of a default route that is preferred to others (RFC 4191, 2.2), with hop limit 1
/// and this MTU (RFC 4861, 4.2).
pub fn router_advertisement(router: Ipv6Addr, to: Ipv6Addr, mtu: u32) -> Vec<u8> {
    const PREFERENCE_HIGH: u8 = 1 << 3;
    let rest = [&[0; 8][..], &[5, 1, 0, 0], &mtu.to_be_bytes()].concat();
    icmpv6(router, to, 134, 0, [1, PREFERENCE_HIGH, 0x07, 0x08], &rest)
}

/// An ICMPv6 redirect in the name of a router: packets to `destination` go to the router `target` (RFC 4861,
/// 4.5).
pub fn redirect_v6(
    router: Ipv6Addr,
    to: Ipv6Addr,
    target: Ipv6Addr,
    destination: Ipv6Addr,
) -> Vec<u8> {
    let rest = [target.octets(), destination.octets()].concat();
    icmpv6(router, to, 137, 0, [0; 4], &rest)
}

/// An empty UDP datagram, which begins a flow of its own by its ports.
pub fn datagram(from: SocketAddrV4, to: SocketAddrV4) -> Vec<u8> {
    let [source, destination, length] = [from.port(), to.port(), 8].map(u16::to_be_bytes);
    let udp = [source, destination, length, [0; 2]].concat();
    ipv4(*from.ip(), *to.ip(), UDP, &udp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_have_right_checksums() {
        let (one, other) = (Ipv4Addr::new(10, 88, 0, 1), Ipv4Addr::new(10, 88, 0, 2));
        let quoted = quote_v4(one, other, Some(0xc000));
        let packet = icmp(other, one, 3, 4, [0, 0, 2, 0x28], &quoted);
        assert_eq!(
            (checksum(&packet[..20]), checksum(&packet[20..])),
            ([0; 2], [0; 2])
        );
        assert_eq!(checksum(&fragment(one, other, 7)[..20]), [0; 2]);
        assert_eq!(
            checksum(&group_query(one, Ipv4Addr::UNSPECIFIED, 0)[20..]),
            [0; 2]
        );
        let (one, other) = ("fd88::1".parse().unwrap(), "fd88::2".parse().unwrap());
        let packet = neighbour_advertisement([2, 0, 0, 0, 0, 9], other, one);
        let pseudo = [
            &packet[8..40],
            &[0, 0, 0, 32, 0, 0, 0, ICMPV6],
            &packet[40..],
        ]
        .concat();
        assert_eq!((packet.len(), checksum(&pseudo)), (40 + 32, [0; 2]));
    }
}
