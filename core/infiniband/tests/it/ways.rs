//! The ways of data, as the manager has written them.

use crate::net::{ALICE, BOB, Net, SWITCH};
use fabric::Span;
use infiniband::mad::method;
use infiniband::subnet::End;
use std::collections::BTreeSet;

fn forwarding(net: &Net) -> Vec<(u16, u8)> {
    net.subnet.forwarding(SWITCH).collect()
}

#[test]
fn data_passes_where_the_table_leads_to_an_active_port() {
    let mut net = Net::new();
    assert_eq!(forwarding(&net), [], "nothing is configured");
    assert!(!net.subnet.carries(ALICE));
    net.configure();
    // LID 3 is the switch's own, and leads to its agents.
    assert_eq!(forwarding(&net), [(1, 1), (2, 3)]);
    assert!(net.subnet.carries(ALICE) && net.subnet.carries(BOB));
    net.subnet.take_changed();
    net.subnet.set_cable(net.now, 1, false);
    net.run(Span::from_us(1));
    assert_eq!(forwarding(&net), [(1, 1)]);
    assert_eq!(
        net.subnet.take_changed(),
        BTreeSet::from([BOB.node, SWITCH])
    );
    assert_eq!(net.subnet.take_changed(), BTreeSet::new());
}

#[test]
fn a_group_reaches_the_hosts_behind_the_ports_of_its_entry() {
    let mut net = Net::new();
    net.configure();
    assert_eq!(net.subnet.reached_by_group(ALICE, 0xc001), []);
    let mut table = [0; 64];
    // The second entry: ports 1 and 3.
    table[2..4].copy_from_slice(&0b1010_u16.to_be_bytes());
    net.directed(&[1], method::SET, 0x1b, 0, &table).unwrap();
    assert_eq!(net.subnet.reached_by_group(ALICE, 0xc001), [BOB.node]);
    assert_eq!(net.subnet.reached_by_group(BOB, 0xc001), [ALICE.node]);
    assert_eq!(net.subnet.reached_by_group(ALICE, 0xc000), []);
    let nowhere = End {
        node: SWITCH,
        port: 2,
    };
    assert_eq!(net.subnet.reached_by_group(nowhere, 0xc001), []);
}
