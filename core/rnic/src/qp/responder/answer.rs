//! Answers of the responder, and their transmission: acknowledgements, results of atomics, READ responses.

use super::Responder;
use super::target::remote_piece;
use crate::access::Access;
use crate::memory::Gather;
use crate::qp::context::Context;
use crate::qp::step::Step;
use crate::sink::{PacketKind, Sink};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use wire::{Aeth, Message, Packet, Position, Psn, Reth, Syndrome};

/// Limit of answers that wait to be sent. For an honest peer they are bounded by its outstanding READs;
/// further ones, which a hostile peer can cause by duplicates, are dropped.
const ANSWERS_MAX: usize = 1024;

/// Limit of bytes of answers that wait to be relayed. Further ones are dropped, and the peer repeats its
/// request.
const RELAYED_BYTES_MAX: usize = 16 << 20;

/// An answer that the responder still has to send.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    Acknowledge {
        psn: Psn,
        syndrome: Syndrome,
        msn: u32,
    },
    Atomic {
        psn: Psn,
        original: u64,
        msn: u32,
        /// For a duplicate.
        again: bool,
    },
    /// READ responses of this device.
    Read(ReadAnswer),
    /// READ responses of another device.
    Relayed(Relayed),
}

/// The answer to a READ: `sent` of `packets` responses have left.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadAnswer {
    pub(super) request: Packet,
    pub(super) packets: u32,
    pub(super) sent: u32,
    pub(super) reth: Reth,
    pub(super) msn: u32,
    /// For a duplicate.
    pub(super) again: bool,
}

/// Part of the answer to a READ from another device: `sent` of `packets` have left. Its bytes are in
/// [`Answers`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Relayed {
    psn: Psn,
    packets: u32,
    sent: u32,
    /// Whether the answer contains the first response packet of the READ.
    starts: bool,
    /// Whether the answer contains the last response packet of the READ.
    ends: bool,
    msn: u32,
}

impl Answer {
    pub(super) fn is_acknowledgement(&self) -> bool {
        matches!(
            self,
            Self::Acknowledge {
                syndrome: Syndrome::Ack(_),
                ..
            }
        )
    }

    /// Whether the answer is one packet without payload.
    pub(super) fn is_short(&self) -> bool {
        !matches!(self, Self::Read(_) | Self::Relayed(_))
    }

    pub(super) fn psn(&self) -> Psn {
        match *self {
            Self::Acknowledge { psn, .. } | Self::Atomic { psn, .. } => psn,
            Self::Read(read) => read.request.psn,
            Self::Relayed(relayed) => relayed.psn,
        }
    }
}

/// Answers in PSN order.
#[derive(Debug, Default)]
pub(super) struct Answers {
    queue: VecDeque<Answer>,
    /// The bytes of the relayed answers, in the same order.
    relayed: VecDeque<Box<[u8]>>,
    /// Whether the peer has repeated a request: it waits for the acknowledgement.
    is_urgent: bool,
}

impl Answers {
    /// The lines of the place of the next answer: most have the first place.
    #[cfg(feature = "simulation")]
    #[inline]
    pub(super) fn lines(&self, load: &impl Fn(*const u8)) {
        let first: *const u8 = self.queue.as_slices().0.as_ptr().cast();
        [0, 64].iter().for_each(|at| load(first.wrapping_add(*at)));
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.queue.len() >= ANSWERS_MAX
    }

    pub(super) fn first(&self) -> Option<&Answer> {
        self.queue.front()
    }

    /// Whether the only answer is one positive acknowledgement.
    pub(super) fn is_acknowledgement(&self) -> bool {
        self.queue.len() == 1 && self.queue.front().is_some_and(Answer::is_acknowledgement)
    }

    /// Whether there is more than a positive acknowledgement that may wait.
    pub(super) fn has_data(&self) -> bool {
        self.is_urgent || !(self.is_empty() || self.is_acknowledgement())
    }

    /// Number of READs and atomics among them: the peer is responsible for the new ones; duplicates of the
    /// peer or the network are limited separately.
    pub(super) fn count(&self, duplicates: bool) -> usize {
        let counts = |answer: &&Answer| match answer {
            Answer::Read(ReadAnswer { again, .. }) | Answer::Atomic { again, .. } => {
                *again == duplicates
            }
            _ => false,
        };
        self.queue.iter().filter(counts).count()
    }

    pub(super) fn push(&mut self, answer: Answer) {
        self.queue.push_back(answer);
    }

    /// Queues an acknowledgement or NAK, which covers all requests before it (IBTA 9.7.5.1.2).
    #[inline]
    pub(super) fn acknowledge(&mut self, psn: Psn, syndrome: Syndrome, msn: u32) {
        let answer = Answer::Acknowledge { psn, syndrome, msn };
        let full = self.is_full();
        match self.queue.back_mut() {
            Some(last) if last.is_acknowledgement() => *last = answer,
            _ if full => {}
            _ => self.queue.push_back(answer),
        }
    }

    /// Marks the owed acknowledgement as urgent: it does not wait for data.
    pub(super) fn urge(&mut self) {
        self.is_urgent = !self.queue.is_empty();
    }

    #[inline]
    fn pop(&mut self) {
        self.queue.pop_front();
        self.is_urgent &= !self.queue.is_empty();
    }

    pub(super) fn retain(&mut self, stays: impl Fn(&Answer) -> bool) {
        let Self {
            queue,
            relayed,
            is_urgent,
        } = self;
        let mut bytes = core::mem::take(relayed).into_iter();
        queue.retain(|answer| {
            let its = if matches!(answer, Answer::Relayed(_)) {
                bytes.next()
            } else {
                None
            };
            let stays = stays(answer);
            relayed.extend(its.filter(|_| stays));
            stays
        });
        *is_urgent &= !queue.is_empty();
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
        self.relayed.clear();
        self.is_urgent = false;
    }

    /// Records that `count` more packets of the first READ leave; it is removed with its last.
    fn advance_read(&mut self, count: u32) {
        match self.queue.front_mut() {
            Some(Answer::Read(read)) if read.sent + count < read.packets => read.sent += count,
            _ => self.pop(),
        }
    }
}

/// READ responses that leave as one unit: the next `count` of an answer.
struct Responses<'a> {
    answer: &'a ReadAnswer,
    position: Position,
    count: u32,
}

/// Transmission of answers.
impl Responder {
    /// Relays READ responses of another device, unless too many bytes wait already: the peer then repeats its
    /// request.
    pub(in crate::qp) fn relay(
        &mut self,
        cx: &Context<'_>,
        psn: Psn,
        position: Position,
        bytes: Box<[u8]>,
    ) {
        let next_msn = self.next_msn();
        let Answers { queue, relayed, .. } = &mut self.answers;
        let waiting: usize = relayed.iter().map(|bytes| bytes.len()).sum();
        if waiting + bytes.len() > RELAYED_BYTES_MAX {
            return;
        }
        let packets = (bytes.len() as u32).div_ceil(cx.qp.mtu()).max(1);
        let (starts, ends) = (position.starts(), position.ends());
        // The number of messages completed when this one is.
        let msn = if ends { self.msn } else { next_msn };
        relayed.push_back(bytes);
        queue.push_back(Answer::Relayed(Relayed {
            psn,
            packets,
            sent: 0,
            starts,
            ends,
            msn,
        }));
    }

    /// Sends the next packet that the responder owes.
    #[inline(always)]
    pub(in crate::qp) fn next_answer(
        &mut self,
        cx: &mut Context<'_>,
        sink: &mut impl Sink,
    ) -> Step {
        if core::mem::take(&mut self.notify) {
            return self.send_notification(cx, sink);
        }
        let Some(answer) = self.answers.first().copied() else {
            return Step::Blocked;
        };
        let kind = if answer.is_short() {
            PacketKind::Acknowledgement
        } else {
            PacketKind::Data
        };
        let room = cx.qp.room(kind, sink);
        if room == 0 {
            return cx.qp.wait_for_room();
        }
        match &answer {
            &Answer::Acknowledge { psn, syndrome, msn } => {
                self.answers.pop();
                cx.resources.port.counters.sent_acks += 1;
                let message = Message::Acknowledge(Aeth { syndrome, msn });
                let mut packet = answer_packet(cx, psn, message);
                packet.becn = core::mem::take(&mut self.echo);
                send_packet(cx, &packet, Gather::EMPTY, sink);
            }
            &Answer::Atomic {
                psn, original, msn, ..
            } => {
                self.answers.pop();
                let aeth = Aeth {
                    syndrome: Syndrome::ACK,
                    msn,
                };
                send(
                    cx,
                    psn,
                    Message::AtomicAcknowledge { aeth, original },
                    Gather::EMPTY,
                    sink,
                );
            }
            Answer::Read(answer) => {
                let responses = next_responses(cx, answer, room);
                self.answers.advance_read(responses.count);
                self.send_responses(cx, responses, sink);
            }
            Answer::Relayed(relayed) => self.send_relayed(cx, *relayed, room, sink),
        }
        Step::Sent
    }

    #[inline(always)]
    fn send_responses(
        &mut self,
        cx: &mut Context<'_>,
        responses: Responses<'_>,
        sink: &mut impl Sink,
    ) {
        let Responses {
            answer,
            position,
            count,
        } = responses;
        let (request, reth) = (&answer.request, &answer.reth);
        let psn = request.psn.plus(answer.sent);
        let offset = answer.sent * cx.qp.mtu();
        let length = (reth.length - offset).min(cx.qp.mtu() * count);
        let address = reth.address.wrapping_add(u64::from(offset));
        let message = read_response(position, answer.msn);
        // The region may have been deregistered since the request arrived: then it must not be read any more.
        let sent = match remote_piece(cx, request, reth.rkey, address, length, Access::REMOTE_READ)
        {
            Ok(piece) => send(cx, psn, message, Gather::Pieces(piece.as_slice()), sink),
            Err(_) => false,
        };
        if !sent {
            self.forget_answers();
            self.acknowledge(psn, Syndrome::NAK_REMOTE_ACCESS);
        }
    }

    /// Sends the next packets of an answer of another device.
    fn send_relayed(
        &mut self,
        cx: &mut Context<'_>,
        relayed: Relayed,
        room: u32,
        sink: &mut impl Sink,
    ) {
        let (mtu, sent) = (cx.qp.mtu(), relayed.sent);
        let count = room.min(relayed.packets - sent);
        let ends = sent + count >= relayed.packets;
        let Some(bytes) = self.answers.relayed.pop_front() else {
            return;
        };
        let from = ((sent * mtu) as usize).min(bytes.len());
        let to = (((sent + count) * mtu) as usize).min(bytes.len());
        let position = match (relayed.starts && sent == 0, relayed.ends && ends) {
            (true, true) => Position::Only,
            (true, false) => Position::First,
            (false, true) => Position::Last,
            (false, false) => Position::Middle,
        };
        let payload = Gather::Inline(bytes.get(from..to).unwrap_or_default());
        send(
            cx,
            relayed.psn.plus(sent),
            read_response(position, relayed.msn),
            payload,
            sink,
        );
        match self.answers.queue.front_mut() {
            Some(Answer::Relayed(first)) if !ends => {
                first.sent += count;
                self.answers.relayed.push_front(bytes);
            }
            _ => self.answers.pop(),
        }
    }
}

/// The responses of an answer that leave next, as many as there is room for.
#[inline(always)]
fn next_responses<'a>(cx: &Context<'_>, answer: &'a ReadAnswer, room: u32) -> Responses<'a> {
    let &ReadAnswer { packets, sent, .. } = answer;
    let count = room.min(packets - sent);
    let ends = sent + count >= packets;
    let position = match is_answered_by_only(cx, &answer.request) {
        true => Position::Only,
        false => Position::of(sent, if ends { sent + 1 } else { packets }),
    };
    Responses {
        answer,
        position,
        count,
    }
}

/// Whether each packet of the response is a READ RESPONSE ONLY: the peer takes such ones, and they are
/// equally long.
#[inline]
fn is_answered_by_only(cx: &Context<'_>, request: &Packet) -> bool {
    let is_asked = matches!(
        request.message,
        Message::ReadRequest {
            response_only: true,
            ..
        }
    );
    is_asked && cx.qp.transport.has_equal_responses()
}

fn read_response(position: Position, msn: u32) -> Message {
    let aeth = (position != Position::Middle).then_some(Aeth {
        syndrome: Syndrome::ACK,
        msn,
    });
    Message::ReadResponse { position, aeth }
}

/// Sends an answer; whether its payload could be read.
#[inline(always)]
fn send(
    cx: &mut Context<'_>,
    psn: Psn,
    message: Message,
    payload: Gather<'_>,
    sink: &mut impl Sink,
) -> bool {
    let packet = answer_packet(cx, psn, message);
    send_packet(cx, &packet, payload, sink)
}

#[inline(always)]
fn answer_packet(cx: &Context<'_>, psn: Psn, message: Message) -> Packet {
    let mut packet = Packet::new(cx.qp.service(), cx.qp.attr.destination, psn, message);
    packet.pkey = cx.resources.partition(cx.qp.attr.pkey_index);
    packet
}

#[inline(always)]
fn send_packet(
    cx: &mut Context<'_>,
    packet: &Packet,
    payload: Gather<'_>,
    sink: &mut impl Sink,
) -> bool {
    let length = payload.len();
    let sent = sink.send(&cx.qp.path, packet, payload).is_ok();
    if sent {
        cx.count_sent(length);
    }
    sent
}
