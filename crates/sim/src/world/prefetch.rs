//! Prefetching: the next events need packets, ports and queue pairs that are spread over more memory than the
//! cache holds. Reading all of them before the first of these events is handled lets the processor wait for
//! memory once, not once for each.

use super::host::Host;
use super::link_state::{LinkState, kind};
use super::placed_switch::PlacedSwitch;
use fabric::config::CLASSES;
use fabric::{PacketId, Packets, Switch};
use rnic::simulation::Simulated as _;

/// Networks with fewer ports are in the cache. With the 768 of 128 hosts, reading ahead takes an eighth of
/// all instructions, and gains less than that.
const CACHED_PORTS: usize = 1024;

/// Packets of a queue that are read in advance: so many long ones leave within a microsecond.
const QUEUED_MAX: usize = 3;

/// Reads the data that the next events of a part need, where the network is larger than the cache.
#[inline]
pub(super) fn prefetch(links: &LinkState, hosts: &[Host], switches: &[PlacedSwitch], packets: &Packets) {
    if links.lanes.len() >= CACHED_PORTS {
        read_ahead(links, hosts, switches, packets);
    }
}

fn read_ahead(links: &LinkState, hosts: &[Host], switches: &[PlacedSwitch], packets: &Packets) {
    let LinkState { lanes, events, contents, .. } = links;
    let mut sum = 0;
    for (key, packet) in events.ahead() {
        let line = &lanes[(key >> 2) as usize];
        sum ^= match (key & 3, packet) {
            (kind::ARRIVAL, Some(id)) if line.to_host => {
                let content = &contents[id.0 as usize];
                hosts[line.node as usize].device.prefetch(content.headers.dest);
                content.flow ^ u32::from(packets[id].length)
            }
            (kind::ARRIVAL, Some(id)) => {
                arrival(&switches[line.node as usize].switch, line.port, id, packets)
            }
            (kind::WAKE, _) if !line.from_host => {
                wake(&switches[line.from_node as usize].switch, line.from_port, packets)
            }
            (kind::WAKE | kind::CLOCK, _) => {
                hosts[line.from_node as usize].device.prefetch_next();
                0
            }
            _ => 0,
        };
    }
    // The sum keeps the compiler from leaving the reads out.
    std::hint::black_box(sum);
}

/// Reads the data that a switch needs when a packet arrives: the receiving half of the port, and the sending
/// half of the one by which the packet leaves.
#[inline]
fn arrival(switch: &Switch, port: u16, id: PacketId, packets: &Packets) -> u32 {
    let packet = &packets[id];
    let egress = switch.egress(switch.expected_port(packet).unwrap_or(port));
    let queued = egress.queued_bytes() ^ egress.queue_bytes(usize::from(packet.class()) % CLASSES);
    u32::from(packet.length) ^ switch.counters(port).packets as u32 ^ queued
}

/// Reads the data that a switch needs when a port is free: the packets that leave first.
#[inline]
fn wake(switch: &Switch, port: u16, packets: &Packets) -> u32 {
    let egress = switch.egress(port);
    let occupied = (0..CLASSES).filter(|class| egress.occupied() >> class & 1 == 1);
    let first = occupied.flat_map(|class| egress.waiting(class, packets).take(QUEUED_MAX));
    first.fold(0, |sum, packet| sum ^ u32::from(packet.length))
}
