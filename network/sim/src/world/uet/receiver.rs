//! The receiver of a flow: which packets it has, and when it says so.

use super::{Header, Sack};
use fabric::Time;
use std::collections::VecDeque;

/// Packets that one bitmap speaks of.
const BITMAP: u64 = 64;

/// A packet of data that arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived {
    pub(super) psn: u64,
    pub(super) sent_at: Time,
    pub(super) entropy: u16,
    pub(super) asks: bool,
    pub(super) is_marked: bool,
    pub(super) payload: u32,
}

/// The state of one flow.
#[derive(Clone, Default, Debug)]
pub(super) struct Receiver {
    /// All packets before this one have arrived.
    cumulative: u64,
    /// Those that arrived from the word on that `cumulative` is in: a bit each.
    words: VecDeque<u64>,
    /// Behind the last packet that has arrived.
    end: u64,
    /// The sender has asked for an acknowledgement, and packets before it are missing: there is another one
    /// when they are here.
    awaits: bool,
    /// Bytes since the last acknowledgement; none before the first.
    unacknowledged: Option<u32>,
    /// RCCC: credit that the sender wants and that it was granted, since the beginning.
    pub(super) wanted: u64,
    pub(super) granted: u64,
}

impl Receiver {
    /// Whether a packet has arrived.
    pub(super) fn has(&self, psn: u64) -> bool {
        psn < self.cumulative || self.word(psn / BITMAP) >> (psn % BITMAP) & 1 == 1
    }

    fn word(&self, number: u64) -> u64 {
        let index = number.checked_sub(self.cumulative / BITMAP);
        let word = index.and_then(|index| self.words.get(index as usize));
        word.copied().unwrap_or(0)
    }

    /// Takes a packet: whether it is new, and the acknowledgement that it causes, if any.
    pub(super) fn take(&mut self, packet: &Arrived, ack_bytes: u32) -> (bool, Option<Header>) {
        let is_new = !self.has(packet.psn);
        if is_new {
            self.mark(packet.psn);
            self.end = self.end.max(packet.psn + 1);
        }
        let bytes = self.unacknowledged.unwrap_or(u32::MAX);
        let bytes = bytes.saturating_add(packet.payload);
        self.awaits |= packet.asks;
        let is_awaited = self.awaits && self.cumulative == self.end;
        self.awaits &= !is_awaited;
        let is_asked = packet.asks || is_awaited;
        let answers = !is_new || is_asked || packet.is_marked || bytes >= ack_bytes;
        self.unacknowledged = Some(if answers { 0 } else { bytes });
        (is_new, answers.then(|| self.acknowledge(packet)))
    }

    /// A packet that arrived trimmed: it is asked for, unless it is here already.
    pub(super) fn take_trimmed(&mut self, packet: &Arrived, at_last_hop: bool) -> Header {
        if self.has(packet.psn) {
            self.unacknowledged = Some(0);
            return self.acknowledge(packet);
        }
        Header::Nack {
            psn: packet.psn,
            sent_at: packet.sent_at,
            entropy: packet.entropy,
            at_last_hop,
        }
    }

    fn mark(&mut self, psn: u64) {
        let first = self.cumulative / BITMAP;
        let index = (psn / BITMAP - first) as usize;
        if self.words.len() <= index {
            self.words.resize(index + 1, 0);
        }
        self.words[index] |= 1 << (psn % BITMAP);
        while self.word(self.cumulative / BITMAP) >> (self.cumulative % BITMAP) & 1 == 1 {
            self.cumulative += 1;
            if self.cumulative.is_multiple_of(BITMAP) {
                self.words.pop_front();
            }
        }
    }

    /// The acknowledgement of a packet: its bitmap ends with it, or begins behind what is complete.
    fn acknowledge(&self, packet: &Arrived) -> Header {
        let base = packet.psn.saturating_sub(BITMAP - 1).max(self.cumulative);
        let (number, shift) = (base / BITMAP, base % BITMAP);
        let mut bitmap = self.word(number) >> shift;
        if shift > 0 {
            bitmap |= self.word(number + 1) << (BITMAP - shift);
        }
        Header::Ack(Sack {
            cumulative: self.cumulative,
            offset: (base - self.cumulative) as u32,
            bitmap,
            sent_at: packet.sent_at,
            entropy: packet.entropy,
            is_marked: packet.is_marked,
            granted: self.granted,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(psn: u64) -> Arrived {
        Arrived {
            psn,
            sent_at: Time(psn),
            entropy: 5,
            asks: false,
            is_marked: false,
            payload: 4096,
        }
    }

    fn sack(header: Option<Header>) -> Option<Sack> {
        match header {
            Some(Header::Ack(sack)) => Some(sack),
            _ => None,
        }
    }

    #[test]
    fn it_acknowledges_the_first_packet_and_then_every_sixteen_kibibytes() {
        let mut receiver = Receiver::default();
        let answers = (0..10).map(|psn| sack(receiver.take(&packet(psn), 16_384).1).is_some());
        let answers: Vec<bool> = answers.collect();
        let at = |psn: usize| psn == 0 || psn == 4 || psn == 8;
        assert_eq!(answers, (0..10).map(at).collect::<Vec<_>>());
    }

    #[test]
    fn marks_requests_and_duplicates_are_answered_at_once() {
        let mut receiver = Receiver::default();
        receiver.take(&packet(0), 1 << 20);
        let marked = Arrived {
            is_marked: true,
            ..packet(1)
        };
        assert!(sack(receiver.take(&marked, 1 << 20).1).unwrap().is_marked);
        let asks = Arrived {
            asks: true,
            ..packet(2)
        };
        assert!(receiver.take(&asks, 1 << 20).1.is_some());
        let (is_new, answer) = receiver.take(&packet(1), 1 << 20);
        assert!(!is_new && sack(answer).unwrap().cumulative == 3);
        assert!(receiver.take(&packet(3), 1 << 20).1.is_none());
    }

    #[test]
    fn one_that_asked_is_answered_again_when_all_before_it_are_here() {
        let mut receiver = Receiver::default();
        receiver.take(&packet(0), 1 << 20);
        let asks = Arrived {
            asks: true,
            ..packet(3)
        };
        assert!(receiver.take(&asks, 1 << 20).1.is_some());
        assert!(receiver.take(&packet(2), 1 << 20).1.is_none());
        let last = sack(receiver.take(&packet(1), 1 << 20).1).unwrap();
        assert_eq!(last.cumulative, 4);
        assert!(receiver.take(&packet(4), 1 << 20).1.is_none());
    }

    #[test]
    fn the_bitmap_says_which_packets_came_ahead_of_a_hole() {
        let mut receiver = Receiver::default();
        for psn in (0..200).filter(|psn| psn % 50 != 7) {
            receiver.take(&packet(psn), 1);
        }
        let sack = sack(receiver.take(&packet(200), 1).1).unwrap();
        assert_eq!((sack.cumulative, sack.offset), (7, 130));
        let clear: Vec<u64> = (0..64).filter(|bit| sack.bitmap >> bit & 1 == 0).collect();
        assert_eq!(clear, [157 - 137]);
        assert!(receiver.has(150) && !receiver.has(107) && !receiver.has(1 << 40));
        for psn in [7, 57, 107, 157] {
            receiver.take(&packet(psn), 1);
        }
        assert_eq!((receiver.cumulative, receiver.words.len()), (201, 1));
    }

    #[test]
    fn a_trimmed_packet_is_asked_for_unless_it_is_here() {
        let mut receiver = Receiver::default();
        let nack = receiver.take_trimmed(&packet(3), true);
        let Header::Nack {
            psn: 3,
            at_last_hop: true,
            ..
        } = nack
        else {
            panic!("{nack:?}");
        };
        receiver.take(&packet(3), 1);
        assert!(matches!(
            receiver.take_trimmed(&packet(3), true),
            Header::Ack(_)
        ));
    }
}
