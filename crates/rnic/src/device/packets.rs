//! Packets in.

use super::Device;
use crate::address::{Arrival, Senders};
use crate::memory::{Memory, Payload};
use crate::qp::attr::QpType;
use crate::sink::Sink;
use crate::time::Instant;
use alloc::vec::Vec;
use core::cmp::Reverse;
use wire::{Message, Packet, PartitionKey, Qpn};

impl Device {
    /// Takes a packet that arrived, its ICRC checked and its pad removed. What does not belong here is
    /// dropped and counted; nothing that a packet says makes this panic.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        packet: &Packet,
        payload: Payload<'_>,
        memory: &mut impl Memory,
    ) {
        if !self.accept(packet, payload) {
            return;
        }
        if packet.dest == Qpn::MULTICAST {
            self.handle_multicast(now, arrival, packet, payload, memory);
        } else if let Some((index, was_waiting)) =
            self.deliver(packet.dest, now, arrival, packet, payload, memory)
        {
            self.settle(index, was_waiting, false);
        }
        self.fail_overrun(now);
    }

    /// Takes a packet that came by a lane: it may stand for several, and its sender can only be one of
    /// `senders`.
    pub fn handle_lane_packet(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        senders: Senders,
        packet: &Packet,
        payload: Payload<'_>,
        memory: &mut impl Memory,
    ) {
        self.resources.senders = Some(senders);
        self.handle_packet(now, arrival, packet, payload, memory);
        self.resources.senders = None;
    }

    /// As [`Self::handle_packet`], and sends what the queue pair then owes without payload (acknowledgements,
    /// NAKs, congestion notifications) at once: for a driver that has queues for them, past those of data.
    pub fn handle_packet_and_answer(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        packet: &Packet,
        payload: Payload<'_>,
        memory: &mut impl Memory,
        sink: &mut impl Sink,
    ) {
        if !self.accept(packet, payload) {
            return;
        }
        if packet.dest == Qpn::MULTICAST {
            self.handle_multicast(now, arrival, packet, payload, memory);
        } else if let Some((index, was_waiting)) =
            self.deliver(packet.dest, now, arrival, packet, payload, memory)
        {
            if let Some(qp) = self.qps.get_mut(index) {
                qp.answer_at_once(&mut self.resources, sink);
            }
            self.settle(index, was_waiting, false);
        }
        self.fail_overrun(now);
    }

    /// Touches what a packet to this queue pair needs. A driver of many devices that knows what comes does
    /// this for several packets at once, so that they do not wait for memory one after the other. What it
    /// returns means nothing.
    pub fn bring(&self, qpn: Qpn) -> u32 {
        let qp = self.qpns.index(qpn).and_then(|index| self.qps.get(index));
        qp.map_or(0, |qp| qp.bring())
    }

    /// The same for the queue pairs whose turn to send, and whose timer, comes next.
    pub fn bring_next(&self) -> u32 {
        let timer = self.timers.peek().map(|Reverse((_, index))| *index);
        let next = self.ready.front().copied().into_iter().chain(timer);
        let qps = next.filter_map(|index| self.qps.get(index));
        qps.fold(0, |sum, qp| sum ^ qp.bring())
    }

    /// Counts a packet; whether it is of our partition.
    fn accept(&mut self, packet: &Packet, payload: Payload<'_>) -> bool {
        let counters = &mut self.resources.counters;
        counters.received_packets += 1;
        counters.received_bytes += u64::from(payload.len());
        // The membership bit does not have to match, the rest does (IBTA 10.9.3).
        let ours = (packet.pkey.0 ^ PartitionKey::DEFAULT.0) & 0x7fff == 0;
        counters.dropped_bad_pkey += u64::from(!ours);
        ours
    }

    /// Each member of the group gets the datagram, the sender's own queue pair excepted (IBTA 10.5.2.1).
    fn handle_multicast(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        packet: &Packet,
        payload: Payload<'_>,
        memory: &mut impl Memory,
    ) {
        let Message::Datagram { deth, .. } = packet.message else {
            self.resources.counters.dropped_wrong_service += 1;
            return;
        };
        let ours = self.resources.gids.contains(&Some(arrival.source));
        let members: Vec<Qpn> = self.groups.get(&arrival.destination).cloned().unwrap_or_default();
        if members.is_empty() {
            self.resources.counters.dropped_no_qp += 1;
        }
        for qpn in members {
            if ours && deth.source == qpn {
                continue;
            }
            if let Some((index, was_waiting)) = self.deliver(qpn, now, arrival, packet, payload, memory) {
                self.settle(index, was_waiting, false);
            }
        }
    }

    /// Hands a packet to its queue pair; its index, and whether it waited for acknowledgements before.
    fn deliver(
        &mut self,
        qpn: Qpn,
        now: Instant,
        arrival: &Arrival,
        packet: &Packet,
        payload: Payload<'_>,
        memory: &mut impl Memory,
    ) -> Option<(usize, bool)> {
        let found = self.qpns.index(qpn);
        let Some((index, qp)) = found.and_then(|index| Some((index, self.qps.get_mut(index)?))) else {
            self.resources.counters.dropped_no_qp += 1;
            return None;
        };
        let resources = &mut self.resources;
        let was_waiting = qp.is_waiting();
        if qp.kind == QpType::XrcReceive && is_response(packet) {
            qp.handle_verdict(resources, now, packet, payload, memory);
            return Some((index, was_waiting));
        }
        if !qp.may_come_from(resources, arrival, packet) {
            resources.counters.dropped_wrong_address += 1;
            return None;
        }
        let notification = packet.message == Message::Congestion;
        if !notification && packet.service != qp.service() {
            resources.counters.dropped_wrong_service += 1;
            return None;
        }
        qp.counters.received_packets += 1;
        qp.counters.received_bytes += u64::from(payload.len());
        if arrival.congestion_experienced() && !notification {
            qp.congestion_seen(resources, now);
        }
        match packet.message {
            Message::Congestion => qp.handle_notification(resources, now),
            Message::Datagram { deth, tail } => {
                qp.handle_datagram(resources, now, arrival, packet, deth, tail, payload, memory);
            }
            Message::Acknowledge(_) | Message::AtomicAcknowledge { .. } | Message::ReadResponse { .. } => {
                qp.congestion.travelled(arrival.hop_limit);
                qp.handle_response(resources, now, packet, payload, memory);
            }
            _ => qp.handle_request(resources, now, packet, payload, memory),
        }
        Some((index, was_waiting))
    }
}

fn is_response(packet: &Packet) -> bool {
    matches!(
        packet.message,
        Message::Acknowledge(_) | Message::AtomicAcknowledge { .. } | Message::ReadResponse { .. }
    )
}
