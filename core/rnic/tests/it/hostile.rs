//! Packets of attackers: the attacks of ReDMArk (USENIX Security 2021), and random packets.

use crate::bench::*;
use proptest::prelude::*;
use rnic::simulation::Simulated as _;
use rnic::*;
use wire::{Aeth, Message, Packet, Position, Psn, Qpn, Reth, Rkey, Service, Syndrome};

/// ReDMArk A1, A2: packet injection by impersonation. A packet with all fields right but the source address
/// has no effect.
#[test]
fn a_packet_from_elsewhere_is_dropped_whatever_it_knows() {
    let mut bench = Bench::new(QpType::Rc);
    let before = bench.memory.0.clone();
    let message = write_only(BASE, bench.rkey(), 4);
    let packet = Packet::new(Service::Rc, bench.qpn, Psn::new(START), message);
    let elsewhere = Gid::from_ipv4([10, 0, 0, 3]);
    for arrival in [
        Arrival {
            source: elsewhere,
            ..bench.arrival()
        },
        Arrival {
            destination: elsewhere,
            ..bench.arrival()
        },
    ] {
        bench.receive_from(&arrival, &packet, b"evil");
    }
    assert_eq!(bench.memory.0, before);
    assert_eq!(bench.device.port().counters().dropped_wrong_address, 2);
    assert_eq!(bench.answers(), []);
}

/// ReDMArk A3: breaking a connection with a forged NAK. Only requests in flight can be refused.
#[test]
fn an_answer_to_what_was_not_asked_breaks_nothing() {
    let mut bench = Bench::new(QpType::Rc);
    for offset in [0, 1, 0x7f_ffff] {
        bench.acknowledge(offset, Syndrome::NAK_REMOTE_ACCESS);
    }
    assert_eq!(bench.state(), State::ReadyToSend);
    assert_eq!(
        bench.device.port().counters().dropped_unexpected_response,
        3
    );
}

/// As above, when the forger hits the PSN of an outstanding packet: it does not know how many messages the
/// peer has completed (the MSN), and one guess in 100,000 is right.
#[test]
fn a_forged_answer_needs_the_number_of_completed_messages_too() {
    let mut bench = Bench::new(QpType::Rc);
    let operation = Operation::Write {
        address: 0,
        rkey: Rkey(1),
        immediate: None,
    };
    let msn_of_the_peer = 0x12_3456;
    let answer = |syndrome, msn| Message::Acknowledge(Aeth { syndrome, msn });
    bench.post(0, operation, 4);
    bench.sent();
    bench.receive(0, answer(Syndrome::ACK, msn_of_the_peer), &[]);
    (1..9).for_each(|id| bench.post(id, operation, 4));
    assert_eq!(bench.sent_psns(), (1..9).collect::<Vec<_>>());
    let forged = [
        Syndrome::ACK,
        Syndrome::NAK_SEQUENCE,
        Syndrome::NAK_REMOTE_ACCESS,
        Syndrome::RnrNak(1),
    ];
    let guesses = (0..1 << 24)
        .step_by(997)
        .filter(|msn| msn_of_the_peer.abs_diff(*msn) > 100);
    let mut count = 0;
    for (index, msn) in guesses.enumerate() {
        bench.receive(
            1 + index as u32 % 8,
            answer(forged[index / 8 % 4], msn),
            &[],
        );
        count += 1;
    }
    assert_eq!(
        bench.device.port().counters().dropped_unexpected_response,
        count
    );
    assert_eq!(
        (bench.state(), bench.completions()),
        (State::ReadyToSend, vec![(0, Status::Success)])
    );
    bench.receive(8, answer(Syndrome::ACK, msn_of_the_peer + 8), &[]);
    assert_eq!(bench.completions().len(), 8);
}

/// A peer that numbers its messages differently from the specification is accepted after a timeout.
#[test]
fn after_a_timeout_the_peers_number_of_completed_messages_is_learned_anew() {
    let mut bench = Bench::new(QpType::Rc);
    let answer = |msn| {
        Message::Acknowledge(Aeth {
            syndrome: Syndrome::ACK,
            msn,
        })
    };
    let operation = Operation::Send(wire::Tail::None);
    (0..2).for_each(|id| bench.post(id, operation, 4));
    bench.sent();
    bench.receive(0, answer(7), &[]);
    bench.receive(1, answer(0x80_0000), &[]);
    assert_eq!(bench.completions().len(), 1);
    bench.wait();
    assert_eq!(bench.sent_psns(), [1]);
    bench.receive(1, answer(0x80_0000), &[]);
    assert_eq!(bench.completions().len(), 1);
}

/// A NAK code counts only for a request that can be refused with it.
#[test]
fn a_nak_that_the_request_cannot_get_breaks_nothing() {
    let mut bench = Bench::new(QpType::Rc);
    bench.post(1, Operation::Send(wire::Tail::None), 4);
    bench.sent();
    // A SEND names no key, and RC has no codes above 3.
    for code in [2, 4, 5, 31] {
        bench.acknowledge(0, Syndrome::Nak(code));
    }
    assert_eq!(
        (bench.state(), bench.completions()),
        (State::ReadyToSend, vec![])
    );
    assert_eq!(
        bench.device.port().counters().dropped_unexpected_response,
        4
    );
    bench.acknowledge(0, Syndrome::NAK_INVALID_REQUEST);
    assert_eq!(bench.completions(), [(1, Status::RemoteInvalidRequest)]);
}

/// Retries count retransmissions: NAKs that arrive while nothing is sent use none up.
#[test]
fn repeated_naks_use_up_no_retries_before_the_request_is_sent_again() {
    for syndrome in [Syndrome::RnrNak(24), Syndrome::NAK_SEQUENCE] {
        let mut bench = Bench::new(QpType::Rc);
        bench.post(1, Operation::Send(wire::Tail::None), 4);
        bench.sent();
        (0..20).for_each(|_| bench.acknowledge(0, syndrome));
        assert_eq!(
            (bench.state(), bench.completions()),
            (State::ReadyToSend, vec![])
        );
        while bench.sent_psns().is_empty() {
            bench.wait();
        }
        bench.acknowledge(0, Syndrome::ACK);
        assert_eq!(bench.completions(), [(1, Status::Success)]);
    }
}

/// Forged CNPs: none counts while nothing was sent, and only a few of those that arrive at once do.
#[test]
fn congestion_notifications_count_only_when_packets_can_have_been_marked() {
    let config = Config {
        congestion: CongestionConfig::Dcqcn(DcqcnConfig::default()),
        ..Config::default()
    };
    let mut bench = Bench::with(QpType::Rc, config, ALL);
    let full = Ok(Some(40_000_000_000));
    bench.now = Instant(1_000_000_000);
    (0..100).for_each(|_| bench.receive(0, Message::Congestion, &[]));
    assert_eq!(bench.device.rate_bps(bench.qpn), full);
    assert_eq!(bench.device.port().counters().rp_cnp_ignored, 100);
    bench.post(1, Operation::Send(wire::Tail::None), 4);
    bench.sent();
    (0..100).for_each(|_| bench.receive(0, Message::Congestion, &[]));
    assert_eq!(bench.device.port().counters().rp_cnp_handled, 4);
}

/// ReDMArk A4: guessing keys. Of a hundred thousand guesses next to a known key none is valid.
#[test]
fn a_known_key_does_not_help_to_guess_another() {
    let mut bench = Bench::new(QpType::Rc);
    let init = RegionInit {
        address: BASE,
        length: 64,
        iova: BASE,
        access: ALL,
    };
    let known: Vec<u32> = (0..200)
        .map(|_| {
            bench
                .device
                .memory()
                .register(bench.pd, init)
                .unwrap()
                .rkey
                .0
        })
        .collect();
    let next_to_known = |guess: u32| {
        known
            .iter()
            .any(|&key| key != guess && key.abs_diff(guess) < 250)
    };
    let neighbours = known.iter().filter(|&&key| next_to_known(key)).count();
    assert!(
        neighbours < 4,
        "{neighbours} of 200 keys lie next to another"
    );
}

/// ReDMArk, queue pair numbers and memory: neither numbers nor keys of a device can be derived from those of
/// another run.
#[test]
fn two_devices_share_neither_numbers_nor_keys() {
    let make = |seed: u8| {
        let mut device = Device::new(Config::default(), [seed; 32]);
        device.add_qpn_range(Qpn::new(0x1000), 4096);
        let pd = device.alloc_pd().unwrap();
        let cq = device.cqs_mut().create(8).unwrap();
        let init = RegionInit {
            address: BASE,
            length: 64,
            iova: BASE,
            access: ALL,
        };
        let keys: Vec<_> = (0..16)
            .map(|_| device.memory().register(pd, init).unwrap().rkey)
            .collect();
        let qp = QpInit {
            kind: QpType::Rc,
            pd: Some(pd),
            xrcd: None,
            send_cq: Some(cq),
            receive_cq: Some(cq),
            srq: None,
            capacity: Capacity::default(),
            signal_all: false,
        };
        let numbers: Vec<_> = (0..16).map(|_| device.create_qp(&qp).unwrap()).collect();
        (keys, numbers)
    };
    let (a, b) = (make(1), make(2));
    let same_keys = a.0.iter().filter(|key| b.0.contains(key)).count();
    let same_places = a.1.iter().zip(&b.1).filter(|(a, b)| a == b).count();
    assert_eq!((same_keys, same_places), (0, 0));
}

/// A peer that requests more READs than agreed is refused, not served without limit.
#[test]
fn more_reads_than_agreed_are_refused() {
    let mut bench = Bench::new(QpType::Rc);
    let reth = Reth {
        address: BASE,
        rkey: bench.rkey(),
        length: 4,
    };
    (0..5).for_each(|offset| bench.receive(offset, Message::read(reth), &[]));
    assert_eq!(bench.answers(), [(4, Syndrome::NAK_INVALID_REQUEST)]);
    assert_eq!(bench.state(), State::Error);
}

fn position() -> impl Strategy<Value = Position> {
    prop_oneof![
        Just(Position::First),
        Just(Position::Middle),
        Just(Position::Last),
        Just(Position::Only)
    ]
}

fn reth(rkey: Rkey) -> impl Strategy<Value = Reth> {
    let address = prop_oneof![Just(BASE), Just(BASE + 65530), Just(u64::MAX), any::<u64>()];
    let key = prop_oneof![4 => Just(rkey), 1 => any::<u32>().prop_map(Rkey)];
    let length = prop_oneof![0u32..5000, Just(u32::MAX)];
    (address, key, length).prop_map(|(address, rkey, length)| Reth {
        address,
        rkey,
        length,
    })
}

fn message(rkey: Rkey) -> impl Strategy<Value = Message> {
    let tail = prop_oneof![
        3 => Just(wire::Tail::None),
        1 => any::<[u8; 4]>().prop_map(wire::Tail::Immediate),
        1 => any::<u32>().prop_map(|key| wire::Tail::Invalidate(Rkey(key))),
    ];
    let syndrome = prop_oneof![
        (0u8..32).prop_map(Syndrome::Ack),
        (0u8..32).prop_map(Syndrome::RnrNak),
        (0u8..6).prop_map(Syndrome::Nak),
    ];
    let aeth = syndrome.prop_map(|syndrome| Aeth { syndrome, msn: 0 });
    let original = any::<u64>();
    prop_oneof![
        (position(), tail.clone()).prop_map(|(position, tail)| Message::Send { position, tail }),
        (position(), proptest::option::of(reth(rkey)), tail).prop_map(|(position, reth, tail)| {
            Message::Write {
                position,
                reth,
                tail,
            }
        }),
        reth(rkey).prop_map(Message::read),
        reth(rkey).prop_map(Message::AtomicWrite),
        (position(), proptest::option::of(aeth.clone()))
            .prop_map(|(position, aeth)| Message::ReadResponse { position, aeth }),
        aeth.clone().prop_map(Message::Acknowledge),
        (aeth, original).prop_map(|(aeth, original)| Message::AtomicAcknowledge { aeth, original }),
        Just(Message::Congestion),
    ]
}

proptest! {
    /// Arbitrary packets, from the right address and near the right PSNs, cause no panic, and reach nothing
    /// outside the region (the bench's memory would panic).
    #[test]
    fn no_sequence_of_packets_panics(
        out_of_order: bool,
        packets in proptest::collection::vec(
            (0u32..40, message(Bench::new(QpType::Rc).rkey()), 0usize..1100, any::<u8>()),
            1..60,
        ),
    ) {
        let config = Config { out_of_order, reorder_window: 16, ..Config::default() };
        let mut bench = Bench::with(QpType::Rc, config, ALL);
        let operations = [
            Operation::Send(wire::Tail::None),
            Operation::Read { address: 0, rkey: Rkey(1) },
            Operation::FetchAdd { address: 0, rkey: Rkey(1), add: 1 },
        ];
        for (offset, message, length, choice) in packets {
            let payload = vec![choice; if choice % 3 == 0 { MTU } else { length }];
            bench.receive((offset + 0xff_fff0) & 0xff_ffff, message, &payload);
            let size = if choice % 3 == 2 { 8 } else { u32::from(choice) };
            let sge = |length| Sge { address: BASE, length, lkey: bench.keys.lkey };
            let (source, target) = ([sge(size)], [sge(2000)]);
            // A queue that is full, or in error, may refuse.
            let _ = bench.post_sges(1, operations[usize::from(choice % 3)], &source);
            if choice % 5 == 0 {
                let request = ReceiveRequest { id: 2, sges: &target };
                let _ = bench.device.post_receive(bench.qpn, &request, bench.now);
            }
            if choice % 7 == 0 {
                bench.sent();
            }
        }
        bench.sent();
    }
}
