//! Messages of several datagrams: the reliable multi-packet protocol (IBTA 13.6).

use crate::mad::{MAD_BYTES, Mad, class};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Where the fields of RMPP are.
const VERSION_AT: usize = 24;
const TYPE_AT: usize = 25;
const FLAGS_AT: usize = 26;
const STATUS_AT: usize = 27;
const SEGMENT_AT: usize = 28;
const LENGTH_AT: usize = 32;
/// Bytes behind the header of RMPP in each datagram.
const PAYLOAD_BYTES: usize = MAD_BYTES - 36;
/// Segments that a receiver lets the sender send before it acknowledges.
const WINDOW: u32 = 64;
/// Bytes of a message at most: what a table of the largest subnet has.
const MESSAGE_MAX: usize = 64 << 20;

/// Types of datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Data,
    Acknowledgement,
    Stop,
    Abort,
}

/// Flags of data.
mod flag {
    pub(super) const ACTIVE: u8 = 1;
    pub(super) const FIRST: u8 = 2;
    pub(super) const LAST: u8 = 4;
}

/// Reasons of an abort (IBTA table 162).
pub(super) mod reason {
    pub(in crate::agents) const BAD_LENGTH: u8 = 118;
    pub(in crate::agents) const TOO_MANY_RETRIES: u8 = 127;
}

/// Whether a datagram that arrived is part of a message of several.
pub(super) fn is_part(mad: &Mad) -> bool {
    mad.bytes()[VERSION_AT] == 1 && is_message(mad)
}

/// Whether a program wants a datagram sent as a message: it sets the flag, and need not write the rest of the
/// header.
pub(super) fn is_message(mad: &Mad) -> bool {
    super::registration::has_rmpp(mad.class()) && mad.bytes()[FLAGS_AT] & flag::ACTIVE != 0
}

/// What a datagram of RMPP is; `None` for a type that does not exist.
pub(super) fn kind(mad: &Mad) -> Option<Kind> {
    match mad.bytes()[TYPE_AT] {
        1 => Some(Kind::Data),
        2 => Some(Kind::Acknowledgement),
        3 => Some(Kind::Stop),
        4 => Some(Kind::Abort),
        _ => None,
    }
}

/// Where the data of a class begins: 56 in subnet administration, 40 in vendors' classes.
pub(super) fn data_at(class: u8) -> usize {
    if class == class::SUBNET_ADMINISTRATION {
        56
    } else if class == class::DEVICE {
        64
    } else {
        40
    }
}

/// A message that is being sent.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    /// The whole message: header and data.
    message: Vec<u8>,
    /// The last segment that the receiver has.
    acknowledged: u32,
    /// The last segment that the receiver has room for.
    window: u32,
    /// The last segment that was sent.
    sent: u32,
}

impl Sender {
    /// Begins to send a message, which starts with the header of its management class.
    pub(super) fn new(message: &[u8]) -> Self {
        Self {
            message: message.to_vec(),
            acknowledged: 0,
            window: 1,
            sent: 0,
        }
    }

    /// Bytes of the message.
    pub(super) fn bytes(&self) -> usize {
        self.message.len()
    }

    fn class(&self) -> u8 {
        self.message[1]
    }

    fn room(&self) -> usize {
        MAD_BYTES - data_at(self.class())
    }

    /// Number of segments.
    fn segments(&self) -> u32 {
        let data = self.message.len().saturating_sub(data_at(self.class()));
        (data.div_ceil(self.room()) as u32).max(1)
    }

    /// Segments that may be sent now.
    pub(super) fn next(&mut self) -> Vec<Mad> {
        let until = self.window.min(self.segments());
        let segments = (self.sent + 1..=until)
            .map(|number| self.segment(number))
            .collect();
        self.sent = self.sent.max(until);
        segments
    }

    /// Goes back to the first segment that the receiver lacks.
    pub(super) fn go_back(&mut self) {
        self.sent = self.acknowledged;
    }

    fn segment(&self, number: u32) -> Mad {
        let (at, room, segments) = (data_at(self.class()), self.room(), self.segments());
        let begin = at + (number as usize - 1) * room;
        let data = &self.message[begin.min(self.message.len())..];
        let data = &data[..data.len().min(room)];
        let mut mad = Mad::of_bytes(&self.message[..at.min(self.message.len())]);
        mad.bytes_mut()[at..at + data.len()].copy_from_slice(data);
        let is_last = number == segments;
        let (first, last) = (
            if number == 1 { flag::FIRST } else { 0 },
            if is_last { flag::LAST } else { 0 },
        );
        let response_time = mad.bytes()[FLAGS_AT] & 0xf8;
        let bytes = mad.bytes_mut();
        (bytes[VERSION_AT], bytes[TYPE_AT], bytes[STATUS_AT]) = (1, 1, 0);
        bytes[FLAGS_AT] = response_time | flag::ACTIVE | first | last;
        mad.put_u32(SEGMENT_AT, number);
        // What is behind the header of RMPP counts, in all segments, and without what the last one lacks.
        let lacks = if is_last { room - data.len() } else { 0 };
        let all_lack = segments as usize * room - (self.message.len().saturating_sub(at));
        let length = match number {
            1 => segments as usize * PAYLOAD_BYTES - all_lack,
            _ if is_last => PAYLOAD_BYTES - lacks,
            _ => 0,
        };
        mad.put_u32(LENGTH_AT, length as u32);
        mad
    }

    /// Takes an acknowledgement. Returns whether the receiver has everything.
    pub(super) fn acknowledge(&mut self, mad: &Mad) -> bool {
        let (segment, window) = (mad.u32(SEGMENT_AT), mad.u32(LENGTH_AT));
        if segment <= self.sent && segment >= self.acknowledged {
            self.acknowledged = segment;
            self.window = self.window.max(window);
        }
        self.acknowledged == self.segments()
    }
}

/// A message that is being received.
#[derive(Clone, Debug)]
pub(super) struct Receiver {
    message: Vec<u8>,
    /// The first segment that is missing.
    next: u32,
    window: u32,
    /// Segments of the window that came before a missing one.
    early: BTreeMap<u32, Mad>,
}

/// What a segment made of a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    /// More is to come; an acknowledgement may be due.
    More(Option<Mad>),
    /// The message, and the last acknowledgement.
    Whole(Vec<u8>, Mad),
    /// The message cannot be received; the sender hears why.
    Broken(Mad),
}

impl Receiver {
    /// Waits for the first segment.
    pub(super) fn new() -> Self {
        Self {
            message: Vec::new(),
            next: 1,
            window: 1,
            early: BTreeMap::new(),
        }
    }

    /// Bytes of the message so far.
    pub(super) fn bytes(&self) -> usize {
        self.message.len()
    }

    /// Takes a segment. One that came before is answered by an acknowledgement of what is there, since the
    /// sender has not got the last one.
    pub(super) fn take(&mut self, mad: &Mad) -> Progress {
        let number = mad.u32(SEGMENT_AT);
        if number < self.next {
            return Progress::More(Some(self.acknowledgement(mad)));
        }
        if number <= self.window {
            self.early.insert(number, mad.clone());
        }
        while let Some(segment) = self.early.remove(&self.next) {
            let used = used(&segment);
            if self.message.len() + used > MESSAGE_MAX {
                return Progress::Broken(abort(mad, reason::BAD_LENGTH));
            }
            let at = data_at(segment.class());
            if self.next == 1 {
                self.message.extend_from_slice(&segment.bytes()[..at]);
            }
            self.message
                .extend_from_slice(&segment.bytes()[at..at + used]);
            self.next += 1;
            if is_last(&segment) {
                let acknowledgement = self.acknowledgement(mad);
                return Progress::Whole(core::mem::take(&mut self.message), acknowledgement);
            }
        }
        if self.next <= self.window {
            return Progress::More(None);
        }
        self.window = self.next - 1 + WINDOW;
        Progress::More(Some(self.acknowledgement(mad)))
    }

    fn acknowledgement(&self, of: &Mad) -> Mad {
        let mut mad = answer(of, 2);
        mad.put_u32(SEGMENT_AT, self.next - 1);
        mad.put_u32(LENGTH_AT, self.window.max(self.next));
        mad
    }
}

fn is_last(segment: &Mad) -> bool {
    segment.bytes()[FLAGS_AT] & flag::LAST != 0
}

/// Bytes of data in a segment: all, or what the length of the last one says.
fn used(segment: &Mad) -> usize {
    let room = MAD_BYTES - data_at(segment.class());
    let header = PAYLOAD_BYTES - room;
    match segment.u32(LENGTH_AT) as usize {
        length if is_last(segment) && (header..=PAYLOAD_BYTES).contains(&length) => length - header,
        _ => room,
    }
}

/// An abort of the message that a datagram is part of.
pub(super) fn abort(of: &Mad, reason: u8) -> Mad {
    let mut mad = answer(of, 4);
    mad.bytes_mut()[STATUS_AT] = reason;
    mad
}

/// A datagram that answers a segment: the method's response bit is turned around.
fn answer(of: &Mad, kind: u8) -> Mad {
    let mut mad = Mad::of_bytes(&of.bytes()[..VERSION_AT]);
    mad.set_method(of.method() ^ crate::mad::method::RESPONSE);
    let bytes = mad.bytes_mut();
    (bytes[VERSION_AT], bytes[TYPE_AT], bytes[FLAGS_AT]) = (1, kind, flag::ACTIVE);
    mad
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mad::method;
    use proptest::prelude::*;

    fn message(bytes: usize) -> Vec<u8> {
        let header = Mad::new(class::SUBNET_ADMINISTRATION, 2, 0x92, 0x11, 0);
        let mut message = header.bytes()[..56].to_vec();
        message.extend((0..bytes).map(|at| at as u8));
        message
    }

    /// Sends a message over a network that loses the datagrams that `loses` names by their number.
    fn pass(message: &[u8], loses: &[usize]) -> Option<Vec<u8>> {
        let (mut sender, mut receiver) = (Sender::new(message), Receiver::new());
        let (mut count, mut whole) = (0, None);
        for _ in 0..100 {
            let segments = sender.next();
            if segments.is_empty() {
                sender.go_back();
            }
            for segment in segments {
                count += 1;
                if loses.contains(&count) {
                    continue;
                }
                let answer = match receiver.take(&segment) {
                    Progress::More(answer) => answer,
                    Progress::Whole(message, answer) => {
                        whole = Some(message);
                        Some(answer)
                    }
                    Progress::Broken(_) => return None,
                };
                count += 1;
                if let Some(answer) = answer.filter(|_| !loses.contains(&count)) {
                    assert_eq!(answer.method(), 0x92 ^ method::RESPONSE);
                    if sender.acknowledge(&answer) {
                        return whole;
                    }
                }
            }
        }
        None
    }

    fn of(message: &[u8]) -> Vec<u8> {
        // The first segment's header has the fields of RMPP.
        let mut expected = Sender::new(message).segment(1).bytes()[..56].to_vec();
        expected.extend_from_slice(&message[56..]);
        expected
    }

    #[test]
    fn lengths_are_those_of_the_specification() {
        let sender = Sender::new(&message(500));
        assert_eq!(sender.segments(), 3);
        let lengths: Vec<u32> = (1..=3)
            .map(|number| sender.segment(number).u32(LENGTH_AT))
            .collect();
        assert_eq!(lengths, [560, 0, 120]);
        assert_eq!(Sender::new(&message(100)).segment(1).u32(LENGTH_AT), 120);
        assert_eq!(Sender::new(&message(0)).segment(1).u32(LENGTH_AT), 20);
    }

    proptest! {
        #[test]
        fn messages_arrive_whole(
            bytes in 0_usize..40_000,
            loses in prop::collection::vec(1_usize..300, 0..8),
        ) {
            let message = message(bytes);
            prop_assert_eq!(pass(&message, &loses), Some(of(&message)));
        }

        #[test]
        fn any_datagram_is_taken_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 256)) {
            let mad = Mad::of_bytes(&bytes);
            let mut receiver = Receiver::new();
            let _ = receiver.take(&mad);
            let _ = receiver.take(&mad);
            let mut sender = Sender::new(&message(900));
            sender.next();
            sender.acknowledge(&mad);
            sender.go_back();
            let _ = sender.next();
        }
    }
}
