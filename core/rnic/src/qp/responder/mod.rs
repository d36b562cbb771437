//! The responder: executes the peer's requests (IBTA 9.7.4, 9.7.5; for UC 9.8.3).
//!
//! A request passes these stages, each a function of this name: [`Responder::check_psn`], then for requests
//! in order [`Responder::check_opcode`], [`Responder::check_length`], [`Responder::check_key`],
//! [`Responder::execute`] and [`Responder::acknowledge_request`].

mod ahead;
mod answer;
mod datagram;
mod execute;
mod notification;
mod target;
mod window;

use super::attr::{QpType, State};
use super::context::Context;
use super::log;
use super::refusal::Refusal;
use super::transport::READY;
use crate::access::Access;
use crate::completion::{CompletionKind, Status};
use crate::cq::Notice;
use crate::error::Error;
use crate::event::Event;
use crate::handle::{Pd, Srq};
use crate::memory::{Backing, Memory, Payload, Piece};
use crate::receive::ReceiveQueue;
use crate::resources::Resources;
use crate::time::Instant;
use crate::work::{ReceiveRequest, Sge};
use answer::{Answer, Answers};
pub(super) use execute::check_packet_length;
pub(super) use notification::notification_interval;
use window::Window;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use wire::{Message, Packet, Psn, Rkey, Syndrome};

/// A message of several packets that is being received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Inbound {
    /// A SEND of which `offset` bytes have arrived.
    Send { offset: u32 },
    /// A WRITE: the address of the next packet, and the remaining length.
    Write {
        address: u64,
        rkey: Rkey,
        remaining: u32,
        total: u32,
    },
}

/// State of the responder: the expected PSN, the executed messages, and the answers that are owed.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Responder {
    answers: Answers,
    /// The next PSN in order.
    expected: Psn,
    /// Messages completed, 24 bits.
    msn: u32,
    /// Whether a NAK was sent for `expected`: no further one is sent until it arrives.
    waiting: bool,
    /// Whether the peer waits for a receive, and is notified when one is posted.
    announces_receive: bool,
    /// Whether a request was executed in order.
    begun: bool,
    established: bool,
    /// Whether a congestion notification is to be sent.
    notify: bool,
    /// Whether the next acknowledgement is to say that a packet was marked.
    echo: bool,
    inbound: Option<Inbound>,
    /// The receive that the SEND in progress fills.
    receive: Option<u64>,
    /// The queue pair's own receives.
    queue: ReceiveQueue,
    /// The elements of `receive`; kept to reuse their memory.
    sges: Vec<Sge>,
    /// The shared queue that `receive` was taken from.
    taken_from: Option<Srq>,
    /// When the next congestion notification may be sent.
    notify_after: Instant,
    /// Requests that arrived ahead of the expected PSN (out-of-order mode).
    window: Option<Box<Window>>,
    /// Results of the last atomics, for duplicates.
    atomics: VecDeque<(Psn, u64)>,
    /// Number of the connection of another device's queue pair for which this responder executes: its answers
    /// carry it in place of the MSN.
    proxy_for: Option<u32>,
}

/// The payload of a request: at hand, or already placed when it arrived ahead.
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

/// Position of a request's PSN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    /// The expected PSN.
    Now,
    /// The request's PSN is ahead of the expected one, by this distance.
    Ahead(u32),
    /// Before the expected one: executed already.
    Duplicate,
}

/// Operations of the front end of an XRC domain ([`super::forward`]).
impl Responder {
    /// The next PSN in order.
    pub(super) fn expected(&self) -> Psn {
        self.expected
    }

    /// Sets the expected PSN.
    pub(super) fn expect(&mut self, psn: Psn) {
        self.expected = psn;
    }

    /// Whether a NAK was sent for the expected request.
    pub(super) fn is_silent(&self) -> bool {
        self.waiting
    }

    /// Clears the state after a NAK, because the request has arrived; whether there was a NAK.
    pub(super) fn end_silence(&mut self) -> bool {
        core::mem::replace(&mut self.waiting, false)
    }

    /// Whether a message of several packets has begun.
    pub(super) fn is_within_message(&self) -> bool {
        self.inbound.is_some()
    }

    /// The memory of the queue pair's own receives with one element each, the oldest first, up to the first
    /// one that has more or is not pinned. None while a SEND is in progress.
    pub(in crate::qp) fn next_receives<'a>(
        &'a self,
        pd: Pd,
        resources: &'a Resources,
    ) -> impl Iterator<Item = Piece> + 'a {
        let singles = self
            .queue
            .single_sges()
            .take_while(|_| self.receive.is_none());
        let pieces =
            singles.map_while(move |sge| resources.regions.local(pd, sge, Access::LOCAL_WRITE));
        pieces.take_while(|piece| piece.backing == Backing::Pinned)
    }

    /// Posts a receive.
    pub(super) fn post(&mut self, request: &ReceiveRequest<'_>) -> Result<(), Error> {
        self.queue.post(request)
    }

    /// Refuses the message that would take the last receive, so many times.
    pub(super) fn refuse_last(&mut self, times: u32) {
        self.queue.refuse_last(times);
    }
}

/// Life cycle of a responder.
impl Responder {
    pub(super) fn new(queue: ReceiveQueue) -> Self {
        Self {
            queue,
            expected: Psn::default(),
            msn: 0,
            inbound: None,
            receive: None,
            sges: Vec::new(),
            taken_from: None,
            waiting: false,
            announces_receive: false,
            begun: false,
            established: false,
            atomics: VecDeque::new(),
            answers: Answers::default(),
            notify: false,
            echo: false,
            notify_after: Instant::default(),
            window: None,
            proxy_for: None,
        }
    }

    /// Drops all state, posted receives included.
    pub(super) fn reset(&mut self) {
        let mut queue = core::mem::take(&mut self.queue);
        queue.clear();
        *self = Self::new(queue);
    }

    /// Starts the numbering of packets (the change to RTR).
    pub(super) fn start(&mut self, expected: Psn) {
        self.expected = expected;
    }

    /// Executes for another device's queue pair from now on.
    pub(super) fn execute_for(&mut self, connection: u32) {
        self.proxy_for = Some(connection);
        // The front end counts the messages; here the field identifies the connection of an answer.
        self.msn = connection;
    }

    /// The connection of another device's queue pair for which this responder executes.
    pub(super) fn proxy_for(&self) -> Option<u32> {
        self.proxy_for
    }

    /// Whether a request has come in RTR.
    pub(super) fn is_established(&self) -> bool {
        self.established
    }

    /// Completes the receives that are posted, and the one that is being filled, with "flushed".
    pub(super) fn flush(&mut self, cx: &mut Context<'_>) {
        let srq = self.taken_from;
        let taken = self.abandon();
        let mut sges = core::mem::take(&mut self.sges);
        for id in taken
            .into_iter()
            .chain(core::iter::from_fn(|| self.queue.take(&mut sges)))
        {
            let flushed = cx.completion(id, Status::Flushed, CompletionKind::Receive);
            cx.complete_receive(srq, flushed, Notice::Ordinary);
        }
        self.sges = sges;
    }

    /// Gives up the message in progress; returns its receive.
    fn abandon(&mut self) -> Option<u64> {
        self.inbound = None;
        self.receive.take()
    }

    /// Announces a posted receive to a peer that waits for it; whether one did.
    pub(super) fn announce_receive(&mut self, cx: &Context<'_>) -> bool {
        let waits = core::mem::take(&mut self.announces_receive);
        let announces = waits && cx.qp.transport.announces_receives();
        if announces {
            self.acknowledge(self.expected, READY);
        }
        announces
    }

    /// The lines of the answers.
    #[cfg(feature = "simulation")]
    #[inline]
    pub(super) fn lines(&self, load: &impl Fn(*const u8)) {
        self.answers.lines(load);
    }
}

/// Handlers of arriving requests.
impl Responder {
    /// Records that a request has arrived at a queue pair that accepts requests.
    #[inline(always)]
    pub(super) fn note_established(&mut self, cx: &mut Context<'_>) {
        if cx.qp.state == State::ReadyToReceive && !core::mem::replace(&mut self.established, true)
        {
            cx.resources
                .events
                .push_back(Event::CommunicationEstablished(cx.qp.qpn));
            cx.resources.note_queue(cx.qp.qpn);
        }
    }

    /// Handles a request from the connected peer.
    pub(super) fn handle_request(
        &mut self,
        cx: &mut Context<'_>,
        packet: &Packet,
        payload: Payload<'_>,
        memory: &mut impl Memory,
    ) {
        if cx.qp.kind == QpType::Uc {
            return self.handle_unreliable(cx, packet, payload, memory);
        }
        match self.check_psn(cx, packet.psn) {
            Turn::Now => {
                let before = self.expected;
                self.execute_in_turn(cx, packet, Body::Here(payload), memory);
                self.execute_held(cx, before, memory);
            }
            Turn::Ahead(distance) => self.handle_ahead(cx, packet, payload, distance, memory),
            Turn::Duplicate => self.handle_duplicate(cx, packet, payload),
        }
    }

    /// Stage 1: the position of the request in the order of PSNs (IBTA 9.7.4.1.1).
    #[inline(always)]
    fn check_psn(&mut self, cx: &Context<'_>, psn: Psn) -> Turn {
        let skips = self.begun && !self.waiting && cx.origin.transport().skips_executed_requests();
        if skips && self.expected.is_before(psn) {
            self.expected = psn;
        }
        match psn.distance_from(self.expected) {
            0 => Turn::Now,
            ahead @ 1.. => Turn::Ahead(ahead as u32),
            _ => Turn::Duplicate,
        }
    }

    /// Stages 2 to 6 of a request in order.
    pub(super) fn execute_in_turn(
        &mut self,
        cx: &mut Context<'_>,
        packet: &Packet,
        body: Body<'_>,
        memory: &mut impl Memory,
    ) {
        let waited = core::mem::replace(&mut self.waiting, false);
        self.announces_receive = false;
        match self.check_and_execute(cx, packet, body, memory) {
            Ok(()) => {
                self.begun = true;
                if packet.ack_req || waited {
                    self.acknowledge_request(packet);
                }
            }
            Err(refusal) => self.refuse(cx, packet.psn, refusal),
        }
    }

    /// Stages 2 to 5; moves on to the next PSN.
    #[inline(always)]
    fn check_and_execute(
        &mut self,
        cx: &mut Context<'_>,
        packet: &Packet,
        body: Body<'_>,
        memory: &mut impl Memory,
    ) -> Result<(), Refusal> {
        self.check_opcode(cx, &packet.message)?;
        let extent = self.check_length(cx, &packet.message, body.len())?;
        let target = self.check_key(cx, packet, body.len(), &extent)?;
        self.execute(cx, packet, body, target, memory)?;
        self.expected = self.expected.plus(extent.packets);
        Ok(())
    }

    /// Stage 6. READs and atomics are acknowledged by their responses.
    #[inline(always)]
    fn acknowledge_request(&mut self, packet: &Packet) {
        let answered = matches!(
            packet.message,
            Message::ReadRequest { .. }
                | Message::CompareSwap(_)
                | Message::FetchAdd(_)
                | Message::AtomicWrite(_)
        );
        if !answered {
            self.acknowledge_all();
        }
    }

    /// Handles a request that was executed before: its response was lost (IBTA 9.7.5.1.5).
    pub(super) fn handle_duplicate(
        &mut self,
        cx: &mut Context<'_>,
        packet: &Packet,
        payload: Payload<'_>,
    ) {
        cx.count_duplicate();
        match packet.message {
            Message::ReadRequest { reth, .. } => {
                let end = packet.psn.plus(response_packets(cx, &reth));
                let goes_on = self.expected.is_before(end);
                if goes_on && cx.qp.out_of_order {
                    return;
                }
                self.forget_answers_from(cx, packet.psn);
                match self.queue_read(cx, packet, reth, true) {
                    // A requester whose window has grown requests larger pieces than before. A READ has no
                    // side effect: the new part is executed together with the rest.
                    Ok(()) if goes_on => {
                        self.expected = end;
                        self.waiting = false;
                        self.count_message();
                    }
                    // Too many at once: duplicates of the network. The peer needs no second answer.
                    Ok(()) | Err(Refusal::Invalid | Refusal::Busy) => {}
                    Err(refusal) => self.refuse(cx, packet.psn, refusal),
                }
            }
            Message::CompareSwap(_) | Message::FetchAdd(_) => {
                let saved = self.atomics.iter().find(|(psn, _)| *psn == packet.psn);
                if let Some(&(psn, original)) = saved {
                    self.forget_answers_from(cx, psn);
                    self.answers.push(Answer::Atomic {
                        psn,
                        original,
                        msn: self.msn,
                        again: true,
                    });
                }
            }
            Message::AtomicWrite(_) => {
                self.forget_answers_from(cx, packet.psn);
                self.queue_written(packet, true);
            }
            _ if self.is_partly_new(cx, packet, payload) => self.sequence_nak(cx),
            _ => {
                self.acknowledge_all();
                self.answers.urge();
            }
        }
    }

    /// Whether a unit of several packets begins before the expected PSN and ends after it: the peer went
    /// back, because of a NAK that was sent late, and repeats packets together that it had sent apart. A NAK
    /// has it repeat from the expected PSN on. (Where requests may be skipped, the packets after a unit that
    /// was taken for a duplicate would appear to be in order, and its new part would be lost.)
    fn is_partly_new(&self, cx: &Context<'_>, packet: &Packet, payload: Payload<'_>) -> bool {
        let packets = cx.origin.transport().packets_of(payload.len(), cx.qp.mtu());
        packets.is_some_and(|packets| self.expected.is_before(packet.psn.plus(packets)))
    }

    /// UC: a gap loses the message, silently (IBTA 9.8.2.2).
    fn handle_unreliable(
        &mut self,
        cx: &mut Context<'_>,
        packet: &Packet,
        payload: Payload<'_>,
        memory: &mut impl Memory,
    ) {
        let in_turn = packet.psn == self.expected;
        let packets = cx
            .origin
            .transport()
            .packets_of(payload.len(), cx.qp.mtu())
            .unwrap_or(1);
        let next = packet.psn.plus(packets);
        let starts = match packet.message {
            Message::Send { position, .. } | Message::Write { position, .. } => position.starts(),
            _ => return cx.resources.port.counters.dropped_wrong_service += 1,
        };
        if !in_turn {
            cx.count_out_of_sequence();
            self.inbound = None;
        }
        self.expected = next;
        if starts {
            // The receive of a lost message is used for the next one.
            self.inbound = None;
        } else if self.inbound.is_none() {
            cx.resources.port.counters.dropped_incomplete += 1;
            return;
        }
        self.expected = packet.psn;
        if self
            .check_and_execute(cx, packet, Body::Here(payload), memory)
            .is_err()
        {
            // IBTA 9.9.3, class D: dropped, and the queue pair stays operational.
            cx.resources.port.counters.dropped_incomplete += 1;
            self.inbound = None;
        }
        self.expected = next;
    }
}

/// Acknowledgements and refusals.
impl Responder {
    #[inline]
    pub(super) fn acknowledge(&mut self, psn: Psn, syndrome: Syndrome) {
        self.answers.acknowledge(psn, syndrome, self.msn);
    }

    #[inline]
    fn acknowledge_all(&mut self) {
        self.acknowledge(self.expected.minus(1), Syndrome::ACK);
    }

    /// Records that no receive is posted. On a shared-memory channel the next posted one is announced to the
    /// peer.
    pub(super) fn note_not_ready(&mut self, cx: &mut Context<'_>, srq: Option<Srq>) {
        self.announces_receive = cx.origin.transport().announces_receives() && cx.qp.is_reliable();
        if self.announces_receive
            && let Some(srq) = srq
        {
            cx.resources.srqs.note_not_ready(srq, cx.qp.qpn);
        }
    }

    /// Sends one NAK for a gap, and no further one until the packet arrives (IBTA 9.7.5.1.4).
    pub(super) fn sequence_nak(&mut self, cx: &mut Context<'_>) {
        if !core::mem::replace(&mut self.waiting, true) {
            cx.resources.port.counters.sent_sequence_naks += 1;
            self.acknowledge(self.expected, Syndrome::NAK_SEQUENCE);
        }
    }

    /// Sends an RNR NAK for the request with this PSN.
    pub(super) fn rnr_nak(&mut self, cx: &mut Context<'_>, psn: Psn, code: u8) {
        cx.resources.port.counters.sent_rnr_naks += 1;
        self.waiting = true;
        self.acknowledge(psn, Syndrome::RnrNak(code));
    }

    /// Refuses a request: RNR NAK, or a NAK that ends the connection.
    pub(super) fn refuse(&mut self, cx: &mut Context<'_>, psn: Psn, refusal: Refusal) {
        let qpn = cx.qp.qpn;
        let (syndrome, status, event) = match refusal {
            Refusal::NotReady => return self.rnr_nak(cx, psn, cx.qp.attr.min_rnr_timer & 31),
            Refusal::Unfetched => return self.sequence_nak(cx),
            Refusal::Busy => {
                // Where requests may be skipped, the next ones would appear to be in order.
                self.waiting = cx.origin.transport().skips_executed_requests();
                return;
            }
            Refusal::Invalid => (
                Syndrome::NAK_INVALID_REQUEST,
                None,
                Some(Event::QpRequestError(qpn)),
            ),
            Refusal::Access => (
                Syndrome::NAK_REMOTE_ACCESS,
                None,
                Some(Event::QpAccessError(qpn)),
            ),
            Refusal::TooLong => (
                Syndrome::NAK_INVALID_REQUEST,
                Some(Status::LocalLength),
                None,
            ),
            Refusal::LocalProtection => (
                Syndrome::NAK_REMOTE_OPERATIONAL,
                Some(Status::LocalProtection),
                None,
            ),
            Refusal::Invalidate => (Syndrome::NAK_REMOTE_ACCESS, Some(Status::LocalAccess), None),
            Refusal::Gone => (
                Syndrome::NAK_REMOTE_OPERATIONAL,
                None,
                Some(Event::QpFatal(qpn)),
            ),
        };
        cx.resources.port.counters.sent_error_naks += 1;
        log::refused(cx.qp, psn, refusal);
        // Responses to earlier READs and atomics are sent first (IBTA 9.7.5.1.1: in the order of PSNs), or
        // those would fail instead of this one.
        self.acknowledge(psn, syndrome);
        // Errors of a proxy are reported to the program of the front end only.
        cx.resources
            .events
            .extend(event.filter(|_| self.proxy_for.is_none()));
        let srq = self.taken_from;
        if let Some(status) = status
            && let Some(id) = self.abandon()
        {
            let failed = cx.completion(id, status, CompletionKind::Receive);
            cx.complete_receive(srq, failed, Notice::Solicited);
        }
        cx.fail();
    }

    /// Drops the answers from `psn` on: the peer went back to it and will repeat its requests. With
    /// out-of-order receive it requests single packets, and nothing is dropped.
    pub(super) fn forget_answers_from(&mut self, cx: &Context<'_>, psn: Psn) {
        if cx.qp.out_of_order {
            self.answers
                .retain(|answer| answer.psn() != psn || answer.is_acknowledgement());
        } else {
            self.answers.retain(|answer| answer.psn().is_before(psn));
        }
    }

    /// Drops all owed answers.
    pub(super) fn forget_answers(&mut self) {
        self.answers.clear();
    }

    pub(super) fn count_message(&mut self) {
        self.msn = self.next_msn();
    }

    /// The number of completed messages including the next one. A proxy counts none.
    pub(super) fn next_msn(&self) -> u32 {
        self.msn.wrapping_add(u32::from(self.proxy_for.is_none())) & 0xff_ffff
    }

    pub(super) fn has_data(&self) -> bool {
        self.notify || self.answers.has_data()
    }

    /// Whether the first owed answer is one packet without payload.
    pub(super) fn has_short_answer(&self) -> bool {
        self.notify || self.answers.first().is_some_and(Answer::is_short)
    }

    /// Whether only a positive acknowledgement is owed.
    pub(super) fn owes_only_acknowledgement(&self) -> bool {
        !self.notify && self.answers.is_acknowledgement()
    }

    pub(super) fn owes_acknowledgement(&self) -> bool {
        !self.answers.is_empty()
    }
}

/// Number of packets that answer a READ: one even for no bytes (IBTA 9.7.2).
pub(super) fn response_packets(cx: &Context<'_>, reth: &wire::Reth) -> u32 {
    reth.length.div_ceil(cx.qp.mtu()).max(1)
}
