//! The switch with InfiniBand ports: it forwards by LID, and each packet occupies the receive buffer of the
//! lane that it arrived in.

use super::Switch;
use crate::config::CLASSES;
use crate::counters::Drop;
use crate::lanes::{LaneMap, LinkNews, PortLanes};
use crate::packet::{PacketId, Packets};
use crate::switch::Wire;
use crate::time::Time;
use alloc::boxed::Box;
use alloc::vec::Vec;

impl Switch {
    /// Makes ports those of InfiniBand; ports without a link have no lanes.
    pub fn set_lanes(&mut self, map: LaneMap, ports: Vec<Option<PortLanes>>) {
        for (port, lanes) in self.ports.iter_mut().zip(ports) {
            lanes
                .into_iter()
                .for_each(|lanes| port.egress.set_lanes(lanes));
        }
        self.lane_map = Some(Box::new(map));
    }

    /// Handles a packet that arrived at a port with lanes. The LRH has no hop limit: packets have 0 there.
    pub(super) fn handle_on_lane(
        &mut self,
        now: Time,
        port: u16,
        id: PacketId,
        packets: &mut Packets,
        wire: &mut impl Wire,
    ) {
        let packet = &mut packets[id];
        // The virtual lane of the link that it arrived by.
        let lane = packet.pcp % CLASSES as u8;
        packet.group = lane;
        let length = packet.length;
        self.ports[usize::from(port)]
            .egress
            .receive_on_lane(lane, length);
        let ports = &self.ports;
        let load = |port: u16| ports[usize::from(port)].egress.queued_bytes();
        let out = self.routes.choose(packet, now, &mut self.random, load);
        let out = out.filter(|out| usize::from(*out) < self.ports.len());
        let (Some(out), Some(map)) = (out, &self.lane_map) else {
            self.drop(port, id, Drop::NoRoute, packets, wire);
            return self.free_on_lane(now, port, lane, length, packets, wire);
        };
        packet.class = map.lane(port, out, packet.tos >> 2);
        // Nothing else counts the switches that it has crossed.
        packet.exit = packet.exit.saturating_add(1);
        packet.pcp = packet.class;
        self.enqueue(now, port, out, id, packets, wire);
    }

    /// Handles a flow control packet that arrived at a port, or what it tells of a lost packet.
    pub fn handle_credits(
        &mut self,
        now: Time,
        port: u16,
        news: LinkNews,
        packets: &mut Packets,
        wire: &mut impl Wire,
    ) {
        if self.ports[usize::from(port)].egress.handle_news(news, now) {
            self.advance(now, port, packets, wire);
        }
    }

    /// A packet that arrived in a lane of a port has left the buffer.
    pub(super) fn free_on_lane(
        &mut self,
        now: Time,
        port: u16,
        lane: u8,
        length: u16,
        packets: &mut Packets,
        wire: &mut impl Wire,
    ) {
        self.ports[usize::from(port)]
            .egress
            .release_on_lane(lane, length);
        self.advance(now, port, packets, wire);
    }

    /// Drops a packet that was at the head of a lane for longer than its lifetime.
    pub(super) fn expire(
        &mut self,
        now: Time,
        out: u16,
        id: PacketId,
        packets: &mut Packets,
        wire: &mut impl Wire,
    ) {
        let from = packets[id].ingress;
        self.release(now, packets[id], packets, wire);
        let crossing = super::Crossing { from, out };
        self.drop_at_queue(crossing, id, Drop::Lifetime, packets, wire);
    }
}
