//! Frames of a host: how they are marked, and how many bytes they have.

use crate::world::link_state::ECT_0;
use crate::world::scenario::{Headers, Marking};
use fabric::UNTAGGED;
use wire::Message;

/// Bytes that a frame has around the transport headers: Ethernet with check sequence, IPv4, UDP, ICRC.
const OUTER_BYTES: u32 = 14 + 4 + 20 + 8 + 4;

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
}

impl From<Marking> for Mark {
    fn from(marking: Marking) -> Self {
        Self {
            class: marking.class & 7,
            tos: marking.dscp << 2 | if marking.ecn { ECT_0 } else { 0 },
            pcp: marking.pcp.unwrap_or(UNTAGGED),
            tag_bytes: if marking.pcp.is_some() { TAG_BYTES } else { 0 },
        }
    }
}

/// What carries data, and what switches may spray.
pub(super) fn is_data(message: &Message) -> bool {
    matches!(message, Message::Write { .. } | Message::Send { .. } | Message::ReadResponse { .. })
}

/// Bytes from the destination address to the check sequence.
#[inline]
pub(super) fn frame_bytes(headers: Headers, packet: &wire::Packet, payload: u32) -> u32 {
    match headers {
        Headers::RoceV2 => {
            let transport = packet.opcode().map_or(12, |opcode| opcode.header_size() as u32);
            (OUTER_BYTES + transport + payload.next_multiple_of(4)).max(FRAME_BYTES_MIN)
        }
        Headers::Fixed { data, control } => payload + u32::from(if payload > 0 { data } else { control }),
    }
}
