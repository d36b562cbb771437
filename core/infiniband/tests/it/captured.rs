//! Packets of captured links.

use crate::net::Net;
use fabric::Span;

#[test]
fn a_captured_link_keeps_what_crosses_it_in_order() {
    let mut net = Net::new();
    net.get(&[1], 0x11, 0).unwrap();
    assert_eq!(net.subnet.take_crossed(net.now), [], "nothing is captured");
    net.subnet.set_capture(0, true);
    let begun = net.now;
    net.get(&[1, 3], 0x10, 0).unwrap();
    assert_eq!(net.subnet.take_crossed(begun), [], "no packet has left yet");
    let crossed = net.subnet.take_crossed(net.now);
    // Alice's request, and the answer from the other end.
    let sides: Vec<u8> = crossed.iter().map(|packet| packet.side).collect();
    assert_eq!(sides, [0, 1]);
    assert!(crossed[0].at < crossed[1].at && begun < crossed[0].at);
    assert!(crossed.iter().all(|packet| packet.link == 0));
    let [request, answer] = [0, 1].map(|at| &crossed[at].packet.mad);
    assert_eq!(request.transaction(), answer.transaction());
    assert!(!request.is_response() && answer.is_response());
    net.subnet.set_capture(0, false);
    net.get(&[1], 0x11, 0).unwrap();
    net.run(Span::from_us(1));
    assert_eq!(net.subnet.take_crossed(net.now), []);
}
