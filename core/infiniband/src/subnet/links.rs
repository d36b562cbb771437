//! Links: when they go down and come up, and how packets cross them.

use super::queue::Event;
use super::route::DIRECTED_HOP;
use super::{End, Output, Packet, Subnet};
use crate::node::{PhysicalState, PortState};
use crate::sma::PortEvent;
use crate::{LinkSpeed, Speed, Width};
use alloc::boxed::Box;
use fabric::{Span, Time};

/// Time from a link's first signal until it is up.
const TRAINING: Span = Span(50_000_000_000);
/// Packets of subnet management that wait to be sent by a port, at most. Virtual lane 15 has no credits: what
/// finds the buffer full is lost.
const VL15_PACKETS: u64 = 32;

/// What a port without a link reports.
const IDLE: LinkSpeed = LinkSpeed {
    width: Width::X4,
    speed: Speed::Sdr,
};

impl Subnet {
    /// Plugs a cable in, or pulls it out.
    pub fn set_cable(&mut self, now: Time, link: usize, is_plugged: bool) {
        self.now = self.now.max(now);
        let Some(cable) = self.links.get_mut(link) else {
            return;
        };
        if cable.is_plugged == is_plugged {
            return;
        }
        cable.is_plugged = is_plugged;
        if is_plugged {
            self.train(link);
        } else {
            self.take_down(link, None);
        }
    }

    /// The link at a port goes down, and is trained again unless the port is disabled.
    pub(super) fn reset_link(&mut self, end: End, disable: bool) {
        let Some((link, _)) = self.cables.get(&end).copied() else {
            if disable {
                self.nodes[end.node].ports[usize::from(end.port)].physical =
                    PhysicalState::Disabled;
            }
            return;
        };
        self.take_down(link, Some(end));
        if disable {
            self.nodes[end.node].ports[usize::from(end.port)].physical = PhysicalState::Disabled;
        }
        self.train(link);
    }

    /// A port that was disabled may have a link again.
    pub(super) fn enable_link(&mut self, end: End) {
        self.nodes[end.node].ports[usize::from(end.port)].physical = PhysicalState::Polling;
        if let Some((link, _)) = self.cables.get(&end).copied() {
            self.train(link);
        }
    }

    fn train(&mut self, link: usize) {
        let generation = self.links[link].generation;
        self.queue
            .add(self.now + TRAINING, Event::Trained { link, generation });
    }

    /// Both ends are in Initialize now, if both can be.
    pub(super) fn bring_up(&mut self, link: usize) {
        let [one, other] = self.links[link].ends;
        let port = |end: End| self.nodes[end.node].ports.get(usize::from(end.port));
        let (Some(first), Some(second)) = (port(one), port(other)) else {
            return;
        };
        let can = |port: &crate::node::Port| {
            port.physical == PhysicalState::Polling && port.state == PortState::Down
        };
        if !self.links[link].is_plugged || !can(first) || !can(second) {
            return;
        }
        let active = first.negotiate(second);
        for end in [one, other] {
            let port = &mut self.nodes[end.node].ports[usize::from(end.port)];
            port.active = active;
            port.physical = PhysicalState::LinkUp;
            port.state = PortState::Initialize;
            self.changed.insert(end.node);
            self.note_port_change(end);
        }
    }

    /// Takes a link down at both ends. The port `by` gets no trap, because a manager asked it to do this.
    fn take_down(&mut self, link: usize, by: Option<End>) {
        self.links[link].generation += 1;
        self.links[link].busy = [Time(0); 2];
        for end in self.links[link].ends {
            let port = &mut self.nodes[end.node].ports[usize::from(end.port)];
            let before = port.state;
            if before == PortState::Down {
                continue;
            }
            port.state = PortState::Down;
            port.physical = PhysicalState::Polling;
            port.active = IDLE;
            port.counters.link_downed += 1;
            self.changed.insert(end.node);
            if before == PortState::Active && !self.nodes[end.node].is_switch() {
                self.event(end, PortEvent::Error);
            }
            if by != Some(end) {
                self.note_port_change(end);
            }
        }
    }

    pub(super) fn event(&mut self, at: End, event: PortEvent) {
        self.outputs.push(Output::Event { at, event });
    }

    /// Sends a packet by a port: it occupies the link for its length, and arrives after the delay.
    pub(super) fn transmit(&mut self, from: End, packet: Box<Packet>) {
        let Some((link, side)) = self.cables.get(&from).copied() else {
            return self.discard(from);
        };
        let port = &self.nodes[from.node].ports[usize::from(from.port)];
        let passes = match port.state {
            PortState::Down => false,
            PortState::Active => true,
            PortState::Initialize | PortState::Armed => packet.is_smp(),
        };
        if !passes {
            return self.discard(from);
        }
        let takes = port.active.rate().time_of(packet.link_bytes());
        let begins = self.links[link].busy[side].max(self.now);
        // A packet before this one may have crossed the switch by a directed route, which takes longer.
        let waits = begins.0 - self.now.0;
        if packet.is_smp() && waits > takes.0 * VL15_PACKETS + DIRECTED_HOP.0 {
            self.nodes[from.node].ports[usize::from(from.port)]
                .counters
                .vl15_dropped += 1;
            return;
        }
        let is_multicast = packet.destination_lid >= crate::lid::FIRST_MULTICAST
            && packet.destination_lid != crate::smi::PERMISSIVE;
        let counters = &mut self.nodes[from.node].ports[usize::from(from.port)].counters;
        counters.transmit_packets += 1;
        counters.transmit_words += u64::from(packet.counted_bytes() / 4);
        counters.multicast_transmit_packets += u64::from(is_multicast);
        self.captures.add(link, side, begins + takes, &packet);
        let link = &mut self.links[link];
        link.busy[side] = begins + takes;
        let End { node, port } = link.ends[1 - side];
        let at = link.busy[side] + link.delay;
        self.queue.add(at, Event::Arrive { node, port, packet });
    }

    /// Counts a packet that a port could not send.
    pub(super) fn discard(&mut self, at: End) {
        if let Some(port) = self.nodes[at.node].ports.get_mut(usize::from(at.port)) {
            port.counters.transmit_discards += 1;
        }
    }
}
