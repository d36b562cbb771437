//! Connection set-up, and its failures.

use crate::cm::pair::*;
use rnic::cm::{CmError, CmEvent, CmState, Listen, ListenAddress, ListenerId, Parting};
use rnic::{Gid, Mtu};
use wire::cm::{CmMessage, CommId, RejectReason, ServiceId, Subject};
use wire::{Psn, Qpn, Service};

#[test]
fn both_ends_learn_what_the_other_said() {
    let mut pair = Pair::new();
    let [listener, _] = pair.listen(8);
    let alice = pair.connect();
    pair.carry();
    let bob = request_has_what_alice_said(pair.bob.event(), listener);
    assert_eq!(
        (pair.alice.cm.state(alice), pair.bob.cm.state(bob)),
        (Some(CmState::ReqSent), Some(CmState::ReqReceived))
    );

    pair.accept(bob);
    pair.carry();
    reply_has_what_bob_said(pair.alice.event(), alice);

    pair.ready(alice);
    pair.carry();
    let CmEvent::Established {
        id,
        private_data: Some(data),
    } = pair.bob.event()
    else {
        panic!("established")
    };
    assert_eq!((id, *data), (bob, [7; 224]));
    assert_eq!(pair.alice.cm.state(alice), Some(CmState::Established));
    assert_eq!(pair.bob.cm.state(bob), Some(CmState::Established));
    // No message is in the network: no timer runs.
    assert_eq!(
        (pair.alice.cm.next_timeout(), pair.bob.cm.next_timeout()),
        (None, None)
    );
    assert!(pair.alice.events.is_empty() && pair.bob.events.is_empty());
}

/// Checks that a request event has the fields of [`connect`]; returns the communication ID of Bob's end.
fn request_has_what_alice_said(event: CmEvent, listener: ListenerId) -> CommId {
    let CmEvent::Request {
        id,
        listener: asked,
        path,
        request,
        addresses,
        ece,
    } = event
    else {
        panic!("a request");
    };
    assert_eq!(
        (asked, path.source, path.destination),
        (listener, BOB, ALICE)
    );
    assert_eq!(
        (request.local_qpn, request.starting_psn),
        (Qpn::new(0x11), Psn::new(0x10_0011))
    );
    assert_eq!(
        (request.responder_resources, request.initiator_depth),
        (3, 5)
    );
    let retries = (request.retry_count, request.rnr_retry_count);
    assert_eq!((retries, request.path_mtu), ((7, 6), 3));
    assert_eq!(request.private_data[36..41], *b"hello");
    assert_eq!((ece.vendor_id, ece.options), (0x12_3456, 0x789a));
    let addresses = addresses.unwrap();
    assert_eq!(
        (addresses.source(), addresses.source_port),
        (ip(ALICE), SOURCE_PORT)
    );
    id
}

/// Checks that a reply event has the fields of [`accept`].
fn reply_has_what_bob_said(event: CmEvent, alice: CommId) {
    let CmEvent::Reply { id, reply, ece } = event else {
        panic!("a reply")
    };
    assert_eq!(
        (id, reply.local_qpn, reply.starting_psn),
        (alice, Qpn::new(0x22), Psn::new(0x20_0022))
    );
    assert_eq!(
        (reply.responder_resources, reply.initiator_depth, reply.srq),
        (4, 2, true)
    );
    assert_eq!(reply.private_data[..7], *b"welcome");
    assert_eq!((ece.vendor_id, ece.options), (0x65_4321, 0xa987));
}

#[test]
fn data_may_come_before_the_rtu() {
    let mut pair = Pair::new();
    pair.listen(8);
    let alice = pair.connect();
    pair.carry();
    let bob = pair.request();
    pair.accept(bob);
    pair.carry();
    pair.ready(alice);
    let rtu = pair.alice.sent.pop_front().unwrap();
    pair.bob.cm.data_arrived(bob, pair.now).unwrap();
    pair.bob.drain();
    assert_eq!(
        pair.bob.event(),
        CmEvent::Established {
            id: bob,
            private_data: None
        }
    );
    // Neither the RTU nor more data causes an event.
    pair.bob.receive(&rtu, pair.now);
    pair.bob.cm.data_arrived(bob, pair.now).unwrap();
    pair.bob.drain();
    assert!(pair.bob.events.is_empty());
    assert_eq!(pair.bob.cm.counters().duplicates[4], 1);
}

#[test]
fn a_lost_message_is_repeated_after_the_response_time() {
    let mut pair = Pair::new();
    pair.listen(8);
    let asked_at = pair.now;
    let alice = pair.connect();
    // The first three REQs are lost.
    for _ in 0..3 {
        assert!(matches!(pair.alice.said(), CmMessage::Req(_)));
        pair.wait();
    }
    // Two packet lifetimes and Bob's response time, each time.
    let waited = 3 * (2 * duration(16).0 + duration(20).0);
    assert_eq!(pair.now.0 - asked_at.0, waited);
    pair.carry();
    let bob = pair.request();
    pair.accept(bob);
    // The first REP is lost.
    assert!(matches!(pair.bob.said(), CmMessage::Rep(_)));
    pair.wait_until(|pair| {
        pair.carry();
        !pair.alice.events.is_empty()
    });
    pair.reply(alice);
    pair.ready(alice);
    // The RTU is lost: the next REP is answered by another.
    assert!(matches!(pair.alice.said(), CmMessage::Rtu(_)));
    pair.wait_until(|pair| {
        pair.carry();
        !pair.bob.events.is_empty()
    });
    assert!(matches!(
        pair.bob.event(),
        CmEvent::Established {
            private_data: Some(_),
            ..
        }
    ));
    assert_eq!(pair.alice.cm.counters().retried[0], 3);
}

#[test]
fn a_req_without_an_answer_is_repeated_and_then_unreachable() {
    let mut pair = Pair::new();
    let alice = pair.connect();
    let mut requests = 1;
    pair.alice.said();
    pair.wait_until(|pair| {
        while let Some(datagram) = pair.alice.sent.pop_front() {
            requests += usize::from(datagram.mad[17] == 0x10);
        }
        !pair.alice.events.is_empty()
    });
    // The first request and fifteen repetitions.
    assert_eq!(requests, 16);
    assert_eq!(pair.alice.event(), CmEvent::Unreachable { id: alice });
    assert_eq!(pair.alice.cm.state(alice), Some(CmState::Idle));
    pair.alice.cm.release(alice, pair.now).unwrap();
    pair.assert_empty();
}

#[test]
fn a_connection_released_while_it_waits_for_a_rep_sends_a_rej() {
    let mut pair = Pair::new();
    pair.listen(8);
    let alice = pair.connect();
    pair.carry();
    let bob = pair.request();
    pair.alice.cm.release(alice, pair.now).unwrap();
    pair.alice.drain();
    let CmMessage::Rej(rej) =
        CmMessage::parse(0x12, pair.alice.sent[0].mad[24..].try_into().unwrap()).unwrap()
    else {
        panic!()
    };
    // With the communication ID that Bob has received, and the GUID of Alice's device.
    assert_eq!(
        (rej.reason, rej.local_comm_id, rej.remote_comm_id),
        (RejectReason::TIMEOUT, alice, CommId(0))
    );
    assert_eq!(rej.information[..8], 1u64.to_be_bytes());
    pair.carry();
    let CmEvent::Rejected { id, reject } = pair.bob.event() else {
        panic!("rejected")
    };
    assert_eq!((id, reject.reason), (bob, RejectReason::TIMEOUT));
    assert_eq!(
        pair.bob.cm.accept(bob, &accept(1), pair.now),
        Err(CmError::WrongState(CmState::TimeWait))
    );
}

#[test]
fn a_req_for_a_service_without_a_listener_is_rejected() {
    let mut pair = Pair::new();
    let alice = pair.connect();
    pair.carry();
    let CmEvent::Rejected { id, reject } = pair.alice.event() else {
        panic!("rejected")
    };
    assert_eq!(
        (id, reject.reason),
        (alice, RejectReason::INVALID_SERVICE_ID)
    );
    assert_eq!(
        (reject.local_comm_id, reject.subject),
        (CommId(0), Subject::Request)
    );
    assert_eq!(pair.alice.cm.state(alice), Some(CmState::Idle));
}

#[test]
fn a_rejected_req_has_the_private_data_of_the_program() {
    let mut pair = Pair::new();
    pair.listen(8);
    let alice = pair.connect();
    let req = pair.alice.sent[0];
    pair.carry();
    let bob = pair.request();
    pair.bob.cm.reject(bob, &reject(), pair.now).unwrap();
    pair.bob.drain();
    // The first REJ is lost; a repeated request is answered again, and Bob's program gets no event.
    pair.bob.said();
    pair.bob.receive(&req, pair.now);
    pair.carry();
    let CmEvent::Rejected { id, reject } = pair.alice.event() else {
        panic!("rejected")
    };
    assert_eq!((id, reject.reason), (alice, RejectReason::CONSUMER));
    assert_eq!(reject.private_data[..2], *b"no");
    assert!(pair.bob.events.is_empty());
    pair.bob.cm.release(bob, pair.now).unwrap();
    pair.alice.cm.release(alice, pair.now).unwrap();
    pair.wait_until(|pair| pair.bob.cm.connections() == 0);
    pair.assert_empty();
}

#[test]
fn the_active_side_says_no_to_the_reply() {
    let mut pair = Pair::new();
    pair.listen(8);
    let alice = pair.connect();
    pair.carry();
    let bob = pair.request();
    pair.accept(bob);
    let rep = pair.bob.sent[0];
    pair.carry();
    pair.reply(alice);
    pair.alice.cm.reject(alice, &reject(), pair.now).unwrap();
    pair.alice.drain();
    // Lost, and retransmitted.
    pair.alice.said();
    pair.alice.receive(&rep, pair.now);
    pair.carry();
    let CmEvent::Rejected { id, reject } = pair.bob.event() else {
        panic!("rejected")
    };
    assert_eq!((id, reject.subject), (bob, Subject::Reply));
}

#[test]
fn a_program_that_takes_its_time_makes_the_peer_wait() {
    let mut pair = Pair::new();
    pair.listen(8);
    let alice = pair.connect();
    let req = pair.alice.sent[0];
    pair.carry();
    let bob = pair.request();
    // The REQ is repeated, since Bob's program has not answered yet: an MRA, and another for each further
    // one.
    for _ in 0..2 {
        pair.bob.receive(&req, pair.now);
        let mra = pair.bob.sent[0];
        assert_eq!(mra.mad[17], 0x11);
        pair.carry();
    }
    assert_eq!(pair.alice.cm.state(alice), Some(CmState::ReqMraReceived));
    assert_eq!(pair.bob.cm.state(bob), Some(CmState::ReqMraSent));
    assert_eq!(pair.alice.cm.counters().duplicates[1], 1);
    let wait = pair.alice.cm.next_timeout().unwrap() - pair.now;
    assert!(wait > duration(24) && wait < duration(25), "{wait:?}");
    pair.accept(bob);
    pair.carry();
    pair.reply(alice);
    // Now Alice's program takes time.
    pair.alice.cm.delay(alice, 22, pair.now).unwrap();
    pair.alice.drain();
    pair.carry();
    assert_eq!(pair.bob.cm.state(bob), Some(CmState::RepMraReceived));
    assert_eq!(
        pair.alice.cm.delay(alice, 22, pair.now),
        Err(CmError::WrongState(CmState::RepMraSent))
    );
    pair.ready(alice);
    pair.carry();
    assert!(matches!(pair.bob.event(), CmEvent::Established { .. }));
}

#[test]
fn both_ask_each_other_at_once() {
    let mut pair = Pair::new();
    pair.listen(8);
    let listen = Listen {
        service: SERVICE,
        address: ListenAddress::Any,
        backlog: 8,
    };
    pair.alice.cm.listen(listen).unwrap();
    let from_alice = pair.connect();
    let from_bob = pair
        .bob
        .cm
        .connect(&connect(BOB, ALICE, SERVICE, 0x33), pair.now)
        .unwrap();
    pair.bob.drain();
    pair.carry();
    let at_bob = pair.request();
    let CmEvent::Request { id: at_alice, .. } = pair.alice.event() else {
        panic!("a request")
    };
    pair.accept(at_bob);
    pair.alice
        .cm
        .accept(at_alice, &accept(0x44), pair.now)
        .unwrap();
    pair.alice.drain();
    pair.carry();
    pair.reply(from_alice);
    assert!(matches!(pair.bob.event(), CmEvent::Reply { id, .. } if id == from_bob));
    pair.ready(from_alice);
    pair.bob.cm.ready(from_bob, [0; 224], pair.now).unwrap();
    pair.bob.drain();
    pair.carry();
    for (host, id) in [
        (&pair.alice, from_alice),
        (&pair.alice, at_alice),
        (&pair.bob, from_bob),
        (&pair.bob, at_bob),
    ] {
        assert_eq!(host.cm.state(id), Some(CmState::Established));
    }
}

#[test]
fn a_host_connects_to_itself() {
    let mut pair = Pair::new();
    pair.listen(8);
    let active = pair
        .bob
        .cm
        .connect(&connect(BOB, BOB, SERVICE, 0x33), pair.now)
        .unwrap();
    let carry = |pair: &mut Pair| {
        pair.bob.drain();
        while let Some(datagram) = pair.bob.sent.pop_front() {
            pair.bob.receive(&datagram, pair.now);
        }
    };
    carry(&mut pair);
    let passive = pair.request();
    pair.accept(passive);
    carry(&mut pair);
    assert!(matches!(pair.bob.event(), CmEvent::Reply { id, .. } if id == active));
    pair.bob.cm.ready(active, [0; 224], pair.now).unwrap();
    carry(&mut pair);
    assert!(matches!(pair.bob.event(), CmEvent::Established { id, .. } if id == passive));
    pair.bob.cm.disconnect(active, [0; 220], pair.now).unwrap();
    carry(&mut pair);
    assert!(matches!(pair.bob.event(), CmEvent::Disconnected { id, .. } if id == passive));
    pair.bob.cm.disconnect(passive, [0; 220], pair.now).unwrap();
    carry(&mut pair);
    assert!(matches!(pair.bob.event(), CmEvent::Disconnected { id, .. } if id == active));
}

#[test]
fn a_queue_pair_that_turns_up_again_ends_its_former_connection() {
    let mut pair = Pair::new();
    pair.listen(8);
    let (_, bob) = pair.connection();
    // Alice's host has lost all state, and its queue pair connects again.
    let config = rnic::cm::CmConfig::default();
    pair.alice = Host::new(ALICE, config, 9);
    let again = pair.connect();
    pair.carry();
    let CmEvent::Rejected { id, reject } = pair.alice.event() else {
        panic!("rejected")
    };
    assert_eq!((id, reject.reason), (again, RejectReason::STALE_CONNECTION));
    // Bob's DREQ was answered by a host that does not know the connection.
    assert!(matches!(pair.bob.event(), CmEvent::Disconnected { id, .. } if id == bob));
    pair.alice.cm.release(again, pair.now).unwrap();
    let third = pair.connect();
    pair.carry();
    pair.request();
    assert_eq!(pair.alice.cm.state(third), Some(CmState::ReqSent));
}

/// An attacker who knows only addresses sends REQs with a peer's address, for each queue pair that the peer
/// may have, and answers with that address too.
#[test]
fn requests_in_a_peers_name_end_no_connection() {
    let mut pair = Pair::new();
    pair.listen(8);
    let (alice, bob) = pair.connection();
    let asked = connect(ALICE, BOB, SERVICE, 0x11);
    let mut other = Host::new(ALICE, rnic::cm::CmConfig::default(), 77);
    for _ in 0..20 {
        let forged = other.cm.connect(&asked, pair.now).unwrap();
        other.drain();
        pair.bob.receive(&other.sent.pop_front().unwrap(), pair.now);
        other.cm.release(forged, pair.now).unwrap();
        for (local, remote) in [(CommId(0), bob), (CommId(7), bob), (bob, CommId(0))] {
            let drep = wire::cm::Drep {
                local_comm_id: local,
                remote_comm_id: remote,
                ..Default::default()
            };
            let mad = wire::cm::CmMad {
                transaction: 1,
                modifier: 0,
                message: drep.into(),
            };
            let path = rnic::Path {
                source: ALICE,
                destination: BOB,
                ..Default::default()
            };
            pair.bob.receive(
                &rnic::cm::Datagram {
                    path,
                    mad: mad.to_bytes(),
                },
                pair.now,
            );
        }
        pair.carry();
    }
    assert!(pair.bob.events.is_empty() && pair.alice.events.is_empty());
    assert_eq!(pair.alice.cm.state(alice), Some(CmState::Established));
    assert_eq!(pair.bob.cm.state(bob), Some(CmState::Established));
    // Both still disconnect as usual.
    pair.alice.cm.disconnect(alice, [0; 220], pair.now).unwrap();
    pair.alice.drain();
    pair.carry();
    assert!(
        matches!(pair.bob.event(), CmEvent::Disconnected { id, cause: Parting::Peer(_) } if id == bob)
    );
}

#[test]
fn requests_that_cannot_be_are_rejected_with_the_reason() {
    let mut pair = Pair::new();
    pair.listen(8);
    let mut ask = |change: &dyn Fn(&mut wire::cm::Req)| {
        let id = pair.connect();
        let mut datagram = pair.alice.sent.pop_front().unwrap();
        let mut mad = wire::cm::CmMad::parse(&datagram.mad).unwrap();
        let CmMessage::Req(req) = &mut mad.message else {
            panic!()
        };
        change(req);
        datagram.mad = mad.to_bytes();
        pair.bob.receive(&datagram, pair.now);
        pair.carry();
        pair.alice.cm.release(id, pair.now).ok();
        pair.alice.events.clear();
        pair.alice.sent.clear();
        let answer = pair.alice.cm.counters().received[2];
        (answer, pair.bob.events.pop_front().is_some())
    };
    let gid = |byte| Gid::from_ipv4([10, 0, 0, byte]).0;
    let cases: [&dyn Fn(&mut wire::cm::Req); 8] = [
        &|req| req.transport = 2,
        &|req| req.path_mtu = 0,
        &|req| req.path_mtu = 4,
        &|req| req.primary_path.remote_gid = gid(3),
        &|req| req.service_id = ServiceId::ip(wire::cm::PortSpace::Tcp, 8),
        &|req| req.private_data[0] = 1,
        &|req| req.private_data[19] = 9,
        &|req| req.private_data[35] = 9,
    ];
    for (count, change) in cases.iter().enumerate() {
        assert_eq!(ask(*change), (count as u64 + 1, false), "case {count}");
    }
    assert!(ask(&|_| {}).1, "and without a change it is a request");
}

#[test]
fn the_reasons_have_the_information_that_they_ask_for() {
    let mut pair = Pair::new();
    pair.listen(8);
    let mut large = connect(ALICE, BOB, SERVICE, 0x11);
    large.mtu = Mtu::B4096;
    pair.alice.cm.connect(&large, pair.now).unwrap();
    pair.alice.drain();
    pair.carry();
    let CmEvent::Rejected { reject, .. } = pair.alice.event() else {
        panic!("rejected")
    };
    assert_eq!(
        (reject.reason, reject.information_length),
        (RejectReason::INVALID_MTU, 1)
    );
    assert_eq!(reject.information[0] >> 4, Mtu::B1024 as u8);

    let elsewhere = connect(ALICE, Gid::from_ipv4([10, 0, 0, 3]), SERVICE, 0x11);
    pair.alice.cm.connect(&elsewhere, pair.now).unwrap();
    pair.alice.drain();
    let mut datagram = pair.alice.sent.pop_front().unwrap();
    datagram.path.destination = BOB;
    pair.bob.receive(&datagram, pair.now);
    let CmMessage::Rej(rej) = pair.bob.said() else {
        panic!()
    };
    assert_eq!(
        (rej.reason, &rej.information[..16]),
        (RejectReason::INVALID_GID, &BOB.0[..])
    );
}

#[test]
fn owners_cannot_ask_for_what_is_not_theirs_or_not_there() {
    let mut pair = Pair::new();
    assert_eq!(
        pair.alice
            .cm
            .connect(&connect(BOB, ALICE, SERVICE, 1), pair.now),
        Err(CmError::NotLocal)
    );
    let mut datagrams = connect(ALICE, BOB, SERVICE, 1);
    datagrams.transport = Service::Ud;
    assert!(matches!(
        pair.alice.cm.connect(&datagrams, pair.now),
        Err(CmError::Unsupported(_))
    ));
    let nobody = CommId(5);
    assert_eq!(pair.alice.cm.take(nobody), Err(CmError::NoSuchConnection));
    assert_eq!(
        pair.alice.cm.release(nobody, pair.now),
        Err(CmError::NoSuchConnection)
    );
    let id = pair.connect();
    let wrong = Err(CmError::WrongState(CmState::ReqSent));
    assert_eq!(pair.alice.cm.accept(id, &accept(1), pair.now), wrong);
    assert_eq!(pair.alice.cm.ready(id, [0; 224], pair.now), wrong);
    assert_eq!(pair.alice.cm.disconnect(id, [0; 220], pair.now), wrong);
    assert_eq!(pair.alice.cm.data_arrived(id, pair.now), wrong);
    assert_eq!(pair.alice.cm.delay(id, 1, pair.now), wrong);
    pair.alice.cm.release(id, pair.now).unwrap();
    assert_eq!(
        pair.alice.cm.release(id, pair.now),
        Err(CmError::NoSuchConnection)
    );
}
