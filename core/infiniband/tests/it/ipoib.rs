//! IP over InfiniBand: links, groups, neighbours, paths.

use crate::ipoib_contract;
use crate::ipoib_net::{Net, gid, local, v4};
use fabric::Span;
use infiniband::ipoib::{Failure, Target};
use infiniband::sa::record;
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const SECOND: Span = Span(1_000_000_000_000);
const GET: u8 = 1;
const SET: u8 = 2;

#[test]
fn a_link_comes_when_a_manager_has_the_broadcast_group() {
    let mut net = Net::new(1);
    net.has_manager = false;
    net.run(SECOND);
    assert!(net.hosts[0].links.is_empty(), "the port is down");
    net.activate(0, 1);
    net.run(SECOND.times(40));
    assert!(net.hosts[0].links.is_empty() && net.asked.is_empty());
    net.has_manager = true;
    net.run(SECOND.times(20));
    let link = net.hosts[0].interface.link().unwrap();
    assert_eq!((link.mtu, link.q_key, link.p_key), (2044, 0xb1b, 0xffff));
    net.deactivate(0);
    assert_eq!(net.hosts[0].links.last(), Some(&None));
    net.activate(0, 1);
    net.run(SECOND);
    assert_eq!(net.hosts[0].links.last(), Some(&Some(link)));
}

#[test]
fn a_packet_finds_its_neighbour_once() {
    for address in [v4 as fn(usize) -> IpAddr, local] {
        let mut net = Net::up(3);
        for number in 0..3 {
            net.send(0, Net::packet(address(0), address(1), number));
        }
        net.run(SECOND);
        let numbers: Vec<u8> = net.hosts[1]
            .received
            .iter()
            .filter_map(|it| it.last().copied())
            .collect();
        assert_eq!(numbers, [0, 1, 2]);
        assert!(net.hosts[2].received.is_empty());
        let handle = net.hosts[0].table[&address(1)];
        assert_eq!((handle.lid, handle.qpn, handle.q_key), (2, 0x48, 0xb1b));
        // The other one knows the way back: an answer needs no more than a confirmation.
        let asked = net.asked.len();
        net.send(1, Net::packet(address(1), address(0), 9));
        net.run(SECOND);
        assert_eq!(net.hosts[0].received.len(), 1);
        assert_eq!(net.asked.len(), asked);
    }
}

#[test]
fn a_neighbour_that_does_not_answer_is_asked_three_times() {
    let mut net = Net::up(2);
    let nobody = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 77));
    net.send(0, Net::packet(v4(0), nobody, 1));
    net.resolve(0, 5, Target::Ip(nobody), SECOND.times(60));
    net.run(SECOND.times(2));
    assert_eq!(net.hosts[0].interface.dropped(), 0);
    net.run(SECOND.times(2));
    assert_eq!(net.hosts[0].interface.dropped(), 1);
    assert_eq!(net.hosts[0].resolved, [(5, Err(Failure::NoNeighbour))]);
}

#[test]
fn an_address_is_confirmed_while_it_is_used_and_forgotten_when_it_is_gone() {
    let mut net = Net::up(2);
    net.send(0, Net::packet(v4(0), v4(1), 1));
    net.run(SECOND);
    assert!(net.hosts[0].table.contains_key(&v4(1)));
    net.run(SECOND.times(31));
    assert!(net.hosts[0].table.is_empty(), "stale");
    net.send(0, Net::packet(v4(0), v4(1), 2));
    assert!(net.hosts[0].table.contains_key(&v4(1)), "used at once");
    net.run(SECOND);
    assert_eq!(net.hosts[1].received.len(), 2);
    net.run(SECOND.times(40));
    net.deactivate(1);
    net.send(0, Net::packet(v4(0), v4(1), 3));
    net.run(SECOND.times(5));
    assert!(net.hosts[0].table.is_empty());
    assert_eq!(net.hosts[1].received.len(), 2);
}

#[test]
fn a_host_with_another_lid_is_found_again() {
    let mut net = Net::up(2);
    net.send(0, Net::packet(v4(0), v4(1), 1));
    net.run(SECOND);
    net.activate(1, 9);
    assert!(
        net.hosts[1].links.contains(&None),
        "its address is another one"
    );
    net.run(SECOND);
    assert_eq!(net.hosts[0].table[&v4(1)].lid, 9, "it has announced itself");
    net.send(0, Net::packet(v4(0), v4(1), 2));
    net.run(SECOND);
    assert_eq!(net.hosts[1].received.len(), 2);
}

/// Host 1 gets another LID, and host 0 hears none of its announcements.
fn with_lost_announcements() -> Net {
    let mut net = Net::up(2);
    net.send(0, Net::packet(v4(0), v4(1), 1));
    net.send(0, Net::packet(local(0), local(1), 2));
    net.run(SECOND);
    assert_eq!(net.hosts[1].received.len(), 2);
    net.activate(1, 9);
    for _ in 0..100_000 {
        net.run(Span::from_us(1));
        net.lose_what_is_under_way();
    }
    assert!(net.hosts[1].interface.link().is_some());
    net
}

#[test]
fn a_host_whose_announcement_was_lost_gets_answers_by_its_new_path() {
    for address in [v4 as fn(usize) -> IpAddr, local] {
        let mut net = with_lost_announcements();
        net.send(1, Net::packet(address(1), address(0), 3));
        net.run(SECOND.times(3));
        assert_eq!(net.hosts[0].received.len(), 1);
    }
}

#[test]
fn a_neighbour_that_does_not_answer_is_found_again_by_its_new_path() {
    for address in [v4 as fn(usize) -> IpAddr, local] {
        let mut net = with_lost_announcements();
        net.run(SECOND.times(31));
        net.send(0, Net::packet(address(0), address(1), 3));
        net.run(SECOND.times(4));
        assert_eq!(net.hosts[1].received.len(), 2, "sent by the old path");
        net.send(0, Net::packet(address(0), address(1), 4));
        net.run(SECOND.times(3));
        assert_eq!(net.hosts[1].received.len(), 3);
    }
}

#[test]
fn groups_are_joined_again_for_a_new_manager_while_the_link_stays() {
    let mut net = Net::up(2);
    net.send(0, Net::packet(v4(0), v4(1), 1));
    net.run(SECOND);
    net.restart_manager();
    net.asked.clear();
    net.reregister(0);
    net.change(1, |port| port.sm_sl = 3);
    net.send(0, Net::packet(v4(0), v4(1), 2));
    net.run(SECOND);
    let joins = net.asked.iter().filter(|it| **it == (SET, record::MEMBER));
    // Of each host: all interfaces, all hosts of either family, and the solicited node.
    assert_eq!(joins.count(), 8);
    assert!(net.asked.contains(&(GET, record::PATH)));
    assert!(net.hosts.iter().all(|host| host.links.len() == 1));
    assert_eq!(net.hosts[1].received.len(), 2);
}

/// An IGMP report about a group: of version 2, and with another type a leave.
fn report(host: usize, kind: u8, group: Ipv4Addr) -> Vec<u8> {
    let mut packet = Net::packet(v4(host), IpAddr::V4(group), kind);
    packet[9] = 2;
    packet.extend([0, 0, 0]);
    packet.extend(group.octets());
    packet
}

#[test]
fn packets_for_a_group_reach_its_members() {
    let mut net = Net::up(3);
    let group = Ipv4Addr::new(239, 1, 2, 3);
    net.asked.clear();
    net.send(0, Net::packet(v4(0), IpAddr::V4(group), 1));
    net.run(SECOND);
    assert_eq!(
        net.asked,
        [(GET, record::MEMBER)],
        "nothing is joined that does not exist"
    );
    net.send(1, report(1, 0x16, group));
    net.run(SECOND.times(10));
    net.send(0, Net::packet(v4(0), IpAddr::V4(group), 2));
    net.run(SECOND);
    let last = |host: usize| {
        net.hosts[host]
            .received
            .last()
            .and_then(|it| it.last())
            .copied()
    };
    assert_eq!((last(1), last(2)), (Some(2), None));
    net.send(1, report(1, 0x17, group));
    net.run(SECOND);
    net.send(0, Net::packet(v4(0), IpAddr::V4(group), 3));
    net.run(SECOND);
    assert_eq!(net.hosts[1].received.len(), 1);
    for everyone in [
        Ipv4Addr::BROADCAST,
        Ipv4Addr::new(10, 255, 255, 255),
        Ipv4Addr::new(224, 0, 0, 1),
    ] {
        net.send(0, Net::packet(v4(0), IpAddr::V4(everyone), 4));
        net.run(SECOND);
    }
    let everyone = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    net.send(0, Net::packet(local(0), IpAddr::V6(everyone), 4));
    net.run(SECOND);
    assert_eq!(
        (net.hosts[1].received.len(), net.hosts[2].received.len()),
        (5, 4)
    );
}

#[test]
fn programs_get_paths_by_address_and_by_gid() {
    let mut net = Net::up(2);
    let targets = [
        Target::Ip(v4(1)),
        Target::Ip(local(1)),
        Target::Gid(gid(1)),
        Target::Ip(v4(0)),
    ];
    for (number, target) in (0..).zip(targets) {
        net.resolve(0, number, target, SECOND.times(2));
    }
    net.run(SECOND);
    let mut found = net.hosts[0].resolved.clone();
    found.sort_by_key(|(number, _)| *number);
    let lids: Vec<u16> = found
        .iter()
        .map(|(_, it)| it.unwrap().destination_lid)
        .collect();
    assert_eq!(lids, [2, 2, 2, 1]);
    net.resolve(0, 4, Target::Gid([5; 16]), SECOND.times(9));
    net.run(SECOND);
    assert_eq!(
        net.hosts[0].resolved.last(),
        Some(&(4, Err(Failure::NoPath)))
    );
    net.has_manager = false;
    net.deactivate(0);
    net.resolve(0, 5, Target::Ip(v4(1)), SECOND.times(2));
    net.resolve(0, 6, Target::Ip(v4(1)), SECOND.times(2));
    net.hosts[0].interface.cancel(6);
    net.run(SECOND);
    assert_eq!(net.hosts[0].resolved.len(), 5);
    net.run(SECOND);
    assert_eq!(
        net.hosts[0].resolved.last(),
        Some(&(5, Err(Failure::TimedOut)))
    );
    assert_eq!(net.hosts[0].resolved.len(), 6);
}

#[test]
fn limited_members_of_a_partition_reach_full_ones_alone() {
    let mut net = Net::new(3);
    for host in 0..3 {
        net.change(host, |port| {
            port.partitions.0[0] = if host == 0 { 0xffff } else { 0x7fff }
        });
        net.activate(host, host as u16 + 1);
    }
    net.run(SECOND);
    net.send(1, Net::packet(v4(1), v4(0), 1));
    net.send(1, Net::packet(v4(1), v4(2), 2));
    net.run(SECOND.times(5));
    assert_eq!(net.hosts[0].received.len(), 1);
    assert!(net.hosts[2].received.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever happens: when the subnet is whole again, and a while has passed, all hosts reach each other.
    #[test]
    fn hosts_find_each_other_when_the_subnet_is_whole(
        steps in prop::collection::vec((0_u8..6, 0_usize..3, 0_usize..3, 0_u64..40_000), 1..40),
        loses in 0_u64..5,
    ) {
        let mut net = Net::new(3);
        net.loses = if loses < 2 { 0 } else { loses };
        for (kind, one, other, wait) in steps {
            match kind {
                0 => net.activate(one, one as u16 + 1),
                1 => net.deactivate(one),
                2 => net.activate(one, one as u16 + 11 + wait as u16 % 7 * 3),
                3 => {
                    net.has_manager = wait % 2 == 0;
                    net.restart_manager();
                    net.reregister(one);
                }
                4 => net.send(one, Net::packet(local(one), local(other), 1)),
                _ => net.send(one, Net::packet(v4(one), v4(other), 1)),
            }
            net.run(Span::from_us(wait * 1_000));
        }
        (net.loses, net.has_manager) = (0, true);
        for host in 0..3 {
            net.activate(host, host as u16 + 1);
            net.reregister(host);
        }
        net.run(SECOND.times(60));
        for from in 0..3 {
            for to in (0..3).filter(|to| *to != from) {
                net.hosts[to].received.clear();
                net.send(from, Net::packet(v4(from), v4(to), 7));
                net.send(from, Net::packet(local(from), local(to), 8));
                net.run(SECOND.times(5));
                prop_assert_eq!(net.hosts[to].received.len(), 2);
            }
        }
    }
}

/// Bytes of a step, of which many are values that mean something.
fn step() -> impl Strategy<Value = Vec<u8>> {
    let value = prop_oneof![Just(0_u8), Just(1), Just(0x45), Just(0xff), any::<u8>()];
    let arp = prop::collection::vec(value, 56).prop_map(|mut body| {
        body[..6].copy_from_slice(&[0, 32, 8, 0, 20, 4]);
        (body[6], body[7]) = (0, 1 + body[7] % 2);
        body[28..31].copy_from_slice(&[10, 0, 0]);
        body[52..56].copy_from_slice(&[10, 0, 0, 1]);
        [&[2, 2][..], &body, &[0; 63]].concat()
    });
    let sent = any::<[u8; 2]>().prop_map(|[family, to]| {
        let mut packet = vec![0; 120];
        (packet[0], packet[16], packet[19]) = (family % 2, 10, to);
        [&[0][..], &packet].concat()
    });
    let other = (0_u8..8, prop::collection::vec(any::<u8>(), 8..120))
        .prop_map(|(kind, bytes)| [&[kind][..], &bytes].concat());
    prop_oneof![arp, sent, other]
}

proptest! {
    #[test]
    fn any_steps_leave_a_valid_interface(all in prop::collection::vec(step(), 1..30)) {
        ipoib_contract::steps(&all.concat());
    }

    #[test]
    fn any_bytes_leave_a_valid_interface(bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
        ipoib_contract::steps(&bytes);
    }
}
