//! The responder: executes the peer's requests (IBTA 9.7.4, 9.7.5; for UC 9.8.3).

use super::Qp;
use super::answer::Passed;
use super::attr::{QpType, State};
use super::reorder::Window;
use super::visits::Visits;
use crate::completion::{CompletionKind, Status};
use crate::cq::Notice;
use crate::event::Event;
use crate::handle::Srq;
use crate::memory::{Memory, Payload};
use crate::resources::{Resources, completion};
use crate::time::Instant;
use crate::work::Sge;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use wire::{Message, Packet, Psn, Reth, Rkey, Syndrome};

/// A message of several packets that is being received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Inbound {
    /// So many bytes of a SEND came.
    Send { offset: u32 },
    /// Where the next packet of a WRITE goes, and how much is left.
    Write { address: u64, rkey: Rkey, remaining: u32, total: u32 },
}

/// What the responder still has to send, in PSN order.
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
    /// `sent` of `packets` responses have left.
    Read {
        request: Packet,
        packets: u32,
        sent: u32,
        reth: Reth,
        msn: u32,
        again: bool,
    },
    /// Of another device, whose bytes are in [`Responder::passed`].
    Passed(Passed),
}

impl Answer {
    fn is_acknowledgement(&self) -> bool {
        matches!(self, Self::Acknowledge { syndrome: Syndrome::Ack(_), .. })
    }

    /// Whether this one counts among the outstanding READs and atomics: the peer answers for the new ones;
    /// those that it, or the network, doubled are bounded apart.
    pub(super) fn counts(&self, duplicates: bool) -> bool {
        matches!(self, Self::Read { again, .. } | Self::Atomic { again, .. } if *again == duplicates)
    }

    pub(super) fn psn(&self) -> Psn {
        match *self {
            Self::Acknowledge { psn, .. } | Self::Atomic { psn, .. } => psn,
            Self::Read { request, .. } => request.psn,
            Self::Passed(passed) => passed.psn,
        }
    }
}

/// Answers that wait to be sent at most. An honest peer is bounded by its outstanding READs; what a hostile
/// one doubles beyond this is dropped.
pub(super) const ANSWERS_MAX: usize = 1024;

/// On a lane: a receive has been posted, and what was told to wait need not. One of the syndromes that have
/// no meaning on a network (IBTA table 45).
pub(super) const READY: Syndrome = Syndrome::Reserved(0x40);

/// Where the responder stands.
#[derive(Debug, Default)]
pub(crate) struct Responder {
    /// The next PSN in order.
    pub(super) expected: Psn,
    /// Messages completed, 24 bits.
    pub(super) msn: u32,
    pub(super) inbound: Option<Inbound>,
    /// The receive that the SEND in progress fills.
    pub(super) receive: Option<u64>,
    /// The elements of that receive; kept for their memory.
    pub(super) sges: Vec<Sge>,
    /// A NAK is out for `expected`: silence until it comes.
    pub(super) waiting: bool,
    /// A peer on a lane waits for a receive, and is told when there is one.
    pub(super) tells_ready: bool,
    /// A request was executed in turn.
    pub(super) begun: bool,
    /// Results of the last atomics, for duplicates.
    pub(super) atomics: VecDeque<(Psn, u64)>,
    pub(super) answers: VecDeque<Answer>,
    /// The bytes of those that are passed on, in the same order.
    pub(super) passed: VecDeque<Box<[u8]>>,
    /// The shared queue that `receive` is of.
    pub(super) taken_from: Option<Srq>,
    pub(super) visits: Option<Box<Visits>>,
    /// A congestion notification is due.
    pub(super) notify: bool,
    /// When the next one may be sent.
    pub(super) notify_after: Instant,
    established: bool,
    pub(super) window: Option<Box<Window>>,
}

impl Responder {
    pub(super) fn has_data(&self) -> bool {
        self.notify
            || self.answers.len() > 1
            || self.answers.front().is_some_and(|answer| !answer.is_acknowledgement())
    }

    /// Touches it.
    #[inline]
    pub(super) fn bring(&self) -> u32 {
        self.expected.value() ^ self.notify_after.0 as u32 ^ self.answers.len() as u32
    }

    /// Whether what is owed first is one packet without payload.
    pub(super) fn has_short_answer(&self) -> bool {
        self.notify
            || self
                .answers
                .front()
                .is_some_and(|answer| !matches!(answer, Answer::Read { .. } | Answer::Passed(_)))
    }

    pub(super) fn owes_acknowledgement(&self) -> bool {
        !self.answers.is_empty()
    }

    pub(super) fn is_established(&self) -> bool {
        self.established
    }

    /// Starts numbering (the change to RTR).
    pub(crate) fn start(&mut self, expected: Psn) {
        self.expected = expected;
    }

    /// Gives up the message in progress; the receive that it had taken.
    pub(super) fn abandon(&mut self) -> Option<u64> {
        self.inbound = None;
        self.receive.take()
    }

    /// Owes nothing any more.
    pub(super) fn forget_answers(&mut self) {
        self.answers.clear();
        self.passed.clear();
    }

    pub(super) fn acknowledge(&mut self, psn: Psn, syndrome: Syndrome) {
        let answer = Answer::Acknowledge { psn, syndrome, msn: self.msn };
        let full = self.answers.len() >= ANSWERS_MAX;
        match self.answers.back_mut() {
            // One acknowledgement covers all before it (IBTA 9.7.5.1.2).
            Some(last) if last.is_acknowledgement() => *last = answer,
            _ if full => {}
            _ => self.answers.push_back(answer),
        }
    }

    fn acknowledge_all(&mut self) {
        self.acknowledge(self.expected.minus(1), Syndrome::ACK);
    }
}

/// Why a request was not executed. As wide as the first field of a [`crate::memory::Piece`], as
/// [`crate::resources::Unresolved`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(super) enum Refusal {
    /// No receive is posted.
    NotReady,
    /// Malformed, or not allowed on this queue pair: NAK invalid request.
    Invalid,
    /// Key, range or right: NAK remote access error.
    Access,
    /// The message is longer than the receive: NAK invalid request, and the receive fails.
    TooLong,
    /// The receive's own key or range is wrong: NAK remote operational error, and the receive fails.
    LocalProtection,
    /// More READs at once than agreed, which with out-of-order receive is no fault of the peer's: those that
    /// were held count together with those that it has sent again. It will ask once more.
    Busy,
    /// SEND with invalidate of a key that cannot be invalidated.
    Invalidate,
    /// The device that has the queue that a message names is gone: NAK remote operational error.
    Gone,
}

/// The payload of a request: here, or placed when it came ahead.
#[derive(Clone, Copy)]
pub(super) enum Body<'a> {
    Here(Payload<'a>),
    Placed(u32),
}

impl Body<'_> {
    pub(super) fn len(&self) -> u32 {
        match self {
            Self::Here(payload) => payload.len(),
            Self::Placed(length) => *length,
        }
    }
}

impl Qp {
    /// Handles a request from the connected peer.
    pub(crate) fn handle_request(
        &mut self,
        resources: &mut Resources,
        now: Instant,
        packet: &Packet,
        payload: Payload<'_>,
        memory: &mut impl Memory,
    ) {
        if !matches!(
            self.state,
            State::ReadyToReceive | State::ReadyToSend | State::SendQueueDrained | State::SendQueueError
        ) || self.kind == QpType::XrcSend
        {
            resources.counters.dropped_no_qp += 1;
            return;
        }
        if self.state == State::ReadyToReceive && !core::mem::replace(&mut self.responder.established, true) {
            resources.events.push_back(Event::CommunicationEstablished(self.qpn));
            resources.note_queue(self.qpn);
        }
        if self.kind == QpType::Uc {
            return self.handle_unreliable(resources, now, packet, payload, memory);
        }
        if self.domain.is_some() && self.goes_elsewhere(resources, packet) {
            return self.take_visit(resources, now, packet, payload, memory);
        }
        let passed = resources.senders.is_some() && self.responder.begun && !self.responder.waiting;
        if passed && self.responder.expected.is_before(packet.psn) {
            // Nothing is lost on a lane: the peer has executed what is between itself.
            self.responder.expected = packet.psn;
        }
        match packet.psn.distance_from(self.responder.expected) {
            0 => {
                let before = self.responder.expected;
                self.execute_in_turn(resources, now, packet, Body::Here(payload), memory);
                self.execute_held(resources, now, before, memory);
            }
            ahead @ 1.. => self.handle_ahead(resources, packet, payload, ahead as u32, memory),
            _ => self.handle_duplicate(resources, now, packet),
        }
    }

    pub(super) fn execute_in_turn(
        &mut self,
        resources: &mut Resources,
        now: Instant,
        packet: &Packet,
        body: Body<'_>,
        memory: &mut impl Memory,
    ) {
        let waited = core::mem::replace(&mut self.responder.waiting, false);
        self.responder.tells_ready = false;
        match self.execute(resources, now, packet, body, memory) {
            Ok(()) => {
                self.responder.begun = true;
                if packet.ack_req || waited {
                    self.acknowledge_request(packet);
                }
            }
            Err(refusal) => self.refuse(resources, packet.psn, refusal, now),
        }
    }

    /// READs and atomics are acknowledged by their answers.
    pub(super) fn acknowledge_request(&mut self, packet: &Packet) {
        let answered = matches!(
            packet.message,
            Message::ReadRequest(_)
                | Message::CompareSwap(_)
                | Message::FetchAdd(_)
                | Message::AtomicWrite(_)
        );
        if !answered {
            self.responder.acknowledge_all();
        }
    }

    /// No receive is left: on a lane, whoever posts the next one has the peer told.
    pub(super) fn note_not_ready(&mut self, resources: &mut Resources, srq: Option<Srq>) {
        self.responder.tells_ready = resources.senders.is_some() && self.is_reliable();
        if self.responder.tells_ready
            && let Some(srq) = srq
        {
            resources.note_not_ready(srq, self.qpn);
        }
    }

    /// A receive was posted: says so to a peer that waits for it. Whether there was one.
    pub(crate) fn tell_ready(&mut self) -> bool {
        let tells = core::mem::take(&mut self.responder.tells_ready) && self.path.lane != 0;
        if tells {
            self.responder.acknowledge(self.responder.expected, READY);
        }
        tells
    }

    /// One NAK for a gap, then silence (IBTA 9.7.5.1.4).
    pub(super) fn sequence_nak(&mut self, resources: &mut Resources) {
        if !core::mem::replace(&mut self.responder.waiting, true) {
            resources.counters.sent_sequence_naks += 1;
            self.responder.acknowledge(self.responder.expected, Syndrome::NAK_SEQUENCE);
        }
    }

    /// A request that was executed before: its answer was lost (IBTA 9.7.5.1.5).
    pub(super) fn handle_duplicate(&mut self, resources: &mut Resources, now: Instant, packet: &Packet) {
        resources.counters.duplicate_request += 1;
        self.counters.duplicate_request += 1;
        match packet.message {
            Message::ReadRequest(reth) => {
                let end = packet.psn.plus(self.response_packets(&reth));
                let goes_on = self.responder.expected.is_before(end);
                if goes_on && self.out_of_order {
                    return;
                }
                self.forget_answers_from(packet.psn);
                match self.queue_read(resources, packet, reth, true) {
                    // A requester whose window has grown asks in larger pieces than before. Reading has no
                    // effect: what is new of it is executed with the rest.
                    Ok(()) if goes_on => {
                        self.responder.expected = end;
                        self.responder.waiting = false;
                        self.count_message();
                    }
                    // Too many at once: the network doubled it. Nobody waits for one more answer.
                    Ok(()) | Err(Refusal::Invalid | Refusal::Busy) => {}
                    Err(refusal) => self.refuse(resources, packet.psn, refusal, now),
                }
            }
            Message::CompareSwap(_) | Message::FetchAdd(_) => {
                let saved = self.responder.atomics.iter().find(|(psn, _)| *psn == packet.psn);
                if let Some(&(psn, original)) = saved {
                    self.forget_answers_from(psn);
                    let msn = self.responder.msn;
                    self.responder.answers.push_back(Answer::Atomic { psn, original, msn, again: true });
                }
            }
            Message::AtomicWrite(_) => {
                self.forget_answers_from(packet.psn);
                self.queue_written(packet, true);
            }
            _ => self.responder.acknowledge_all(),
        }
    }

    /// The peer went back to `psn`: what is queued from there on will be asked for again. With out-of-order
    /// receive it asks for single packets, and nothing else is dropped.
    pub(super) fn forget_answers_from(&mut self, psn: Psn) {
        let out_of_order = self.out_of_order;
        let Responder { answers, passed, .. } = &mut self.responder;
        let mut bytes = core::mem::take(passed).into_iter();
        answers.retain(|answer| {
            let its = if matches!(answer, Answer::Passed(_)) { bytes.next() } else { None };
            let stays = match out_of_order {
                true => answer.psn() != psn || answer.is_acknowledgement(),
                false => answer.psn().is_before(psn),
            };
            passed.extend(its.filter(|_| stays));
            stays
        });
    }

    /// Turns down a request: RNR NAK, or a NAK that ends the connection.
    pub(super) fn refuse(&mut self, resources: &mut Resources, psn: Psn, refusal: Refusal, now: Instant) {
        let (syndrome, status, event) = match refusal {
            Refusal::NotReady => {
                resources.counters.sent_rnr_naks += 1;
                self.responder.waiting = true;
                return self.responder.acknowledge(psn, Syndrome::RnrNak(self.attr.min_rnr_timer & 31));
            }
            Refusal::Busy => {
                // On a lane what follows would pass for in turn.
                self.responder.waiting = resources.senders.is_some();
                return;
            }
            Refusal::Invalid => (Syndrome::NAK_INVALID_REQUEST, None, Some(Event::QpRequestError(self.qpn))),
            Refusal::Access => (Syndrome::NAK_REMOTE_ACCESS, None, Some(Event::QpAccessError(self.qpn))),
            Refusal::TooLong => (Syndrome::NAK_INVALID_REQUEST, Some(Status::LocalLength), None),
            Refusal::LocalProtection => {
                (Syndrome::NAK_REMOTE_OPERATIONAL, Some(Status::LocalProtection), None)
            }
            Refusal::Invalidate => (Syndrome::NAK_REMOTE_ACCESS, Some(Status::LocalAccess), None),
            Refusal::Gone => (Syndrome::NAK_REMOTE_OPERATIONAL, None, Some(Event::QpFatal(self.qpn))),
        };
        resources.counters.sent_error_naks += 1;
        // Answers to READs and atomics before it leave first (IBTA 9.7.5.1.1: in the order of PSNs), or those
        // would fail instead of this one.
        self.responder.acknowledge(psn, syndrome);
        self.tell(resources, event);
        let cq = self.receive_cq(resources, self.responder.taken_from);
        if let Some(status) = status
            && let Some(id) = self.responder.abandon()
        {
            let failed = completion(self.qpn, id, status, CompletionKind::Receive, now);
            resources.complete(cq, failed, Notice::Solicited);
        }
        self.fail(resources, now);
    }

    /// UC: a gap loses the message, silently (IBTA 9.8.2.2).
    fn handle_unreliable(
        &mut self,
        resources: &mut Resources,
        now: Instant,
        packet: &Packet,
        payload: Payload<'_>,
        memory: &mut impl Memory,
    ) {
        let in_turn = packet.psn == self.responder.expected;
        let packets = if resources.senders.is_some() { payload.len().div_ceil(self.mtu()).max(1) } else { 1 };
        let next = packet.psn.plus(packets);
        let starts = match packet.message {
            Message::Send { position, .. } | Message::Write { position, .. } => position.starts(),
            _ => return resources.counters.dropped_wrong_service += 1,
        };
        if !in_turn {
            self.counters.out_of_sequence += 1;
            resources.counters.out_of_sequence += 1;
            self.responder.inbound = None;
        }
        self.responder.expected = next;
        if starts {
            // A receive that a lost message had taken serves the next one.
            self.responder.inbound = None;
        } else if self.responder.inbound.is_none() {
            resources.counters.dropped_incomplete += 1;
            return;
        }
        self.responder.expected = packet.psn;
        if self.execute(resources, now, packet, Body::Here(payload), memory).is_err() {
            // IBTA 9.9.3, class D: dropped, and the queue pair lives on.
            resources.counters.dropped_incomplete += 1;
            self.responder.inbound = None;
        }
        self.responder.expected = next;
    }
}
