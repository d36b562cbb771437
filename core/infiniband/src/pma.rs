//! The performance management agent of a node (IBTA 16.1): counters of its ports.

use crate::mad::{BASE_VERSION, Mad, method, put, status};
use crate::node::{Counters, Node};
use crate::sma::Outcome;

mod attribute {
    pub(super) const CLASS_PORT_INFO: u16 = 0x01;
    pub(super) const PORT_COUNTERS: u16 = 0x12;
    pub(super) const PORT_COUNTERS_EXTENDED: u16 = 0x1d;
}

/// Where the data of a datagram begins.
const DATA_AT: usize = crate::mad::DATA_AT;
const CLASS_VERSION: u8 = 1;
/// The number that stands for all ports together.
const ALL_PORTS: u8 = 0xff;
/// Capabilities: the number for all ports, counters of 64 bits, and the counter of waiting.
const CAPABILITIES: u16 = 1 << 8 | 1 << 9 | 1 << 12;
/// Response time, as a power of two of 4.096 us.
const RESPONSE_TIME: u32 = 16;
/// Bit of the counter of waiting in the second selection.
const WAIT_SELECTED: u8 = 1;

/// Processes a request for performance management.
pub fn process(node: &mut Node, request: &Mad) -> Outcome {
    let sets = match request.method() {
        method::GET => false,
        method::SET => true,
        _ => return Outcome::Pass,
    };
    let mut reply = request.clone();
    let answered = if request.class_version() != CLASS_VERSION {
        Err(status::BAD_VERSION)
    } else {
        match (request.attribute(), sets) {
            (attribute::CLASS_PORT_INFO, false) => {
                class_port_info(&mut reply);
                Ok(())
            }
            (attribute::PORT_COUNTERS, _) => counters(node, sets, &mut reply, Layout::Narrow),
            (attribute::PORT_COUNTERS_EXTENDED, _) => {
                counters(node, sets, &mut reply, Layout::Extended)
            }
            _ => Err(status::BAD_ATTRIBUTE),
        }
    };
    reply.set_method(method::GET_RESPONSE);
    reply.set_status(answered.err().unwrap_or_default());
    Outcome::Reply(reply)
}

fn class_port_info(reply: &mut Mad) {
    let data = &mut reply.bytes_mut()[DATA_AT..];
    data.fill(0);
    data[..2].copy_from_slice(&[BASE_VERSION, CLASS_VERSION]);
    put(data, 2, CAPABILITIES);
    put(data, 4, RESPONSE_TIME);
}

/// The two attributes with counters.
#[derive(Clone, Copy)]
enum Layout {
    /// PortCounters: counters stop at their maximum.
    Narrow,
    /// PortCountersExtended: 64 bits each.
    Extended,
}

fn counters(node: &mut Node, sets: bool, reply: &mut Mad, layout: Layout) -> Result<(), u16> {
    let data = &mut reply.bytes_mut()[DATA_AT..];
    let (number, selected, selected_2) =
        (data[1], u16::from_be_bytes([data[2], data[3]]), data[18]);
    let first = usize::from(!node.is_switch());
    let ports = match number {
        ALL_PORTS => first..node.ports.len(),
        number if usize::from(number) >= first && usize::from(number) < node.ports.len() => {
            usize::from(number)..usize::from(number) + 1
        }
        _ => return Err(status::BAD_VALUE),
    };
    let ports = &mut node.ports[ports];
    if sets {
        for port in ports.iter_mut() {
            match layout {
                Layout::Narrow => clear_narrow(&mut port.counters, selected, selected_2),
                Layout::Extended => clear_extended(&mut port.counters, selected),
            }
        }
    }
    let sum = |of: &dyn Fn(&Counters) -> u64| {
        ports
            .iter()
            .fold(0_u64, |sum, port| sum.saturating_add(of(&port.counters)))
    };
    match layout {
        Layout::Narrow => write_narrow(data, sum),
        Layout::Extended => write_extended(data, sum),
    }
    Ok(())
}

/// Number, place, and width in bits of each counter of PortCounters that is counted here. The bit of the
/// selection is the number.
type Place = (u16, usize, u32, fn(&mut Counters) -> &mut u64);

const NARROW: [Place; 11] = [
    (0, 4, 16, |counters| &mut counters.symbol_errors),
    (1, 6, 8, |counters| &mut counters.link_recovered),
    (2, 7, 8, |counters| &mut counters.link_downed),
    (3, 8, 16, |counters| &mut counters.receive_errors),
    (5, 12, 16, |counters| &mut counters.switch_relay_errors),
    (6, 14, 16, |counters| &mut counters.transmit_discards),
    (7, 16, 8, |counters| &mut counters.transmit_constraint),
    (8, 17, 8, |counters| &mut counters.receive_constraint),
    (11, 22, 16, |counters| &mut counters.vl15_dropped),
    (12, 24, 32, |counters| &mut counters.transmit_words),
    (13, 28, 32, |counters| &mut counters.receive_words),
];
const NARROW_PACKETS: [Place; 2] = [
    (14, 32, 32, |counters| &mut counters.transmit_packets),
    (15, 36, 32, |counters| &mut counters.receive_packets),
];
const WAIT_AT: usize = 40;

fn clear_narrow(counters: &mut Counters, selected: u16, selected_2: u8) {
    for (bit, _, _, counter) in NARROW.iter().chain(&NARROW_PACKETS) {
        if selected >> bit & 1 != 0 {
            *counter(counters) = 0;
        }
    }
    if selected_2 & WAIT_SELECTED != 0 {
        counters.transmit_wait = 0;
    }
}

fn write_narrow(data: &mut [u8], sum: impl Fn(&dyn Fn(&Counters) -> u64) -> u64) {
    for (_, at, bits, counter) in NARROW.iter().chain(&NARROW_PACKETS) {
        let value = sum(&|counters| *counter(&mut counters.clone()));
        match bits {
            8 => put(data, *at, u8::try_from(value).unwrap_or(u8::MAX)),
            16 => put(data, *at, u16::try_from(value).unwrap_or(u16::MAX)),
            _ => put(data, *at, u32::try_from(value).unwrap_or(u32::MAX)),
        }
    }
    let wait = sum(&|counters| counters.transmit_wait);
    put(data, WAIT_AT, u32::try_from(wait).unwrap_or(u32::MAX));
}

/// Bit of the selection, and place, of each counter of PortCountersExtended.
type WidePlace = (u16, usize, fn(&mut Counters) -> &mut u64);

/// The counters of all packets.
const EXTENDED: [WidePlace; 4] = [
    (0, 8, |counters| &mut counters.transmit_words),
    (1, 16, |counters| &mut counters.receive_words),
    (2, 24, |counters| &mut counters.transmit_packets),
    (3, 32, |counters| &mut counters.receive_packets),
];
/// The counters of multicast packets.
const MULTICAST: [WidePlace; 2] = [
    (6, 56, |counters| &mut counters.multicast_transmit_packets),
    (7, 64, |counters| &mut counters.multicast_receive_packets),
];
const UNICAST_AT: [usize; 2] = [40, 48];

fn clear_extended(counters: &mut Counters, selected: u16) {
    for (bit, _, counter) in EXTENDED.iter().chain(&MULTICAST) {
        if selected >> bit & 1 != 0 {
            *counter(counters) = 0;
        }
    }
}

fn write_extended(data: &mut [u8], sum: impl Fn(&dyn Fn(&Counters) -> u64) -> u64) {
    for (_, at, counter) in EXTENDED.iter().chain(&MULTICAST) {
        put(data, *at, sum(&|counters| *counter(&mut counters.clone())));
    }
    // Unicast packets are all packets less the multicast ones.
    let sent = sum(&|one| {
        one.transmit_packets
            .saturating_sub(one.multicast_transmit_packets)
    });
    let received = sum(&|one| {
        one.receive_packets
            .saturating_sub(one.multicast_receive_packets)
    });
    put(data, UNICAST_AT[0], sent);
    put(data, UNICAST_AT[1], received);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LinkSpeed;
    use crate::mad::{class, get};
    use crate::node::Identity;
    use alloc::string::ToString;

    fn node() -> Node {
        let speed = LinkSpeed::parse("4x QDR").unwrap();
        let identity = Identity {
            guid: 1,
            port_guid: 1,
            description: "s".to_string(),
        };
        let mut node = Node::switch(identity, &[speed; 2]);
        node.ports[1].counters.transmit_words = u64::from(u32::MAX) + 5;
        node.ports[2].counters.transmit_words = 7;
        node.ports[2].counters.link_downed = 300;
        node
    }

    fn ask(node: &mut Node, method: u8, attribute: u16, port: u8, selected: u16) -> Mad {
        let mut request = Mad::new(class::PERFORMANCE, 1, method, attribute, 0);
        request.bytes_mut()[DATA_AT + 1] = port;
        request.put_u16(DATA_AT + 2, selected);
        match process(node, &request) {
            Outcome::Reply(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn narrow_counters_stop_at_their_maximum() {
        let mut node = node();
        let reply = ask(&mut node, method::GET, 0x12, 1, 0);
        assert_eq!((reply.status(), reply.u32(DATA_AT + 24)), (0, u32::MAX));
        let reply = ask(&mut node, method::GET, 0x12, 2, 0);
        assert_eq!(
            (reply.u32(DATA_AT + 24), reply.bytes()[DATA_AT + 7]),
            (7, 255)
        );
        let reply = ask(&mut node, method::GET, 0x1d, ALL_PORTS, 0);
        assert_eq!(reply.u64(DATA_AT + 8), u64::from(u32::MAX) + 12);
    }

    #[test]
    fn a_set_clears_the_counters_that_it_selects() {
        let mut node = node();
        let reply = ask(&mut node, method::SET, 0x12, 2, 1 << 2);
        assert_eq!(
            (reply.u32(DATA_AT + 24), reply.bytes()[DATA_AT + 7]),
            (7, 0)
        );
        ask(&mut node, method::SET, 0x1d, ALL_PORTS, 1);
        assert_eq!(node.ports[1].counters.transmit_words, 0);
    }

    #[test]
    fn ports_attributes_and_versions_that_are_not_there_have_a_status() {
        let mut node = node();
        assert_eq!(
            ask(&mut node, method::GET, 0x12, 3, 0).status(),
            status::BAD_VALUE
        );
        assert_eq!(
            ask(&mut node, method::GET, 0x77, 1, 0).status(),
            status::BAD_ATTRIBUTE
        );
        let request = Mad::new(class::PERFORMANCE, 9, method::GET, 0x12, 0);
        let Outcome::Reply(reply) = process(&mut node, &request) else {
            panic!("no reply")
        };
        assert_eq!(reply.status(), status::BAD_VERSION);
        let reply = ask(&mut node, method::GET, 0x01, 1, 0);
        assert_eq!(get::<u16>(reply.bytes(), DATA_AT + 2), CAPABILITIES);
    }
}
