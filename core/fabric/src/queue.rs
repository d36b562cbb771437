//! A queue: a list through the packets themselves, and its counters.

use crate::packet::{Packet, PacketId, Packets};
use crate::time::Time;

/// One queue of one port, in one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Queue {
    head: PacketId,
    tail: PacketId,
    /// Bytes of the packets in the queue.
    pub(crate) bytes: u32,
    pub(crate) packets: u32,
    pub(crate) peak_bytes: u32,
    pub(crate) sent_packets: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) marked_packets: u64,
    pub(crate) marked_bytes: u64,
    /// The time at which the shaper allows the next packet.
    pub(crate) eligible_at: Time,
}

const _: () = assert!(size_of::<Queue>() <= 64, "a queue is a cache line");

impl Default for Queue {
    fn default() -> Self {
        Self {
            head: PacketId::NONE,
            tail: PacketId::NONE,
            bytes: 0,
            packets: 0,
            peak_bytes: 0,
            sent_packets: 0,
            sent_bytes: 0,
            marked_packets: 0,
            marked_bytes: 0,
            eligible_at: Time(0),
        }
    }
}

impl Queue {
    /// A packet was given the congestion mark.
    pub(crate) fn count_mark(&mut self, length: u16) {
        self.marked_packets += 1;
        self.marked_bytes += u64::from(length);
    }

    #[inline]
    pub(crate) fn push(&mut self, id: PacketId, bytes: u32, packets: &mut Packets) {
        packets[id].next = PacketId::NONE;
        if self.packets == 0 {
            self.head = id;
        } else {
            packets[self.tail].next = id;
        }
        self.tail = id;
        self.packets += 1;
        self.bytes += bytes;
        self.peak_bytes = self.peak_bytes.max(self.bytes);
    }

    pub(crate) fn head(&self) -> Option<PacketId> {
        (self.packets > 0).then_some(self.head)
    }

    /// The packets of the queue, the oldest first.
    #[inline]
    pub(crate) fn iter<'a>(
        &self,
        packets: &'a Packets,
    ) -> impl Iterator<Item = &'a Packet> + use<'a> {
        let (mut next, count) = (self.head, self.packets);
        (0..count).map(move |_| {
            let packet = &packets[next];
            next = packet.next;
            packet
        })
    }

    /// Removes the oldest packet. The queue must not be empty.
    #[inline]
    pub(crate) fn pop(&mut self, bytes: u32, packets: &Packets) -> PacketId {
        debug_assert!(self.packets > 0, "the caller saw a packet");
        let id = self.head;
        self.head = packets[id].next;
        self.packets -= 1;
        self.bytes -= bytes;
        id
    }
}
