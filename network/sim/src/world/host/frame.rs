//! Frames of a host: how they are marked, and how many bytes they have.

use crate::world::link_state::ECT_0;
use crate::world::scenario::{Headers, Marking, UET_CONTROL_BYTES, UET_DATA_BYTES};
use fabric::{PacketKind, UNTAGGED};
use wire::{Message, Service, Tail};

/// Bytes that a frame has around the transport headers: Ethernet with check sequence, IPv4, UDP, ICRC.
const OUTER_BYTES: u32 = 14 + 4 + 20 + 8 + 4;

/// Bytes that a packet of InfiniBand has around the transport headers: LRH, ICRC, VCRC (IBTA chapter 5).
const LOCAL_BYTES: u32 = 8 + 4 + 2;

/// What packets begin with.
const HOP_LIMIT: u8 = 64;

/// An 802.1Q tag.
const TAG_BYTES: u32 = 4;

/// The shortest frame (802.3 clause 3.2.8).
const FRAME_BYTES_MIN: u32 = 64;

/// A [`Marking`] as packets carry it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Mark {
    pub(super) class: u8,
    pub(super) tos: u8,
    pub(super) pcp: u8,
    pub(super) tag_bytes: u32,
    /// Switches that a packet may cross; 0 on InfiniBand, whose local route header has no such field.
    pub(super) hop_limit: u8,
}

impl From<Marking> for Mark {
    fn from(marking: Marking) -> Self {
        Self {
            class: marking.class & 7,
            tos: marking.dscp << 2 | if marking.ecn { ECT_0 } else { 0 },
            pcp: marking.pcp.unwrap_or(UNTAGGED),
            tag_bytes: if marking.pcp.is_some() { TAG_BYTES } else { 0 },
            hop_limit: HOP_LIMIT,
        }
    }
}

impl Mark {
    /// Of a packet of InfiniBand: the service level is in the place of the DSCP, and the virtual lane in that
    /// of the priority code point.
    pub(super) const fn of_lane(self) -> Self {
        Self {
            pcp: self.class,
            tag_bytes: 0,
            hop_limit: 0,
            ..self
        }
    }
}

/// Whether a packet carries data, and switches may spray it.
pub(super) fn is_data(message: &Message) -> bool {
    matches!(
        message,
        Message::Write { .. } | Message::Send { .. } | Message::ReadResponse { .. }
    )
}

/// What switches choose next hops by.
#[inline]
pub(super) fn kind(message: &Message) -> PacketKind {
    let operation = message.operation();
    operation.map_or(PacketKind::OTHER, |operation| {
        PacketKind::new(operation.number(), is_data(message))
    })
}

/// Bytes from the BTH to the payload.
#[inline]
fn transport_bytes(packet: &wire::Packet) -> u32 {
    match packet.message {
        // Most packets, without composing an opcode: BTH, and RETH or AETH (IBTA 9.2, 9.3).
        Message::Write {
            position,
            tail: Tail::None,
            ..
        } if packet.service == Service::Rc => {
            if position.starts() {
                12 + 16
            } else {
                12
            }
        }
        Message::Acknowledge(_) if packet.service == Service::Rc => 12 + 4,
        _ => packet
            .opcode()
            .map_or(12, |opcode| opcode.header_size() as u32),
    }
}

/// Bytes of a packet of Ultra Ethernet's transport, likewise.
#[inline]
pub(super) fn uet_frame_bytes(headers: Headers, payload: u32) -> u32 {
    match headers {
        Headers::Fixed { data, control } => {
            payload + u32::from(if payload > 0 { data } else { control })
        }
        _ if payload > 0 => payload + UET_DATA_BYTES,
        _ => UET_CONTROL_BYTES,
    }
}

/// Bytes from the destination address to the check sequence.
#[inline]
pub(super) fn frame_bytes(headers: Headers, packet: &wire::Packet, payload: u32) -> u32 {
    match headers {
        Headers::RoceV2 => {
            let transport = transport_bytes(packet);
            (OUTER_BYTES + transport + payload.next_multiple_of(4)).max(FRAME_BYTES_MIN)
        }
        Headers::Infiniband | Headers::Uet => {
            LOCAL_BYTES + transport_bytes(packet) + payload.next_multiple_of(4)
        }
        Headers::Fixed { data, control } => {
            payload + u32::from(if payload > 0 { data } else { control })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{Aeth, Packet, Position, Psn, Qpn, Reth, Syndrome};

    #[test]
    fn what_is_said_without_an_opcode_is_what_the_opcode_says() {
        let reth = Some(Reth::default());
        let write = |position, tail| Message::Write {
            position,
            reth,
            tail,
        };
        let ack = Message::Acknowledge(Aeth {
            syndrome: Syndrome::ACK,
            msn: 1,
        });
        let positions = [
            Position::First,
            Position::Middle,
            Position::Last,
            Position::Only,
        ];
        let writes = positions.map(|position| write(position, Tail::None));
        let others = [
            write(Position::Last, Tail::Immediate([0; 4])),
            ack,
            Message::Congestion,
        ];
        for message in writes.into_iter().chain(others) {
            for service in [Service::Rc, Service::Uc, Service::Xrc] {
                let packet = Packet::new(service, Qpn::new(17), Psn::new(3), message);
                let said = packet
                    .opcode()
                    .map_or(12, |opcode| opcode.header_size() as u32);
                assert_eq!(transport_bytes(&packet), said, "{packet:?}");
            }
        }
    }
}
