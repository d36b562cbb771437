//! Packets of the requester, and its reactions to responses.

use crate::bench::*;
use rnic::simulation::Simulated as _;
use rnic::*;
use wire::{Aeth, Message, Position, Reth, Rkey, Syndrome, Tail};

const SEND: Operation = Operation::Send(Tail::None);
const WRITE: Operation = Operation::Write {
    address: 0x5000,
    rkey: Rkey(9),
    immediate: None,
};

#[test]
fn a_message_becomes_packets_and_completes_with_the_last_acknowledgement() {
    let mut bench = Bench::new(QpType::Rc);
    bench.post(1, WRITE, 2500);
    let sent = bench.sent();
    let shape: Vec<_> = sent
        .iter()
        .map(|(packet, length)| match packet.message {
            Message::Write { position, reth, .. } => {
                (position, reth.map(|reth| reth.length), *length)
            }
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = [
        (Position::First, Some(2500), 1024),
        (Position::Middle, None, 1024),
        (Position::Last, None, 452),
    ];
    assert_eq!(shape, expected);
    assert!(sent[2].0.ack_req);
    bench.acknowledge(1, Syndrome::ACK);
    assert_eq!(bench.completions(), []);
    bench.acknowledge(2, Syndrome::ACK);
    assert_eq!(bench.completions(), [(1, Status::Success)]);
}

/// A fault in place of a WRITE.
const FAULT: Operation = Operation::Fault {
    status: Status::RetryExceeded,
    kind: CompletionKind::Write,
};

#[test]
fn a_fault_waits_for_the_requests_before_it_and_flushes_those_behind_it() {
    let mut bench = Bench::new(QpType::Rc);
    bench.post(1, SEND, 10);
    bench.post(2, FAULT, 2500);
    bench.post(3, SEND, 10);
    assert_eq!(
        bench.sent_psns(),
        [0],
        "neither the fault nor what is behind it is sent"
    );
    assert_eq!(bench.completions(), []);
    bench.acknowledge(0, Syndrome::ACK);
    let expected = [
        (1, Status::Success),
        (2, Status::RetryExceeded),
        (3, Status::Flushed),
    ];
    assert_eq!(bench.completions(), expected);
}

/// Addresses and lengths of the packets of a WRITE of 2500 bytes, each a WRITE of its own.
fn own_writes(config: Config) -> Vec<(u64, u32)> {
    let mut bench = Bench::with(QpType::Rc, config, ALL);
    bench.post(1, WRITE, 2500);
    let sent = bench.sent();
    let writes = sent.iter().map(|(packet, length)| match packet.message {
        Message::Write {
            position: Position::Only,
            reth: Some(reth),
            ..
        } if reth.length == *length => (reth.address, reth.length),
        other => panic!("{other:?}"),
    });
    writes.collect()
}

#[test]
fn with_out_of_order_receive_each_write_packet_has_its_own_address() {
    let sent = own_writes(Config {
        out_of_order: true,
        ..Config::default()
    });
    assert_eq!(sent, [(0x5000, 1024), (0x5400, 1024), (0x5800, 452)]);
}

#[test]
fn for_segmentation_offload_they_are_as_long_as_each_other() {
    let sent = own_writes(Config {
        write_only: true,
        ..Config::default()
    });
    assert_eq!(sent, [(0x5000, 834), (0x5342, 833), (0x5683, 833)]);
}

#[test]
fn a_sequence_error_goes_back_to_where_it_says() {
    let mut bench = Bench::new(QpType::Rc);
    (0..4).for_each(|id| bench.post(id, SEND, 10));
    assert_eq!(bench.sent_psns(), [0, 1, 2, 3]);
    bench.acknowledge(2, Syndrome::NAK_SEQUENCE);
    assert_eq!(
        bench.completions(),
        [(0, Status::Success), (1, Status::Success)]
    );
    assert_eq!(bench.sent_psns(), [2, 3]);
}

#[test]
fn silence_is_answered_by_retries_and_then_by_giving_up() {
    let mut bench = Bench::new(QpType::Rc);
    bench.post(1, SEND, 10);
    bench.post(2, SEND, 10);
    assert_eq!(bench.sent_psns(), [0, 1]);
    for _ in 0..2 {
        bench.wait();
        // After a timeout the window is one packet of the largest MTU: four of this one.
        assert_eq!(bench.sent_psns(), [0, 1]);
    }
    bench.wait();
    assert_eq!(bench.sent_psns(), []);
    assert_eq!(
        bench.completions(),
        [(1, Status::RetryExceeded), (2, Status::Flushed)]
    );
    // Timeout 14 is 67,108,864 ns, and it ran out three times.
    assert_eq!(bench.now, Instant(3 * 67_108_864));
    assert_eq!(bench.state(), State::Error);
}

/// Both counters are for one request (IBTA 9.7.5.2.4, 9.7.5.2.8): after an acknowledgement the next one has
/// all retries.
#[test]
fn an_acknowledgement_gives_all_retries_back() {
    let mut bench = Bench::new(QpType::Rc);
    (1..=3).for_each(|id| bench.post(id, SEND, 10));
    assert_eq!(bench.sent_psns(), [0, 1, 2]);
    for acknowledged in 0..2 {
        let unanswered: Vec<u32> = (acknowledged..3).collect();
        for _ in 0..2 {
            bench.wait();
            assert_eq!(bench.sent_psns(), unanswered, "sent again after a timeout");
        }
        bench.acknowledge(acknowledged, Syndrome::ACK);
        let id = u64::from(acknowledged) + 1;
        assert_eq!(bench.completions(), [(id, Status::Success)]);
    }
    for _ in 0..2 {
        bench.acknowledge(2, Syndrome::RnrNak(24));
        while bench.sent_psns().is_empty() {
            bench.wait();
        }
    }
    bench.acknowledge(2, Syndrome::ACK);
    assert_eq!(bench.completions(), [(3, Status::Success)]);
    bench.post(4, SEND, 10);
    assert_eq!(bench.sent_psns(), [3]);
    for _ in 0..2 {
        bench.acknowledge(3, Syndrome::RnrNak(24));
        while bench.sent_psns().is_empty() {
            bench.wait();
        }
    }
    bench.acknowledge(3, Syndrome::ACK);
    assert_eq!(bench.completions(), [(4, Status::Success)]);
}

#[test]
fn not_ready_is_waited_for_as_long_as_it_says_and_as_often_as_allowed() {
    let mut bench = Bench::new(QpType::Rc);
    bench.post(1, SEND, 10);
    assert_eq!(bench.sent_psns(), [0]);
    for round in 1..=2u64 {
        bench.acknowledge(0, Syndrome::RnrNak(24));
        assert_eq!(bench.sent_psns(), []);
        while bench.sent_psns().is_empty() {
            bench.wait();
        }
        assert_eq!(bench.now, Instant(round * 40_960_000));
    }
    bench.acknowledge(0, Syndrome::RnrNak(24));
    assert_eq!(bench.completions(), [(1, Status::RnrRetryExceeded)]);
}

#[test]
fn on_a_shared_memory_channel_a_wait_ends_when_there_is_a_receive_and_is_no_retry_then() {
    let mut bench = Bench::new(QpType::Rc);
    bench.post(1, SEND, 10);
    assert_eq!(bench.sent_psns(), [0]);
    let acknowledge = |syndrome| Message::Acknowledge(Aeth { syndrome, msn: 0 });
    // More often than the retry count.
    for _ in 0..8 {
        bench.receive_by_channel(0, acknowledge(Syndrome::RnrNak(24)), &[]);
        assert_eq!(bench.sent_psns(), []);
        bench.receive_by_channel(0, acknowledge(READY), &[]);
        assert_eq!(bench.sent_psns(), [0]);
    }
    // On a network no READY answer is sent, and the wait lasts the full time.
    bench.acknowledge(0, Syndrome::RnrNak(24));
    bench.acknowledge(0, READY);
    assert_eq!(bench.sent_psns(), []);
}

#[test]
fn each_nak_has_its_status() {
    let cases = [
        (1, Status::RemoteInvalidRequest),
        (2, Status::RemoteAccess),
        (3, Status::RemoteOperation),
    ];
    for (code, status) in cases {
        let mut bench = Bench::new(QpType::Rc);
        (0..3).for_each(|id| bench.post(id, WRITE, 10));
        bench.sent();
        bench.acknowledge(1, Syndrome::Nak(code));
        assert_eq!(
            bench.completions(),
            [(0, Status::Success), (1, status), (2, Status::Flushed)]
        );
    }
}

#[test]
fn a_wrong_local_key_fails_its_request_after_those_before_it() {
    let mut bench = Bench::new(QpType::Rc);
    bench.post(1, SEND, 10);
    let wrong = Sge {
        address: BASE,
        length: 10,
        lkey: Lkey::from_value(bench.keys.lkey.value() ^ 1),
    };
    bench.post_sges(2, SEND, &[wrong]).unwrap();
    bench.post(3, SEND, 10);
    // The first request leaves the acknowledgement request to the second, and makes it itself when that
    // cannot be sent.
    let asks: Vec<_> = bench
        .sent()
        .iter()
        .map(|(packet, _)| (packet.psn.value() - START, packet.ack_req))
        .collect();
    assert_eq!(asks, [(0, false), (0, true)]);
    assert_eq!(bench.completions(), []);
    bench.acknowledge(0, Syndrome::ACK);
    let expected = [
        (1, Status::Success),
        (2, Status::LocalProtection),
        (3, Status::Flushed),
    ];
    assert_eq!(bench.completions(), expected);
}

#[test]
fn a_fence_waits_for_the_read_before_it() {
    let mut bench = Bench::new(QpType::Rc);
    bench.post(
        1,
        Operation::Read {
            address: 0x5000,
            rkey: Rkey(9),
        },
        4,
    );
    let sges = [Sge {
        address: BASE,
        length: 4,
        lkey: bench.keys.lkey,
    }];
    let fenced = SendRequest {
        id: 2,
        operation: SEND,
        flags: SendFlags::SIGNALED | SendFlags::FENCE,
        data: Data::Sges(&sges),
        destination: None,
        xrc_srq: None,
    };
    bench
        .device
        .post_send(bench.qpn, &fenced, bench.now)
        .unwrap();
    assert_eq!(bench.sent_psns(), [0]);
    let aeth = Some(wire::Aeth {
        syndrome: Syndrome::ACK,
        msn: 1,
    });
    bench.receive(
        0,
        Message::ReadResponse {
            position: Position::Only,
            aeth,
        },
        b"read",
    );
    assert_eq!(&bench.memory.0[..4], b"read");
    assert_eq!(bench.sent_psns(), [1]);
}

/// A piece of a READ that the peer has executed is requested again as it was, or its end: never together with
/// what follows, which the peer would accept neither as a new request nor as a duplicate.
#[test]
fn a_repeated_read_request_ends_where_the_first_one_ended() {
    let mut bench = Bench::new(QpType::Rc);
    bench.post(
        1,
        Operation::Read {
            address: 0x5000,
            rkey: Rkey(9),
        },
        60 * 1024,
    );
    let asked = |bench: &mut Bench| -> Vec<(u64, u32)> {
        let of = |message: &Message| match message {
            Message::ReadRequest { reth, .. } => (reth.address, reth.length / 1024),
            other => panic!("{other:?}"),
        };
        bench
            .sent()
            .iter()
            .map(|(packet, _)| of(&packet.message))
            .collect()
    };
    assert_eq!(asked(&mut bench), [(0x5000, 60)]);
    // After a timeout the window is small: the READ is requested in pieces, and the first is answered in
    // part.
    bench.wait();
    assert_eq!(asked(&mut bench), [(0x5000, 4)]);
    let aeth = Some(wire::Aeth {
        syndrome: Syndrome::ACK,
        msn: 1,
    });
    bench.receive(
        0,
        Message::ReadResponse {
            position: Position::First,
            aeth,
        },
        &[7; 1024],
    );
    bench.wait();
    assert_eq!(asked(&mut bench), [(0x5400, 3), (0x6000, 1)]);
}

/// The peer answers the first request, with a gap after the first packet, as it asks for and then as IBTA has
/// it: the position of a response packet follows from its PSN alone.
#[test]
fn a_read_that_asks_for_response_only_packets_takes_them_and_any_others() {
    let config = Config {
        response_only: true,
        ..Config::default()
    };
    let mut bench = Bench::with(QpType::Rc, config, ALL);
    bench.post(
        1,
        Operation::Read {
            address: 0x5000,
            rkey: Rkey(9),
        },
        2500,
    );
    let asked = |bench: &mut Bench| match bench.sent().as_slice() {
        [(packet, 0)] => (packet.psn.value() - START, packet.message),
        other => panic!("{other:?}"),
    };
    let read = |address, length| Message::ReadRequest {
        reth: Reth {
            address,
            rkey: Rkey(9),
            length,
        },
        response_only: true,
    };
    assert_eq!(asked(&mut bench), (0, read(0x5000, 2500)));
    let aeth = Some(Aeth {
        syndrome: Syndrome::ACK,
        msn: 1,
    });
    let only = Message::ReadResponse {
        position: Position::Only,
        aeth,
    };
    bench.receive(0, only, &[7; 1024]);
    bench.receive(2, only, &[9; 452]);
    assert_eq!(
        asked(&mut bench),
        (1, read(0x5400, 1476)),
        "the second packet was lost"
    );
    bench.receive(
        1,
        Message::ReadResponse {
            position: Position::First,
            aeth,
        },
        &[8; 1024],
    );
    assert_eq!(bench.completions(), []);
    bench.receive(
        2,
        Message::ReadResponse {
            position: Position::Last,
            aeth,
        },
        &[9; 452],
    );
    assert_eq!(bench.completions(), [(1, Status::Success)]);
    let expected = [[7; 1024].as_slice(), &[8; 1024], &[9; 452]].concat();
    assert!(bench.memory.0.starts_with(&expected));
}

#[test]
fn a_full_completion_queue_is_an_event_and_ends_its_queue_pairs() {
    let mut bench = Bench::new(QpType::Rc);
    bench.device.cqs_mut().resize(bench.cq, 1).unwrap();
    (0..3).for_each(|id| bench.post(id, SEND, 10));
    bench.sent();
    bench.acknowledge(2, Syndrome::ACK);
    let (cq, qpn) = (bench.cq, bench.qpn);
    assert_eq!(bench.events(), [Event::CqError(cq), Event::QpFatal(qpn)]);
    assert_eq!(bench.state(), State::Error);
}

/// Changes the state, and asks for the event where the change is to SQD.
fn change(bench: &mut Bench, state: State, mask: AttrMask) {
    let attr = QpAttr {
        state,
        drain_notify: true,
        max_rd_atomic: 1,
        ..QpAttr::default()
    };
    let (qpn, now) = (bench.qpn, bench.now);
    bench
        .device
        .modify_qp(qpn, &attr, AttrMask::STATE | mask, now)
        .expect("the change is allowed");
}

#[test]
fn a_drained_queue_is_announced_once_for_each_request_of_the_event() {
    let mut bench = Bench::new(QpType::Rc);
    let (drained, none) = (vec![Event::SendQueueDrained(bench.qpn)], vec![]);
    for (state, mask, expected) in [
        (
            State::SendQueueDrained,
            AttrMask::EN_SQD_ASYNC_NOTIFY,
            &drained,
        ),
        (State::SendQueueDrained, AttrMask::MAX_QP_RD_ATOMIC, &none),
        (State::ReadyToSend, AttrMask::empty(), &none),
        (State::SendQueueDrained, AttrMask::empty(), &none),
        (State::ReadyToSend, AttrMask::empty(), &none),
        (
            State::SendQueueDrained,
            AttrMask::EN_SQD_ASYNC_NOTIFY,
            &drained,
        ),
    ] {
        change(&mut bench, state, mask);
        assert_eq!(&bench.events(), expected, "to {state:?} with {mask:?}");
    }
}

#[test]
fn a_query_returns_the_next_psn_and_whether_requests_are_outstanding() {
    let mut bench = Bench::new(QpType::Rc);
    let query = |bench: &Bench| {
        let (attr, _) = bench.device.query_qp(bench.qpn).expect("it exists");
        (attr.send_psn, attr.draining)
    };
    let first = query(&bench).0;
    bench.post(1, SEND, 10);
    bench.post(2, SEND, 10);
    assert_eq!(query(&bench), (first, false));
    assert_eq!(bench.sent_psns(), [0, 1]);
    assert_eq!(query(&bench), (first.plus(2), false));
    change(&mut bench, State::SendQueueDrained, AttrMask::empty());
    assert_eq!(query(&bench), (first.plus(2), true));
    bench.acknowledge(1, Syndrome::ACK);
    assert_eq!(query(&bench), (first.plus(2), false));
}

#[test]
fn a_drained_queue_starts_nothing_until_it_is_ready_again() {
    let mut bench = Bench::new(QpType::Rc);
    bench.post(1, SEND, 10);
    assert_eq!(bench.sent_psns(), [0]);
    let drain = QpAttr {
        state: State::SendQueueDrained,
        drain_notify: true,
        ..QpAttr::default()
    };
    let mask = AttrMask::STATE | AttrMask::EN_SQD_ASYNC_NOTIFY;
    bench
        .device
        .modify_qp(bench.qpn, &drain, mask, bench.now)
        .unwrap();
    bench.post(2, SEND, 10);
    assert_eq!((bench.sent_psns(), bench.events()), (vec![], vec![]));
    bench.acknowledge(0, Syndrome::ACK);
    let qpn = bench.qpn;
    assert_eq!(bench.events(), [Event::SendQueueDrained(qpn)]);
    let ready = QpAttr {
        state: State::ReadyToSend,
        ..QpAttr::default()
    };
    bench
        .device
        .modify_qp(bench.qpn, &ready, AttrMask::STATE, bench.now)
        .unwrap();
    assert_eq!(bench.sent_psns(), [1]);
}

#[test]
fn marked_packets_bring_one_notification_and_it_slows_the_sender() {
    let config = Config {
        congestion: CongestionConfig::Dcqcn(DcqcnConfig::default()),
        ..Config::default()
    };
    let mut bench = Bench::with(QpType::Rc, config, ALL);
    let rkey = bench.rkey();
    for offset in 0..3 {
        let message = write_only(BASE, rkey, 4);
        let psn = wire::Psn::new(START + offset);
        let packet = wire::Packet::new(wire::Service::Rc, bench.qpn, psn, message);
        let marked = Arrival {
            traffic_class: 3,
            ..bench.arrival()
        };
        bench.receive_from(&marked, &packet, b"data");
    }
    let notifications = bench
        .sent()
        .iter()
        .filter(|(packet, _)| packet.message == Message::Congestion)
        .count();
    assert_eq!(notifications, 1);
    assert_eq!(bench.device.rate_bps(bench.qpn), Ok(Some(40_000_000_000)));
    bench.post(1, SEND, 10);
    bench.sent();
    bench.receive(0, Message::Congestion, &[]);
    assert_eq!(bench.device.rate_bps(bench.qpn), Ok(Some(20_000_000_000)));
}

/// A driver with room for so many packets of data, and for any number of acknowledgements.
#[derive(Default)]
struct Narrow {
    room: usize,
    sent: Sent,
}

impl Sink for Narrow {
    type Channels = NoChannels;

    fn send(
        &mut self,
        path: &Path,
        packet: &wire::Packet,
        payload: Gather<'_>,
    ) -> Result<(), Fault> {
        self.room = self.room.saturating_sub(1);
        self.sent.send(path, packet, payload)
    }

    fn has_room(&mut self, _path: &Path, kind: PacketKind) -> bool {
        kind == PacketKind::Acknowledgement || self.room > 0
    }
}

#[test]
fn room_that_comes_for_one_packet_at_a_time_goes_round() {
    let mut bench = Bench::new(QpType::Uc);
    let others = [bench.connected(QpType::Uc), bench.connected(QpType::Uc)];
    for (length, qpn) in [(1, bench.qpn), (2, others[0]), (3, others[1])] {
        bench.qpn = qpn;
        (0..4).for_each(|id| bench.post(id, SEND, length));
    }
    let mut sink = Narrow::default();
    for _ in 0..12 {
        sink.room = 1;
        bench.device.resume();
        bench.device.transmit(bench.now, 64, &mut sink);
    }
    // The lengths identify the queue pairs.
    let lengths: Vec<u32> = sink.sent.0.iter().map(|(_, length)| *length).collect();
    assert_eq!(lengths, [1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3]);
}

#[test]
fn acknowledgements_do_not_wait_for_the_room_of_data() {
    let mut bench = Bench::new(QpType::Rc);
    bench.post_receive(1, 100);
    bench.receive(0, send(Position::Only), b"hello");
    let mut sink = Narrow::default();
    bench.device.transmit(bench.now, 64, &mut sink);
    assert!(matches!(
        sink.sent.0[..],
        [(
            wire::Packet {
                message: Message::Acknowledge(_),
                ..
            },
            0
        )]
    ));
}
