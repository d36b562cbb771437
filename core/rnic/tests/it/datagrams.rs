//! UD: queue keys, the 40 bytes before the payload, multicast.

use crate::bench::*;
use rnic::*;
use wire::{Deth, Message, Packet, Psn, Qpn, Service, Tail};

fn datagram(to: Qpn, qkey: u32) -> Packet {
    let deth = Deth {
        qkey,
        source: Qpn::new(0x77),
    };
    Packet::new(
        Service::Ud,
        to,
        Psn::new(0),
        Message::Datagram {
            deth,
            tail: Tail::None,
        },
    )
}

#[test]
fn a_datagram_stands_behind_its_ip_header() {
    let mut bench = Bench::new(QpType::Ud);
    bench.post_receive(1, 100);
    bench.receive_from(&bench.arrival(), &datagram(bench.qpn, 7), b"hello");
    let mut taken = Vec::new();
    bench
        .device
        .cqs_mut()
        .poll(bench.cq, 8, |done| taken.push(*done));
    assert_eq!(
        (taken[0].length, taken[0].source, taken[0].grh),
        (45, Qpn::new(0x77), Some(NetworkHeader::Ipv4))
    );
    assert_eq!(&bench.memory.0[40..45], b"hello");
    let header: &[u8; 40] = bench.memory.0[..40].try_into().unwrap();
    let wire::ip::Ip::V4(ip) = wire::grh::parse(header).unwrap() else {
        panic!("IPv4 expected")
    };
    assert_eq!(
        (ip.source.octets(), ip.destination.octets()),
        ([10, 0, 0, 2], [10, 0, 0, 1])
    );
}

#[test]
fn what_does_not_fit_is_dropped_and_counted() {
    let mut bench = Bench::new(QpType::Ud);
    bench.receive_from(&bench.arrival(), &datagram(bench.qpn, 7), b"nothing posted");
    bench.post_receive(1, 44);
    bench.receive_from(&bench.arrival(), &datagram(bench.qpn, 7), b"too long");
    bench.receive_from(&bench.arrival(), &datagram(bench.qpn, 8), b"key");
    let counters = bench.device.port().counters();
    assert_eq!(
        (counters.dropped_no_receive, counters.dropped_bad_qkey),
        (2, 1)
    );
    assert_eq!(bench.completions(), []);
    assert_eq!(bench.state(), State::ReadyToSend);
}

#[test]
fn every_member_of_a_group_gets_a_copy_but_the_sender() {
    let mut bench = Bench::new(QpType::Ud);
    let other = bench.connected(QpType::Ud);
    let group = Gid::from_ipv4([239, 1, 2, 3]);
    for qpn in [bench.qpn, other] {
        bench.device.multicast().attach(qpn, group).unwrap();
        let sges = [Sge {
            address: BASE,
            length: 100,
            lkey: bench.keys.lkey,
        }];
        let request = ReceiveRequest {
            id: u64::from(qpn.value()),
            sges: &sges,
        };
        bench.device.post_receive(qpn, &request, bench.now).unwrap();
    }
    let deth = Deth {
        qkey: 7,
        source: other,
    };
    let message = Message::Datagram {
        deth,
        tail: Tail::None,
    };
    let packet = Packet::new(Service::Ud, Qpn::MULTICAST, Psn::new(0), message);
    let looped = Arrival {
        source: us(),
        destination: group,
        traffic_class: 0,
        hop_limit: 1,
        service_level: 0,
    };
    bench.receive_from(&looped, &packet, b"all");
    assert_eq!(
        bench.completions(),
        [(u64::from(bench.qpn.value()), Status::Success)]
    );
    assert_eq!(bench.device.destroy_qp(other), Err(Error::Busy), "attached");
    bench.device.multicast().detach(other, group).unwrap();
    assert_eq!(bench.device.destroy_qp(other), Ok(()));
}
