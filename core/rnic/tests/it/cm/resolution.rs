//! Service ID resolution: finds the queue pair that receives datagrams.

use crate::cm::pair::*;
use rnic::cm::{CmError, CmEvent, CmState, Ece, Resolution};
use wire::Qpn;
use wire::cm::SidrStatus;

const ECE: Ece = Ece {
    vendor_id: 5,
    options: 6,
};

fn resolution() -> Resolution {
    Resolution {
        status: SidrStatus::VALID,
        qpn: Qpn::new(0x77),
        qkey: 0x0123_4567,
        ece: ECE,
        private_data: [9; 136],
    }
}

fn ask(pair: &mut Pair) -> wire::cm::CommId {
    let id = pair
        .alice
        .cm
        .resolve(&resolve(ALICE, BOB), Ece::default(), pair.now)
        .unwrap();
    pair.alice.drain();
    id
}

#[test]
fn a_queue_pair_is_told() {
    let mut pair = Pair::new();
    let [_, listener] = pair.listen(8);
    let alice = ask(&mut pair);
    pair.carry();
    let CmEvent::SidrRequest {
        id: bob,
        listener: asked,
        request,
        addresses,
        ..
    } = pair.bob.event()
    else {
        panic!("a request")
    };
    assert_eq!(
        (asked, &request.private_data[36..39]),
        (listener, &b"who"[..])
    );
    assert_eq!(addresses.unwrap().source(), ip(ALICE));
    pair.bob.cm.take(bob).unwrap();
    pair.bob
        .cm
        .answer_resolution(bob, &resolution(), pair.now)
        .unwrap();
    pair.bob.drain();
    pair.carry();
    let CmEvent::Resolved { id, answer, ece } = pair.alice.event() else {
        panic!("resolved")
    };
    assert_eq!(
        (id, answer.qpn, answer.qkey, ece),
        (alice, Qpn::new(0x77), 0x0123_4567, ECE)
    );
    assert_eq!(
        (answer.status, answer.private_data),
        (SidrStatus::VALID, [9; 136])
    );
    pair.alice.cm.release(alice, pair.now).unwrap();
    pair.bob.cm.release(bob, pair.now).unwrap();
    pair.wait_until(|pair| pair.bob.cm.connections() == 0);
    pair.assert_empty();
}

#[test]
fn a_lost_answer_is_given_again_and_the_program_asked_once() {
    let mut pair = Pair::new();
    pair.listen(8);
    ask(&mut pair);
    let request = pair.alice.sent[0];
    pair.carry();
    let bob = pair.bob.event().id();
    // Repeated before the program answers, and after.
    pair.bob.receive(&request, pair.now);
    pair.bob
        .cm
        .answer_resolution(bob, &resolution(), pair.now)
        .unwrap();
    pair.bob.cm.release(bob, pair.now).unwrap();
    pair.bob.drain();
    pair.bob.said();
    pair.bob.receive(&request, pair.now);
    pair.carry();
    assert!(matches!(pair.alice.event(), CmEvent::Resolved { .. }));
    assert!(pair.bob.events.is_empty());
    assert_eq!(pair.bob.cm.counters().duplicates[7], 2);
}

#[test]
fn sidr_without_a_listener_without_an_answer_and_after_release() {
    let mut pair = Pair::new();
    ask(&mut pair);
    pair.carry();
    let CmEvent::Resolved { answer, .. } = pair.alice.event() else {
        panic!("resolved")
    };
    assert_eq!(answer.status, SidrStatus::UNSUPPORTED);

    let alice = ask(&mut pair);
    pair.wait_until(|pair| {
        pair.alice.sent.clear();
        !pair.alice.events.is_empty()
    });
    assert_eq!(pair.alice.event(), CmEvent::Unreachable { id: alice });
    assert_eq!(pair.alice.cm.counters().retried[7], 15);

    pair.listen(8);
    ask(&mut pair);
    pair.carry();
    let bob = pair.bob.event().id();
    pair.bob.cm.release(bob, pair.now).unwrap();
    pair.bob.drain();
    pair.carry();
    let CmEvent::Resolved { answer, .. } = pair.alice.event() else {
        panic!("resolved")
    };
    assert_eq!(answer.status, SidrStatus::REJECTED);
}

#[test]
fn resolutions_and_connections_are_not_mixed_up() {
    let mut pair = Pair::new();
    pair.listen(8);
    let alice = ask(&mut pair);
    pair.carry();
    let bob = pair.bob.event().id();
    assert_eq!(
        pair.bob.cm.accept(bob, &accept(1), pair.now),
        Err(CmError::WrongState(CmState::SidrReqReceived))
    );
    assert_eq!(
        pair.alice.cm.ready(alice, [0; 224], pair.now),
        Err(CmError::WrongState(CmState::SidrReqSent))
    );
    let connection = pair.connect();
    pair.carry();
    let request = pair.request();
    assert!(
        pair.bob
            .cm
            .answer_resolution(request, &resolution(), pair.now)
            .is_err()
    );
    // A resolution that was released is deleted; the answer has no receiver.
    pair.alice.cm.release(alice, pair.now).unwrap();
    pair.bob
        .cm
        .answer_resolution(bob, &resolution(), pair.now)
        .unwrap();
    pair.bob.drain();
    assert!(matches!(
        pair.bob.sent.back().map(|it| it.mad[17]),
        Some(0x18)
    ));
    pair.carry();
    assert_eq!(pair.alice.cm.counters().unknown, 1);
    assert_eq!(pair.alice.cm.state(connection), Some(CmState::ReqSent));
    assert!(pair.alice.sent.is_empty());
}
