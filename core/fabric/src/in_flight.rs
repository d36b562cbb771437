//! One direction of a link on which packets overtake each other: packets in flight, in the order of arrival.

use crate::packet::{PacketId, Packets};
use crate::time::Time;

/// Packets in flight in one direction of a link: a list through the packets themselves. A driver needs one
/// event for all of them, for the first.
#[derive(Clone, Copy, Debug)]
pub struct InFlight {
    head: PacketId,
}

impl Default for InFlight {
    fn default() -> Self {
        Self {
            head: PacketId::NONE,
        }
    }
}

impl InFlight {
    /// Adds a packet, which may overtake others; packets with the same arrival time stay in order. Returns
    /// whether the packet is the first. Takes time in proportion to the number of packets in flight.
    pub fn insert(&mut self, id: PacketId, at: Time, packets: &mut Packets) -> bool {
        packets[id].arrives = at;
        let (mut before, mut next) = (PacketId::NONE, self.head);
        while next != PacketId::NONE && packets[next].arrives <= at {
            (before, next) = (next, packets[next].next);
        }
        packets[id].next = next;
        if before == PacketId::NONE {
            self.head = id;
        } else {
            packets[before].next = id;
        }
        before == PacketId::NONE
    }

    /// The arrival time of the first packet.
    pub fn first_at(&self, packets: &Packets) -> Option<Time> {
        (!self.is_empty()).then(|| packets[self.head].arrives)
    }

    /// Removes the packet that arrives first. Returns it with the arrival time of the next one, if any.
    #[inline]
    pub fn pop(&mut self, packets: &Packets) -> Option<(PacketId, Option<Time>)> {
        let id = self.head;
        if id == PacketId::NONE {
            return None;
        }
        self.head = packets[id].next;
        Some((
            id,
            (self.head != PacketId::NONE).then(|| packets[self.head].arrives),
        ))
    }

    /// Whether nothing is in flight.
    pub fn is_empty(&self) -> bool {
        self.head == PacketId::NONE
    }

    /// All packets in flight.
    pub fn iter<'a>(&self, packets: &'a Packets) -> impl Iterator<Item = PacketId> + use<'a> {
        let mut next = self.head;
        core::iter::from_fn(move || {
            let id = next;
            (id != PacketId::NONE).then(|| {
                next = packets[id].next;
                id
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Packet;

    #[test]
    fn packets_overtake_where_they_may() {
        let (mut packets, mut in_flight) = (Packets::new(8), InFlight::default());
        let ids = [(); 4].map(|()| packets.insert(Packet::new(0, 0, 64, 0, 0)).unwrap());
        for (id, at, first) in [(0, 5, true), (1, 3, true), (2, 5, false), (3, 4, false)] {
            assert_eq!(in_flight.insert(ids[id], Time(at), &mut packets), first);
        }
        assert_eq!(in_flight.first_at(&packets), Some(Time(3)));
        let order: alloc::vec::Vec<_> = in_flight.iter(&packets).collect();
        assert_eq!(order, [ids[1], ids[3], ids[0], ids[2]]);
    }

    #[test]
    fn packets_arrive_in_the_order_in_which_they_left() {
        let (mut packets, mut in_flight) = (Packets::new(8), InFlight::default());
        let ids = [(); 3].map(|()| packets.insert(Packet::new(0, 0, 64, 0, 0)).unwrap());
        assert!(in_flight.insert(ids[0], Time(5), &mut packets));
        assert!(!in_flight.insert(ids[1], Time(6), &mut packets));
        assert_eq!(in_flight.pop(&packets), Some((ids[0], Some(Time(6)))));
        assert_eq!(in_flight.iter(&packets).count(), 1);
        assert_eq!(in_flight.pop(&packets), Some((ids[1], None)));
        assert_eq!(in_flight.pop(&packets), None);
        assert!(in_flight.insert(ids[2], Time(9), &mut packets) && !in_flight.is_empty());
    }
}
