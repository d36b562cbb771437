//! Arriving packets.

use super::Device;
use crate::address::Arrival;
use crate::memory::{Memory, Payload};
use crate::qp::{Inbound, Origin};
use crate::time::Instant;
use wire::{Message, Packet, PartitionKey, Qpn};

impl Device {
    /// Handles a packet that arrived, its ICRC checked and its pad removed. A packet that is not for this
    /// device is dropped and counted; no contents of a packet cause a panic.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        packet: &Packet,
        payload: Payload<'_>,
        memory: &mut impl Memory,
    ) {
        let inbound = Inbound {
            arrival,
            origin: Origin::Network,
            packet,
            payload,
        };
        self.handle_inbound(now, &inbound, memory);
    }

    #[inline(always)]
    pub(super) fn handle_inbound(
        &mut self,
        now: Instant,
        inbound: &Inbound<'_>,
        memory: &mut impl Memory,
    ) {
        let Inbound {
            packet, payload, ..
        } = *inbound;
        if !self.accept(packet, payload) {
            return;
        }
        if packet.dest == Qpn::MULTICAST {
            self.handle_multicast(now, inbound, memory);
        } else {
            self.queue_pairs.deliver(
                &mut self.resources,
                packet.dest,
                now,
                inbound,
                memory,
                |_, _| {},
            );
        }
        self.queue_pairs.fail_overrun(&mut self.resources, now);
    }

    /// Counts a packet; whether it is of the device's partition, and the device has not failed.
    pub(super) fn accept(&mut self, packet: &Packet, payload: Payload<'_>) -> bool {
        let counters = &mut self.resources.port.counters;
        counters.received_packets += 1;
        counters.received_bytes += u64::from(payload.len());
        // The membership bit does not have to match, the other bits do (IBTA 10.9.3).
        let ours = match &self.resources.port.subnet {
            None => (packet.pkey.0 ^ PartitionKey::DEFAULT.0) & 0x7fff == 0,
            Some(port) => port.takes(packet.pkey),
        };
        counters.dropped_bad_pkey += u64::from(!ours);
        ours && !self.failed
    }

    /// Delivers a datagram to each member of the group, except the sending queue pair (IBTA 10.5.2.1).
    fn handle_multicast(&mut self, now: Instant, inbound: &Inbound<'_>, memory: &mut impl Memory) {
        let Self {
            resources,
            groups,
            queue_pairs,
            ..
        } = self;
        let Message::Datagram { deth, .. } = inbound.packet.message else {
            resources.port.counters.dropped_wrong_service += 1;
            return;
        };
        let ours = resources.port.is_own(inbound.arrival.source);
        let members = groups.members(inbound.arrival.destination);
        if members.is_empty() {
            resources.port.counters.dropped_no_qp += 1;
        }
        for qpn in members {
            if !(ours && deth.source == *qpn) {
                queue_pairs.deliver(resources, *qpn, now, inbound, memory, |_, _| {});
            }
        }
    }
}
