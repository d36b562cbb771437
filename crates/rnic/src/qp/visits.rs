//! Requests that name a shared receive queue of another device of the domain: handing them on, in their turn
//! among our own, and passing the answers back ([`crate::domain`]).
//!
//! ```text
//!                 decided          expected            taken
//! ────────────────┼────────────────┼───────────────────┼────▶ PSN
//!  executed, and   handed on, not   wait: for a lane,   not
//!  answered        answered yet     for those before    here
//! ```
//!
//! Requests to one owner follow each other without a pause; one to somebody else, or to ourselves, waits
//! until all before it are decided. A refusal takes the queue pair back to the request that was refused.

use super::Qp;
use super::answer::Passed;
use super::attr::{Capacity, QpAttr, QpInit, QpType, State};
use super::requester::Step;
use super::responder::{Answer, Body, READY, Refusal};
use crate::access::Access;
use crate::address::{Path, Senders};
use crate::domain::{DomainName, Owner, Visit};
use crate::event::Event;
use crate::handle::Xrcd;
use crate::memory::{Memory, Payload};
use crate::resources::Resources;
use crate::sink::Sink;
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use wire::{Message, Packet, Position, Psn, Qpn, Syndrome};

/// Requests that wait at most, and their bytes. What comes beyond is dropped, as on a network: the peer is
/// told when those before are decided, and sends it again.
const WAITING_MAX: usize = 4096;
const WAITING_BYTES_MAX: usize = 4 << 20;
/// Bytes of answers that wait to be passed back. What comes beyond is dropped, and the peer asks again.
const PASSED_BYTES_MAX: usize = 16 << 20;
const CONNECTION_MASK: u32 = 0xff_ffff;

/// A connection whose requests visit other devices.
#[derive(Debug)]
pub(super) struct Visits {
    /// Tells it from those that the queue pair had before.
    connection: u32,
    /// Where requests were handed on last: the way, and the queue that was named.
    lane: u16,
    srq: Qpn,
    /// Something has come back from there.
    heard: bool,
    /// All ways at whose ends there is a guest.
    lanes: Vec<u16>,
    decided: Psn,
    taken: Psn,
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    /// Last PSNs of the messages that are handed on, not decided.
    ends: VecDeque<Psn>,
    /// A request was lost. The peer is told when everything before is decided: a NAK acknowledges that.
    gap: bool,
}

#[derive(Debug)]
struct Waiting {
    packet: Packet,
    payload: Box<[u8]>,
    /// By how many PSNs it moves us on; a READ that is asked for again by none.
    packets: u32,
    /// Its queue is not one of ours.
    elsewhere: bool,
    /// As it came.
    senders: Option<Senders>,
}

impl Visits {
    fn new(connection: u32, expected: Psn) -> Self {
        Self {
            connection,
            lane: 0,
            srq: Qpn::new(0),
            heard: false,
            lanes: Vec::new(),
            decided: expected,
            taken: expected,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            ends: VecDeque::new(),
            gap: false,
        }
    }

    /// While nothing is undecided, what we execute ourselves is not counted here.
    fn catch_up(&mut self, expected: Psn) {
        if self.decided == self.taken {
            (self.decided, self.taken) = (expected, expected);
        }
    }

    /// Everything that came from `psn` on has to come again.
    fn turn_back(&mut self, psn: Psn) {
        (self.decided, self.taken) = (psn, psn);
        self.waiting.clear();
        self.waiting_bytes = 0;
        self.ends.clear();
        self.gap = false;
    }

    fn pop(&mut self) -> Option<Waiting> {
        let next = self.waiting.pop_front()?;
        self.waiting_bytes -= next.payload.len();
        Some(next)
    }
}

/// The holder.
impl Qp {
    /// Its domain has this name, so that messages may name queues of other devices. Those are handed on in
    /// their turn: nothing is placed ahead of it.
    pub(crate) fn share(&mut self, domain: Option<DomainName>) {
        if self.kind == QpType::XrcReceive && domain.is_some() {
            self.domain = domain;
            self.out_of_order = false;
        }
    }

    pub(crate) fn visits(&self) -> bool {
        self.responder.visits.is_some()
    }

    /// Whether a request is not simply executed: it is not for us, or one before it is not decided.
    pub(super) fn goes_elsewhere(&self, resources: &Resources, packet: &Packet) -> bool {
        let is_behind = |visits: &Visits| visits.decided != visits.taken;
        is_elsewhere(resources, packet) || self.responder.visits.as_deref().is_some_and(is_behind)
    }

    /// Whether a request waits to be handed on.
    pub(super) fn has_visit(&self) -> bool {
        let next = self.responder.visits.as_ref().and_then(|visits| visits.waiting.front());
        next.is_some_and(|next| next.elsewhere)
    }

    /// Takes a request that is to be handed on, or that comes after one.
    pub(super) fn take_visit(
        &mut self,
        resources: &mut Resources,
        now: Instant,
        packet: &Packet,
        payload: Payload<'_>,
        memory: &mut impl Memory,
    ) {
        let expected = self.responder.expected;
        let connections = &mut resources.connections;
        let visits = self.responder.visits.get_or_insert_with(|| {
            *connections = (*connections + 1) & CONNECTION_MASK;
            Box::new(Visits::new(*connections, expected))
        });
        visits.catch_up(expected);
        match packet.psn.distance_from(visits.taken) {
            0 => self.enqueue(resources, packet, payload, memory),
            1.. => {
                visits.gap = true;
                resources.counters.out_of_sequence += 1;
                self.counters.out_of_sequence += 1;
            }
            _ => self.repeat(resources, now, packet),
        }
        self.execute_waiting(resources, now, memory);
    }

    fn enqueue(
        &mut self,
        resources: &Resources,
        packet: &Packet,
        payload: Payload<'_>,
        memory: &mut impl Memory,
    ) {
        let packets = match packet.message {
            Message::Send { position, .. } | Message::Write { position, .. } => {
                self.check_length(resources, position, payload.len()).ok()
            }
            Message::ReadRequest(reth) => (reth.length <= 1 << 31).then(|| self.response_packets(&reth)),
            Message::CompareSwap(_) | Message::FetchAdd(_) | Message::AtomicWrite(_) => Some(1),
            _ => None,
        };
        let Some(visits) = &mut self.responder.visits else { return };
        let bytes = visits.waiting_bytes + payload.len() as usize;
        if visits.waiting.len() >= WAITING_MAX || bytes > WAITING_BYTES_MAX {
            visits.gap = true;
            return;
        }
        visits.waiting_bytes = bytes;
        visits.taken = visits.taken.plus(packets.unwrap_or(1));
        visits.gap = false;
        let mut packet = *packet;
        // As in `execute_in_turn`.
        packet.ack_req |= core::mem::replace(&mut self.responder.waiting, false);
        visits.waiting.push_back(Waiting {
            packet,
            payload: memory.keep(payload),
            packets: packets.unwrap_or(1),
            // One that is malformed is refused by us, in its turn.
            elsewhere: packets.is_some() && is_elsewhere(resources, &packet),
            senders: resources.senders,
        });
    }

    /// A request that came before. What is not decided yet will be answered.
    fn repeat(&mut self, resources: &mut Resources, now: Instant, packet: &Packet) {
        let Some(visits) = &self.responder.visits else { return };
        let (decided, taken) = (visits.decided, visits.taken);
        let is_behind = decided != taken;
        let read_end = match packet.message {
            Message::ReadRequest(reth) => Some(packet.psn.plus(self.response_packets(&reth))),
            _ => None,
        };
        let is_decided = read_end.map_or(packet.psn.is_before(decided), |end| !decided.is_before(end));
        if is_behind && !is_decided {
            resources.counters.duplicate_request += 1;
            return;
        }
        match read_end.filter(|_| is_elsewhere(resources, packet)) {
            Some(end) => {
                resources.counters.duplicate_request += 1;
                self.forget_answers_from(packet.psn);
                let Some(visits) = &mut self.responder.visits else { return };
                if visits.waiting.len() >= WAITING_MAX {
                    return;
                }
                // A requester whose window has grown asks in larger pieces than before.
                let packets = end.distance_from(taken).max(0) as u32;
                visits.taken = taken.plus(packets);
                let (packet, senders) = (*packet, resources.senders);
                visits.waiting.push_back(Waiting {
                    packet,
                    payload: Box::default(),
                    packets,
                    elsewhere: true,
                    senders,
                });
            }
            None if is_plain(packet) => self.responder.acknowledge(decided.minus(1), Syndrome::ACK),
            None => self.handle_duplicate(resources, now, packet),
        }
    }

    /// Executes what waits and is for us, once everything before it is decided.
    fn execute_waiting(&mut self, resources: &mut Resources, now: Instant, memory: &mut impl Memory) {
        loop {
            let expected = self.responder.expected;
            let Some(visits) = &mut self.responder.visits else { return };
            if visits.decided != expected || visits.waiting.front().is_none_or(|next| next.elsewhere) {
                break;
            }
            let Some(next) = visits.pop() else { break };
            let before = core::mem::replace(&mut resources.senders, next.senders);
            let body = Body::Here(Payload::Bytes(&next.payload));
            self.execute_in_turn(resources, now, &next.packet, body, memory);
            resources.senders = before;
            let (expected, refused) = (self.responder.expected, self.responder.waiting);
            let Some(visits) = &mut self.responder.visits else { return };
            if refused {
                visits.turn_back(expected);
            }
            visits.decided = expected;
        }
        self.tell_gap(resources);
    }

    fn tell_gap(&mut self, resources: &mut Resources) {
        let Some(visits) = &mut self.responder.visits else { return };
        if visits.decided == visits.taken && core::mem::take(&mut visits.gap) {
            self.sequence_nak(resources);
        }
    }

    /// Hands the next request on, if it can be.
    pub(super) fn hand_on(&mut self, resources: &mut Resources, now: Instant, sink: &mut impl Sink) -> Step {
        let (expected, interrupts) = (self.responder.expected, self.responder.inbound.is_some());
        let visit = self.visit();
        let Some(visits) = &mut self.responder.visits else { return Step::Blocked };
        visits.catch_up(expected);
        let Some(next) = visits.waiting.front().filter(|next| next.elsewhere) else { return Step::Blocked };
        let (psn, srq) = (next.packet.psn, next.packet.xrc_srq.unwrap_or(Qpn::new(0)));
        let is_free = visits.decided == expected;
        let (lane, refusal) = match sink.owner(self.qpn, srq) {
            _ if interrupts => (0, Some(Refusal::Invalid)),
            Owner::Lane(lane) => (lane, None),
            Owner::Asked => return self.wait_for_room(),
            Owner::Nobody => (0, Some(Refusal::Invalid)),
            Owner::OutOfReach => (0, Some(Refusal::Gone)),
        };
        if !is_free && (refusal.is_some() || lane != visits.lane) {
            return Step::Blocked;
        }
        if let Some(refusal) = refusal {
            self.refuse(resources, psn, refusal, now);
            return Step::Went;
        }
        if sink.room(&Path { lane, ..self.path }, self.attr.path_mtu.bytes()) == 0 {
            return self.wait_for_room();
        }
        let Some(mut next) = visits.pop() else { return Step::Blocked };
        if lane != visits.lane {
            (visits.lane, visits.heard) = (lane, false);
        }
        if !visits.lanes.contains(&lane) {
            visits.lanes.push(lane);
        }
        visits.srq = srq;
        let ends = ends_message(&next.packet);
        next.packet.ack_req |= ends;
        self.responder.expected = expected.plus(next.packets);
        if ends && next.packets > 0 {
            visits.ends.push_back(self.responder.expected.minus(1));
        }
        if let Some(visit) = visit {
            sink.visit(lane, &visit, &next.packet, &next.payload);
        }
        Step::Sent
    }

    /// What owners are told.
    fn visit(&self) -> Option<Visit> {
        let connection = self.responder.visits.as_ref()?.connection;
        Some(Visit {
            holder: self.qpn,
            connection,
            domain: self.domain?,
            access: self.attr.access & Access::REMOTE,
            path_mtu: self.attr.path_mtu,
            min_rnr_timer: self.attr.min_rnr_timer,
            max_dest_rd_atomic: self.attr.max_dest_rd_atomic,
            ends: false,
        })
    }

    /// An owner says what became of what was handed on to it.
    pub(crate) fn handle_verdict(
        &mut self,
        resources: &mut Resources,
        now: Instant,
        packet: &Packet,
        payload: Payload<'_>,
        memory: &mut impl Memory,
    ) {
        if !self.is_verdict(resources, packet) {
            resources.counters.dropped_unexpected_response += 1;
            return;
        }
        match packet.message {
            Message::Acknowledge(aeth) => self.owner_says(resources, now, packet.psn, aeth.syndrome),
            Message::AtomicAcknowledge { original, .. } => self.pass_original(packet.psn, original),
            Message::ReadResponse { position, .. } => {
                self.pass_data(packet.psn, position, memory.keep(payload));
            }
            _ => {}
        }
        self.execute_waiting(resources, now, memory);
    }

    /// Whether it is about this connection, and from whom we asked last. The responses in the middle of a
    /// READ do not say which connection it is; those before them did.
    fn is_verdict(&mut self, resources: &Resources, packet: &Packet) -> bool {
        let expected = self.responder.expected;
        let Some(visits) = &mut self.responder.visits else { return false };
        visits.catch_up(expected);
        let aeth = match packet.message {
            Message::Acknowledge(aeth) | Message::AtomicAcknowledge { aeth, .. } => Some(aeth),
            Message::ReadResponse { aeth, .. } => aeth,
            _ => None,
        };
        let ours = aeth.map_or(visits.heard, |aeth| aeth.msn == visits.connection);
        let is_it = ours && resources.senders.is_some_and(|senders| senders.have(visits.srq));
        visits.heard |= is_it;
        is_it
    }

    /// Everything before `end` is decided. Whether that is something new.
    fn decide(&mut self, end: Psn) -> bool {
        let expected = self.responder.expected;
        let Some(visits) = &mut self.responder.visits else { return false };
        let is_new = visits.decided.is_before(end) && !expected.is_before(end);
        if is_new {
            visits.decided = end;
            let before = visits.ends.len();
            while visits.ends.front().is_some_and(|last| last.is_before(end)) {
                visits.ends.pop_front();
            }
            let done = before - visits.ends.len();
            (0..done).for_each(|_| self.count_message());
        }
        is_new
    }

    fn owner_says(&mut self, resources: &mut Resources, now: Instant, psn: Psn, syndrome: Syndrome) {
        if let Syndrome::Ack(_) = syndrome {
            if self.decide(psn.plus(1)) {
                self.responder.acknowledge(psn, Syndrome::ACK);
            }
            return;
        }
        let Some(visits) = &self.responder.visits else { return };
        if psn.is_before(visits.decided) || self.responder.expected.is_before(psn) {
            return;
        }
        if syndrome == READY {
            let waits = self.responder.waiting && psn == self.responder.expected && self.path.lane != 0;
            if waits {
                self.responder.acknowledge(psn, READY);
            }
            return;
        }
        if psn == self.responder.expected {
            return;
        }
        self.decide(psn);
        self.responder.expected = psn;
        if let Some(visits) = &mut self.responder.visits {
            visits.turn_back(psn);
        }
        match syndrome {
            Syndrome::RnrNak(code) => {
                resources.counters.sent_rnr_naks += 1;
                self.responder.waiting = true;
                self.responder.acknowledge(psn, Syndrome::RnrNak(code));
            }
            Syndrome::Nak(1) => self.refuse(resources, psn, Refusal::Invalid, now),
            Syndrome::Nak(2) => self.refuse(resources, psn, Refusal::Access, now),
            Syndrome::Nak(3) => self.refuse(resources, psn, Refusal::Gone, now),
            _ => self.sequence_nak(resources),
        }
    }

    fn pass_original(&mut self, psn: Psn, original: u64) {
        if !self.decide(psn.plus(1)) {
            return;
        }
        self.remember_atomic(psn, original);
        let msn = self.responder.msn;
        self.responder.answers.push_back(Answer::Atomic { psn, original, msn, again: false });
    }

    fn pass_data(&mut self, psn: Psn, position: Position, data: Box<[u8]>) {
        let packets = (data.len() as u32).div_ceil(self.mtu()).max(1);
        let end = psn.plus(packets);
        let expected = self.responder.expected;
        let is_late = self.responder.visits.as_ref().is_some_and(|visits| !visits.decided.is_before(end));
        if expected.is_before(end) || !(is_late || self.decide(end)) {
            return;
        }
        let waiting: usize = self.responder.passed.iter().map(|data| data.len()).sum();
        if waiting + data.len() > PASSED_BYTES_MAX {
            return;
        }
        let ends = position.ends();
        // The number of messages done when this one is.
        let msn = if ends { self.responder.msn } else { self.next_msn() };
        self.responder.passed.push_back(data);
        let (starts, sent) = (position.starts(), 0);
        self.responder.answers.push_back(Answer::Passed(Passed { psn, packets, sent, starts, ends, msn }));
    }

    /// A lane has ended.
    pub(crate) fn give_up_visits(&mut self, resources: &mut Resources, lane: u16, now: Instant) {
        let expected = self.responder.expected;
        let Some(visits) = &mut self.responder.visits else { return };
        visits.catch_up(expected);
        visits.lanes.retain(|known| *known != lane);
        if visits.lane != lane {
            return;
        }
        visits.lane = 0;
        let psn = visits.decided;
        if psn != expected {
            self.responder.expected = psn;
            self.refuse(resources, psn, Refusal::Gone, now);
        }
    }

    /// The connection is over: those that it has visited are to hear of it.
    pub(super) fn end_visits(&mut self, resources: &mut Resources) {
        let Some(visit) = self.visit() else { return };
        let Some(visits) = self.responder.visits.take() else { return };
        let visit = Visit { ends: true, ..visit };
        resources.farewells.extend(visits.lanes.iter().map(|lane| (*lane, visit)));
    }
}

/// The guest.
impl Qp {
    pub(crate) fn guest(
        visit: &Visit,
        xrcd: Option<Xrcd>,
        lane: u16,
        first: Psn,
        resources: &Resources,
    ) -> Self {
        let init = QpInit {
            kind: QpType::XrcReceive,
            pd: None,
            xrcd,
            send_cq: None,
            receive_cq: None,
            srq: None,
            capacity: Capacity::default(),
            signal_all: false,
        };
        let mut guest = Self::new(visit.holder, &init, resources);
        guest.attr = QpAttr {
            access: visit.access,
            path_mtu: visit.path_mtu,
            min_rnr_timer: visit.min_rnr_timer,
            max_dest_rd_atomic: visit.max_dest_rd_atomic,
            destination: visit.holder,
            ..QpAttr::default()
        };
        guest.path.lane = lane;
        guest.out_of_order = false;
        guest.state = State::ReadyToSend;
        guest.responder.start(first);
        guest.guest_of = Some(visit.connection & CONNECTION_MASK);
        // Of messages the holder keeps count; here the number says of which connection an answer is.
        guest.responder.msn = visit.connection & CONNECTION_MASK;
        guest
    }

    pub(crate) fn is_guest(&self) -> bool {
        self.guest_of.is_some()
    }

    /// Whether it is the guest of this connection.
    pub(crate) fn is_of(&self, visit: &Visit, lane: u16) -> bool {
        self.guest_of == Some(visit.connection & CONNECTION_MASK) && self.path.lane == lane
    }

    /// What happens to a guest, its holder tells.
    pub(super) fn tell(&self, resources: &mut Resources, event: Option<Event>) {
        if !self.is_guest() {
            resources.events.extend(event);
        }
    }
}

fn is_elsewhere(resources: &Resources, packet: &Packet) -> bool {
    packet.xrc_srq.is_some_and(|number| resources.srq_of(number).is_none())
}

fn ends_message(packet: &Packet) -> bool {
    match packet.message {
        Message::Send { position, .. } | Message::Write { position, .. } => position.ends(),
        _ => true,
    }
}

/// Whether a request is answered by an acknowledgement alone.
fn is_plain(packet: &Packet) -> bool {
    matches!(packet.message, Message::Send { .. } | Message::Write { .. })
}
