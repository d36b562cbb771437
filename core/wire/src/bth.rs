//! Base transport header (IBTA 9.2): the twelve bytes with which every RoCEv2 packet begins.
//!
//! ```text
//!      0        1           2    3
//!  0   opcode   S M PP TTTT partition key      S solicited, M migration, P pad count, T version
//!  4   F B rrrrrr  destination QPN             F FECN, B BECN; this byte is outside the ICRC
//!  8   A O rrrrrr  packet sequence number      A acknowledge request, O in READ requests of rockery
//! ```
//!
//! O is a reserved bit in IBTA, see [`Message::ReadRequest`].

use crate::number::{PartitionKey, Psn, Qpn};
use crate::packet::{Message, Packet};

/// Size of the base transport header in bytes.
pub const BTH_SIZE: usize = 12;

/// Where the byte with FECN, BECN and six reserved bits lies: the ICRC counts it as ones, because switches
/// set it (IBTA 7.8.1).
pub const BTH_VARIANT_BYTE: usize = 4;

const SOLICITED: u8 = 0x80;
const MIGREQ: u8 = 0x40;
const FECN: u8 = 0x80;
const BECN: u8 = 0x40;
const ACK_REQ: u8 = 0x80;
const RESPONSE_ONLY: u8 = 0x40;

/// A base transport header in place. No accessor can fail: the size is part of the type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct Bth<'a>(pub &'a [u8; BTH_SIZE]);

impl<'a> Bth<'a> {
    /// The header at the start of `bytes` and the rest; `None` when there are fewer than twelve bytes.
    #[inline]
    pub const fn split(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        match bytes.split_first_chunk() {
            Some((header, rest)) => Some((Self(header), rest)),
            None => None,
        }
    }

    /// Service and operation: see [`crate::opcode`].
    #[inline]
    pub const fn opcode(self) -> u8 {
        self.0[0]
    }

    /// Whether the receiver's completion raises a solicited event (bit SE).
    #[inline]
    pub const fn solicited(self) -> bool {
        self.0[1] & SOLICITED != 0
    }

    /// The migration state bit (MigReq).
    #[inline]
    pub const fn migreq(self) -> bool {
        self.0[1] & MIGREQ != 0
    }

    /// The number of bytes of padding between payload and ICRC: 0 to 3.
    #[inline]
    pub const fn pad(self) -> u8 {
        self.0[1] >> 4 & 3
    }

    /// Transport header version: always 0.
    #[inline]
    pub const fn version(self) -> u8 {
        self.0[1] & 0x0f
    }

    /// The partition key, of which receivers compare 15 bits.
    #[inline]
    pub const fn pkey(self) -> PartitionKey {
        PartitionKey(u16::from_be_bytes([self.0[2], self.0[3]]))
    }

    /// Forward explicit congestion notification.
    #[inline]
    pub const fn fecn(self) -> bool {
        self.0[BTH_VARIANT_BYTE] & FECN != 0
    }

    /// Backward explicit congestion notification.
    #[inline]
    pub const fn becn(self) -> bool {
        self.0[BTH_VARIANT_BYTE] & BECN != 0
    }

    /// Destination queue pair.
    #[inline]
    pub const fn dest(self) -> Qpn {
        Qpn::new(u32::from_be_bytes([0, self.0[5], self.0[6], self.0[7]]))
    }

    /// Whether the sender requests an acknowledgement (bit AckReq).
    #[inline]
    pub const fn ack_req(self) -> bool {
        self.0[8] & ACK_REQ != 0
    }

    /// Of a READ request: whether the sender takes each packet of the response as a READ RESPONSE ONLY.
    #[inline]
    pub const fn response_only(self) -> bool {
        self.0[8] & RESPONSE_ONLY != 0
    }

    /// Packet sequence number.
    #[inline]
    pub const fn psn(self) -> Psn {
        Psn::new(u32::from_be_bytes([0, self.0[9], self.0[10], self.0[11]]))
    }
}

/// Sets the pad count (0 to 3) of transport headers that were encoded before their payload was known.
pub fn set_pad(header: &mut [u8], pad: u8) {
    if let Some(flags) = header.get_mut(1) {
        *flags = *flags & !(3 << 4) | (pad & 3) << 4;
    }
}

/// The header of `packet` with the opcode and the pad count (0 to 3) that the codec chose.
#[inline]
pub(crate) const fn to_bytes(packet: &Packet, opcode: u8, pad: u8) -> [u8; BTH_SIZE] {
    let flags = flag(packet.solicited, SOLICITED) | flag(packet.migreq, MIGREQ) | (pad & 3) << 4;
    let marks = flag(packet.fecn, FECN) | flag(packet.becn, BECN);
    let pkey = packet.pkey.0.to_be_bytes();
    let dest = packet.dest.value().to_be_bytes();
    let psn = packet.psn.value().to_be_bytes();
    let response_only = matches!(
        packet.message,
        Message::ReadRequest {
            response_only: true,
            ..
        }
    );
    let asks = flag(packet.ack_req, ACK_REQ) | flag(response_only, RESPONSE_ONLY);
    [
        opcode, flags, pkey[0], pkey[1], marks, dest[1], dest[2], dest[3], asks, psn[1], psn[2],
        psn[3],
    ]
}

#[inline]
const fn flag(set: bool, bit: u8) -> u8 {
    if set { bit } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{Position, Reth, Service, Tail};

    #[test]
    fn each_field_lies_where_the_specification_puts_it() {
        let message = Message::Send {
            position: Position::Only,
            tail: Tail::None,
        };
        let mut packet = Packet::new(
            Service::Rc,
            Qpn::new(0x12_3456),
            Psn::new(0x65_4321),
            message,
        );
        assert_eq!(
            to_bytes(&packet, 4, 0),
            [4, 0, 0xff, 0xff, 0, 0x12, 0x34, 0x56, 0, 0x65, 0x43, 0x21]
        );
        packet.solicited = true;
        packet.fecn = true;
        assert_eq!(to_bytes(&packet, 4, 3)[..5], [4, 0xb0, 0xff, 0xff, 0x80]);
        packet.migreq = true;
        packet.becn = true;
        packet.ack_req = true;
        packet.pkey = PartitionKey(0x8001);
        let bytes = to_bytes(&packet, 4, 1);
        assert_eq!(
            bytes,
            [
                4, 0xd0, 0x80, 0x01, 0xc0, 0x12, 0x34, 0x56, 0x80, 0x65, 0x43, 0x21
            ]
        );
        let view = Bth(&bytes);
        assert_eq!((view.opcode(), view.pad(), view.version()), (4, 1, 0));
        let mut padded = bytes;
        set_pad(&mut padded, 3);
        assert_eq!(Bth(&padded).pad(), 3);
        set_pad(&mut padded, 1);
        assert_eq!(padded, bytes);
        assert!(view.solicited() && view.migreq() && view.fecn() && view.becn() && view.ack_req());
        assert_eq!(
            (view.dest(), view.psn(), view.pkey()),
            (packet.dest, packet.psn, packet.pkey)
        );
        packet.message = Message::ReadRequest {
            reth: Reth::default(),
            response_only: true,
        };
        let bytes = to_bytes(&packet, 0x0c, 0);
        assert_eq!(
            (bytes[8], Bth(&bytes).response_only(), view.response_only()),
            (0xc0, true, false)
        );
    }
}
