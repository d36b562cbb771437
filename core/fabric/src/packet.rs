//! Packets as the network handles them: the fields that decide their path and their treatment, without
//! content. The driver of the fabric stores the content of a packet under the same number.

use crate::telemetry::{Hop, Records, Telemetry};
use crate::time::Time;
use alloc::vec::Vec;

/// The number of a packet in its [`Packets`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PacketId(pub u32);

impl PacketId {
    /// The number that stands for no packet.
    pub(crate) const NONE: Self = Self(u32::MAX);
}

/// ECN field of [`Packet::tos`]: congestion experienced (RFC 3168, section 5).
pub const ECN_CE: u8 = 3;

/// [`Packet::pcp`] of a frame without VLAN tag.
pub const UNTAGGED: u8 = 0xff;

/// Preamble, start delimiter and gap around each frame (802.3 clause 4.4.2, for 1 Gb/s and above).
pub const FRAME_OVERHEAD_BYTES: u32 = 20;

/// What next hops are chosen by besides addresses: the operation of a packet, and whether it may be sprayed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketKind(u8);

impl PacketKind {
    /// A packet without transport header, which stays on the path of its flow.
    pub const OTHER: Self = Self(31);

    const SPRAYABLE: u8 = 1 << 7;
    const TRIMMED: u8 = 1 << 6;
    const LAST_HOP: u8 = 1 << 5;

    /// A packet of this operation, by its number: the lower five bits of its opcode. [`crate::Spread`] sprays
    /// it if it is `sprayable`.
    pub const fn new(operation: u8, sprayable: bool) -> Self {
        let flag = if sprayable { Self::SPRAYABLE } else { 0 };
        Self(operation & 31 | flag)
    }

    /// Whether a packet may take another path than the packets before it.
    #[inline]
    pub const fn is_sprayable(self) -> bool {
        self.0 & Self::SPRAYABLE != 0
    }

    /// Whether a switch has cut it to its headers.
    #[inline]
    pub const fn is_trimmed(self) -> bool {
        self.0 & Self::TRIMMED != 0
    }

    /// Whether the switch that cut it is the one that its destination is attached to.
    #[inline]
    pub const fn is_trimmed_at_last_hop(self) -> bool {
        self.0 & Self::LAST_HOP != 0
    }

    /// The same packet, cut to its headers.
    pub(crate) const fn trimmed(self, at_last_hop: bool) -> Self {
        let flag = if at_last_hop { Self::LAST_HOP } else { 0 };
        Self(self.0 | Self::TRIMMED | flag)
    }

    /// The number of its operation.
    #[inline]
    pub const fn operation(self) -> u8 {
        self.0 & 31
    }
}

/// A set of operations, by their numbers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Operations(u32);

impl Operations {
    /// The set with another operation.
    #[must_use]
    pub const fn with(self, operation: u8) -> Self {
        Self(self.0 | 1 << (operation & 31))
    }

    /// Whether no operation is in it.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the operation of a packet is in it.
    #[inline]
    pub const fn has(self, kind: PacketKind) -> bool {
        self.0 >> kind.operation() & 1 != 0
    }
}

/// One packet. Small, so that a hop touches one cache line of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    /// The time at which it arrives at the end of the link that it is on.
    pub(crate) arrives: Time,
    /// Input of the ECMP hash: a digest of the five-tuple, in which the UDP source port is the sender's
    /// entropy (IBTA A17.3.2.1).
    pub entropy: u32,
    /// The switch that the destination is attached to.
    pub leaf: u32,
    /// The port of that switch. InfiniBand, where the LID says it: how many switches the packet has crossed.
    pub exit: u16,
    /// Bytes of the frame from the destination address to the frame check sequence.
    pub length: u16,
    /// DSCP in the upper six bits, ECN in the lower two.
    pub tos: u8,
    /// 802.1Q priority code point, or [`UNTAGGED`].
    pub pcp: u8,
    /// How many switches it may still cross; 0 on InfiniBand.
    pub hop_limit: u8,
    /// Its operation, and whether it may take another path than the packets before it.
    pub kind: PacketKind,
    /// The traffic class, and so the queue, that the current switch put it into.
    pub(crate) class: u8,
    /// The priority group that it is charged to, on port `ingress` of that switch.
    pub(crate) group: u8,
    pub(crate) ingress: u16,
    /// The next one in the queue, or in the list of free slots.
    pub(crate) next: PacketId,
}

const _: () = assert!(size_of::<Packet>() <= 32, "two packets share a cache line");

impl Packet {
    /// A packet for `exit` of the switch `leaf`.
    pub const fn new(leaf: u32, exit: u16, length: u16, tos: u8, entropy: u32) -> Self {
        Self {
            arrives: Time(0),
            entropy,
            leaf,
            exit,
            length,
            tos,
            pcp: UNTAGGED,
            hop_limit: 64,
            kind: PacketKind::OTHER,
            class: 0,
            group: 0,
            ingress: 0,
            next: PacketId::NONE,
        }
    }

    /// Returns the packet with the time at which it arrives at the end of its link.
    #[inline]
    pub const fn arriving(self, at: Time) -> Self {
        Self {
            arrives: at,
            ..self
        }
    }

    /// The time of arrival that [`Self::arriving`] has set.
    #[inline]
    pub const fn arrives(&self) -> Time {
        self.arrives
    }

    /// Puts it into a traffic class, for adapters, which have no [`crate::config::ClassMap`].
    #[inline]
    pub const fn put_into_class(&mut self, class: u8) {
        self.class = class & (crate::config::CLASSES as u8 - 1);
    }

    /// The traffic class that it is in.
    #[inline]
    pub const fn class(&self) -> u8 {
        self.class
    }

    /// Whether the packet is ECN-capable (ECT): switches may mark it.
    pub const fn is_ecn_capable(&self) -> bool {
        self.tos & 3 != 0
    }

    /// Whether a switch was congested.
    pub const fn is_marked(&self) -> bool {
        self.tos & 3 == ECN_CE
    }
}

/// All packets of a network, or of the part of it that one thread drives. Slots are used again, the last
/// freed one first, because it is probably still in the cache.
#[derive(Debug)]
pub struct Packets {
    slots: Vec<Packet>,
    free: PacketId,
    count: u32,
    limit: u32,
    records: Records,
}

impl Packets {
    /// Room for up to `limit` packets at once.
    pub fn new(limit: u32) -> Self {
        Self {
            slots: Vec::new(),
            free: PacketId::NONE,
            count: 0,
            limit,
            records: Records::default(),
        }
    }

    /// Packets that are in the network.
    pub const fn len(&self) -> u32 {
        self.count
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Slots in use or free: every [`PacketId`] so far is below this.
    pub const fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Adds a packet; `None` at the limit.
    #[inline]
    pub fn insert(&mut self, packet: Packet) -> Option<PacketId> {
        if let Some(slot) = self.slots.get_mut(self.free.0 as usize) {
            let id = self.free;
            self.free = slot.next;
            *slot = packet;
            self.count += 1;
            return Some(id);
        }
        if self.slots.len() >= self.limit as usize {
            return None;
        }
        self.slots.push(packet);
        self.count += 1;
        Some(PacketId(self.slots.len() as u32 - 1))
    }

    /// Takes a packet out.
    #[inline]
    pub fn remove(&mut self, id: PacketId) -> Packet {
        let slot = &mut self.slots[id.0 as usize];
        let packet = *slot;
        slot.next = self.free;
        self.free = id;
        self.count -= 1;
        self.records.forget(id.0 as usize);
        packet
    }

    /// Adds telemetry to a packet; its length stays the same.
    pub fn set_telemetry(&mut self, id: PacketId, telemetry: Telemetry) {
        self.records.set(id.0 as usize, telemetry);
    }

    /// The telemetry that a packet carries.
    #[inline]
    pub fn telemetry(&self, id: PacketId) -> Option<Telemetry> {
        self.records.get(id.0 as usize)
    }

    /// Appends the record of a port to a packet that collects telemetry and has room.
    #[inline]
    pub(crate) fn stamp(&mut self, id: PacketId, hop: impl FnOnce() -> Hop) {
        self.records.stamp(id.0 as usize, hop);
    }
}

impl core::ops::Index<PacketId> for Packets {
    type Output = Packet;
    #[inline]
    fn index(&self, id: PacketId) -> &Packet {
        &self.slots[id.0 as usize]
    }
}

impl core::ops::IndexMut<PacketId> for Packets {
    #[inline]
    fn index_mut(&mut self, id: PacketId) -> &mut Packet {
        &mut self.slots[id.0 as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_used_again_and_the_limit_holds() {
        let mut packets = Packets::new(2);
        let packet = Packet::new(0, 0, 64, 0, 0);
        let first = packets.insert(packet).unwrap();
        let second = packets
            .insert(Packet {
                length: 65,
                ..packet
            })
            .unwrap();
        assert_eq!(packets.insert(packet), None);
        assert_eq!(packets.remove(first).length, 64);
        assert_eq!(
            packets.insert(Packet {
                length: 66,
                ..packet
            }),
            Some(first)
        );
        assert_eq!(
            (packets[second].length, packets[first].length, packets.len()),
            (65, 66, 2)
        );
    }
}
