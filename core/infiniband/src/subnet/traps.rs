//! Traps: notices that nodes send to their manager, and repeat until it represses them (IBTA 13.4.9).

use super::queue::Event;
use super::{End, Packet, Subnet};
use crate::mad::Notice;
use alloc::boxed::Box;
use fabric::Span;

/// The unit of times that are powers of two.
const UNIT: Span = Span(4_096_000);

/// The shortest time between two traps, 4 ms, whatever a manager sets: a dead one must not keep the subnet
/// busy.
const TIMEOUT_MIN: u8 = 10;

/// A trap that has not been repressed.
#[derive(Clone, Debug)]
pub(super) struct PendingTrap {
    notice: Notice,
    port: u8,
}

impl Subnet {
    /// A port came up or went down: a switch notes it and sends trap 128.
    pub(super) fn note_port_change(&mut self, at: End) {
        let node = &mut self.nodes[at.node];
        let Some(tables) = node.switch_tables_mut() else {
            return;
        };
        tables.has_port_change = true;
        let lid = node.ports[0].lid;
        self.trap(at.node, 0, Notice::link_state_change(lid));
    }

    /// A port has other capabilities than before: trap 144.
    pub(super) fn capabilities_changed(&mut self, at: End) {
        let node = &self.nodes[at.node];
        let port = &node.ports[usize::from(at.port)];
        let notice = Notice::capabilities_changed(node.type_code(), port.lid, port.capabilities.0);
        self.trap(at.node, at.port, notice);
    }

    /// A packet had a wrong key: trap 256.
    pub(super) fn key_violated(&mut self, at: End, packet: &Packet) {
        let node = &self.nodes[at.node];
        let port = node.addressed_port(at.port);
        let lid = node.ports[usize::from(port)].lid;
        let notice = Notice::bad_m_key(node.type_code(), lid, &packet.mad, packet.source_lid);
        self.trap(at.node, port, notice);
    }

    /// Sends a trap, if the node has a manager. A trap that waits already is not sent twice.
    fn trap(&mut self, node: usize, port: u8, notice: Notice) {
        let own = &self.nodes[node].ports[usize::from(port)];
        let waits = self
            .traps
            .range((node, 0)..=(node, u64::MAX))
            .any(|(_, pending)| pending.notice == notice);
        if own.sm_lid == 0 || own.lid == 0 || waits {
            return;
        }
        let trap = self.next_trap;
        self.next_trap += 1;
        self.traps
            .insert((node, trap), PendingTrap { notice, port });
        self.send_trap(node, trap);
    }

    /// Sends a trap that waits, and again when the manager has not repressed it in time.
    pub(super) fn send_trap(&mut self, node: usize, trap: u64) {
        let Some(PendingTrap { notice, port }) = self.traps.get(&(node, trap)).cloned() else {
            return;
        };
        let own = &self.nodes[node].ports[usize::from(port)];
        let packet = Packet {
            service_level: own.sm_sl,
            ..Packet::between(own.lid, own.sm_lid, notice.mad(own.m_key.key, trap))
        };
        let again = UNIT.times(1 << own.subnet_timeout.max(TIMEOUT_MIN));
        self.queue
            .add(self.now + again, Event::RepeatTrap { node, trap });
        // A host whose own program is the manager gets the trap by the way of all packets to its own LID.
        self.send_from(End { node, port }, Box::new(packet), true);
    }

    /// The manager has heard.
    pub(super) fn repress(&mut self, node: usize, trap: u64) {
        self.traps.remove(&(node, trap));
    }
}
