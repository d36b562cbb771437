//! The completer: handles the peer's responses (IBTA 9.7.5, 9.7.6).
//!
//! A response is handled in stages: its PSN must be outstanding, its MSN plausible, and then it is an ACK, a
//! NAK of some kind, or the response to a READ or an atomic.

mod arrived;
mod plausible;

use super::context::Context;
use super::expected::{Expected, Outstanding};
use super::log;
use super::requester::Requester;
use super::send_queue::SendEntry;
use super::timer::{Timer, rnr_wait};
use super::transport::READY;
use crate::access::Access;
use crate::completion::Status;
use crate::memory::{Memory, Payload};
use crate::resources::{Unresolved, scatter};
use crate::work::Operation;
use arrived::Arrived;
use plausible::{NotificationLimit, PeerMsn, can_be_refused};
use wire::{Aeth, Message, Packet, Psn, Syndrome};

/// `rnr_retry` of 7 means for ever (IBTA 9.7.5.2.8).
const RNR_RETRY_FOREVER: u8 = 7;

/// The responses that the peer owes, and the retries so far.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Completer {
    msn: PeerMsn,
    /// Retries since the last progress.
    retries: u8,
    rnr_retries: u8,
    /// The requester has gone back because of a gap; further reports of the same gap are ignored.
    recovering: bool,
    /// The resume timer runs because of an RNR NAK.
    waits_for_receiver: bool,
    notifications: NotificationLimit,
    pub(super) expected: Expected,
    /// Single response packets of READs that arrived ahead of the expected one (out-of-order mode).
    ahead: Arrived,
}

/// Response to a READ, an atomic or an ATOMIC WRITE.
#[derive(Clone, Copy, Debug)]
enum Response<'a> {
    /// A READ response packet, or several as one unit.
    Data(Payload<'a>),
    /// The value before an atomic operation.
    Original(u64),
}

impl Completer {
    /// Drops the expected responses: the queue pair is in error.
    pub(super) fn stop(&mut self) {
        self.expected.clear();
        self.waits_for_receiver = false;
    }
}

/// Handlers of arriving responses.
impl Completer {
    /// Handles an ACK, a NAK, a READ response or an atomic's result.
    #[inline(always)]
    pub(super) fn handle_response(
        &mut self,
        cx: &mut Context<'_>,
        requester: &mut Requester,
        packet: &Packet,
        payload: Payload<'_>,
        memory: &mut impl Memory,
    ) {
        // Only packets that were sent can be answered: any other response is stale, or forged.
        let is_expected = cx.qp.is_sending() && requester.is_outstanding(packet.psn);
        if !is_expected || !self.check_msn(cx, requester, packet) {
            return drop_unexpected(cx);
        }
        if packet.becn {
            cx.qp.congestion.echoed();
        }
        let psn = packet.psn;
        match packet.message {
            Message::Acknowledge(aeth) => self.handle_acknowledge(cx, requester, psn, aeth),
            Message::ReadResponse { .. } => {
                self.respond(cx, requester, psn, Response::Data(payload), memory);
            }
            Message::AtomicAcknowledge { original, .. } => {
                self.respond(cx, requester, psn, Response::Original(original), memory);
            }
            _ => {}
        }
    }

    /// Checks the MSN of a response, and stores it. A response without AETH has none.
    #[inline(always)]
    fn check_msn(&mut self, cx: &Context<'_>, requester: &Requester, packet: &Packet) -> bool {
        let aeth = match packet.message {
            Message::Acknowledge(aeth) | Message::AtomicAcknowledge { aeth, .. } => aeth,
            Message::ReadResponse {
                aeth: Some(aeth), ..
            } => aeth,
            _ => return true,
        };
        let messages = requester.messages_outstanding(cx.qp) + self.expected.read_ends.len() as u32;
        let is_known = cx.origin.is_known(cx.qp.attr.destination);
        self.msn.accepts_msn(aeth.msn, messages, is_known)
    }

    #[inline(always)]
    fn handle_acknowledge(
        &mut self,
        cx: &mut Context<'_>,
        requester: &mut Requester,
        psn: Psn,
        aeth: Aeth,
    ) {
        cx.resources.port.counters.received_acks += 1;
        match aeth.syndrome {
            Syndrome::Ack(_) => self.ack(cx, requester, psn.plus(1)),
            Syndrome::RnrNak(code) => self.rnr_nak(cx, requester, psn, code),
            Syndrome::Nak(0) => self.sequence_nak(cx, requester, psn),
            Syndrome::Nak(code) => self.nak(cx, requester, psn, code),
            READY if cx.origin.transport().announces_receives() => {
                self.receiver_ready(cx, requester, psn)
            }
            Syndrome::Reserved(_) => drop_unexpected(cx),
        }
    }

    /// Handles an ACK: all packets before `end` arrived. A READ or atomic among them without a response is an
    /// implied NAK.
    #[inline(always)]
    fn ack(&mut self, cx: &mut Context<'_>, requester: &mut Requester, end: Psn) {
        let missing = requester.unanswered_before(end);
        self.progress(cx, requester, missing.unwrap_or(end));
        if missing.is_some() && !cx.qp.out_of_order {
            self.implied_nak(cx, requester);
        }
    }

    /// Moves the acknowledged edge up to `end`.
    #[inline(always)]
    fn progress(&mut self, cx: &mut Context<'_>, requester: &mut Requester, end: Psn) {
        let gained = requester.acknowledge_before(end);
        if gained == 0 {
            return;
        }
        self.expected.forget_ends_up_to(end);
        self.retries = 0;
        self.rnr_retries = 0;
        self.recovering = false;
        cx.qp
            .congestion
            .acknowledged(gained.saturating_mul(cx.qp.mtu()), cx.now);
        requester.restart_ack_timer(cx);
        requester.retire(cx);
    }

    /// Handles a NAK, PSN sequence error: all packets before `psn` arrived, and `psn` did not.
    fn sequence_nak(&mut self, cx: &mut Context<'_>, requester: &mut Requester, psn: Psn) {
        if self.recovering && requester.is_about_to_resend(psn) {
            // The same gap again, before the missing packet was sent again.
            return drop_unexpected(cx);
        }
        cx.resources.port.counters.packet_seq_err += 1;
        log::peer_nak(cx.qp, psn, "PSN sequence error");
        self.ack(cx, requester, psn);
        cx.qp.congestion.lost(cx.now);
        if cx.qp.out_of_order && cx.qp.transport.repeats_single_packets() {
            return requester.resend(psn);
        }
        self.retry(cx, requester);
        let waits = self.recovering && !cx.qp.timers.is_set(Timer::Resume);
        let recovery = cx.resources.config.recovery_ns;
        if waits && recovery.0 > 0 {
            cx.qp.timers.set(Timer::Resume, cx.now + recovery);
        }
    }

    /// Handles a response that shows the loss of an earlier one (IBTA 9.7.5.1.3). Counted once per gap.
    fn implied_nak(&mut self, cx: &mut Context<'_>, requester: &mut Requester) {
        if self.recovering || !cx.qp.is_sending() {
            return;
        }
        cx.resources.port.counters.implied_nak_seq_err += 1;
        log::retry(cx.qp, self.retries, "an earlier response was lost");
        cx.qp.congestion.lost(cx.now);
        self.retry(cx, requester);
    }

    /// Handles an RNR NAK: all packets before `psn` arrived, `psn` is retransmitted after a wait (IBTA
    /// 9.7.5.2.8).
    fn rnr_nak(&mut self, cx: &mut Context<'_>, requester: &mut Requester, psn: Psn, code: u8) {
        if self.waits_for_receiver {
            // The responder sends nothing after an RNR NAK until the request is repeated.
            return drop_unexpected(cx);
        }
        cx.resources.port.counters.rnr_nak_received += 1;
        cx.qp.counters.rnr_nak_received += 1;
        log::receiver_not_ready(cx.qp, psn, self.rnr_retries);
        self.ack(cx, requester, psn);
        if !cx.qp.is_sending() {
            return;
        }
        let forever = cx.qp.attr.rnr_retry == RNR_RETRY_FOREVER;
        if !forever && self.rnr_retries >= cx.qp.attr.rnr_retry {
            cx.resources.port.counters.rnr_nak_retry_err += 1;
            return requester.fail_oldest(cx, Status::RnrRetryExceeded);
        }
        self.rnr_retries = self.rnr_retries.saturating_add(1);
        self.go_back(requester);
        self.recovering = false;
        self.waits_for_receiver = true;
        cx.qp.timers.stop(Timer::Retransmit);
        cx.qp.timers.set(Timer::Resume, cx.now + rnr_wait(code));
    }

    /// Handles a READY answer: the peer has posted a receive after its RNR NAK. The shortened wait does not
    /// count as a retry.
    fn receiver_ready(&mut self, cx: &mut Context<'_>, requester: &mut Requester, psn: Psn) {
        self.ack(cx, requester, psn);
        self.waits_for_receiver = false;
        if cx.qp.timers.is_set(Timer::Resume) {
            cx.qp.timers.stop(Timer::Resume);
            self.rnr_retries = self.rnr_retries.saturating_sub(1);
        }
    }

    /// Handles a NAK that allows no retry: the request with this PSN fails.
    fn nak(&mut self, cx: &mut Context<'_>, requester: &mut Requester, psn: Psn, code: u8) {
        if !requester
            .entry_of(psn)
            .is_some_and(|entry| can_be_refused(&entry.operation, code))
        {
            return drop_unexpected(cx);
        }
        cx.resources.port.counters.received_error_naks += 1;
        log::peer_nak(cx.qp, psn, nak_name(code));
        self.ack(cx, requester, psn);
        if !cx.qp.is_sending() {
            return;
        }
        let status = match code {
            1 => Status::RemoteInvalidRequest,
            2 => Status::RemoteAccess,
            _ => Status::RemoteOperation,
        };
        // Earlier requests without a response cannot complete any more: the oldest completes with the error.
        requester.fail_oldest(cx, status);
    }

    /// Handles a CNP: the peer received marked packets. A CNP contains nothing that only the peer knows, so
    /// one that cannot be caused by sent packets, or that comes too soon after others, is ignored.
    pub(super) fn handle_notification(&mut self, cx: &mut Context<'_>, requester: &Requester) {
        if !self.notifications.may_come(cx, requester) {
            cx.resources.port.counters.rp_cnp_ignored += 1;
            return;
        }
        cx.resources.port.counters.rp_cnp_handled += 1;
        cx.qp.counters.rp_cnp_handled += 1;
        cx.qp.congestion.notified(cx.now);
    }
}

/// Timeouts and retries.
impl Completer {
    /// The local ACK timer has expired.
    pub(super) fn handle_ack_timeout(&mut self, cx: &mut Context<'_>, requester: &mut Requester) {
        if !cx.qp.is_sending() || !requester.is_waiting() {
            return;
        }
        cx.resources.port.counters.local_ack_timeout_err += 1;
        cx.qp.counters.local_ack_timeout_err += 1;
        log::retry(
            cx.qp,
            self.retries,
            "no acknowledgement within the local ACK timeout",
        );
        self.msn.forget();
        cx.qp.congestion.timed_out(cx.now);
        self.retry(cx, requester);
    }

    /// Handles the end of the wait after an RNR NAK or a sequence error.
    pub(super) fn handle_resume(&mut self) {
        self.waits_for_receiver = false;
    }

    /// Goes back to the oldest unacknowledged packet, if a retry is left.
    fn retry(&mut self, cx: &mut Context<'_>, requester: &mut Requester) {
        if !cx.qp.is_sending() || !requester.is_waiting() {
            return;
        }
        if self.retries >= cx.qp.attr.retry_count {
            cx.resources.port.counters.retry_exceeded_err += 1;
            return requester.fail_oldest(cx, Status::RetryExceeded);
        }
        self.retries += 1;
        self.go_back(requester);
        requester.restart_ack_timer(cx);
    }

    fn go_back(&mut self, requester: &mut Requester) {
        self.expected.outstanding.clear();
        self.ahead.clear();
        self.recovering = true;
        requester.go_back();
    }
}

/// Responses to READs and atomics.
impl Completer {
    /// Handles a READ response, or the result of an atomic: it must be that of the oldest outstanding
    /// request.
    #[inline(always)]
    fn respond(
        &mut self,
        cx: &mut Context<'_>,
        requester: &mut Requester,
        psn: Psn,
        response: Response<'_>,
        memory: &mut impl Memory,
    ) {
        if cx.qp.out_of_order {
            return self.respond_in_any_order(cx, requester, psn, response, memory);
        }
        let expected = self.expected.outstanding.front().map(|oldest| oldest.next);
        match expected.map(|expected| psn.distance_from(expected)) {
            Some(0) => {}
            Some(1..) => return self.implied_nak(cx, requester),
            _ => return drop_unexpected(cx),
        }
        let packets = self.packets_of(cx, &response);
        match store_response(cx, requester, psn, packets, response, memory) {
            Ok(()) => self.take_response(cx, requester, psn.plus(packets - 1)),
            Err(status) => requester.fail_oldest(cx, status),
        }
    }

    /// Handles a response where responses may overtake each other.
    fn respond_in_any_order(
        &mut self,
        cx: &mut Context<'_>,
        requester: &mut Requester,
        psn: Psn,
        response: Response<'_>,
        memory: &mut impl Memory,
    ) {
        let asked = |read: &Outstanding| psn.is_before(read.end) && !psn.is_before(read.next);
        let oldest = self
            .expected
            .outstanding
            .front()
            .filter(|_| self.expected.outstanding.iter().any(asked));
        let oldest = oldest.map(|read| read.next);
        let distance = oldest.map_or(u32::MAX, |oldest| psn.distance_from(oldest) as u32);
        let Some(oldest) = oldest.filter(|_| distance <= cx.resources.config.reorder_window) else {
            return drop_unexpected(cx);
        };
        if distance > 0 && !self.ahead.note_arrival(distance) {
            return;
        }
        let packets = self.packets_of(cx, &response);
        let last = psn.plus(packets - 1);
        if let Err(status) = store_response(cx, requester, psn, packets, response, memory) {
            return requester.fail_oldest(cx, status);
        }
        if distance == 0 {
            self.take_arrived(cx, requester, last);
        } else {
            cx.resources.port.counters.placed_out_of_order += 1;
            self.suspect_loss(cx, requester, oldest, distance);
        }
    }

    /// Takes the response with this PSN, and those after it that arrived before it.
    fn take_arrived(&mut self, cx: &mut Context<'_>, requester: &mut Requester, mut psn: Psn) {
        loop {
            self.take_response(cx, requester, psn);
            let oldest = self
                .expected
                .outstanding
                .front()
                .filter(|_| cx.qp.is_sending());
            let Some(oldest) = oldest else {
                return self.ahead.clear();
            };
            // Requests without a response may lie between two that have one.
            let steps = oldest.next.distance_from(psn);
            psn = oldest.next;
            let mut arrived = false;
            for _ in 0..steps {
                arrived = self.ahead.step();
            }
            if !arrived {
                return;
            }
        }
    }

    /// A response this far ahead of a missing one means that it was lost: half of the window remains for its
    /// retransmission.
    fn suspect_loss(
        &mut self,
        cx: &mut Context<'_>,
        requester: &mut Requester,
        missing: Psn,
        distance: u32,
    ) {
        let lost = distance >= cx.resources.config.reorder_window / 2;
        if lost && !self.recovering {
            self.recovering = true;
            cx.resources.port.counters.implied_nak_seq_err += 1;
            cx.qp.congestion.lost(cx.now);
            requester.resend(missing);
        }
    }

    /// Number of packets that a response represents, at most as many as were requested.
    #[inline(always)]
    fn packets_of(&self, cx: &Context<'_>, response: &Response<'_>) -> u32 {
        let (Response::Data(payload), Some(oldest)) = (response, self.expected.outstanding.front())
        else {
            return 1;
        };
        let asked = oldest.end.distance_from(oldest.next).max(1) as u32;
        let packets = cx
            .origin
            .transport()
            .packets_of(payload.len(), cx.qp.mtu())
            .unwrap_or(1);
        packets.min(asked)
    }

    /// Records that the responses up to this PSN, of the oldest outstanding request, are in memory.
    #[inline(always)]
    fn take_response(&mut self, cx: &mut Context<'_>, requester: &mut Requester, psn: Psn) {
        if let Some(oldest) = self.expected.outstanding.front_mut() {
            oldest.next = psn.plus(1);
            if oldest.next == oldest.end {
                self.expected.outstanding.pop_front();
            }
        }
        self.progress(cx, requester, psn.plus(1));
    }
}

/// Stores a response, which represents so many packets, at the position that its PSN gives.
#[inline(always)]
fn store_response(
    cx: &mut Context<'_>,
    requester: &Requester,
    psn: Psn,
    packets: u32,
    response: Response<'_>,
    memory: &mut impl Memory,
) -> Result<(), Status> {
    let entry = requester.entry_of(psn).ok_or(Status::BadResponse)?;
    let mtu = cx.qp.mtu();
    let offset = (psn.distance_from(entry.first_psn) as u32).saturating_mul(mtu);
    match (entry.operation, response) {
        (Operation::Read { .. }, Response::Data(payload)) => {
            if payload.len() != entry.length.saturating_sub(offset).min(mtu * packets) {
                return Err(Status::BadResponse);
            }
            store_payload(cx, requester, entry, offset, payload, memory)
        }
        // An ATOMIC WRITE is answered by an empty READ response (IBTA A19.4.3).
        (Operation::AtomicWrite { .. }, Response::Data(payload)) if payload.is_empty() => Ok(()),
        (Operation::CompareSwap { .. } | Operation::FetchAdd { .. }, Response::Original(value)) => {
            let value = value.to_ne_bytes();
            store_payload(cx, requester, entry, 0, Payload::Bytes(&value), memory)
        }
        _ => Err(Status::BadResponse),
    }
}

/// Stores payload in the memory of a request, from `offset` on.
#[inline(always)]
fn store_payload(
    cx: &mut Context<'_>,
    requester: &Requester,
    entry: &SendEntry,
    offset: u32,
    payload: Payload<'_>,
    memory: &mut impl Memory,
) -> Result<(), Status> {
    cx.resources
        .resolve(
            cx.qp.pd(),
            requester.sges(entry),
            offset,
            payload.len(),
            Access::LOCAL_WRITE,
        )
        .and_then(|pieces| scatter(pieces, payload, memory))
        .map_err(|error| match error {
            Unresolved::Key | Unresolved::Payload => Status::LocalProtection,
            Unresolved::TooShort => Status::LocalLength,
        })
}

/// The name of a NAK code (IBTA table 45).
fn nak_name(code: u8) -> &'static str {
    match code {
        1 => "invalid request",
        2 => "remote access error",
        3 => "remote operational error",
        4 => "invalid RD request",
        _ => "reserved NAK code",
    }
}

fn drop_unexpected(cx: &mut Context<'_>) {
    cx.resources.port.counters.dropped_unexpected_response += 1;
}
