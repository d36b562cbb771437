//! Queue pairs on a port of an InfiniBand subnet: LIDs, global routes, partitions.

use crate::bench::*;
use core::num::NonZeroU64;
use rnic::*;
use wire::{Deth, Message, Packet, PartitionKey, Position, Psn, Qpn, Service, Tail};

const OTHER: PartitionKey = PartitionKey(0x8012);

/// A port with the LIDs 8 to 11, in the default partition and in another one.
fn port() -> SubnetPort {
    let mut partitions = [0; PARTITIONS];
    (partitions[0], partitions[1]) = (0xffff, OTHER.0);
    SubnetPort {
        lid: 8,
        lmc: 2,
        prefix: 0xfe80 << 48,
        guid: 0xaa,
        partitions,
    }
}

fn address(lid: u16, guid: u64) -> Gid {
    LidAddress {
        lid,
        guid: NonZeroU64::new(guid),
    }
    .into()
}

fn arrival(source: Gid, destination: Gid) -> Arrival {
    Arrival {
        source,
        destination,
        service_level: 3,
        ..Arrival::default()
    }
}

fn bench(kind: QpType) -> Bench {
    let mut bench = Bench::new(kind);
    bench.device.port_mut().set_subnet(port());
    bench
}

/// Gives the queue pair the route to LID 5 from LID 9.
fn reconnect(bench: &mut Bench, is_global: bool, pkey_index: u16) -> Result<(), Error> {
    use AttrMask as M;
    let attr = QpAttr {
        path_mtu: Mtu::B1024,
        destination: PEER_QPN,
        receive_psn: Psn::new(START),
        send_psn: Psn::new(START),
        access: ALL,
        pkey_index,
        vector: AddressVector {
            destination: port().gid_of(0xbb),
            local: Some(LocalRoute {
                lid: 5,
                path_bits: 1,
                is_global,
                static_rate: 0,
            }),
            ..AddressVector::default()
        },
        max_dest_rd_atomic: 4,
        timeout: 14,
        ..QpAttr::default()
    };
    let path = M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN;
    let retry = M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::MAX_QP_RD_ATOMIC | M::SQ_PSN;
    for (state, mask) in [
        (State::Reset, M::empty()),
        (State::Init, M::ACCESS_FLAGS | M::PKEY_INDEX | M::PORT),
        (
            State::ReadyToReceive,
            path | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER,
        ),
        (State::ReadyToSend, retry),
    ] {
        let attr = QpAttr { state, ..attr };
        bench
            .device
            .modify_qp(bench.qpn, &attr, mask | M::STATE, bench.now)?;
    }
    Ok(())
}

fn written(bench: &mut Bench, arrival: &Arrival, key: PartitionKey) -> bool {
    bench.memory.0[..4].fill(0);
    let message = write_only(BASE, bench.rkey(), 4);
    let mut packet = Packet::new(Service::Rc, bench.qpn, Psn::new(START), message);
    (packet.pkey, packet.ack_req) = (key, true);
    bench.receive_from(arrival, &packet, b"data");
    &bench.memory.0[..4] == b"data"
}

#[test]
fn a_connection_takes_packets_of_its_lids_and_its_kind_of_route_alone() {
    for (is_global, guids) in [(false, [0, 0]), (true, [0xbb, 0xaa])] {
        let mut bench = bench(QpType::Rc);
        reconnect(&mut bench, is_global, 0).unwrap();
        let (peer, own) = (address(5, guids[0]), address(9, guids[1]));
        let strangers = [
            arrival(address(6, guids[0]), own),
            arrival(peer, address(8, guids[1])),
            arrival(address(5, guids[0] ^ 0xbb), address(9, guids[1] ^ 0xaa)),
        ];
        for stranger in strangers {
            assert!(!written(&mut bench, &stranger, PartitionKey::DEFAULT));
        }
        assert_eq!(bench.device.port().counters().dropped_wrong_address, 3);
        assert!(written(
            &mut bench,
            &arrival(peer, own),
            PartitionKey::DEFAULT
        ));
        let (attr, _) = bench.device.query_qp(bench.qpn).unwrap();
        assert_eq!(
            attr.vector.local.map(|route| (route.lid, route.is_global)),
            Some((5, is_global))
        );
    }
}

#[test]
fn packets_of_another_partition_are_dropped_and_counted() {
    let mut bench = bench(QpType::Rc);
    reconnect(&mut bench, false, 1).unwrap();
    let from = arrival(address(5, 0), address(9, 0));
    // The port is in this partition, the queue pair is not.
    assert!(!written(&mut bench, &from, PartitionKey::DEFAULT));
    assert!(!written(&mut bench, &from, PartitionKey(0x8013)));
    assert_eq!(bench.device.port().counters().dropped_bad_pkey, 2);
    assert!(written(&mut bench, &from, PartitionKey(OTHER.0 & 0x7fff)));
    let answers = bench.sent();
    assert!(!answers.is_empty() && answers.iter().all(|(packet, _)| packet.pkey == OTHER));
    assert!(reconnect(&mut bench, false, PARTITIONS as u16).is_err());
}

#[test]
fn a_path_bit_that_the_port_does_not_have_is_refused() {
    let mut bench = bench(QpType::Rc);
    bench
        .device
        .port_mut()
        .set_subnet(SubnetPort { lmc: 0, ..port() });
    assert!(reconnect(&mut bench, false, 0).is_err());
}

#[test]
fn a_global_route_needs_an_entry_of_the_gid_table_and_a_local_one_does_not() {
    let mut bench = bench(QpType::Rc);
    bench.device.port_mut().set_gid(0, None);
    assert!(reconnect(&mut bench, true, 0).is_err());
    reconnect(&mut bench, false, 0).unwrap();
}

#[test]
fn a_datagram_completes_with_the_lid_and_the_level_of_its_sender() {
    for (guids, grh) in [([0, 0], None), ([0xbb, 0xaa], Some(NetworkHeader::Global))] {
        let mut bench = bench(QpType::Ud);
        bench.post_receive(1, 100);
        let deth = Deth {
            qkey: 7,
            source: Qpn::new(0x77),
        };
        let message = Message::Datagram {
            deth,
            tail: Tail::None,
        };
        let packet = Packet::new(Service::Ud, bench.qpn, Psn::new(0), message);
        let from = arrival(address(5, guids[0]), address(10, guids[1]));
        bench.receive_from(&from, &packet, b"hello");
        let mut taken = Vec::new();
        bench
            .device
            .cqs_mut()
            .poll(bench.cq, 8, |done| taken.push(*done));
        let done = taken[0];
        assert_eq!(
            (
                done.length,
                done.source_lid,
                done.service_level,
                done.path_bits
            ),
            (45, 5, 3, 2)
        );
        assert_eq!(done.grh, grh);
        assert_eq!(&bench.memory.0[40..45], b"hello");
        let header: &[u8; 40] = bench.memory.0[..40].try_into().unwrap();
        if grh.is_some() {
            let wire::ip::Ip::V6(ip) = wire::grh::parse(header).unwrap() else {
                panic!("a global route header is one of IPv6")
            };
            let gids = [ip.source, ip.destination].map(|address| Gid(address.octets()));
            assert_eq!(gids, [0xbb, 0xaa].map(|guid| port().gid_of(guid)));
            assert_eq!(ip.next_header, 0x1b);
        }
    }
}

#[test]
fn a_key_that_the_manager_removes_ends_the_traffic_of_its_partition() {
    let mut bench = bench(QpType::Rc);
    reconnect(&mut bench, false, 1).unwrap();
    let from = arrival(address(5, 0), address(9, 0));
    let mut partitions = port().partitions;
    partitions[1] = 0;
    bench.device.port_mut().set_subnet(SubnetPort {
        partitions,
        ..port()
    });
    assert!(!written(&mut bench, &from, OTHER));
    let message = send(Position::Only);
    let mut packet = Packet::new(Service::Rc, bench.qpn, Psn::new(START), message);
    packet.pkey = PartitionKey(0);
    bench.receive_from(&from, &packet, b"zero");
    assert_eq!(bench.device.port().counters().dropped_bad_pkey, 2);
}
