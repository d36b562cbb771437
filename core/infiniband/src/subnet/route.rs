//! The way of a packet: from its sender, through switches, to the agents of a node.

use super::packet::GSI_KEY;
use super::queue::Event;
use super::{End, Output, Packet, Subnet};
use crate::lid::FIRST_MULTICAST;
use crate::mad::{class, method, status};
use crate::node::PortState;
use crate::sma::{self, Effect, Outcome, PortEvent, Request};
use crate::smi::{self, Step};
use crate::{mad::DirectedRoute, pma};
use alloc::boxed::Box;
use alloc::vec::Vec;
use fabric::Span;

/// Time for which a node's agents work on a packet. Firmware does it, so it takes microseconds.
const AGENT: Span = Span(4_000_000);
/// Time for which a switch has a packet with a directed route.
pub(super) const DIRECTED_HOP: Span = Span(1_000_000);
/// Time for which a switch has a packet that is routed by its tables.
const ROUTED_HOP: Span = Span(200_000);
/// Packets that wait for the agents of a node, at most.
const AGENT_PACKETS: u64 = 64;

impl Subnet {
    /// Sends a packet of a node itself: of a program on a host, or an answer of its agents.
    pub(super) fn send_from(&mut self, from: End, mut packet: Box<Packet>, is_answer: bool) {
        if packet.mad.class() == class::SUBNET_DIRECTED {
            return match smi::begin(&mut packet.mad) {
                Step::Send(port) => self.send_directed(from, port, packet),
                Step::Arrived => self.hand_to_agents(from, !is_answer, packet),
                Step::Routed(lid) => self.route_from_node(from, lid, packet),
                Step::Discard => self.discard(from),
            };
        }
        let lid = packet.destination_lid;
        self.route_from_node(from, lid, packet);
    }

    /// Sends a packet with a directed route by a port: an adapter has only the one that it is sent from.
    fn send_directed(&mut self, from: End, port: u8, packet: Box<Packet>) {
        let node = &self.nodes[from.node];
        let exists = port > 0 && usize::from(port) < node.ports.len();
        if !exists || (!node.is_switch() && port != from.port) {
            return self.discard(from);
        }
        self.transmit(End { port, ..from }, packet);
    }

    /// Sends a packet by LID: what is for the node itself stays there.
    fn route_from_node(&mut self, from: End, lid: u16, mut packet: Box<Packet>) {
        packet.destination_lid = lid;
        let node = &self.nodes[from.node];
        if node.is_switch() {
            return self.forward(End { port: 0, ..from }, packet);
        }
        let own = &node.ports[usize::from(from.port)];
        if own.has_lid(lid) {
            let End { node, port } = from;
            let at = self.now + ROUTED_HOP;
            return self.queue.add(at, Event::Arrive { node, port, packet });
        }
        self.transmit(from, packet);
    }

    /// A packet arrives at a port.
    pub(super) fn arrive(&mut self, at: End, mut packet: Box<Packet>) {
        self.count_arrival(at, &packet);
        let node = &self.nodes[at.node];
        let is_switch = node.is_switch();
        if !packet.is_smp() && node.ports[usize::from(at.port)].state < PortState::Armed {
            return;
        }
        let is_addressed = self.is_addressed(at, packet.destination_lid);
        if is_addressed && packet.mad.class() == class::SUBNET_DIRECTED {
            return match smi::arrive(&mut packet.mad, at.port, is_switch) {
                Step::Send(port) => {
                    let node = &self.nodes[at.node];
                    if port == 0 || usize::from(port) >= node.ports.len() {
                        return self.discard(at);
                    }
                    self.delay(End { port, ..at }, DIRECTED_HOP, packet);
                }
                Step::Arrived => self.hand_to_agents(at, false, packet),
                Step::Routed(lid) => {
                    packet.destination_lid = lid;
                    packet.source_lid = self.nodes[at.node].ports[0].lid;
                    self.forward(at, packet);
                }
                Step::Discard => {}
            };
        }
        if is_addressed {
            self.hand_to_agents(at, false, packet);
        } else if is_switch {
            self.forward(at, packet);
        }
        // What an adapter gets for another LID ends here.
    }

    /// Whether a LID leads to the agents of the node at which a packet arrived.
    fn is_addressed(&self, at: End, lid: u16) -> bool {
        let node = &self.nodes[at.node];
        let port = &node.ports[usize::from(node.addressed_port(at.port))];
        lid == smi::PERMISSIVE || port.has_lid(lid) || (lid >= FIRST_MULTICAST && !node.is_switch())
    }

    fn count_arrival(&mut self, at: End, packet: &Packet) {
        let counters = &mut self.nodes[at.node].ports[usize::from(at.port)].counters;
        let lid = packet.destination_lid;
        counters.receive_packets += 1;
        counters.receive_words += u64::from(packet.counted_bytes() / 4);
        counters.multicast_receive_packets +=
            u64::from(lid >= FIRST_MULTICAST && lid != smi::PERMISSIVE);
    }

    /// A switch forwards a packet by its tables.
    fn forward(&mut self, at: End, packet: Box<Packet>) {
        let node = &self.nodes[at.node];
        let Some(tables) = node.switch_tables() else {
            return;
        };
        let lid = packet.destination_lid;
        if node.ports[0].has_lid(lid) {
            return self.hand_to_agents(End { port: 0, ..at }, false, packet);
        }
        if lid >= FIRST_MULTICAST {
            let ports: Vec<u8> = (0..=node.port_count())
                .filter(|port| *port != at.port && tables.is_multicast_port(lid, *port))
                .collect();
            for port in ports {
                self.leave(End { port, ..at }, packet.clone());
            }
            return;
        }
        match tables.port_of(lid) {
            Some(port) if port != at.port && usize::from(port) < node.ports.len() => {
                self.leave(End { port, ..at }, packet);
            }
            _ => {
                self.nodes[at.node].ports[usize::from(at.port)]
                    .counters
                    .switch_relay_errors += 1
            }
        }
    }

    /// A packet leaves a switch by a port: the agents are behind port 0.
    fn leave(&mut self, by: End, packet: Box<Packet>) {
        if by.port == 0 {
            self.hand_to_agents(by, false, packet);
        } else {
            self.delay(by, ROUTED_HOP, packet);
        }
    }

    /// A packet crosses a switch, for which it needs time, and leaves by a port.
    fn delay(&mut self, by: End, time: Span, packet: Box<Packet>) {
        // The time is part of the way to the next port, since the order of packets of a port is that of
        // their arrivals.
        let now = self.now;
        self.now = now + time;
        self.transmit(by, packet);
        self.now = now;
    }

    /// The agents of a node get a packet, one after the other.
    fn hand_to_agents(&mut self, at: End, is_local: bool, packet: Box<Packet>) {
        let busy = self.busy_agents[at.node].max(self.now);
        if packet.is_smp() && busy.0 - self.now.0 > AGENT.0 * AGENT_PACKETS {
            self.nodes[at.node].ports[usize::from(at.port)]
                .counters
                .vl15_dropped += 1;
            return;
        }
        let done = busy + AGENT;
        self.busy_agents[at.node] = done;
        let End { node, port } = at;
        let event = Event::Process {
            node,
            port,
            is_local,
            packet,
        };
        self.queue.add(done, event);
    }

    /// The agents of a node have worked on a packet.
    pub(super) fn process(&mut self, at: End, is_local: bool, packet: Box<Packet>) {
        if !packet.is_smp() && !self.takes_partition(at, &packet) {
            return;
        }
        let represses = packet.mad.method() == method::TRAP_REPRESS;
        if packet.mad.is_response() && !represses {
            return self.hand_to_programs(at, packet);
        }
        let mut effects = Vec::new();
        let node = &mut self.nodes[at.node];
        if packet.is_smp() && packet.mad.method() == method::SET {
            self.changed.insert(at.node);
        }
        let outcome = if packet.mad.is_smp() && packet.is_smp() {
            let request = Request {
                mad: &packet.mad,
                arrival: at.port,
                is_local,
                now: self.now,
            };
            sma::process(node, &request, &mut effects)
        } else if packet.mad.class() == class::PERFORMANCE {
            pma::process(node, &packet.mad)
        } else {
            Outcome::Pass
        };
        match outcome {
            Outcome::Reply(reply) => self.answer(at, &packet, reply),
            Outcome::Pass if represses => self.repress(at.node, packet.mad.transaction()),
            Outcome::Pass => self.hand_to_programs(at, packet.clone()),
            Outcome::Silent => {}
        }
        for effect in effects {
            self.follow(at, effect, &packet);
        }
    }

    fn takes_partition(&mut self, at: End, packet: &Packet) -> bool {
        let node = &mut self.nodes[at.node];
        let number = usize::from(node.addressed_port(at.port));
        let port = &mut node.ports[number];
        let takes = packet.q_key == GSI_KEY && port.partitions.matching(packet.p_key).is_some();
        if !takes {
            let index = if packet.q_key == GSI_KEY { 1 } else { 2 };
            port.violations[index] = port.violations[index].saturating_add(1);
        }
        takes
    }

    /// A packet that the agents of the node do not answer. Programs on switches do not exist, so there a
    /// request is answered as one that nothing handles.
    fn hand_to_programs(&mut self, at: End, packet: Box<Packet>) {
        if !self.nodes[at.node].is_switch() {
            return self.outputs.push(Output::Received {
                at,
                packet: *packet,
            });
        }
        if let Some(reply) = unhandled(&packet) {
            self.send_answer(at, reply);
        }
    }

    /// Sends the answer of a node's agent back to where the request came from.
    fn answer(&mut self, at: End, request: &Packet, reply: crate::mad::Mad) {
        let reply = Packet {
            mad: reply,
            ..request.answer()
        };
        self.send_answer(at, reply);
    }

    fn send_answer(&mut self, at: End, packet: Packet) {
        let End { node, port } = at;
        let packet = Box::new(packet);
        self.queue
            .add(self.now, Event::Answer { node, port, packet });
    }

    /// Does what a change at a node means for others.
    fn follow(&mut self, at: End, effect: Effect, packet: &Packet) {
        let here = |port: u8| End { port, ..at };
        match effect {
            Effect::ResetLink { port, disable } => self.reset_link(here(port), disable),
            Effect::EnableLink(port) => self.enable_link(here(port)),
            Effect::StateChanged(port) => {
                let node = &self.nodes[at.node];
                let state = node.ports[usize::from(port)].state;
                if !node.is_switch() && sma::carries_data(state) {
                    self.event(here(port), PortEvent::Active);
                }
            }
            Effect::Event(event) => self.event(at, event),
            Effect::KeyViolation => self.key_violated(at, packet),
        }
    }
}

/// The answer to a request that no agent and no program handles: status 0x0c, for Get and Set alone.
pub fn unhandled(request: &Packet) -> Option<Packet> {
    if !matches!(request.mad.method(), method::GET | method::SET) {
        return None;
    }
    let mut mad = request.mad.clone();
    mad.set_method(method::GET_RESPONSE);
    mad.set_status(status::BAD_ATTRIBUTE);
    if mad.class() == class::SUBNET_DIRECTED {
        mad.set_returns();
    }
    Some(Packet {
        mad,
        ..request.answer()
    })
}
