//! Traps, and the key of the manager.

use crate::net::{ALICE, Net};
use fabric::Span;
use infiniband::mad::{Mad, class, method};
use infiniband::subnet::Output;

fn traps(outputs: Vec<Output>) -> Vec<(u16, Mad)> {
    let received = outputs.into_iter().filter_map(|output| match output {
        Output::Received { at, packet } if at == ALICE && packet.mad.method() == method::TRAP => {
            Some((packet.mad.u16(64 + 4), packet.mad))
        }
        _ => None,
    });
    received.collect()
}

#[test]
fn a_switch_repeats_its_trap_until_the_manager_represses_it() {
    let mut net = Net::new();
    net.configure();
    net.subnet.set_cable(net.now, 1, false);
    let first = traps(net.run(Span::from_us(1_000)));
    assert_eq!(
        first.iter().map(|(number, _)| *number).collect::<Vec<_>>(),
        [128]
    );
    assert_eq!(first[0].1.u16(64 + 6), 3, "the switch's LID");
    assert_eq!(net.get(&[1], 0x12, 0).unwrap().data()[11] & 4, 4);
    let again = traps(net.run(Span::from_us(2_200_000)));
    assert_eq!(again.len(), 2);
    let mut repress = first[0].1.clone();
    repress.set_method(method::TRAP_REPRESS);
    let mut packet = net.packet(repress.clone(), 3);
    packet.mad.set_transaction(repress.transaction());
    net.subnet.send(net.now, ALICE, packet);
    assert_eq!(traps(net.run(Span::from_us(5_000_000))), []);
    net.change(&[1], 0x12, 0, |data| data[11] |= 4);
    assert_eq!(net.get(&[1], 0x12, 0).unwrap().data()[11] & 4, 0);
}

#[test]
fn the_managers_key_protects_by_its_level() {
    let mut net = Net::new();
    net.configure();
    net.change(&[1, 3], 0x15, 1, |data| {
        data[..8].copy_from_slice(&7_u64.to_be_bytes());
        data[26..28].copy_from_slice(&2_u16.to_be_bytes());
        data[34] |= 1 << 6;
        (data[32], data[33]) = (data[32] & 0xf0, 2);
    });
    let shown = net.get(&[1, 3], 0x15, 1).unwrap();
    assert_eq!(shown.u64(64), 0, "the first level hides the key");
    assert_eq!(
        net.set_state(&[1, 3], 1, 1),
        u16::MAX,
        "a Set without the key has no answer"
    );
    let trapped = traps(net.run(Span::from_us(1_000)));
    assert!(trapped.is_empty() || trapped[0].0 == 256);
    let mut request = Mad::new(class::SUBNET_LID, 1, method::GET, 0x15, 1);
    request.put_u64(24, 7);
    let packet = net.packet(request, 2);
    assert_eq!(net.ask(packet).unwrap().u64(64), 7, "the key opens all");
}

#[test]
fn a_violation_is_counted_trapped_and_ends_the_protection_after_the_lease() {
    let mut net = Net::new();
    net.configure();
    net.change(&[1, 3], 0x15, 1, |data| {
        data[..8].copy_from_slice(&7_u64.to_be_bytes());
        data[26..28].copy_from_slice(&2_u16.to_be_bytes());
        data[34] |= 2 << 6;
        (data[32], data[33]) = (data[32] & 0xf0, 2);
    });
    let packet = net.packet(Mad::new(class::SUBNET_LID, 1, method::GET, 0x15, 1), 2);
    net.subnet.send(net.now, ALICE, packet);
    let heard = traps(net.run(Span::from_us(1_000)));
    assert_eq!(
        heard.iter().map(|(number, _)| *number).collect::<Vec<_>>(),
        [256]
    );
    assert_eq!(heard[0].1.u16(64 + 12), 1, "the LID of the sender");
    net.run(Span::from_us(2_100_000));
    let reply = net.get(&[1, 3], 0x15, 1).unwrap();
    assert_eq!(reply.u16(64 + 44), 1);
}
