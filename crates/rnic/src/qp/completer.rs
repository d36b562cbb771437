//! The completer: takes the peer's answers (IBTA 9.7.5, 9.7.6).

use super::Qp;
use super::attr::State;
use super::responder::READY;
use super::timer;
use crate::access::Access;
use crate::completion::Status;
use crate::memory::{Memory, Payload};
use crate::resources::{Resources, Unresolved, scatter};
use crate::time::Instant;
use crate::work::Operation;
use wire::{Aeth, Message, Packet, Psn, Syndrome};

/// `rnr_retry` of 7 means for ever (IBTA 9.7.5.2.8).
const RNR_RETRY_FOREVER: u8 = 7;

impl Qp {
    /// Handles an ACK, a NAK, a READ response or an atomic's result.
    pub(crate) fn handle_response(
        &mut self,
        resources: &mut Resources,
        now: Instant,
        packet: &Packet,
        payload: Payload<'_>,
        memory: &mut impl Memory,
    ) {
        let sending = matches!(self.state, State::ReadyToSend | State::SendQueueDrained);
        // Only what was sent can be answered: anything else is stale, or forged.
        let asked =
            !packet.psn.is_before(self.requester.unacknowledged) && packet.psn.is_before(self.requester.high);
        if !sending || !asked {
            resources.counters.dropped_unexpected_response += 1;
            return;
        }
        match packet.message {
            Message::Acknowledge(aeth) => self.handle_acknowledge(resources, now, packet.psn, aeth),
            Message::ReadResponse { .. } => {
                self.handle_answer(resources, now, packet.psn, Answer::Data(payload), memory);
            }
            Message::AtomicAcknowledge { original, .. } => {
                self.handle_answer(resources, now, packet.psn, Answer::Original(original), memory);
            }
            _ => {}
        }
    }

    fn handle_acknowledge(&mut self, resources: &mut Resources, now: Instant, psn: Psn, aeth: Aeth) {
        resources.counters.received_acks += 1;
        match aeth.syndrome {
            Syndrome::Ack(_) => self.acknowledged(resources, psn.plus(1), now),
            Syndrome::RnrNak(code) => self.not_ready(resources, psn, code, now),
            Syndrome::Nak(0) => self.sequence_error(resources, psn, now),
            Syndrome::Nak(code) => self.refused(resources, psn, code, now),
            READY if resources.senders.is_some() => self.ready(resources, psn, now),
            Syndrome::Reserved(_) => resources.counters.dropped_unexpected_response += 1,
        }
    }

    /// Everything before `end` arrived. A READ or atomic among it whose answer did not come is an implied
    /// NAK.
    fn acknowledged(&mut self, resources: &mut Resources, end: Psn, now: Instant) {
        let missing = self.answered_before(end);
        self.progress(resources, missing.unwrap_or(end), now);
        if missing.is_some() && !self.out_of_order {
            self.implied_nak(resources, now);
        }
    }

    /// The first PSN before `end` that waits for a response. Told from the requests themselves: after going
    /// back, a READ that is to be sent again is not outstanding, and a late acknowledgement must not pass it.
    fn answered_before(&self, end: Psn) -> Option<Psn> {
        let begun = (0..self.requester.started).filter_map(|index| self.send.entry(index));
        let unanswered = begun.take_while(|entry| entry.first_psn.is_before(end)).find(|entry| {
            entry.wants_response() && self.requester.unacknowledged.is_before(entry.end_psn())
        })?;
        let partly = unanswered.first_psn.is_before(self.requester.unacknowledged);
        Some(if partly { self.requester.unacknowledged } else { unanswered.first_psn })
    }

    /// Moves the acknowledged edge up to `end`.
    fn progress(&mut self, resources: &mut Resources, end: Psn, now: Instant) {
        let gained = end.distance_from(self.requester.unacknowledged);
        if gained <= 0 {
            return;
        }
        self.requester.unacknowledged = end;
        self.requester.forget_read_ends();
        self.requester.heard = true;
        self.requester.retries = 0;
        self.requester.rnr_retries = 0;
        self.requester.recovering = false;
        self.congestion.acknowledged((gained as u32).saturating_mul(self.mtu()), now);
        if self.requester.next.is_before(end) {
            // A late acknowledgement of packets that were to be sent again.
            self.requester.seek(&self.send, end);
        }
        self.restart_retransmit(now);
        self.retire(resources, now);
    }

    /// A PSN sequence error: all before `psn` arrived, and `psn` did not.
    fn sequence_error(&mut self, resources: &mut Resources, psn: Psn, now: Instant) {
        resources.counters.packet_seq_err += 1;
        self.acknowledged(resources, psn, now);
        self.congestion.lost(now);
        if self.out_of_order {
            if !self.requester.resend.contains(&psn) {
                self.requester.resend.push_back(psn);
            }
        } else {
            self.retry(resources, now);
            let waits = self.requester.recovering && self.requester.resume_at.is_none();
            let recovery = resources.config.recovery_ns;
            if waits && recovery.0 > 0 {
                self.requester.resume_at = Some(now + recovery);
            }
        }
    }

    /// A response says that an earlier one was lost (IBTA 9.7.5.1.3). Told once per gap.
    pub(super) fn implied_nak(&mut self, resources: &mut Resources, now: Instant) {
        if self.requester.recovering || self.state == State::Error {
            return;
        }
        resources.counters.implied_nak_seq_err += 1;
        self.congestion.lost(now);
        self.retry(resources, now);
    }

    /// Goes back to the oldest packet that is not acknowledged, if a retry is left.
    pub(super) fn retry(&mut self, resources: &mut Resources, now: Instant) {
        if !matches!(self.state, State::ReadyToSend | State::SendQueueDrained) || !self.requester.is_waiting()
        {
            return;
        }
        if self.requester.retries >= self.attr.retry_count {
            resources.counters.retry_exceeded_err += 1;
            self.fail_request(resources, Status::RetryExceeded, now);
            return;
        }
        self.requester.retries += 1;
        self.go_back();
        self.restart_retransmit(now);
    }

    fn go_back(&mut self) {
        let requester = &mut self.requester;
        requester.outstanding.clear();
        requester.resend.clear();
        requester.ahead.clear();
        requester.recovering = true;
        // Found again when its turn comes.
        requester.fault = None;
        let from = requester.unacknowledged;
        requester.seek(&self.send, from);
    }

    /// RNR NAK: all before `psn` arrived, `psn` comes again after a while (IBTA 9.7.5.2.8).
    fn not_ready(&mut self, resources: &mut Resources, psn: Psn, code: u8, now: Instant) {
        resources.counters.rnr_nak_received += 1;
        self.counters.rnr_nak_received += 1;
        self.acknowledged(resources, psn, now);
        if !matches!(self.state, State::ReadyToSend | State::SendQueueDrained) {
            return;
        }
        let forever = self.attr.rnr_retry == RNR_RETRY_FOREVER;
        if !forever && self.requester.rnr_retries >= self.attr.rnr_retry {
            resources.counters.rnr_nak_retry_err += 1;
            self.fail_request(resources, Status::RnrRetryExceeded, now);
            return;
        }
        self.requester.rnr_retries = self.requester.rnr_retries.saturating_add(1);
        self.go_back();
        self.requester.recovering = false;
        self.requester.retransmit_at = None;
        self.requester.resume_at = Some(now + timer::rnr_wait(code));
    }

    /// The peer has what it lacked when it sent its RNR NAK. A wait that is cut short is no retry.
    fn ready(&mut self, resources: &mut Resources, psn: Psn, now: Instant) {
        self.acknowledged(resources, psn, now);
        if self.requester.resume_at.take().is_some() {
            self.requester.rnr_retries = self.requester.rnr_retries.saturating_sub(1);
        }
    }

    /// A NAK that no retry mends: the request with this PSN fails.
    fn refused(&mut self, resources: &mut Resources, psn: Psn, code: u8, now: Instant) {
        resources.counters.received_error_naks += 1;
        self.acknowledged(resources, psn, now);
        if !matches!(self.state, State::ReadyToSend | State::SendQueueDrained) {
            return;
        }
        let status = match code {
            1 => Status::RemoteInvalidRequest,
            2 => Status::RemoteAccess,
            3 => Status::RemoteOperation,
            _ => Status::BadResponse,
        };
        // Requests before it whose answers are still due cannot complete any more: the oldest carries the
        // error.
        self.fail_request(resources, status, now);
    }

    /// A READ response, or the result of an atomic: the oldest one outstanding is due.
    fn handle_answer(
        &mut self,
        resources: &mut Resources,
        now: Instant,
        psn: Psn,
        answer: Answer<'_>,
        memory: &mut impl Memory,
    ) {
        if self.out_of_order {
            return self.handle_answer_ahead(resources, now, psn, answer, memory);
        }
        let expected = self.requester.outstanding.front().map(|oldest| oldest.next);
        match expected.map(|expected| psn.distance_from(expected)) {
            Some(0) => {}
            Some(1..) => return self.implied_nak(resources, now),
            _ => {
                resources.counters.dropped_unexpected_response += 1;
                return;
            }
        }
        let last = psn.plus(self.packets_of(resources, &answer) - 1);
        match self.place_answer(resources, psn, answer, memory) {
            Ok(()) => self.answer_taken(resources, last, now),
            Err(status) => self.fail_request(resources, status, now),
        }
    }

    /// For how many packets an answer stands: one, but on a lane, and never for more than were asked for.
    pub(super) fn packets_of(&self, resources: &Resources, answer: &Answer<'_>) -> u32 {
        match (answer, self.requester.outstanding.front(), resources.senders) {
            (Answer::Data(payload), Some(oldest), Some(_)) => {
                let asked = oldest.end.distance_from(oldest.next).max(1) as u32;
                payload.len().div_ceil(self.mtu()).clamp(1, asked)
            }
            _ => 1,
        }
    }

    /// The answer with this PSN, the oldest outstanding, is in memory.
    pub(super) fn answer_taken(&mut self, resources: &mut Resources, psn: Psn, now: Instant) {
        if let Some(oldest) = self.requester.outstanding.front_mut() {
            oldest.next = psn.plus(1);
            if oldest.is_done() {
                self.requester.outstanding.pop_front();
            }
        }
        self.progress(resources, psn.plus(1), now);
    }

    /// Stores an answer where its PSN says that it belongs.
    pub(super) fn place_answer(
        &mut self,
        resources: &mut Resources,
        psn: Psn,
        answer: Answer<'_>,
        memory: &mut impl Memory,
    ) -> Result<(), Status> {
        let index = self.send.find(psn, self.requester.started).ok_or(Status::BadResponse)?;
        let entry = self.send.entry(index).ok_or(Status::BadResponse)?;
        let mtu = self.mtu();
        let offset = (psn.distance_from(entry.first_psn) as u32).saturating_mul(mtu);
        match (entry.operation, answer) {
            (Operation::Read { .. }, Answer::Data(payload)) => {
                let packets = self.packets_of(resources, &answer);
                if payload.len() != entry.length.saturating_sub(offset).min(mtu * packets) {
                    return Err(Status::BadResponse);
                }
                self.store(resources, index, offset, payload, memory)
            }
            // An ATOMIC WRITE is answered by an empty READ response (IBTA A19.4.3).
            (Operation::AtomicWrite { .. }, Answer::Data(payload)) if payload.is_empty() => Ok(()),
            (Operation::CompareSwap { .. } | Operation::FetchAdd { .. }, Answer::Original(value)) => {
                self.store(resources, index, 0, Payload::Bytes(&value.to_ne_bytes()), memory)
            }
            _ => Err(Status::BadResponse),
        }
    }

    fn store(
        &self,
        resources: &mut Resources,
        index: usize,
        offset: u32,
        payload: Payload<'_>,
        memory: &mut impl Memory,
    ) -> Result<(), Status> {
        let Some(entry) = self.send.entry(index) else { return Err(Status::BadResponse) };
        let sges = self.send.sges(entry);
        resources
            .resolve(self.pd(), sges, offset, payload.len(), Access::LOCAL_WRITE)
            .and_then(|pieces| scatter(pieces, payload, memory))
            .map_err(|error| match error {
                Unresolved::Key => Status::LocalProtection,
                Unresolved::TooShort => Status::LocalLength,
            })
    }
}

/// What answers a READ, an atomic or an ATOMIC WRITE.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer<'a> {
    /// A READ response packet.
    Data(Payload<'a>),
    /// The value before an atomic.
    Original(u64),
}
