//! The responder's side of out-of-order receive: requests ahead of their turn.

use super::Qp;
use super::attr::State;
use super::reorder::{Held, HeldPayload};
use super::responder::Body;
use crate::access::Access;
use crate::memory::{Memory, Payload};
use crate::resources::Resources;
use crate::time::Instant;
use wire::{Message, Packet, Psn, Syndrome};

impl Qp {
    /// Executes what was held, as far as it is in turn now that the expected PSN moved on from `before`.
    pub(super) fn execute_held(
        &mut self,
        resources: &mut Resources,
        now: Instant,
        mut before: Psn,
        memory: &mut impl Memory,
    ) {
        while self.state != State::Error {
            // A READ moves by as many PSNs as its answer has packets.
            let advanced = self.responder.expected.distance_from(before);
            before = self.responder.expected;
            let Some(window) = &mut self.responder.window else { return };
            let Some(held) = (0..advanced).map(|_| window.step()).last().flatten() else { break };
            let body = match &held.payload {
                HeldPayload::Placed(length) => Body::Placed(*length),
                HeldPayload::Bytes(bytes) => Body::Here(Payload::Bytes(bytes)),
                HeldPayload::Phantom(length) => Body::Here(Payload::Phantom(*length)),
            };
            self.execute_in_turn(resources, now, &held.packet, body, memory);
        }
        self.report_hole(resources);
    }

    /// A packet ahead of its turn: placed or held with out-of-order receive, otherwise a sequence error.
    pub(super) fn handle_ahead(
        &mut self,
        resources: &mut Resources,
        packet: &Packet,
        payload: Payload<'_>,
        ahead: u32,
        memory: &mut impl Memory,
    ) {
        resources.counters.out_of_sequence += 1;
        self.counters.out_of_sequence += 1;
        let foreign = matches!(payload, Payload::Foreign { .. });
        if foreign || !self.out_of_order || ahead > resources.config.reorder_window || self.responder.waiting
        {
            return self.sequence_nak(resources);
        }
        let window = self.responder.window.get_or_insert_default();
        if window.has(ahead) {
            resources.counters.duplicate_request += 1;
            return;
        }
        let placed = self.place_ahead(resources, packet, payload, memory);
        let payload = if placed { HeldPayload::Placed(payload.len()) } else { HeldPayload::of(payload) };
        let window = self.responder.window.get_or_insert_default();
        window.hold(ahead, Held { packet: *packet, payload });
        resources.counters.placed_out_of_order += 1;
        self.report_hole(resources);
    }

    /// Stores a WRITE that carries its own address. One that may not be stored waits for its turn, and its
    /// NAK.
    fn place_ahead(
        &mut self,
        resources: &mut Resources,
        packet: &Packet,
        payload: Payload<'_>,
        memory: &mut impl Memory,
    ) -> bool {
        let Message::Write { position: wire::Position::Only, reth: Some(reth), .. } = packet.message else {
            return false;
        };
        let sound = reth.length == payload.len() && payload.len() <= self.mtu();
        if !sound || !self.attr.access.contains(Access::REMOTE_WRITE) {
            return false;
        }
        let need = Access::REMOTE_WRITE;
        let piece = self.remote_piece(resources, packet, reth.rkey, reth.address, reth.length, need);
        piece.is_ok_and(|piece| piece.is_none_or(|piece| memory.write(piece, payload).is_ok()))
    }

    /// Asks for the expected packet once it lags so far behind that it must be lost.
    fn report_hole(&mut self, resources: &mut Resources) {
        let expected = self.responder.expected;
        let threshold = resources.config.reorder_window / 2;
        let Some(window) = &mut self.responder.window else { return };
        if window.furthest() > threshold && window.reported != Some(expected) {
            window.reported = Some(expected);
            resources.counters.sent_sequence_naks += 1;
            self.responder.acknowledge(expected, Syndrome::NAK_SEQUENCE);
        }
    }
}
