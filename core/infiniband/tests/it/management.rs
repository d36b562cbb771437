//! Requests of a manager and their answers.

use crate::net::{ALICE, BOB, Net, SWITCH};
use fabric::Span;
use infiniband::mad::{Mad, class, method, status};
use infiniband::node::{PhysicalState, PortState};
use infiniband::sma::PortEvent;
use infiniband::subnet::Output;

#[test]
fn nodes_are_found_along_directed_routes() {
    let mut net = Net::new();
    let own = net.get(&[], 0x11, 0).unwrap();
    assert_eq!(
        (own.data()[2], own.data()[3], own.u64(64 + 12)),
        (1, 1, 0x10)
    );
    let switch = net.get(&[1], 0x11, 0).unwrap();
    assert_eq!(
        (switch.data()[2], switch.data()[3], switch.data()[36]),
        (2, 4, 1)
    );
    let bob = net.get(&[1, 3], 0x10, 0).unwrap();
    assert!(bob.data().starts_with(b"bob\0"));
    assert_eq!(net.get(&[1, 2], 0x11, 0), None, "no cable is at port 2");
    assert_eq!(net.get(&[2], 0x11, 0), None, "an adapter has one port");
    assert_eq!(net.get(&[1, 9], 0x11, 0), None, "the switch has no port 9");
    assert_eq!(
        net.get(&[1, 3, 1], 0x11, 0),
        None,
        "adapters do not forward"
    );
}

#[test]
fn links_advance_by_one_step() {
    let mut net = Net::new();
    net.assign(&[], 1, 1);
    let state = |net: &Net| net.subnet.node(ALICE.node).ports[1].state;
    assert_eq!(state(&net), PortState::Initialize);
    assert_eq!(net.set_state(&[], 1, 4), status::BAD_VALUE);
    assert_eq!(state(&net), PortState::Initialize);
    assert_eq!(net.set_state(&[], 1, 3), 0);
    assert_eq!(net.set_state(&[], 1, 4), 0);
    assert_eq!(state(&net), PortState::Active);
    assert_eq!(net.set_state(&[], 1, 2), status::BAD_VALUE);
    assert_eq!(net.set_state(&[], 1, 1), 0);
    assert_eq!(state(&net), PortState::Down);
    net.run(Span::from_us(100_000));
    assert_eq!(state(&net), PortState::Initialize);
}

#[test]
fn fields_take_effect_one_by_one() {
    let mut net = Net::new();
    let reply = net.change(&[1, 3], 0x15, 1, |data| {
        data[16..18].copy_from_slice(&0xc000_u16.to_be_bytes());
        data[18..20].copy_from_slice(&1_u16.to_be_bytes());
        data[29] = 8;
        (data[32], data[33]) = (data[32] & 0xf0, 2);
    });
    let reply = reply.unwrap();
    assert_eq!(reply.status(), status::BAD_VALUE);
    let bob = &net.subnet.node(BOB.node).ports[1];
    assert_eq!((bob.lid, bob.sm_lid, bob.enabled.width), (0, 1, 3));
    assert_eq!(
        (reply.u16(64 + 16), reply.u16(64 + 18), reply.data()[29]),
        (0, 1, 3)
    );
}

#[test]
fn a_configured_subnet_routes_by_lids() {
    let mut net = Net::new();
    net.configure();
    for (lid, name) in [(1, "alice"), (2, "bob"), (3, "s0")] {
        let packet = net.packet(Mad::new(class::SUBNET_LID, 1, method::GET, 0x10, 0), lid);
        let reply = net.ask(packet).unwrap();
        assert!(reply.data().starts_with(name.as_bytes()), "{lid}");
    }
    let mut request = Mad::new(class::PERFORMANCE, 1, method::GET, 0x12, 0);
    request.bytes_mut()[65] = 3;
    let packet = net.packet(request, 3);
    let reply = net.ask(packet).unwrap();
    assert_eq!(reply.status(), 0);
    assert!(reply.u32(64 + 32) > 0, "packets were sent to Bob");
    let packet = net.packet(Mad::new(class::SUBNET_LID, 1, method::GET, 0x10, 0), 9);
    assert_eq!(net.ask(packet), None);
    assert_eq!(
        net.subnet.node(SWITCH).ports[1]
            .counters
            .switch_relay_errors,
        1
    );
}

#[test]
fn data_needs_active_links_and_a_partition() {
    let mut net = Net::new();
    net.configure();
    let ask = |net: &mut Net, p_key: u16, q_key: u32| {
        let mut request = Mad::new(class::PERFORMANCE, 1, method::GET, 0x12, 0);
        request.bytes_mut()[65] = 1;
        let mut packet = net.packet(request, 2);
        (packet.p_key, packet.q_key) = (p_key, q_key);
        net.ask(packet).is_some()
    };
    assert!(ask(&mut net, 0xffff, 0x8001_0000));
    assert!(!ask(&mut net, 0x8001, 0x8001_0000));
    assert!(!ask(&mut net, 0xffff, 7));
    let bob = &net.subnet.node(BOB.node).ports[1];
    assert_eq!(bob.violations, [0, 1, 1]);
    net.set_state(&[1], 3, 1);
    assert!(!ask(&mut net, 0xffff, 0x8001_0000));
}

#[test]
fn programs_hear_of_lids_managers_and_links() {
    let mut net = Net::new();
    net.assign(&[1], 3, 1);
    net.now += Span::from_us(1);
    let reply = net.change(&[1, 3], 0x15, 1, |data| {
        data[17] = 2;
        data[19] = 1;
        data[51] |= 0x80;
        (data[32], data[33]) = (data[32] & 0xf0, 2);
    });
    assert_eq!(reply.unwrap().data()[51] & 0x80, 0x80, "the bit comes back");
    // The helper drops outputs of other hosts, so the last step is looked at by itself.
    net.set_state(&[1], 3, 3);
    net.set_state(&[1, 3], 1, 3);
    net.subnet.set_cable(net.now, 1, false);
    let events: Vec<PortEvent> = net
        .run(Span::from_us(10))
        .into_iter()
        .filter_map(event_of_bob)
        .collect();
    assert_eq!(events, [], "the link was not active");
    let bob = &net.subnet.node(BOB.node).ports[1];
    assert_eq!(
        (bob.state, bob.physical),
        (PortState::Down, PhysicalState::Polling)
    );
    assert_eq!(bob.lid, 2, "an adapter keeps its LID");
}

fn event_of_bob(output: Output) -> Option<PortEvent> {
    match output {
        Output::Event { at, event } if at == BOB => Some(event),
        _ => None,
    }
}

#[test]
fn a_disabled_port_has_no_link_until_it_polls() {
    let mut net = Net::new();
    net.configure();
    let reply = net.change(&[1], 0x15, 3, |data| {
        (data[32], data[33]) = (data[32] & 0xf0 | 1, 0x32)
    });
    assert_eq!(reply.unwrap().status(), 0);
    net.run(Span::from_us(200_000));
    assert_eq!(net.subnet.node(BOB.node).ports[1].state, PortState::Down);
    net.change(&[1], 0x15, 3, |data| {
        (data[32], data[33]) = (data[32] & 0xf0, 0x22)
    });
    net.run(Span::from_us(200_000));
    assert_eq!(
        net.subnet.node(BOB.node).ports[1].state,
        PortState::Initialize
    );
}

#[test]
fn what_is_not_there_has_a_status() {
    let mut net = Net::new();
    let mut status_of =
        |attribute: u16, modifier: u32| net.get(&[1], attribute, modifier).unwrap().status();
    assert_eq!(status_of(0x77, 0), status::BAD_ATTRIBUTE);
    assert_eq!(status_of(0xff90, 1), status::BAD_ATTRIBUTE);
    assert_eq!(status_of(0x15, 5), status::BAD_VALUE);
    assert_eq!(status_of(0x16, 1), status::BAD_VALUE);
    assert_eq!(status_of(0x16, 5 << 16), status::BAD_VALUE);
    assert_eq!(status_of(0x17, 0x0901), status::BAD_VALUE);
    assert_eq!(status_of(0x18, 1), status::BAD_VALUE);
    assert_eq!(status_of(0x18, 5 << 16 | 1), status::BAD_VALUE);
    assert_eq!(status_of(0x19, 768), status::BAD_VALUE);
    assert_eq!(status_of(0x1b, 32), status::BAD_VALUE);
    assert_eq!(
        net.get(&[], 0x19, 0).unwrap().status(),
        status::BAD_ATTRIBUTE
    );
    assert_eq!(
        net.directed(&[1], method::SET, 0x10, 0, &[])
            .unwrap()
            .status(),
        status::BAD_ATTRIBUTE
    );
    assert_eq!(
        net.directed(&[1], 0x12, 0x11, 0, &[]).unwrap().status(),
        status::BAD_METHOD
    );
}
