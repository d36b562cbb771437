//! Attacks on what the victim's kernel knows about the network: path MTUs, routes, neighbours, the state of
//! its sockets. RDMA adapters do not use most of it, and no connection may end by it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use programs::forge_control::{
    arp_reply, fragment, group_query, icmp, icmpv6, neighbour_advertisement, quote_v4, quote_v6,
    router_advertisement,
};
use programs::{Machine, Namespace};

use crate::Outcome;
use crate::place::{Blasted, Effort, Place, v4};

/// Packets a second. One packet is enough for most of these attacks.
pub(crate) const RATE: u32 = 2_000;
/// MTUs in ICMP "fragmentation needed": the least that Linux believes, the least of IPv4, more than a packet
/// of path MTU 1024 has, none (RFC 1191, 5), and one that is larger than the interface's.
const MTUS_V4: [u16; 5] = [552, 68, 1280, 0, 1499];
/// MTUs in ICMPv6 "packet too big": the least of IPv6, and less (RFC 8200, 5).
const MTUS_V6: [u32; 3] = [1280, 68, 2000];
/// Source ports of RoCEv2 (the entropy of IBTA A17.9.1), as far as packets quote them.
const QUOTED_PORTS: [u16; 4] = [0xc000, 0xd234, 0xf123, 0xffff];

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

pub(crate) fn v6(machine: &Namespace) -> Ipv6Addr {
    match machine.address_v6() {
        IpAddr::V6(address) => address,
        IpAddr::V4(_) => unreachable!("machines of a segment have IPv6 addresses"),
    }
}

/// What attackers quote: an echo reply, and RoCEv2 datagrams from some ports.
pub(crate) fn quoted_ports() -> impl Iterator<Item = Option<u16>> {
    std::iter::once(None).chain(QUOTED_PORTS.map(Some))
}

/// Runs `ib_write_bw` from the victim to its peer, sends packets from the attacker meanwhile, and looks
/// whether the transfer ended well.
pub(crate) fn against_a_transfer(
    place: &Place,
    more: &[&str],
    packets: &[Vec<u8>],
    effort: Effort,
) -> Outcome {
    let seconds = (effort.seconds() + 6).to_string();
    let words = [&["ib_write_bw", "-F", "-s", "65536", "-D", &seconds], more].concat();
    let mut server = place.peer.start(&words).map_err(text)?;
    place.peer.wait_for_listener(18515, 60).map_err(text)?;
    let address = v4(&place.peer).to_string();
    let mut client = place
        .victim
        .start(&[&words[..], &[&address]].concat())
        .map_err(text)?;
    crate::rc::queue_pair_of(&place.victim)?;
    let Blasted { packets } = place.blast(packets, RATE, effort).map_err(text)?;
    let client = client.wait(120).map_err(text)?;
    let server = server.wait(120).map_err(text)?;
    if !client.succeeded() || !server.succeeded() {
        return Err(format!(
            "{packets} packets ended the connection: {}",
            client.output
        ));
    }
    Ok(format!("{packets} packets; the transfer ended well"))
}

/// Checks that the attack changed what it is about: a line of a command in the victim's namespace.
pub(crate) fn has_changed(place: &Place, command: &str, word: &str) -> Result<(), String> {
    let said = place.victim.call(command).map_err(text)?;
    match said.contains(word) {
        true => Ok(()),
        false => Err(format!(
            "the attack had no effect: `{command}` does not say `{word}`: {said}"
        )),
    }
}

pub(crate) fn fragmentation_needed(effort: Effort) -> Outcome {
    let place = Place::new().map_err(text)?;
    let (victim, peer, attacker) = (v4(&place.victim), v4(&place.peer), v4(&place.attacker));
    let mut packets = Vec::new();
    for port in quoted_ports() {
        for mtu in MTUS_V4 {
            let [high, low] = mtu.to_be_bytes();
            let quoted = quote_v4(victim, peer, port);
            packets.push(icmp(attacker, victim, 3, 4, [0, 0, high, low], &quoted));
        }
    }
    let outcome = against_a_transfer(&place, &[], &packets, effort);
    has_changed(&place, &format!("ip route get {peer}"), "552")?;
    outcome
}

pub(crate) fn packet_too_big(effort: Effort) -> Outcome {
    let place = Place::with_mtu(9000).map_err(text)?;
    let (victim, peer, attacker) = (v6(&place.victim), v6(&place.peer), v6(&place.attacker));
    let mut packets = Vec::new();
    for port in quoted_ports() {
        for mtu in MTUS_V6 {
            let quoted = quote_v6(victim, peer, port);
            packets.push(icmpv6(attacker, victim, 2, 0, mtu.to_be_bytes(), &quoted));
        }
    }
    let outcome = against_a_transfer(&place, &["-x", "2"], &packets, effort);
    has_changed(&place, &format!("ip -6 route get {peer}"), "mtu 1280")?;
    outcome
}

/// ICMP errors in the names of the peer and of the attacker: unreachable with every code, source quench, time
/// exceeded, parameter problem.
fn errors_v4(place: &Place) -> Vec<Vec<u8>> {
    let (victim, peer) = (v4(&place.victim), v4(&place.peer));
    let unreachable = (0..16).filter(|code| *code != 4).map(|code| (3, code));
    let kinds: Vec<(u8, u8)> = unreachable
        .chain([(4, 0), (11, 0), (11, 1), (12, 0)])
        .collect();
    let mut packets = Vec::new();
    for (from, port) in [peer, v4(&place.attacker)]
        .into_iter()
        .flat_map(|from| quoted_ports().map(move |port| (from, port)))
    {
        let quoted = quote_v4(victim, peer, port);
        packets.extend(
            kinds
                .iter()
                .map(|&(kind, code)| icmp(from, victim, kind, code, [0; 4], &quoted)),
        );
    }
    packets
}

fn errors_v6(place: &Place) -> Vec<Vec<u8>> {
    let (victim, peer) = (v6(&place.victim), v6(&place.peer));
    let kinds: Vec<(u8, u8)> = (0..8)
        .map(|code| (1, code))
        .chain([(3, 0), (3, 1), (4, 0), (4, 1)])
        .collect();
    let mut packets = Vec::new();
    for port in quoted_ports() {
        let quoted = quote_v6(victim, peer, port);
        packets.extend(
            kinds
                .iter()
                .map(|&(kind, code)| icmpv6(peer, victim, kind, code, [0; 4], &quoted)),
        );
    }
    packets
}

pub(crate) fn errors(effort: Effort) -> Outcome {
    let place = Place::new().map_err(text)?;
    against_a_transfer(&place, &[], &errors_v4(&place), effort)
}

pub(crate) fn errors_over_ipv6(effort: Effort) -> Outcome {
    let place = Place::new().map_err(text)?;
    against_a_transfer(&place, &["-x", "2"], &errors_v6(&place), effort)
}

/// Connections are made, by RDMA-CM, while errors arrive.
pub(crate) fn errors_during_connection(effort: Effort) -> Outcome {
    let place = Place::new().map_err(text)?;
    let _server = crate::cm::serve(&place, &[])?;
    let packets = errors_v4(&place);
    std::thread::scope(|scope| {
        let blast = scope.spawn(|| place.blast(&packets, RATE, effort));
        let mut connected = 0;
        let result = loop {
            let is_last = blast.is_finished();
            match crate::cm::host_reads(&place) {
                Err(error) => break Err(error),
                Ok(()) if is_last => break Ok(connected),
                Ok(()) => connected += 1,
            }
        };
        let sent = blast
            .join()
            .map_err(|_| "the attacker panicked".to_owned())?
            .map_err(text)?;
        let connected = result?;
        Ok(format!(
            "{} packets; {connected} hosts connected meanwhile",
            sent.packets
        ))
    })
}

/// Redirects to the attacker, IGMP queries and fragments, and a router advertisement with a hop limit of 1
/// and an MTU of 1280: none of them concerns hosts of the same network.
pub(crate) fn routes_and_groups(effort: Effort) -> Outcome {
    let place = Place::new().map_err(text)?;
    let (victim, peer, attacker) = (v4(&place.victim), v4(&place.peer), v4(&place.attacker));
    let quoted = quote_v4(victim, peer, Some(QUOTED_PORTS[0]));
    let mut packets = Vec::new();
    for (number, from) in (0_u16..).zip([peer, attacker].into_iter().cycle().take(64)) {
        packets.push(icmp(
            from,
            victim,
            5,
            (number % 4) as u8,
            attacker.octets(),
            &quoted,
        ));
        packets.push(group_query(from, Ipv4Addr::UNSPECIFIED, (number % 3) as u8));
        packets.extend((0..16).map(|part| fragment(from, victim, number << 4 | part)));
    }
    let (victim, router) = (
        v6(&place.victim),
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0x99),
    );
    packets.push(router_advertisement(router, victim, 1280));
    let outcome = against_a_transfer(&place, &["-x", "2"], &packets, effort);
    has_changed(&place, "ip -6 route", "default via fe80::99")?;
    outcome.and(against_a_transfer(&place, &[], &packets, effort))
}

/// ARP replies and neighbour advertisements that put the peer's addresses at another MAC address. The
/// victim has permanent entries for its peer.
pub(crate) fn neighbours(effort: Effort) -> Outcome {
    const ELSEWHERE: [u8; 6] = [2, 0, 0, 0, 0x66, 0x66];
    let place = Place::new().map_err(text)?;
    let mac = place
        .peer
        .call("cat /sys/class/net/eth0/address")
        .map_err(text)?;
    for address in [IpAddr::from(v4(&place.peer)), v6(&place.peer).into()] {
        let command = format!(
            "ip neighbour replace {address} lladdr {} dev eth0 nud permanent",
            mac.trim()
        );
        place.victim.call(&command).map_err(text)?;
    }
    // An entry that is not permanent, of an address that no machine has, shows that the replies are believed.
    let absent = Ipv4Addr::new(10, 88, 0, 77);
    let entry = format!(
        "ip neighbour replace {absent} lladdr {} dev eth0 nud reachable",
        mac.trim()
    );
    place.victim.call(&entry).map_err(text)?;
    let packets = [
        arp_reply(ELSEWHERE, v4(&place.peer)),
        arp_reply(ELSEWHERE, absent),
        neighbour_advertisement(ELSEWHERE, v6(&place.peer), v6(&place.victim)),
    ];
    let outcome = against_a_transfer(&place, &[], &packets, effort);
    has_changed(
        &place,
        &format!("ip neighbour show {absent}"),
        "02:00:00:00:66:66",
    )?;
    outcome
}
