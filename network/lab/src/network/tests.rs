//! Tests of packets that enter the network from devices, and of those that are handed to devices.

use super::*;
use crate::device::PAYLOAD_MAX;
use crate::functions::LiveFunction;
use crate::fuzz_entry::{Attached, host};
use sim::world::Forgery;
use std::net::Ipv4Addr;

/// SEND Middle to queue pair 7.
const TRANSPORT: [u8; 12] = [1, 0, 0xff, 0xff, 0, 0, 0, 7, 0, 0, 0, 1];

fn attached() -> Attached {
    Attached::new().expect("a device")
}

fn record(source: Ipv4Addr, destination: Ipv4Addr) -> Vec<u8> {
    let [source, destination] =
        [source, destination].map(|address| address.to_ipv6_mapped().octets());
    let header = Header {
        stamp: 0,
        source,
        destination,
        traffic_class: 0,
        hop_limit: 64,
        source_port: 1,
        service_level: 0,
    };
    [header.to_bytes().as_slice(), &TRANSPORT].concat()
}

#[test]
fn packets_with_the_gid_of_another_host_are_dropped_and_counted() {
    let mut attached = attached();
    let [own, other] = [host(0).v4, host(1).v4];
    assert!(attached.write(&record(other, other), 0));
    assert!(attached.write(&record(own, Ipv4Addr::new(10, 9, 9, 9)), 0));
    assert_eq!(attached.network.pull(0, 0xff, Time(1)), Offer::Nothing);
    let counters = attached.network.ports[0].counters;
    assert_eq!(
        (counters.forged, counters.no_destination, counters.rdma_sent),
        (1, 1, 0)
    );
    assert!(attached.write(&record(own, other), 0));
    assert!(
        matches!(attached.network.pull(0, 0xff, Time(1)), Offer::Packet(packet) if packet.to == 1)
    );
    assert!(attached.network.broken.is_empty());
}

#[test]
fn the_switch_of_the_adapter_judges_what_functions_forge() {
    let mut attached = attached();
    let function = LiveFunction {
        of: 1,
        number: 0,
        vlan: 0,
    };
    attached.network.ports[0].host.function = Some(function);
    let [own, other] = [host(0).v4, host(1).v4];
    for (source, forgery) in [(other, Forgery::Gid(0)), (own, Forgery::None)] {
        assert!(attached.write(&record(source, other), 0));
        let offer = attached.network.pull(0, 0xff, Time(1));
        assert!(
            matches!(offer, Offer::Packet(packet) if packet.forgery == forgery),
            "{offer:?}"
        );
    }
    assert_eq!(attached.network.ports[0].counters.forged, 0);
    let forgery =
        |mac, address: Ipv4Addr| attached.network.forgery(0, mac, address.to_ipv6_mapped());
    assert_eq!(forgery(host(0).mac, own), Forgery::None);
    assert_eq!(forgery(host(1).mac, own), Forgery::Mac(0));
    assert_eq!(forgery(host(0).mac, other), Forgery::Gid(1));
}

#[test]
fn a_device_with_a_record_that_is_none_is_detached() {
    let mut attached = attached();
    assert!(attached.write(&[0xff; 20], 0));
    assert_eq!(attached.network.pull(0, 0xff, Time(1)), Offer::Nothing);
    assert_eq!(attached.network.broken.len(), 1);
}

/// A packet that waits for its class holds up no other class; within a class the order is kept.
#[test]
fn a_packet_of_a_paused_class_holds_up_no_other_class() {
    const CLASS_3_ONLY: u8 = 1 << 3;
    const ALL_BUT_3: u8 = !CLASS_3_ONLY;
    let mut attached = attached();
    let [own, other] = [host(0).v4, host(1).v4];
    let marked = |dscp: u8, port: u8| {
        let mut record = record(own, other);
        (record[40], record[42]) = (dscp << 2, port);
        record
    };
    for (dscp, port) in [(26, 1), (8, 2), (26, 3), (48, 4)] {
        assert!(attached.write(&marked(dscp, port), 64));
    }
    let mut leave = |classes: u8| match attached.network.pull(0, classes, Time(1)) {
        Offer::Packet(packet) => Some((packet.class, packet.tos >> 2)),
        _ => None,
    };
    let paused = [leave(ALL_BUT_3), leave(ALL_BUT_3), leave(ALL_BUT_3)];
    assert_eq!(paused, [Some((1, 8)), Some((6, 48)), None]);
    assert_eq!(
        [leave(CLASS_3_ONLY), leave(0xff), leave(0xff)],
        [Some((3, 26)), Some((3, 26)), None]
    );
}

/// Has the packet arrive at the first host, which has a device.
fn arrive(network: &mut Network, offer: Offer) {
    let Offer::Packet(packet) = offer else {
        panic!("{offer:?}")
    };
    network.deliver(
        0,
        Delivered {
            token: packet.token,
            tos: packet.tos,
            hop_limit: 63,
        },
        Time(1),
    );
}

#[test]
fn payloads_stay_in_the_ring_of_their_device_until_they_are_delivered_or_the_network_is_up_to_date()
{
    let mut attached = attached();
    let to_other = record(host(0).v4, host(1).v4);
    let mut written = 0;
    while attached.write_filled(&to_other, PAYLOAD_MAX, written) {
        written += 1;
    }
    let offers: Vec<Offer> = (0..written)
        .map(|_| attached.network.pull(0, 0xff, Time(1)))
        .collect();
    assert!(
        !attached.write(&to_other, PAYLOAD_MAX),
        "no room goes back before a payload is copied"
    );
    arrive(&mut attached.network, offers[1]);
    assert!(
        !attached.write(&to_other, PAYLOAD_MAX),
        "the first payload is still in the ring"
    );
    arrive(&mut attached.network, offers[0]);
    assert!(
        attached.write_filled(&to_other, PAYLOAD_MAX, 0xff),
        "two payloads were copied"
    );
    attached.network.take_payloads();
    while attached.write_filled(&to_other, PAYLOAD_MAX, 0xff) {}
    offers[2..]
        .iter()
        .for_each(|offer| arrive(&mut attached.network, *offer));
    let order = [1, 0].into_iter().chain(2..written);
    for value in order {
        assert_eq!(attached.arrived(), Some(vec![value; PAYLOAD_MAX]));
        attached.network.flush();
    }
    assert_eq!(attached.arrived(), None);
}

#[test]
fn a_payload_in_a_ring_outlives_its_device() {
    let mut attached = attached();
    assert!(attached.write_filled(&record(host(0).v4, host(1).v4), PAYLOAD_MAX, 7));
    let Offer::Packet(packet) = attached.network.pull(0, 0xff, Time(1)) else {
        panic!("no packet")
    };
    let fd = attached.network.ports[0].devices[0].raw();
    attached.network.detach(0, fd);
    let flight = &attached.network.flights[packet.token as usize];
    assert_eq!(
        flight.bytes[TRANSPORT.len()..flight.length],
        [7; PAYLOAD_MAX]
    );
    attached.network.lose(packet.token);
    assert_eq!(attached.network.ports[0].counters.lost, 1);
}

#[test]
fn a_lost_packet_leaves_its_room_in_the_ring() {
    let mut attached = attached();
    for _ in 0..1000 {
        assert!(attached.write(&record(host(0).v4, host(1).v4), PAYLOAD_MAX));
        let Offer::Packet(packet) = attached.network.pull(0, 0xff, Time(1)) else {
            panic!("no packet")
        };
        attached.network.lose(packet.token);
    }
}

#[test]
fn packets_that_wait_for_their_class_leave_when_other_classes_are_theirs() {
    let mut attached = attached();
    assert!(attached.write(&record(host(0).v4, host(1).v4), 64));
    let class = attached.network.ports[0].host.marks[0].class;
    assert_eq!(
        attached.network.pull(0, !(1 << class), Time(1)),
        Offer::Nothing
    );
    let mut hosts = [host(0), host(1)];
    hosts[0].marks[0].class = (class + 1) % 8;
    attached.network.set_hosts(&hosts);
    assert!(matches!(
        attached.network.pull(0, !(1 << class), Time(1)),
        Offer::Packet(_)
    ));
}

#[test]
fn what_a_program_sent_leaves_after_its_end() {
    let mut attached = attached();
    assert!(attached.write(&record(host(0).v4, host(1).v4), 0));
    let fd = attached.network.ports[0].devices[0].raw();
    attached.network.leave(0, fd);
    attached.network.flush();
    assert!(matches!(
        attached.network.pull(0, 0xff, Time(1)),
        Offer::Packet(_)
    ));
    attached.network.flush();
    assert!(attached.network.ports[0].devices.is_empty());
}

#[test]
fn a_datagram_for_a_group_leaves_once_for_each_other_host() {
    let mut attached = attached();
    assert!(attached.write(&record(host(0).v4, Ipv4Addr::new(239, 1, 2, 3)), 0));
    assert!(
        matches!(attached.network.pull(0, 0xff, Time(1)), Offer::Packet(packet) if packet.to == 1)
    );
    assert_eq!(attached.network.pull(0, 0xff, Time(1)), Offer::Nothing);
}
