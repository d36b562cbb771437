//! The end of connections.

use crate::cm::pair::*;
use rnic::cm::{CmConfig, CmError, CmEvent, CmState, Datagram, Parting};
use wire::Qpn;
use wire::cm::{CmMad, CmMessage, CommId, RejectReason};

#[test]
fn one_parts_and_the_other_confirms() {
    let mut pair = Pair::new();
    pair.listen(8);
    let (alice, bob) = pair.connection();
    pair.alice.cm.disconnect(alice, [3; 220], pair.now).unwrap();
    pair.alice.drain();
    pair.carry();
    let cause = Parting::Peer(Box::new([3; 220]));
    assert_eq!(pair.bob.event(), CmEvent::Disconnected { id: bob, cause });
    pair.bob.cm.disconnect(bob, [4; 220], pair.now).unwrap();
    pair.bob.drain();
    pair.carry();
    let CmEvent::Disconnected {
        id,
        cause: Parting::Answered(data),
    } = pair.alice.event()
    else {
        panic!("disconnected")
    };
    assert_eq!(
        (id, &data[..220], &data[220..]),
        (alice, &[4; 220][..], &[0; 4][..])
    );
    // Neither queue pair is used again while packets may be in the network.
    assert_eq!(pair.alice.cm.state(alice), Some(CmState::TimeWait));
    pair.wait_until(|pair| pair.alice.events.len() + pair.bob.events.len() == 2);
    assert_eq!(pair.alice.event(), CmEvent::TimeWaitOver { id: alice });
    assert_eq!(pair.bob.event(), CmEvent::TimeWaitOver { id: bob });
    pair.alice.cm.release(alice, pair.now).unwrap();
    pair.bob.cm.release(bob, pair.now).unwrap();
    pair.assert_empty();
}

#[test]
fn both_part_at_once() {
    let mut pair = Pair::new();
    pair.listen(8);
    let (alice, bob) = pair.connection();
    pair.alice.cm.disconnect(alice, [0; 220], pair.now).unwrap();
    pair.bob.cm.disconnect(bob, [0; 220], pair.now).unwrap();
    pair.alice.drain();
    pair.bob.drain();
    pair.carry();
    assert_eq!(
        pair.alice.event(),
        CmEvent::Disconnected {
            id: alice,
            cause: Parting::Both
        }
    );
    assert_eq!(
        pair.bob.event(),
        CmEvent::Disconnected {
            id: bob,
            cause: Parting::Both
        }
    );
    assert_eq!(pair.bob.cm.state(bob), Some(CmState::TimeWait));
}

#[test]
fn a_lost_confirmation_is_given_again() {
    let mut pair = Pair::new();
    pair.listen(8);
    let (alice, bob) = pair.connection();
    pair.alice.cm.disconnect(alice, [0; 220], pair.now).unwrap();
    pair.alice.drain();
    let dreq = pair.alice.sent[0];
    pair.carry();
    pair.bob.event();
    // Bob's program has not confirmed yet: it gets no event for the second.
    pair.bob.receive(&dreq, pair.now);
    assert!(pair.bob.events.is_empty() && pair.bob.sent.is_empty());
    pair.bob.cm.disconnect(bob, [0; 220], pair.now).unwrap();
    pair.bob.drain();
    pair.bob.said();
    pair.bob.receive(&dreq, pair.now);
    pair.carry();
    assert!(matches!(
        pair.alice.event(),
        CmEvent::Disconnected {
            cause: Parting::Answered(_),
            ..
        }
    ));
}

#[test]
fn a_peer_that_is_gone_does_not_hold_us() {
    let mut pair = Pair::new();
    pair.listen(8);
    let (alice, _) = pair.connection();
    pair.alice.cm.disconnect(alice, [0; 220], pair.now).unwrap();
    pair.alice.drain();
    pair.wait_until(|pair| {
        pair.alice.sent.clear();
        !pair.alice.events.is_empty()
    });
    assert_eq!(
        pair.alice.event(),
        CmEvent::Disconnected {
            id: alice,
            cause: Parting::TimedOut
        }
    );
    assert_eq!(pair.alice.cm.counters().retried[5], 15);
}

#[test]
fn a_host_that_forgot_the_connection_confirms_its_end() {
    let mut pair = Pair::new();
    pair.listen(8);
    let (alice, _) = pair.connection();
    pair.bob = Host::new(BOB, rnic::cm::CmConfig::default(), 8);
    pair.alice.cm.disconnect(alice, [0; 220], pair.now).unwrap();
    pair.alice.drain();
    pair.carry();
    assert!(matches!(
        pair.alice.event(),
        CmEvent::Disconnected {
            cause: Parting::Answered(_),
            ..
        }
    ));
}

#[test]
fn a_reply_that_is_never_confirmed_is_given_up_on_both_sides() {
    let mut pair = Pair::new();
    pair.listen(8);
    let alice = pair.connect();
    pair.carry();
    let bob = pair.request();
    pair.accept(bob);
    pair.carry();
    pair.reply(alice);
    pair.ready(alice);
    // All of Alice's messages are lost: her RTU as well as those that answer Bob's repetitions.
    pair.wait_until(|pair| {
        pair.alice.sent.clear();
        while let Some(datagram) = pair.bob.sent.pop_front() {
            pair.alice.receive(&datagram, pair.now);
        }
        !pair.bob.events.is_empty()
    });
    assert_eq!(pair.bob.event(), CmEvent::Unreachable { id: bob });
    let CmEvent::Rejected { id, reject } = pair.alice.event() else {
        panic!("rejected")
    };
    assert_eq!((id, reject.reason), (alice, RejectReason::TIMEOUT));
    assert_eq!(pair.alice.cm.state(alice), Some(CmState::TimeWait));
}

/// Brings a connection to a state; returns both ends' communication IDs for it.
type Stage = fn(&mut Pair) -> (wire::cm::CommId, Option<wire::cm::CommId>);

fn stages() -> [(&'static str, Stage); 6] {
    let request_received: Stage = |pair| {
        let alice = pair.connect();
        pair.carry();
        (alice, Some(pair.request()))
    };
    let reply_sent: Stage = |pair| {
        let alice = pair.connect();
        pair.carry();
        let bob = pair.request();
        pair.accept(bob);
        (alice, Some(bob))
    };
    let reply_received: Stage = |pair| {
        let alice = pair.connect();
        pair.carry();
        let bob = pair.request();
        pair.accept(bob);
        pair.carry();
        pair.reply(alice);
        (alice, Some(bob))
    };
    let established: Stage = |pair| {
        let (alice, bob) = pair.connection();
        (alice, Some(bob))
    };
    let parting: Stage = |pair| {
        let (alice, bob) = pair.connection();
        pair.alice.cm.disconnect(alice, [0; 220], pair.now).unwrap();
        pair.alice.drain();
        pair.carry();
        pair.bob.event();
        (alice, Some(bob))
    };
    let request_sent: Stage = |pair| (pair.connect(), None);
    [
        ("request sent", request_sent),
        ("request received", request_received),
        ("reply sent", reply_sent),
        ("reply received", reply_received),
        ("established", established),
        ("parting", parting),
    ]
}

#[test]
fn the_death_of_a_program_reaches_its_peer_from_every_state() {
    for (name, stage) in stages() {
        one_dies(name, stage, true);
        one_dies(name, stage, false);
    }
}

#[test]
fn the_pending_dreq_of_a_dead_process_ends_the_connection_at_its_peer() {
    for (name, stage) in stages() {
        one_vanishes(name, stage, true);
        one_vanishes(name, stage, false);
    }
}

/// One end loses all state but its pending DREQ.
fn one_vanishes(name: &str, stage: Stage, alice_vanishes: bool) {
    let mut pair = Pair::with(CmConfig {
        reports_changes: true,
        ..CmConfig::default()
    });
    pair.listen(8);
    let (alice, bob) = stage(&mut pair);
    pair.carry();
    let (Some(gone), survivor) = (if alice_vanishes { Some(alice) } else { bob }, Some(alice))
    else {
        return;
    };
    let host = if alice_vanishes {
        &mut pair.alice
    } else {
        &mut pair.bob
    };
    let changed: Vec<_> = std::iter::from_fn(|| host.cm.poll_change()).collect();
    assert!(changed.contains(&gone), "{name}");
    let words = host.cm.message_at_death(gone).expect("something to say");
    pair.alice.events.clear();
    pair.bob.events.clear();
    let (other, survivor) = if alice_vanishes {
        (&mut pair.bob, bob)
    } else {
        (&mut pair.alice, survivor)
    };
    other.receive(&words, pair.now);
    let ending = |event: &CmEvent| {
        matches!(
            event,
            CmEvent::Rejected { .. } | CmEvent::Disconnected { .. }
        ) && survivor.is_none_or(|survivor| event.id() == survivor)
    };
    let knew = name == "parting" && alice_vanishes;
    assert_eq!(
        other.events.iter().any(ending),
        !knew,
        "{name}: {:?}",
        other.events
    );
}

/// One owner exits and its end is released; the other end gets an event and is released as well; nothing
/// remains.
fn one_dies(name: &str, stage: Stage, alice_dies: bool) {
    let mut pair = Pair::new();
    pair.listen(8);
    let (alice, bob) = stage(&mut pair);
    let dead = if alice_dies { Some(alice) } else { bob };
    let Some(dead) = dead else { return };
    pair.alice.events.clear();
    let (host, other) = match alice_dies {
        true => (&mut pair.alice, bob),
        false => (&mut pair.bob, Some(alice)),
    };
    host.cm.release(dead, pair.now).unwrap();
    host.drain();
    pair.carry();
    let told = if alice_dies {
        &pair.bob.events
    } else {
        &pair.alice.events
    };
    let ending = |event: &CmEvent| {
        matches!(
            event,
            CmEvent::Rejected { .. } | CmEvent::Disconnected { .. }
        ) && other.is_none_or(|id| event.id() == id)
    };
    let knew = name == "parting" && alice_dies;
    assert_eq!(told.iter().any(ending), !knew, "{name}: {told:?}");
    // The other end is released as well, and nothing remains.
    let survivor = if alice_dies {
        &mut pair.bob
    } else {
        &mut pair.alice
    };
    other
        .into_iter()
        .for_each(|id| survivor.cm.release(id, pair.now).unwrap());
    while let Some(event) = survivor.events.pop_front() {
        survivor.cm.release(event.id(), pair.now).ok();
    }
    survivor.drain();
    pair.carry();
    while pair.wait() {
        pair.carry();
    }
    pair.assert_empty();
    assert!(
        pair.now.0 < 100_000_000_000,
        "{name}: it took {:?}",
        pair.now
    );
}

#[test]
fn a_released_connection_has_no_events() {
    let mut pair = Pair::new();
    pair.listen(8);
    let (alice, bob) = pair.connection();
    pair.alice.cm.disconnect(alice, [0; 220], pair.now).unwrap();
    pair.alice.drain();
    let dreq = pair.alice.sent.pop_front().unwrap();
    let arrival = rnic::Arrival {
        source: ALICE,
        destination: BOB,
        traffic_class: 0,
        hop_limit: 64,
        service_level: 0,
    };
    pair.bob.cm.handle_datagram(&arrival, &dreq.mad, pair.now);
    // The event is queued already when the owner releases the connection.
    pair.bob.cm.release(bob, pair.now).unwrap();
    pair.bob.drain();
    assert!(pair.bob.events.is_empty());
    assert!(matches!(pair.bob.said(), CmMessage::Drep(_)));
    assert_eq!(
        pair.bob.cm.disconnect(bob, [0; 220], pair.now),
        Err(CmError::NoSuchConnection)
    );
}

#[test]
fn an_address_that_goes_takes_its_connections_along() {
    let mut pair = Pair::new();
    let [listener, _] = pair.listen(8);
    let (_, bob) = pair.connection();
    pair.alice
        .cm
        .connect(&connect(ALICE, BOB, SERVICE, 0x12), pair.now)
        .unwrap();
    pair.alice.drain();
    pair.carry();
    pair.bob.cm.remove_address(BOB);
    pair.bob.drain();
    // The request that waited is removed with its address; the owner gets an event for the connection that it
    // took.
    let CmEvent::Request { id: second, .. } = pair.bob.event() else {
        panic!("a request")
    };
    let ids: Vec<_> = pair.bob.events.drain(..).map(|event| event.id()).collect();
    assert_eq!(ids.len(), 2);
    assert!(ids.contains(&bob) && ids.contains(&second));
    assert!(pair.bob.sent.is_empty());
    pair.bob.cm.unlisten(listener, pair.now).unwrap();
    for id in ids {
        pair.bob.cm.release(id, pair.now).unwrap();
    }
    assert_eq!(pair.bob.cm.connections(), 0);
}

#[test]
fn a_listener_that_goes_rejects_what_waits_for_it() {
    let mut pair = Pair::new();
    let [listener, _] = pair.listen(8);
    let taken = pair.connect();
    pair.carry();
    let bob = pair.request();
    let waiting = pair
        .alice
        .cm
        .connect(&connect(ALICE, BOB, SERVICE, 0x12), pair.now)
        .unwrap();
    pair.alice.drain();
    pair.carry();
    pair.bob.cm.unlisten(listener, pair.now).unwrap();
    pair.bob.drain();
    pair.carry();
    assert!(matches!(pair.alice.event(), CmEvent::Rejected { id, .. } if id == waiting));
    // A request that was taken may still be accepted.
    pair.accept(bob);
    pair.carry();
    pair.reply(taken);
}

/// Alice connects, Bob accepts, both disconnect, and time-wait begins at both ends. Returns both IDs, and the
/// REQ.
fn over(pair: &mut Pair) -> (CommId, CommId, Datagram) {
    let alice = pair.connect();
    let req = pair.alice.sent[0];
    pair.carry();
    let bob = pair.request();
    pair.accept(bob);
    pair.carry();
    pair.reply(alice);
    pair.ready(alice);
    pair.alice.cm.disconnect(alice, [0; 220], pair.now).unwrap();
    pair.alice.drain();
    pair.carry();
    pair.bob.cm.disconnect(bob, [0; 220], pair.now).unwrap();
    pair.bob.drain();
    pair.carry();
    let states = (pair.alice.cm.state(alice), pair.bob.cm.state(bob));
    assert_eq!(states, (Some(CmState::TimeWait), Some(CmState::TimeWait)));
    pair.alice.events.clear();
    pair.bob.events.clear();
    (alice, bob, req)
}

/// The processes of a host have IDs of few bits: one may get the ID of a connection that another has ended.
#[test]
fn the_peer_may_reuse_the_id_of_an_ended_connection_in_a_req() {
    let mut pair = Pair::new();
    pair.listen(8);
    let (_, bob, req) = over(&mut pair);
    let mut mad = CmMad::parse(&req.mad).unwrap();
    let CmMessage::Req(again) = &mut mad.message else {
        panic!("a REQ")
    };
    again.local_qpn = Qpn::new(0x99);
    pair.bob.receive(
        &Datagram {
            path: req.path,
            mad: mad.to_bytes(),
        },
        pair.now,
    );
    assert!(pair.request() != bob);
    // Its own queue pair stays in time-wait for the full time.
    assert_eq!(pair.bob.cm.state(bob), Some(CmState::TimeWait));
    pair.wait_until(|pair| pair.bob.events.contains(&CmEvent::TimeWaitOver { id: bob }));
}

#[test]
fn the_peer_may_reuse_the_id_of_an_ended_connection_in_a_rep() {
    let mut pair = Pair::new();
    pair.listen(8);
    let (_, over, _) = over(&mut pair);
    let next = pair
        .alice
        .cm
        .connect(&connect(ALICE, BOB, SERVICE, 0x33), pair.now)
        .unwrap();
    pair.alice.drain();
    pair.carry();
    let bob = pair.request();
    pair.bob.cm.accept(bob, &accept(0x44), pair.now).unwrap();
    pair.bob.drain();
    let datagram = pair.bob.sent.pop_front().unwrap();
    let mut mad = CmMad::parse(&datagram.mad).unwrap();
    let CmMessage::Rep(rep) = &mut mad.message else {
        panic!("a REP")
    };
    rep.local_comm_id = over;
    pair.alice.receive(
        &Datagram {
            path: datagram.path,
            mad: mad.to_bytes(),
        },
        pair.now,
    );
    pair.reply(next);
}
