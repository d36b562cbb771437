//! The responder's side of out-of-order receive: requests ahead of the expected PSN.

use super::target::remote_piece;
use super::window::{Held, HeldPayload};
use super::{Body, Responder};
use crate::access::Access;
use crate::memory::{Memory, Payload};
use crate::qp::attr::State;
use crate::qp::context::Context;
use wire::{Message, Packet, Psn, Syndrome};

impl Responder {
    /// Executes held requests that are in order, now that the expected PSN has moved on from `before`.
    pub(super) fn execute_held(
        &mut self,
        cx: &mut Context<'_>,
        mut before: Psn,
        memory: &mut impl Memory,
    ) {
        while cx.qp.state != State::Error {
            // A READ advances by the number of packets of its response.
            let advanced = self.expected.distance_from(before);
            before = self.expected;
            let Some(window) = &mut self.window else {
                return;
            };
            let Some(held) = (0..advanced).map(|_| window.step()).last().flatten() else {
                break;
            };
            let body = match &held.payload {
                HeldPayload::Placed(length) => Body::Placed(*length),
                HeldPayload::Bytes(bytes) => Body::Here(Payload::Bytes(bytes)),
                HeldPayload::Phantom(length) => Body::Here(Payload::Phantom(*length)),
            };
            self.execute_in_turn(cx, &held.packet, body, memory);
        }
        self.report_hole(cx);
    }

    /// Handles a packet ahead of the expected PSN: placed or held with out-of-order receive, otherwise a
    /// sequence error.
    pub(super) fn handle_ahead(
        &mut self,
        cx: &mut Context<'_>,
        packet: &Packet,
        payload: Payload<'_>,
        distance: u32,
        memory: &mut impl Memory,
    ) {
        cx.count_out_of_sequence();
        let foreign = matches!(payload, Payload::Foreign { .. });
        let is_far = distance > cx.resources.config.reorder_window;
        if foreign || !cx.qp.out_of_order || is_far || self.waiting {
            return self.sequence_nak(cx);
        }
        if self.window.get_or_insert_default().has(distance) {
            cx.resources.port.counters.duplicate_request += 1;
            return;
        }
        let placed = place_ahead(cx, packet, payload, memory);
        let payload = if placed {
            HeldPayload::Placed(payload.len())
        } else {
            HeldPayload::of(payload)
        };
        self.window.get_or_insert_default().hold(
            distance,
            Held {
                packet: *packet,
                payload,
            },
        );
        cx.resources.port.counters.placed_out_of_order += 1;
        self.report_hole(cx);
    }

    /// Requests the expected packet once it is so late that it must be lost.
    fn report_hole(&mut self, cx: &mut Context<'_>) {
        let expected = self.expected;
        let threshold = cx.resources.config.reorder_window / 2;
        let Some(window) = &mut self.window else {
            return;
        };
        if window.furthest() > threshold && window.reported != Some(expected) {
            window.reported = Some(expected);
            cx.resources.port.counters.sent_sequence_naks += 1;
            self.acknowledge(expected, Syndrome::NAK_SEQUENCE);
        }
    }
}

/// Stores a WRITE that carries its own address. One that may not be stored waits for its turn, and is then
/// refused.
fn place_ahead(
    cx: &Context<'_>,
    packet: &Packet,
    payload: Payload<'_>,
    memory: &mut impl Memory,
) -> bool {
    let Message::Write {
        position: wire::Position::Only,
        reth: Some(reth),
        ..
    } = packet.message
    else {
        return false;
    };
    let sound = reth.length == payload.len() && payload.len() <= cx.qp.mtu();
    if !sound || !cx.qp.attr.access.contains(Access::REMOTE_WRITE) {
        return false;
    }
    let piece = remote_piece(
        cx,
        packet,
        reth.rkey,
        reth.address,
        reth.length,
        Access::REMOTE_WRITE,
    );
    piece.is_ok_and(|piece| piece.is_none_or(|piece| memory.write(piece, payload).is_ok()))
}
