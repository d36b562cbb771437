//! Datagrams of attackers.

use crate::cm::pair::*;
use proptest::prelude::*;
use rnic::cm::{CmConfig, CmState, Datagram};
use rnic::{Gid, Instant};
use wire::cm::{
    AprStatus, CmMad, CmMessage, CommId, Drep, Dreq, Lap, Mra, Rej, RejectReason, Rep, Rtu, Subject,
};
use wire::{Psn, Qpn};

fn from(source: Gid, destination: Gid, message: impl Into<CmMessage>) -> Datagram {
    let mad = CmMad {
        transaction: 1,
        modifier: 0,
        message: message.into(),
    };
    Datagram {
        path: path(source, destination),
        mad: mad.to_bytes(),
    }
}

/// Messages of a third host about a connection have no effect, even with all IDs right.
#[test]
fn messages_of_a_third_host_do_not_change_a_connection() {
    let mut pair = Pair::new();
    pair.listen(8);
    let (alice, bob) = pair.connection();
    let remote_qpn = Qpn::new(0x22);
    let ids = (alice, bob);
    let reason = RejectReason::CONSUMER;
    let messages: [CmMessage; 6] = [
        Dreq {
            local_comm_id: ids.0,
            remote_comm_id: ids.1,
            remote_qpn,
            ..Dreq::default()
        }
        .into(),
        Drep {
            local_comm_id: ids.0,
            remote_comm_id: ids.1,
            ..Drep::default()
        }
        .into(),
        Rej {
            local_comm_id: ids.0,
            remote_comm_id: ids.1,
            reason,
            ..Rej::default()
        }
        .into(),
        Rej {
            local_comm_id: ids.0,
            reason: RejectReason::TIMEOUT,
            ..Rej::default()
        }
        .into(),
        Rtu {
            local_comm_id: ids.0,
            remote_comm_id: ids.1,
            ..Rtu::default()
        }
        .into(),
        Mra {
            local_comm_id: ids.0,
            remote_comm_id: ids.1,
            ..Mra::default()
        }
        .into(),
    ];
    for message in messages {
        pair.bob.receive(&from(MALLORY, BOB, message), pair.now);
        assert_eq!(
            pair.bob.cm.state(bob),
            Some(CmState::Established),
            "{message:?}"
        );
        assert!(pair.bob.events.is_empty(), "{message:?}");
    }
    // Of these only the DREQ is answered: to its sender, with the IDs that it sent.
    let answer = pair.bob.sent.pop_front().unwrap();
    assert_eq!((answer.path.destination, answer.mad[17]), (MALLORY, 0x16));
    assert!(pair.bob.sent.is_empty());
}

#[test]
fn a_peer_that_guesses_changes_nothing() {
    let mut pair = Pair::new();
    pair.listen(8);
    let (alice, bob) = pair.connection();
    let wrong = CommId(alice.0 ^ 1);
    let right = (alice, bob);
    let messages: [CmMessage; 5] = [
        // The queue pair is not Bob's.
        Dreq {
            local_comm_id: right.0,
            remote_comm_id: right.1,
            remote_qpn: Qpn::new(0x23),
            ..Dreq::default()
        }
        .into(),
        Dreq {
            local_comm_id: wrong,
            remote_comm_id: right.1,
            ..Dreq::default()
        }
        .into(),
        Rej {
            local_comm_id: wrong,
            remote_comm_id: right.1,
            ..Rej::default()
        }
        .into(),
        // Bob did not send the request.
        Rep {
            local_comm_id: right.0,
            remote_comm_id: right.1,
            ..Rep::default()
        }
        .into(),
        Mra {
            local_comm_id: right.0,
            remote_comm_id: right.1,
            subject: Subject::Reserved,
            ..Mra::default()
        }
        .into(),
    ];
    for message in messages {
        pair.bob.receive(&from(ALICE, BOB, message), pair.now);
        assert_eq!(
            pair.bob.cm.state(bob),
            Some(CmState::Established),
            "{message:?}"
        );
        assert!(pair.bob.events.is_empty(), "{message:?}");
    }
}

#[test]
fn a_reply_to_what_was_not_asked_is_rejected() {
    let mut pair = Pair::new();
    let rep = Rep {
        local_comm_id: CommId(7),
        remote_comm_id: CommId(8),
        ..Rep::default()
    };
    pair.alice.receive(&from(BOB, ALICE, rep), pair.now);
    let CmMessage::Rej(rej) = pair.alice.said() else {
        panic!()
    };
    assert_eq!(
        (rej.reason, rej.subject),
        (RejectReason::INVALID_COMM_ID, Subject::Reply)
    );
    assert_eq!(
        (rej.local_comm_id, rej.remote_comm_id),
        (CommId(8), CommId(7))
    );
}

#[test]
fn no_peer_makes_us_wait_for_hours() {
    let mut pair = Pair::new();
    let alice = pair.connect();
    pair.alice.sent.clear();
    let mra = Mra {
        local_comm_id: CommId(9),
        remote_comm_id: alice,
        service_timeout: 31,
        ..Mra::default()
    };
    pair.alice.receive(&from(BOB, ALICE, mra), pair.now);
    assert_eq!(pair.alice.cm.state(alice), Some(CmState::ReqMraReceived));
    let wait = pair.alice.cm.next_timeout().unwrap() - pair.now;
    assert!(wait < duration(25), "{wait:?}");
    // Only once: another MRA does not restart the timer.
    let deadline = pair.alice.cm.next_timeout();
    pair.now = pair.now + duration(20);
    pair.alice.receive(&from(BOB, ALICE, mra), pair.now);
    assert_eq!(pair.alice.cm.next_timeout(), deadline);
}

#[test]
fn alternate_paths_are_refused() {
    let mut pair = Pair::new();
    pair.listen(8);
    let (alice, bob) = pair.connection();
    let lap = Lap {
        local_comm_id: alice,
        remote_comm_id: bob,
        ..Lap::default()
    };
    for (lap, status) in [
        (lap, AprStatus::UNSUPPORTED),
        (
            Lap {
                remote_comm_id: CommId(bob.0 ^ 1),
                ..lap
            },
            AprStatus::INVALID_COMM_ID,
        ),
    ] {
        pair.bob.receive(&from(ALICE, BOB, lap), pair.now);
        let CmMessage::Apr(apr) = pair.bob.said() else {
            panic!()
        };
        assert_eq!((apr.status, apr.remote_comm_id), (status, alice));
    }
}

#[test]
fn names_that_are_none_are_dropped() {
    let mut pair = Pair::new();
    pair.listen(8);
    pair.connect();
    let mut datagram = pair.alice.sent.pop_front().unwrap();
    datagram.mad[24..28].fill(0);
    pair.bob.receive(&datagram, pair.now);
    assert!(pair.bob.events.is_empty() && pair.bob.sent.is_empty());
    assert_eq!(pair.bob.cm.counters().unexpected, 1);
    datagram.mad[17] = 0x55;
    pair.bob.receive(&datagram, pair.now);
    assert_eq!(pair.bob.cm.counters().malformed, 1);
}

#[test]
fn one_name_for_two_queue_pairs_is_rejected() {
    let mut pair = Pair::new();
    pair.listen(8);
    pair.connect();
    let datagram = pair.alice.sent[0];
    pair.carry();
    let mut mad = CmMad::parse(&datagram.mad).unwrap();
    let CmMessage::Req(req) = &mut mad.message else {
        panic!()
    };
    (req.local_qpn, req.starting_psn) = (Qpn::new(0x99), Psn::new(0));
    pair.bob.receive(
        &Datagram {
            path: datagram.path,
            mad: mad.to_bytes(),
        },
        pair.now,
    );
    let CmMessage::Rej(rej) = pair.bob.said() else {
        panic!()
    };
    assert_eq!(rej.reason, RejectReason::DUPLICATE_LOCAL_COMM_ID);
}

/// Communication IDs of two hosts, and of one host in two runs, are independent.
#[test]
fn communication_ids_cannot_be_guessed() {
    let ids = |seed| {
        let mut host = Host::new(ALICE, CmConfig::default(), seed);
        let mut draw = |qpn| {
            host.cm
                .connect(&connect(ALICE, BOB, SERVICE, qpn), Instant(0))
                .unwrap()
                .0
        };
        (0..64).map(&mut draw).collect::<Vec<u32>>()
    };
    let (one, other) = (ids(1), ids(2));
    assert!(one.iter().all(|id| !other.contains(id)));
    assert!(one.windows(2).all(|pair| pair[0].abs_diff(pair[1]) > 1_000));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Arbitrary datagrams from the peer's address, for connections in every state.
    #[test]
    fn nothing_that_arrives_breaks_the_table(
        attribute in 0x10u8..0x1b,
        bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 232), 1..6),
        names in prop::collection::vec(0usize..8, 12),
    ) {
        let mut pair = Pair::new();
        pair.listen(8);
        let (alice, bob) = pair.connection();
        let second = pair.alice.cm.connect(&connect(ALICE, BOB, SERVICE, 0x12), pair.now).unwrap();
        pair.alice.drain();
        pair.carry();
        let waiting = pair.bob.event().id();
        let known = [alice.0, bob.0, second.0, waiting.0, 0, 1, u32::MAX, 0x11];
        for (index, body) in bodies.into_iter().enumerate() {
            let mut mad = [0; 256];
            mad[..4].copy_from_slice(&[1, 7, 2, 3]);
            mad[17] = attribute;
            mad[24..].copy_from_slice(&body);
            // Existing IDs reach more of the code than random ones.
            mad[24..28].copy_from_slice(&known[names[2 * index]].to_be_bytes());
            mad[28..32].copy_from_slice(&known[names[2 * index + 1]].to_be_bytes());
            pair.bob.receive(&Datagram { path: path(ALICE, BOB), mad }, pair.now);
            pair.alice.receive(&Datagram { path: path(BOB, ALICE), mad }, pair.now);
        }
        for host in [&mut pair.alice, &mut pair.bob] {
            for id in known {
                host.cm.release(CommId(id), pair.now).ok();
            }
            host.drain();
            while let Some(event) = host.events.pop_front() {
                host.cm.release(event.id(), pair.now).ok();
            }
            host.drain();
        }
        while pair.wait() {
            pair.alice.sent.clear();
            pair.bob.sent.clear();
        }
        pair.assert_empty();
    }
}
