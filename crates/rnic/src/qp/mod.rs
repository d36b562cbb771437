//! A queue pair, split by role as the specification splits it: the requester sends requests, the completer
//! takes the answers, the responder executes the peer's requests (IBTA 9.7).

mod ahead;
mod answer;
pub(crate) mod attr;
mod completer;
mod datagram;
pub(crate) mod emit;
mod execute;
mod reorder;
mod requester;
mod responder;
pub(crate) mod send_queue;
pub(crate) mod state;
mod timer;
mod visits;

use crate::access::Access;
use crate::address::{Arrival, Path, Senders};
use crate::completion::{CompletionKind, Status};
use crate::congestion::Control;
use crate::counters::QpCounters;
use crate::cq::Notice;
use crate::domain::DomainName;
use crate::event::Event;
use crate::grant::QueueGrant;
use crate::handle::{Cq, Pd, Srq};
use crate::receive::ReceiveQueue;
use crate::resources::{Resources, completion};
use crate::sink::Sink;
use crate::time::Instant;
pub(crate) use timer::earlier;

use attr::{QpAttr, QpInit, QpType, State};
use requester::{Requester, Step};
use responder::Responder;
use send_queue::SendQueue;
use wire::{Message, Packet, Qpn, Service};

/// Whether, and how urgently, a queue pair has something to send.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) enum Urgency {
    #[default]
    None,
    /// Only a positive acknowledgement, which may wait for company.
    Acknowledgement,
    Data,
}

#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) qpn: Qpn,
    pub(crate) kind: QpType,
    pub(crate) state: State,
    pub(crate) init: QpInit,
    pub(crate) attr: QpAttr,
    pub(crate) path: Path,
    /// Place what arrives ahead, and number WRITE packets as messages of their own.
    pub(crate) out_of_order: bool,
    /// WRITEs without immediate leave as WRITE ONLY packets.
    pub(crate) write_only: bool,
    /// Whether those packets are cut as long as each other.
    pub(crate) write_evenly: bool,
    /// How many packets the peer may have to keep ahead of a missing one.
    pub(crate) reorder_window: u32,
    /// Packets between two requests for an acknowledgement at most.
    pub(crate) ack_interval: u32,
    pub(crate) send: SendQueue,
    pub(crate) requester: Requester,
    pub(crate) receive: ReceiveQueue,
    pub(crate) responder: Responder,
    /// The domain that it shares with other devices.
    domain: Option<DomainName>,
    /// Of which connection of another device's queue pair this is the guest.
    guest_of: Option<u32>,
    pub(crate) congestion: Control,
    pub(crate) counters: QpCounters,
    /// How the device's ready list has this queue pair.
    pub(crate) scheduled: Urgency,
    /// The earliest entry that the device's timer heap has for this queue pair, and one that was there before
    /// it came.
    pub(crate) timer: Option<Instant>,
    pub(crate) later_timer: Option<Instant>,
    /// Its lane was full when it wanted to send.
    pub(crate) is_stalled: bool,
    /// The device's list of those has it.
    pub(crate) in_stalled: bool,
}

impl Qp {
    pub(crate) fn new(qpn: Qpn, init: &QpInit, resources: &Resources) -> Self {
        let capacity = &init.capacity;
        let own_receives = if init.srq.is_some() { 0 } else { capacity.receive_wr };
        Self {
            qpn,
            kind: init.kind,
            state: State::Reset,
            init: *init,
            attr: QpAttr::default(),
            path: Path::default(),
            out_of_order: resources.config.out_of_order,
            // The receiver can place such a packet whatever came before it.
            write_only: resources.config.write_only || resources.config.out_of_order,
            write_evenly: resources.config.write_only,
            reorder_window: resources.config.reorder_window.max(1),
            ack_interval: resources.config.ack_interval.max(1),
            // The eight bytes of an ATOMIC WRITE come with the request, whatever inline data was asked for.
            send: SendQueue::new(capacity.send_wr, capacity.send_sge, capacity.inline.max(8)),
            requester: Requester::default(),
            receive: ReceiveQueue::new(own_receives, capacity.receive_sge),
            responder: Responder::default(),
            domain: None,
            guest_of: None,
            congestion: Control::new(&resources.config),
            counters: QpCounters::default(),
            scheduled: Urgency::None,
            timer: None,
            later_timer: None,
            is_stalled: false,
            in_stalled: false,
        }
    }

    /// Touches what packets need of it, a field of each cache line.
    #[inline]
    pub(crate) fn bring(&self) -> u32 {
        let own = self.qpn.value() ^ self.attr.destination.value() ^ u32::from(self.path.source_port);
        let sends = self.requester.bring() ^ self.send.len() as u32 ^ self.counters.sent_packets as u32;
        let receives = self.responder.bring() ^ self.counters.received_packets as u32;
        own ^ sends ^ receives ^ self.congestion.rate_bps().map_or(0, |bps| bps as u32)
    }

    pub(crate) fn service(&self) -> Service {
        match self.kind {
            QpType::Rc => Service::Rc,
            QpType::Uc => Service::Uc,
            QpType::Ud => Service::Ud,
            QpType::XrcSend | QpType::XrcReceive => Service::Xrc,
        }
    }

    /// Whether the peer acknowledges.
    pub(crate) fn is_reliable(&self) -> bool {
        !matches!(self.kind, QpType::Uc | QpType::Ud)
    }

    pub(crate) fn mtu(&self) -> u32 {
        self.attr.path_mtu.bytes()
    }

    /// The protection domain. XRC's responder half has none of its own: it uses the SRQ's.
    pub(crate) fn pd(&self) -> Pd {
        self.init.pd.unwrap_or(Pd(u32::MAX))
    }

    fn send_cq(&self) -> Cq {
        self.init.send_cq.unwrap_or(Cq(u32::MAX))
    }

    fn receive_cq(&self, resources: &Resources, srq: Option<Srq>) -> Cq {
        srq.and_then(|srq| resources.srqs.get(srq.0 as usize))
            .and_then(|srq| srq.xrc)
            .map(|(_, cq)| cq)
            .or(self.init.receive_cq)
            .unwrap_or(Cq(u32::MAX))
    }

    /// Whether a packet comes from the connected peer, to the address that the peer was told (a spoofed one
    /// is the first step of most attacks in ReDMArk). Who sends by a lane has numbers of its own, and no
    /// other.
    pub(crate) fn may_come_from(&self, resources: &Resources, arrival: &Arrival, packet: &Packet) -> bool {
        let peer = arrival.source == self.path.destination && arrival.destination == self.path.source;
        let sender = match packet.message {
            Message::Datagram { deth, .. } => deth.source,
            _ => self.attr.destination,
        };
        let has = |senders: Senders| senders.have(sender);
        (peer || self.kind == QpType::Ud) && resources.senders.is_none_or(has)
    }

    /// What the peer may do without asking. Before anything has come from it, it has to ask: the program is
    /// told of that.
    pub(crate) fn grant(&self) -> Option<QueueGrant> {
        use State::{ReadyToReceive, ReadyToSend, SendQueueDrained, SendQueueError};
        let takes = match self.state {
            ReadyToReceive => self.responder.is_established(),
            ReadyToSend | SendQueueDrained | SendQueueError => true,
            _ => false,
        };
        let answered = match self.attr.max_dest_rd_atomic {
            0 => Access::empty(),
            _ => Access::REMOTE_READ | Access::REMOTE_ATOMIC,
        };
        (takes && self.kind == QpType::Rc).then(|| QueueGrant {
            qpn: self.qpn,
            peer: self.attr.destination,
            source: self.path.source,
            destination: self.path.destination,
            pd: self.pd(),
            access: self.attr.access & (Access::REMOTE_WRITE | answered),
        })
    }

    /// Whether requests wait for acknowledgement.
    pub(crate) fn is_waiting(&self) -> bool {
        self.is_reliable() && self.state != State::Error && self.requester.is_waiting()
    }

    /// Sends up to `budget` packets: requests first, so that an acknowledgement ends the batch. Returns how
    /// many, and whether there is nothing more to send until something happens.
    pub(crate) fn transmit(
        &mut self,
        resources: &mut Resources,
        now: Instant,
        budget: usize,
        sink: &mut impl Sink,
    ) -> (usize, bool) {
        let mut sent = 0;
        self.is_stalled = false;
        // An answer always gets its place in the turn, or a busy requester would starve it.
        while sent + 1 < budget.max(2) {
            match self.advance(resources, now, sink) {
                Step::Sent => sent += 1,
                Step::Went => {}
                Step::Blocked => break,
            }
        }
        while self.responder.visits.is_some() && sent < budget {
            match self.hand_on(resources, now, sink) {
                Step::Sent => sent += 1,
                Step::Went => {}
                Step::Blocked => break,
            }
        }
        let requests_blocked = sent + 1 < budget.max(2);
        if let Some(at) = sink.asks_again_at().filter(|_| sent > 0) {
            self.rest_until(at.max(now));
        }
        while sent < budget.max(1) {
            match self.answer(resources, sink) {
                Step::Sent => sent += 1,
                _ => return (sent, requests_blocked),
            }
        }
        (sent, false)
    }

    /// Sends what the responder owes, up to the next READ response.
    pub(crate) fn answer_at_once(&mut self, resources: &mut Resources, sink: &mut impl Sink) {
        while self.responder.has_short_answer() && self.answer(resources, sink) == Step::Sent {}
    }

    pub(crate) fn owes_acknowledgement(&self) -> bool {
        self.responder.owes_acknowledgement()
    }

    pub(crate) fn urgency(&self) -> Urgency {
        let sends = self.requester.may_have_turn(&self.send)
            && matches!(self.state, State::ReadyToSend | State::SendQueueDrained);
        if sends || self.responder.has_data() || self.has_visit() {
            Urgency::Data
        } else if self.responder.owes_acknowledgement() {
            Urgency::Acknowledgement
        } else {
            Urgency::None
        }
    }

    /// Goes to the error state: what is posted completes as flushed, what the responder owes (a NAK) still
    /// leaves.
    pub(crate) fn fail(&mut self, resources: &mut Resources, now: Instant) {
        if self.state == State::Error || self.state == State::Reset {
            return;
        }
        self.state = State::Error;
        resources.note_queue(self.qpn);
        self.end_visits(resources);
        self.requester.stop();
        self.flush(resources, now);
    }

    /// Goes to the error state because the program says so: from any state, RESET included.
    pub(crate) fn fail_to_error(&mut self, resources: &mut Resources, now: Instant) {
        if self.state == State::Reset {
            self.state = State::Error;
        }
        self.responder.forget_answers();
        self.fail(resources, now);
    }

    /// Completes everything that is posted with "flushed" (IBTA 10.3.1.7).
    pub(crate) fn flush(&mut self, resources: &mut Resources, now: Instant) {
        self.flush_sends(resources, now);
        self.flush_receives(resources, now);
        if self.init.srq.is_some() {
            resources.events.push_back(Event::LastWqeReached(self.qpn));
        }
    }

    pub(crate) fn flush_sends(&mut self, resources: &mut Resources, now: Instant) {
        while let Some(entry) = self.send.pop() {
            let kind = requester::completion_kind(&entry.operation);
            let flushed = completion(self.qpn, entry.id, Status::Flushed, kind, now);
            resources.complete(self.send_cq(), flushed, Notice::Ordinary);
        }
        self.requester.forget_queue();
    }

    pub(crate) fn flush_receives(&mut self, resources: &mut Resources, now: Instant) {
        let cq = self.receive_cq(resources, self.responder.taken_from);
        let taken = self.responder.abandon();
        let mut sges = core::mem::take(&mut self.responder.sges);
        for id in taken.into_iter().chain(core::iter::from_fn(|| self.receive.take(&mut sges))) {
            let flushed = completion(self.qpn, id, Status::Flushed, CompletionKind::Receive, now);
            resources.complete(cq, flushed, Notice::Ordinary);
        }
        self.responder.sges = sges;
    }

    /// Back to the state of birth: nothing posted, nothing owed, no completion.
    pub(crate) fn reset(&mut self, resources: &mut Resources) {
        self.state = State::Reset;
        resources.note_queue(self.qpn);
        self.end_visits(resources);
        self.send.clear();
        self.receive.clear();
        self.requester = Requester::default();
        self.responder = Responder::default();
        self.congestion = Control::new(&resources.config);
        for cq in [self.init.send_cq, self.init.receive_cq].into_iter().flatten() {
            if let Some(queue) = resources.cqs.get_mut(cq.0 as usize) {
                queue.purge(self.qpn);
            }
        }
    }
}
