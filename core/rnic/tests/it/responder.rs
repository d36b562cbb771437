//! Answers of the responder.

use crate::bench::*;
use rnic::*;
use wire::{Aeth, AtomicEth, Message, Packet, Position, Reth, Rkey, Syndrome};

const NAK_ACCESS: Syndrome = Syndrome::NAK_REMOTE_ACCESS;

#[test]
fn a_send_fills_the_receive_and_is_acknowledged() {
    let mut bench = Bench::new(QpType::Rc);
    bench.post_receive(7, 100);
    bench.receive(0, send(Position::Only), b"abc");
    assert_eq!(&bench.memory.0[..3], b"abc");
    assert_eq!(bench.completions(), [(7, Status::Success)]);
    assert_eq!(bench.answers(), [(0, Syndrome::ACK)]);
}

/// As the driver asks for: receives before it are taken, and its message is repeated by the peer.
#[test]
fn the_last_receive_is_refused_so_many_times_and_then_taken() {
    let mut bench = Bench::new(QpType::Rc);
    bench.post_receive(6, 100);
    bench.post_receive(7, 100);
    bench.device.refuse_last_receive(bench.qpn, 2).unwrap();
    bench.receive(0, send(Position::Only), b"abc");
    assert_eq!(bench.answers(), [(0, Syndrome::ACK)]);
    for _ in 0..2 {
        bench.receive(1, send(Position::Only), b"def");
        assert_eq!(bench.answers(), [(1, Syndrome::RnrNak(24))]);
    }
    bench.receive(1, send(Position::Only), b"def");
    assert_eq!(bench.answers(), [(1, Syndrome::ACK)]);
    let both = [(6, Status::Success), (7, Status::Success)];
    assert_eq!(bench.completions(), both);
}

/// As adapters of NVIDIA do, whose field has five bits: DLSlime gives 32.
#[test]
fn five_bits_of_a_longer_rnr_timer_are_taken() {
    let mut bench = Bench::new(QpType::Rc);
    let attr = QpAttr {
        min_rnr_timer: 33,
        ..QpAttr::default()
    };
    bench
        .device
        .modify_qp(bench.qpn, &attr, AttrMask::MIN_RNR_TIMER, bench.now)
        .unwrap();
    bench.receive(0, send(Position::Only), b"abc");
    assert_eq!(bench.answers(), [(0, Syndrome::RnrNak(1))]);
}

#[test]
fn one_acknowledgement_covers_all_that_came_before_it() {
    let mut bench = Bench::new(QpType::Rc);
    let rkey = bench.rkey();
    for offset in 0..5 {
        bench.receive(offset, write_only(BASE, rkey, 4), b"wxyz");
    }
    assert_eq!(bench.device.pending(), Pending::Acknowledgements);
    assert_eq!(bench.answers(), [(4, Syndrome::ACK)]);
}

#[test]
fn a_gap_is_reported_once_and_then_awaited_in_silence() {
    let mut bench = Bench::new(QpType::Rc);
    let rkey = bench.rkey();
    bench.receive(0, write_only(BASE, rkey, 4), b"aaaa");
    bench.receive(2, write_only(BASE, rkey, 4), b"cccc");
    bench.receive(3, write_only(BASE, rkey, 4), b"dddd");
    // The NAK of 1 acknowledges 0 as well.
    assert_eq!(bench.answers(), [(1, Syndrome::NAK_SEQUENCE)]);
    bench.receive(4, write_only(BASE, rkey, 4), b"eeee");
    assert_eq!(bench.answers(), []);
    bench.receive(1, write_only(BASE, rkey, 4), b"bbbb");
    assert_eq!(bench.answers(), [(1, Syndrome::ACK)]);
    assert_eq!(&bench.memory.0[..4], b"bbbb");
}

#[test]
fn on_a_shared_memory_channel_a_gap_is_what_the_peer_did_itself() {
    let mut bench = Bench::new(QpType::Rc);
    let rkey = bench.rkey();
    bench.receive_by_channel(0, write_only(BASE, rkey, 4), b"aaaa");
    bench.receive_by_channel(3, write_only(BASE, rkey, 4), b"dddd");
    assert_eq!(bench.answers(), [(3, Syndrome::ACK)]);
}

/// A request that arrived before this side was ready to receive was dropped, and looked like an executed one.
#[test]
fn on_a_shared_memory_channel_a_gap_before_the_first_request_is_a_loss() {
    let mut bench = Bench::new(QpType::Rc);
    let rkey = bench.rkey();
    bench.receive_by_channel(1, write_only(BASE, rkey, 4), b"bbbb");
    assert_eq!(bench.answers(), [(0, Syndrome::NAK_SEQUENCE)]);
    bench.receive_by_channel(0, write_only(BASE + 4, rkey, 4), b"aaaa");
    bench.receive_by_channel(1, write_only(BASE, rkey, 4), b"bbbb");
    assert_eq!(bench.answers(), [(1, Syndrome::ACK)]);
    assert_eq!(&bench.memory.0[..8], b"bbbbaaaa");
}

#[test]
fn a_duplicate_is_acknowledged_and_not_executed() {
    let mut bench = Bench::new(QpType::Rc);
    let rkey = bench.rkey();
    bench.receive(0, write_only(BASE, rkey, 4), b"once");
    bench.answers();
    bench.memory.0[..4].copy_from_slice(b"mine");
    bench.receive(0, write_only(BASE, rkey, 4), b"once");
    assert_eq!(bench.answers(), [(0, Syndrome::ACK)]);
    assert_eq!(&bench.memory.0[..4], b"mine");
    assert_eq!(bench.device.port().counters().duplicate_request, 1);
}

#[test]
fn a_duplicate_atomic_gets_the_first_result_again() {
    let mut bench = Bench::new(QpType::Rc);
    bench.memory.0[..8].copy_from_slice(&41u64.to_ne_bytes());
    let eth = AtomicEth {
        address: BASE,
        rkey: bench.rkey(),
        swap_add: 1,
        compare: 0,
    };
    for _ in 0..3 {
        bench.receive(0, Message::FetchAdd(eth), &[]);
        let originals: Vec<_> = bench
            .sent()
            .iter()
            .map(|(packet, _)| match packet.message {
                Message::AtomicAcknowledge { original, .. } => original,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(originals, [41]);
    }
    assert_eq!(bench.memory.0[..8], 42u64.to_ne_bytes());
}

#[test]
fn nothing_posted_is_answered_by_not_ready_and_the_message_comes_again() {
    let mut bench = Bench::new(QpType::Rc);
    bench.receive(0, send(Position::Only), b"abc");
    assert_eq!(bench.answers(), [(0, Syndrome::RnrNak(24))]);
    bench.receive(1, send(Position::Only), b"def");
    assert_eq!(
        bench.answers(),
        [],
        "silence until the expected packet comes again"
    );
    bench.post_receive(1, 100);
    bench.receive(0, send(Position::Only), b"abc");
    assert_eq!(bench.answers(), [(0, Syndrome::ACK)]);
    assert_eq!(bench.completions(), [(1, Status::Success)]);
}

#[test]
fn a_peer_on_a_shared_memory_channel_is_told_once_when_a_receive_is_there() {
    let mut bench = Bench::new(QpType::Rc);
    bench.device.shm().set_channel(bench.qpn, 1).unwrap();
    for round in 0..3 {
        bench.receive_by_channel(round, send(Position::Only), b"abc");
        assert_eq!(bench.answers(), [(round, Syndrome::RnrNak(24))]);
        bench.post_receive(1, 100);
        assert_eq!(bench.answers(), [(round, READY)]);
        bench.receive_by_channel(round, send(Position::Only), b"abc");
        assert_eq!(bench.answers(), [(round, Syndrome::ACK)]);
    }
    bench.post_receive(1, 100);
    assert_eq!(bench.answers(), []);
}

#[test]
fn a_peer_on_a_network_waits_as_long_as_it_was_told() {
    let mut bench = Bench::new(QpType::Rc);
    bench.receive(0, send(Position::Only), b"abc");
    assert_eq!(bench.answers(), [(0, Syndrome::RnrNak(24))]);
    bench.post_receive(1, 100);
    assert_eq!(bench.answers(), []);
}

/// Results of `provoke`'s error scenarios on the kernel, and the requirements of the specification where the
/// kernel deviates.
#[test]
fn each_refusal_has_its_syndrome_its_completion_and_its_event() {
    type Refused = (Syndrome, Vec<(u64, Status)>, Vec<Event>);
    let refuse = |access: Access, message: fn(&Bench) -> Message, payload: &[u8]| -> Refused {
        let mut bench = Bench::with(QpType::Rc, Config::default(), access);
        bench.post_receive(5, 64);
        let message = message(&bench);
        bench.receive(0, message, payload);
        assert_eq!(bench.state(), State::Error);
        let answers = bench.answers();
        assert_eq!((answers.len(), answers[0].0), (1, 0));
        (answers[0].1, bench.completions(), bench.events())
    };
    let flushed = vec![(5, Status::Flushed)];
    let refused = |result: Refused| (result.0, result.1);

    let bad_key = refuse(
        ALL,
        |bench| write_only(BASE, Rkey(bench.rkey().0 ^ 0x5500), 4),
        b"abcd",
    );
    assert!(matches!(bad_key.2[..], [Event::QpAccessError(_)]));
    assert_eq!(refused(bad_key), (NAK_ACCESS, flushed.clone()));

    let beyond = refuse(
        ALL,
        |bench| write_only(BASE + 65534, bench.rkey(), 4),
        b"abcd",
    );
    assert_eq!(refused(beyond), (NAK_ACCESS, flushed.clone()));

    let read_only = Access::LOCAL_WRITE | Access::REMOTE_READ;
    let right = refuse(
        read_only,
        |bench| write_only(BASE, bench.rkey(), 4),
        b"abcd",
    );
    assert_eq!(refused(right), (NAK_ACCESS, flushed.clone()));

    let misaligned = |bench: &Bench| {
        Message::FetchAdd(AtomicEth {
            address: BASE + 4,
            rkey: bench.rkey(),
            ..AtomicEth::default()
        })
    };
    let misaligned = refuse(ALL, misaligned, &[]);
    assert!(matches!(misaligned.2[..], [Event::QpRequestError(_)]));
    assert_eq!(
        refused(misaligned),
        (Syndrome::NAK_INVALID_REQUEST, flushed.clone())
    );

    let too_long = refuse(ALL, |_| send(Position::Only), &[0; 65]);
    let length_error = vec![(5, Status::LocalLength)];
    assert_eq!(
        refused(too_long),
        (Syndrome::NAK_INVALID_REQUEST, length_error)
    );

    let out_of_turn = refuse(ALL, |_| send(Position::Middle), &[0; MTU]);
    assert_eq!(
        refused(out_of_turn),
        (Syndrome::NAK_INVALID_REQUEST, flushed.clone())
    );

    let short_first = refuse(ALL, |_| send(Position::First), &[0; 10]);
    assert_eq!(short_first.0, Syndrome::NAK_INVALID_REQUEST);
}

#[test]
fn a_read_is_answered_in_packets_of_the_path_mtu() {
    let mut bench = Bench::new(QpType::Rc);
    let reth = Reth {
        address: BASE,
        rkey: bench.rkey(),
        length: 2500,
    };
    bench.receive(0, Message::read(reth), &[]);
    let sent = bench.sent();
    let positions: Vec<_> = sent
        .iter()
        .map(|(packet, length)| match packet.message {
            Message::ReadResponse { position, aeth } => (position, aeth.is_some(), *length),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = [
        (Position::First, true, 1024),
        (Position::Middle, false, 1024),
        (Position::Last, true, 452),
    ];
    assert_eq!(positions, expected);
    // The READ took three PSNs: the next request has the fourth.
    bench.receive(3, Message::read(Reth { length: 0, ..reth }), &[]);
    assert_eq!(bench.sent_psns(), [3]);
}

/// Positions, lengths and PSNs of the answer to a READ of 2500 bytes.
fn response_only(bench: &mut Bench) -> Vec<(Position, u32, u32)> {
    let reth = Reth {
        address: BASE,
        rkey: bench.rkey(),
        length: 2500,
    };
    let request = Message::ReadRequest {
        reth,
        response_only: true,
    };
    bench.receive(0, request, &[]);
    let of = |(packet, length): &(Packet, u32)| match packet.message {
        Message::ReadResponse {
            position,
            aeth:
                Some(Aeth {
                    syndrome: Syndrome::ACK,
                    ..
                }),
        } => (position, *length, packet.psn.value() - START),
        other => panic!("{other:?}"),
    };
    bench.sent().iter().map(of).collect()
}

#[test]
fn a_read_is_answered_by_response_only_packets_where_the_peer_takes_them() {
    let mut bench = Bench::new(QpType::Rc);
    let expected = [
        (Position::Only, 1024, 0),
        (Position::Only, 1024, 1),
        (Position::Only, 452, 2),
    ];
    assert_eq!(response_only(&mut bench), expected);
    assert_eq!(response_only(&mut bench), expected, "a duplicate");
}

#[test]
fn a_region_that_goes_while_it_is_read_is_read_no_further() {
    let mut bench = Bench::new(QpType::Rc);
    let reth = Reth {
        address: BASE,
        rkey: bench.rkey(),
        length: 64 * MTU as u32,
    };
    bench.receive(0, Message::read(reth), &[]);
    let mut sink = Sent::default();
    bench.device.transmit(bench.now, 4, &mut sink);
    bench.device.memory().deregister(bench.keys.lkey).unwrap();
    assert_eq!(bench.answers(), [(sink.0.len() as u32, NAK_ACCESS)]);
}

#[test]
fn writes_ahead_are_placed_and_reported_in_turn_with_out_of_order_receive() {
    let config = Config {
        out_of_order: true,
        ..Config::default()
    };
    let mut bench = Bench::with(QpType::Rc, config, ALL);
    let rkey = bench.rkey();
    for offset in [2, 3, 1] {
        bench.receive(
            offset,
            write_only(BASE + u64::from(offset) * 4, rkey, 4),
            b"data",
        );
    }
    assert_eq!(
        bench.answers(),
        [],
        "nothing is acknowledged, and nothing asked for"
    );
    assert_eq!(&bench.memory.0[4..16], b"datadatadata");
    bench.receive(0, write_only(BASE, rkey, 4), b"data");
    assert_eq!(bench.answers(), [(3, Syndrome::ACK)]);
}
