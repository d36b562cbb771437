//! READs and atomics: executing them, and sending what the responder owes.

use super::Qp;
use super::requester::Step;
use super::responder::{ANSWERS_MAX, Answer, Body, Refusal};
use crate::access::Access;
use crate::memory::{Gather, Memory, Payload, Piece};
use crate::resources::Resources;
use crate::sink::Sink;
use wire::{Aeth, AtomicEth, Message, Packet, Position, Psn, Reth, Syndrome};

/// Part of the answer to a READ that another device gave: `sent` of `packets` have left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passed {
    pub(super) psn: Psn,
    pub(super) packets: u32,
    pub(super) sent: u32,
    /// The READ's first is among them.
    pub(super) starts: bool,
    /// Its last is.
    pub(super) ends: bool,
    pub(super) msn: u32,
}

impl Qp {
    /// Packets that answer a READ: one even for no bytes (IBTA 9.7.2).
    pub(super) fn response_packets(&self, reth: &Reth) -> u32 {
        reth.length.div_ceil(self.mtu()).max(1)
    }

    pub(super) fn execute_read(
        &mut self,
        resources: &mut Resources,
        packet: &Packet,
        reth: Reth,
    ) -> Result<u32, Refusal> {
        self.queue_read(resources, packet, reth, false)?;
        self.count_message();
        Ok(self.response_packets(&reth))
    }

    /// Checks a READ and queues its answer, for a new request and for a duplicate.
    pub(super) fn queue_read(
        &mut self,
        resources: &Resources,
        packet: &Packet,
        reth: Reth,
        again: bool,
    ) -> Result<(), Refusal> {
        let queued = self.responder.answers.iter().filter(|answer| answer.counts(again));
        let too_many = queued.count() >= usize::from(self.attr.max_dest_rd_atomic);
        if too_many && self.out_of_order {
            return Err(Refusal::Busy);
        }
        if too_many || !self.attr.access.contains(Access::REMOTE_READ) || reth.length > 1 << 31 {
            return Err(Refusal::Invalid);
        }
        let need = Access::REMOTE_READ;
        self.remote_piece(resources, packet, reth.rkey, reth.address, reth.length, need)?;
        self.responder.answers.push_back(Answer::Read {
            request: *packet,
            packets: self.response_packets(&reth),
            sent: 0,
            reth,
            again,
            msn: self.next_msn(),
        });
        Ok(())
    }

    pub(super) fn execute_atomic(
        &mut self,
        resources: &mut Resources,
        packet: &Packet,
        eth: &AtomicEth,
        compare: Option<u64>,
        memory: &mut impl Memory,
    ) -> Result<(), Refusal> {
        let limit = usize::from(self.attr.max_dest_rd_atomic);
        let allowed = self.attr.access.contains(Access::REMOTE_ATOMIC) && limit > 0;
        if !allowed || !eth.address.is_multiple_of(8) {
            return Err(Refusal::Invalid);
        }
        let piece = self
            .remote_piece(resources, packet, eth.rkey, eth.address, 8, Access::REMOTE_ATOMIC)?
            .filter(is_aligned)
            .ok_or(Refusal::Invalid)?;
        let done = match compare {
            Some(compare) => memory.compare_swap(piece, compare, eth.swap_add),
            None => memory.fetch_add(piece, eth.swap_add),
        };
        let original = done.map_err(|_| Refusal::Access)?;
        self.remember_atomic(packet.psn, original);
        self.count_message();
        self.responder.answers.push_back(Answer::Atomic {
            psn: packet.psn,
            original,
            msn: self.responder.msn,
            again: false,
        });
        Ok(())
    }

    /// As many as the peer may have outstanding: a duplicate must find its result (IBTA 9.7.5.1.5).
    pub(super) fn remember_atomic(&mut self, psn: Psn, original: u64) {
        if self.responder.atomics.len() >= usize::from(self.attr.max_dest_rd_atomic) {
            self.responder.atomics.pop_front();
        }
        self.responder.atomics.push_back((psn, original));
    }

    pub(super) fn execute_atomic_write(
        &mut self,
        resources: &mut Resources,
        packet: &Packet,
        reth: Reth,
        body: Body<'_>,
        memory: &mut impl Memory,
    ) -> Result<(), Refusal> {
        if !self.attr.access.contains(Access::REMOTE_WRITE)
            || !reth.address.is_multiple_of(8)
            || reth.length != 8
        {
            return Err(Refusal::Invalid);
        }
        let piece = self
            .remote_piece(resources, packet, reth.rkey, reth.address, 8, Access::REMOTE_WRITE)?
            .filter(is_aligned)
            .ok_or(Refusal::Invalid)?;
        match body {
            Body::Here(Payload::Bytes(bytes)) => {
                let bytes = bytes.try_into().map_err(|_| Refusal::Invalid)?;
                memory.store(piece, bytes).map_err(|_| Refusal::Access)?;
            }
            Body::Here(Payload::Phantom(8)) => {}
            _ => return Err(Refusal::Invalid),
        }
        self.count_message();
        self.queue_written(packet, false);
        Ok(())
    }

    /// The answer to an ATOMIC WRITE: an empty READ response.
    pub(super) fn queue_written(&mut self, packet: &Packet, again: bool) {
        let reth = Reth { length: 0, ..Reth::default() };
        if self.responder.answers.len() >= ANSWERS_MAX {
            return;
        }
        let msn = self.responder.msn;
        self.responder.answers.push_back(Answer::Read {
            request: *packet,
            packets: 1,
            sent: 0,
            reth,
            msn,
            again,
        });
    }

    /// Sends the next packet that the responder owes.
    pub(super) fn answer(&mut self, resources: &mut Resources, sink: &mut impl Sink) -> Step {
        if core::mem::take(&mut self.responder.notify) {
            return self.send_notification(resources, sink);
        }
        let Some(&answer) = self.responder.answers.front() else { return Step::Blocked };
        let room = sink.room(&self.path, self.mtu());
        if room == 0 {
            return self.wait_for_room();
        }
        match answer {
            Answer::Acknowledge { psn, syndrome, msn } => {
                self.responder.answers.pop_front();
                resources.counters.sent_acks += 1;
                let message = Message::Acknowledge(Aeth { syndrome, msn });
                self.send_answer(resources, psn, message, Gather::EMPTY, sink);
            }
            Answer::Atomic { psn, original, msn, .. } => {
                self.responder.answers.pop_front();
                let aeth = Aeth { syndrome: Syndrome::ACK, msn };
                let message = Message::AtomicAcknowledge { aeth, original };
                self.send_answer(resources, psn, message, Gather::EMPTY, sink);
            }
            Answer::Read { request, packets, sent, reth, msn, .. } => {
                let count = room.min(packets - sent);
                self.send_read_response(resources, &request, packets, sent, count, &reth, msn, sink);
            }
            Answer::Passed(passed) => self.send_passed(resources, &passed, room, sink),
        }
        Step::Sent
    }

    #[allow(clippy::too_many_arguments)]
    fn send_read_response(
        &mut self,
        resources: &mut Resources,
        request: &Packet,
        packets: u32,
        sent: u32,
        count: u32,
        reth: &Reth,
        msn: u32,
        sink: &mut impl Sink,
    ) {
        match self.responder.answers.front_mut() {
            Some(Answer::Read { sent, .. }) if *sent + count < packets => *sent += count,
            _ => drop(self.responder.answers.pop_front()),
        }
        let psn = request.psn.plus(sent);
        let offset = sent * self.mtu();
        let length = (reth.length - offset).min(self.mtu() * count);
        let address = reth.address.wrapping_add(u64::from(offset));
        let ends = sent + count >= packets;
        let position = Position::of(sent, if ends { sent + 1 } else { packets });
        let aeth = (position != Position::Middle).then_some(Aeth { syndrome: Syndrome::ACK, msn });
        let message = Message::ReadResponse { position, aeth };
        // The region may have gone since the request came: then nothing of it may be read any more.
        match self.remote_piece(resources, request, reth.rkey, address, length, Access::REMOTE_READ) {
            Ok(piece) => {
                let pieces = piece.as_slice();
                if !self.send_answer(resources, psn, message, Gather::Pieces(pieces), sink) {
                    self.read_failed(psn);
                }
            }
            Err(_) => self.read_failed(psn),
        }
    }

    /// The next packets of an answer of another device.
    fn send_passed(&mut self, resources: &mut Resources, passed: &Passed, room: u32, sink: &mut impl Sink) {
        let (mtu, sent) = (self.mtu(), passed.sent);
        let count = room.min(passed.packets - sent);
        let ends = sent + count >= passed.packets;
        let Some(bytes) = self.responder.passed.pop_front() else { return };
        let from = ((sent * mtu) as usize).min(bytes.len());
        let to = (((sent + count) * mtu) as usize).min(bytes.len());
        let position = match (passed.starts && sent == 0, passed.ends && ends) {
            (true, true) => Position::Only,
            (true, false) => Position::First,
            (false, true) => Position::Last,
            (false, false) => Position::Middle,
        };
        let aeth =
            (position != Position::Middle).then_some(Aeth { syndrome: Syndrome::ACK, msn: passed.msn });
        let message = Message::ReadResponse { position, aeth };
        let psn = passed.psn.plus(sent);
        self.send_answer(
            resources,
            psn,
            message,
            Gather::Inline(bytes.get(from..to).unwrap_or_default()),
            sink,
        );
        match self.responder.answers.front_mut() {
            Some(Answer::Passed(first)) if !ends => {
                first.sent += count;
                self.responder.passed.push_front(bytes);
            }
            _ => drop(self.responder.answers.pop_front()),
        }
    }

    fn read_failed(&mut self, psn: Psn) {
        self.responder.forget_answers();
        self.responder.acknowledge(psn, Syndrome::NAK_REMOTE_ACCESS);
    }

    fn send_answer(
        &mut self,
        resources: &mut Resources,
        psn: Psn,
        message: Message,
        payload: Gather<'_>,
        sink: &mut impl Sink,
    ) -> bool {
        let packet = Packet::new(self.service(), self.attr.destination, psn, message);
        let length = payload.len();
        let sent = sink.send(&self.path, &packet, payload).is_ok();
        if sent {
            self.count_sent(resources, length);
        }
        sent
    }
}

fn is_aligned(piece: &Piece) -> bool {
    piece.address.is_multiple_of(8)
}
