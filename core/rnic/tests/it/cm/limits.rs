//! Everything that peers and programs can fill has a limit, with a defined behaviour when it is reached.

use crate::cm::pair::*;
use rnic::cm::{CmConfig, CmError, CmEvent, Listen, ListenAddress};
use wire::cm::{CommId, PortSpace, ServiceId};

#[test]
fn a_full_backlog_drops_requests_until_one_is_taken() {
    let mut pair = Pair::new();
    pair.listen(2);
    let mut requests = Vec::new();
    for qpn in 0..3 {
        pair.alice
            .cm
            .connect(&connect(ALICE, BOB, SERVICE, 0x11 + qpn), pair.now)
            .unwrap();
        pair.alice.drain();
        requests.push(pair.alice.sent[0]);
        pair.carry();
    }
    assert_eq!(
        (pair.bob.events.len(), pair.bob.cm.counters().backlog_full),
        (2, 1)
    );
    // The third was not answered: it is repeated.
    pair.bob.receive(&requests[2], pair.now);
    assert_eq!(pair.bob.events.len(), 2);
    pair.request();
    pair.bob.receive(&requests[2], pair.now);
    assert_eq!(
        (pair.bob.events.len(), pair.bob.cm.counters().backlog_full),
        (2, 2)
    );
    // A request that was rejected or accepted before it was taken does not wait any more, either.
    let second = pair.bob.event().id();
    pair.bob.cm.reject(second, &reject(), pair.now).unwrap();
    pair.accept(pair.bob.events[0].id());
    for qpn in 0x20..0x22 {
        pair.alice
            .cm
            .connect(&connect(ALICE, BOB, SERVICE, qpn), pair.now)
            .unwrap();
        pair.alice.drain();
        pair.carry();
    }
    assert_eq!(pair.bob.cm.counters().backlog_full, 2);
}

#[test]
fn a_full_table_refuses_owners_and_drops_requests() {
    let config = CmConfig {
        connections_max: 2,
        ..CmConfig::default()
    };
    let mut pair = Pair::with(config);
    pair.listen(8);
    for qpn in 0..2 {
        pair.alice
            .cm
            .connect(&connect(ALICE, BOB, SERVICE, qpn), pair.now)
            .unwrap();
    }
    let third = pair
        .alice
        .cm
        .connect(&connect(ALICE, BOB, SERVICE, 3), pair.now);
    assert_eq!(third, Err(CmError::Exhausted("connections")));
    pair.alice.drain();
    pair.carry();
    let mut carol = Host::new(MALLORY, CmConfig::default(), 3);
    carol
        .cm
        .connect(&connect(MALLORY, BOB, SERVICE, 4), pair.now)
        .unwrap();
    carol.drain();
    let request = carol.sent[0];
    pair.bob.receive(&request, pair.now);
    assert_eq!(
        (pair.bob.cm.counters().table_full, pair.bob.events.len()),
        (1, 2)
    );
    // A connection that only lingers is evicted.
    let first = pair.bob.event().id();
    pair.bob.cm.reject(first, &reject(), pair.now).unwrap();
    pair.bob.cm.release(first, pair.now).unwrap();
    pair.bob.receive(&request, pair.now);
    assert_eq!(
        (pair.bob.cm.counters().table_full, pair.bob.cm.connections()),
        (1, 2)
    );
    assert!(
        matches!(pair.bob.events.back(), Some(CmEvent::Request { path, .. }) if path.destination == MALLORY)
    );
    // The place of the dropped request in the backlog is free again.
    pair.bob.cm.check_invariants().unwrap();
}

/// After all communication IDs were used, those that are free are used again.
#[test]
fn names_are_used_up_when_all_are_in_use() {
    let config = CmConfig {
        comm_id_prefix: 7,
        comm_id_prefix_bits: 24,
        ..CmConfig::default()
    };
    let mut pair = Pair::with(config);
    let mut ask = |qpn: u32| {
        pair.alice
            .cm
            .connect(&connect(ALICE, BOB, SERVICE, qpn), pair.now)
    };
    let ids: Vec<_> = (0..256).map(|qpn| ask(qpn).unwrap()).collect();
    assert!(ids.iter().all(|id| id.0 >> 8 == 7));
    assert_eq!(ask(256), Err(CmError::Exhausted("communication IDs")));
    pair.alice.cm.release(ids[99], pair.now).unwrap();
    let again = pair
        .alice
        .cm
        .connect(&connect(ALICE, BOB, SERVICE, 257), pair.now);
    assert_eq!(again, Ok(ids[99]));
}

#[test]
fn two_listeners_that_take_the_same_are_one_too_many() {
    let mut pair = Pair::new();
    pair.listen(8);
    let listen = Listen {
        service: SERVICE,
        address: ListenAddress::Any,
        backlog: 1,
    };
    assert_eq!(pair.bob.cm.listen(listen), Err(CmError::InUse));
    let particular = Listen {
        address: ListenAddress::One(ip(BOB)),
        ..listen
    };
    let particular = pair.bob.cm.listen(particular).unwrap();
    pair.connect();
    pair.carry();
    let CmEvent::Request { listener, .. } = pair.bob.event() else {
        panic!("a request")
    };
    assert_eq!(listener, particular);
    let other = ServiceId::ip(PortSpace::Tcp, 8);
    let listeners_max = CmConfig {
        listeners_max: 1,
        ..CmConfig::default()
    };
    let mut host = Host::new(BOB, listeners_max, 4);
    host.cm.listen(listen).unwrap();
    assert_eq!(
        host.cm.listen(Listen {
            service: other,
            ..listen
        }),
        Err(CmError::Exhausted("listeners"))
    );
}

#[test]
fn the_queue_of_datagrams_to_send_is_limited() {
    let mut pair = Pair::new();
    pair.connect();
    let request = pair.alice.sent[0];
    let arrival = rnic::Arrival {
        source: ALICE,
        destination: BOB,
        traffic_class: 0,
        hop_limit: 64,
        service_level: 0,
    };
    for _ in 0..5_000 {
        pair.bob
            .cm
            .handle_datagram(&arrival, &request.mad, pair.now);
    }
    pair.bob.drain();
    assert_eq!(pair.bob.sent.len(), 4_096);
    assert_eq!(pair.bob.cm.counters().transmit_full, 5_000 - 4_096);
}

#[test]
fn ten_thousand_connections_at_once_leave_nothing_behind() {
    let mut pair = Pair::new();
    pair.listen(u32::MAX);
    let ids: Vec<CommId> = (0..10_000)
        .map(|number| connect_unchecked(&mut pair, 0x100 + number))
        .collect();
    pair.alice.drain();
    pair.carry();
    assert!(
        pair.bob
            .events
            .iter()
            .all(|event| matches!(event, CmEvent::Established { .. }))
    );
    assert_eq!(
        (pair.alice.cm.connections(), pair.bob.cm.connections()),
        (10_000, 10_000)
    );
    release_unchecked(&mut pair, &ids);
    while pair.wait() {}
    pair.assert_empty();
}

/// Establishes a connection up to Alice's RTU. [`Pair::connection`] examines all connections after each
/// input, which takes too long for thousands of them.
fn connect_unchecked(pair: &mut Pair, qpn: u32) -> CommId {
    let asked = connect(ALICE, BOB, SERVICE, qpn);
    let alice = pair.alice.cm.connect(&asked, pair.now).unwrap();
    pair.alice.drain_datagrams();
    while let Some(datagram) = pair.alice.sent.pop_front() {
        pair.bob.handle(&datagram, pair.now);
    }
    let bob = std::iter::from_fn(|| pair.bob.cm.poll_event())
        .filter(|event| matches!(event, CmEvent::Request { .. }))
        .map(|event| event.id())
        .collect::<Vec<_>>()[0];
    pair.bob.cm.accept(bob, &accept(qpn), pair.now).unwrap();
    let rep = pair.bob.cm.poll_transmit().unwrap();
    pair.alice.handle(&rep, pair.now);
    assert!(matches!(
        pair.alice.cm.poll_event(),
        Some(CmEvent::Reply { .. })
    ));
    pair.alice.cm.ready(alice, [0; 224], pair.now).unwrap();
    alice
}

/// Releases Alice's connections, then Bob's ends of them, and carries the messages of both.
fn release_unchecked(pair: &mut Pair, ids: &[CommId]) {
    for id in ids {
        pair.alice.cm.release(*id, pair.now).unwrap();
        pair.alice.drain_datagrams();
    }
    pair.bob.events.clear();
    pair.alice.drain();
    while let Some(datagram) = pair.alice.sent.pop_front() {
        pair.bob.handle(&datagram, pair.now);
        let event = pair.bob.cm.poll_event().unwrap();
        pair.bob.cm.release(event.id(), pair.now).unwrap();
        pair.bob.drain_datagrams();
    }
    while let Some(datagram) = pair.bob.sent.pop_front() {
        pair.alice.handle(&datagram, pair.now);
    }
}
