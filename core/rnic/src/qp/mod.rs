//! A queue pair, split by role as the specification splits it: the requester sends requests, the completer
//! handles the responses, the responder executes the peer's requests (IBTA 9.7). Each role owns its state;
//! [`Qp`] connects them.
//!
//! | what | where |
//! |---|---|
//! | an ACK is handled | `completer/mod.rs`: `ack` |
//! | a key is checked | `responder/execute.rs`: `check_key` |
//! | packets or shared memory is chosen | `transport.rs`: `Transport::of` |
//! | a packet leaves | `requester/emit.rs`: `dispatch`; `responder/answer.rs`: `send` |

pub(crate) mod attr;
mod completer;
mod context;
mod expected;
mod forward;
mod identity;
mod log;
mod proxy;
mod refusal;
mod requester;
mod responder;
pub(crate) mod send_queue;
pub(crate) mod state;
mod step;
mod timer;
mod transport;

use crate::access::Access;
use crate::address::{Arrival, Path};
use crate::congestion::Control;
use crate::domain::DomainName;
use crate::error::Error;
use crate::event::Event;
use crate::grant::QueueGrant;
use crate::memory::{Memory, Payload, Piece};
use crate::receive::ReceiveQueue;
use crate::resources::Resources;
use crate::sink::{DirectExecution, Sink};
use crate::time::Instant;
use crate::work::{ReceiveRequest, SendRequest};
pub(crate) use transport::Origin;

use alloc::boxed::Box;
use attr::{QpAttr, QpInit, QpType, State};
use completer::Completer;
use context::Context;
use forward::Forwarder;
use identity::Common;
use requester::Requester;
use responder::Responder;
use send_queue::SendQueue;
use step::Step;
use timer::Timer;
use wire::{Message, Packet, Psn, Qpn};

/// Whether, and how urgently, a queue pair has something to send.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) enum Urgency {
    #[default]
    None,
    /// Only a positive acknowledgement, which may wait to be sent together with data.
    Acknowledgement,
    Data,
}

/// State of a queue pair in the device's lists.
#[derive(Debug)]
pub(crate) struct Schedule {
    /// Urgency with which the queue pair is in the ready list.
    pub(crate) urgency: Urgency,
    /// The earliest entry of this queue pair in the timer heap, and the one that was the earliest before it
    /// was added; [`Instant::NEVER`] where there is none.
    pub(crate) timer: Instant,
    pub(crate) later_timer: Instant,
    /// Whether the queue pair is in the list of those that wait for room on a channel.
    pub(crate) waits_for_room: bool,
}

impl Default for Schedule {
    fn default() -> Self {
        let (timer, later_timer) = (Instant::NEVER, Instant::NEVER);
        Self {
            urgency: Urgency::None,
            timer,
            later_timer,
            waits_for_room: false,
        }
    }
}

/// A queue pair. Its parts are in the order in which messages read them, see [`Common`].
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Qp {
    common: Common,
    pub(crate) schedule: Schedule,
    /// For a queue pair whose XRC domain other devices share.
    forwarder: Option<Box<Forwarder>>,
    requester: Requester,
    completer: Completer,
    responder: Responder,
}

/// Runs an operation of a role: makes its context, and flushes the queue pair if it has failed.
macro_rules! operate {
    ($qp:expr, $resources:expr, $now:expr, $origin:expr, |$cx:ident| $body:expr) => {{
        let $cx = &mut Context {
            qp: &mut $qp.common,
            resources: &mut *$resources,
            now: $now,
            origin: $origin,
        };
        let result = $body;
        if $cx.qp.has_failed {
            $qp.flush_failed($resources, $now);
        }
        result
    }};
}

/// Identity and attributes.
impl Qp {
    pub(crate) fn new(qpn: Qpn, init: &QpInit, resources: &Resources) -> Self {
        let capacity = &init.capacity;
        let own_receives = if init.srq.is_some() {
            0
        } else {
            capacity.receive_wr
        };
        // The eight bytes of an ATOMIC WRITE are part of the request, independent of the size of inline data.
        let sends = SendQueue::new(capacity.send_wr, capacity.send_sge, capacity.inline.max(8));
        Self {
            common: Common::new(qpn, init, resources),
            requester: Requester::new(sends),
            completer: Completer::default(),
            responder: Responder::new(ReceiveQueue::new(own_receives, capacity.receive_sge)),
            forwarder: None,
            schedule: Schedule::default(),
        }
    }

    pub(crate) fn qpn(&self) -> Qpn {
        self.common.qpn
    }

    pub(crate) fn kind(&self) -> QpType {
        self.common.kind
    }

    pub(crate) fn state(&self) -> State {
        self.common.state
    }

    pub(crate) fn init(&self) -> &QpInit {
        &self.common.init
    }

    pub(crate) fn attr(&self) -> &QpAttr {
        &self.common.attr
    }

    /// Attributes, for changes that the verbs layer has checked.
    pub(crate) fn attr_mut(&mut self) -> &mut QpAttr {
        &mut self.common.attr
    }

    pub(crate) fn path(&self) -> &Path {
        &self.common.path
    }

    /// Number of the queue pair that this one is connected to.
    pub(crate) fn peer(&self) -> Qpn {
        self.common.attr.destination
    }

    /// Sets the path, which selects the transport below the queue pair.
    pub(crate) fn set_path(&mut self, path: Path) {
        self.common.set_path(path);
    }

    pub(crate) fn counters(&self) -> &crate::counters::QpCounters {
        &self.common.counters
    }

    pub(crate) fn congestion(&mut self) -> &mut Control {
        &mut self.common.congestion
    }

    pub(crate) fn rate_bps(&self) -> Option<u64> {
        self.common.congestion.rate_bps()
    }

    /// Sets the name of its domain, so that messages may name queues of other devices. Those are forwarded in
    /// order: no packet is placed ahead of it.
    pub(crate) fn share(&mut self, domain: Option<DomainName>) {
        if let Some(domain) = domain.filter(|_| self.common.kind == QpType::XrcReceive) {
            self.forwarder = Some(Box::new(Forwarder::new(domain)));
            self.common.out_of_order = false;
        }
    }

    /// Whether requests of the connection were forwarded.
    pub(crate) fn has_forwarded(&self) -> bool {
        self.forwarder
            .as_deref()
            .is_some_and(Forwarder::has_session)
    }

    /// The rights that the peer may use directly. Before the first packet of the peer there are none, since
    /// the program gets an event for that packet.
    pub(crate) fn grant(&self) -> Option<QueueGrant> {
        let Common {
            qpn,
            kind,
            state,
            attr,
            path,
            ..
        } = &self.common;
        let takes = match state {
            State::ReadyToReceive => self.responder.is_established(),
            _ => self.common.is_receiving(),
        };
        let answered = match attr.max_dest_rd_atomic {
            0 => Access::empty(),
            _ => Access::REMOTE_READ | Access::REMOTE_ATOMIC,
        };
        (takes && *kind == QpType::Rc).then(|| QueueGrant {
            qpn: *qpn,
            peer: attr.destination,
            source: path.source,
            destination: path.destination,
            pd: self.common.pd(),
            access: attr.access & (Access::REMOTE_WRITE | answered),
        })
    }

    /// The lines of the queue pair itself.
    #[cfg(feature = "simulation")]
    #[inline]
    pub(crate) fn lines(&self, load: &impl Fn(*const u8)) {
        let first: *const u8 = core::ptr::from_ref(self).cast();
        (0..size_of::<Self>())
            .step_by(64)
            .for_each(|at| load(first.wrapping_add(at)));
    }

    /// The lines of its lists, and of its congestion control.
    #[cfg(feature = "simulation")]
    #[inline]
    pub(crate) fn queue_lines(&self, load: &impl Fn(*const u8)) {
        self.requester.lines(load);
        self.responder.lines(load);
        self.common.congestion.lines(load);
    }
}

/// Work requests and states.
impl Qp {
    /// Starts the numbering of arriving packets (the change to RTR).
    pub(crate) fn start_receiving(&mut self, expected: Psn) {
        self.responder.start(expected);
    }

    /// Starts the numbering of sent packets (the change to RTS).
    pub(crate) fn start_sending(&mut self, first: Psn) {
        self.requester.start(first);
    }

    /// The attributes as a query returns them: with the current state and PSNs.
    pub(crate) fn current_attr(&self) -> QpAttr {
        let state = self.common.state;
        QpAttr {
            state,
            current_state: state,
            send_psn: self.requester.next_psn(),
            receive_psn: self.responder.expected(),
            draining: state == State::SendQueueDrained && self.requester.is_draining(),
            ..self.common.attr
        }
    }

    pub(crate) fn set_state(&mut self, resources: &mut Resources, to: State, now: Instant) {
        if to != State::Error {
            log::state(&self.common, to);
        }
        match to {
            State::Reset => {
                self.reset(resources, now);
                self.common.attr = QpAttr::default();
            }
            State::Error => self.fail_to_error(resources, now),
            State::SendQueueDrained => {
                self.common.state = to;
                operate!(self, resources, now, Origin::Network, |cx| self
                    .requester
                    .drain(cx));
            }
            _ => self.common.state = to,
        }
    }

    pub(crate) fn post_send(
        &mut self,
        resources: &mut Resources,
        request: &SendRequest<'_>,
        now: Instant,
    ) -> Result<(), Error> {
        operate!(self, resources, now, Origin::Network, |cx| self
            .requester
            .post(cx, request))
    }

    /// Whether [`Self::post_send`] would accept the request after `before` others.
    pub(crate) fn check_send(&self, request: &SendRequest<'_>, before: usize) -> Result<(), Error> {
        self.requester.check_send(&self.common, request, before)
    }

    /// Executes a request that is posted, see [`Requester::execute_at_once`].
    #[inline]
    pub(crate) fn execute_at_once(
        &mut self,
        resources: &mut Resources,
        request: &SendRequest<'_>,
        now: impl FnOnce() -> Instant,
        peer: &mut impl DirectExecution,
    ) -> bool {
        let origin = Origin::Network;
        let cx = &mut Context {
            qp: &mut self.common,
            resources,
            now: Instant::default(),
            origin,
        };
        self.requester.execute_at_once(cx, request, now, peer)
    }

    /// Posts a receive. In the error state the request is accepted and flushed.
    pub(crate) fn post_receive(
        &mut self,
        resources: &mut Resources,
        request: &ReceiveRequest<'_>,
        now: Instant,
    ) -> Result<(), Error> {
        if self.common.state == State::Reset {
            return Err(Error::WrongState);
        }
        let has_queue = matches!(self.common.kind, QpType::Rc | QpType::Uc | QpType::Ud);
        if self.common.init.srq.is_some() || !has_queue {
            return Err(Error::Invalid(
                "the queue pair has no receive queue of its own",
            ));
        }
        self.responder.post(request)?;
        operate!(self, resources, now, Origin::Network, |cx| {
            self.responder.announce_receive(cx);
            if cx.qp.state == State::Error {
                self.responder.flush(cx);
            }
        });
        Ok(())
    }

    /// Refuses the message that would take the receive that was posted last, so many times.
    pub(crate) fn refuse_last_receive(&mut self, times: u32) {
        self.responder.refuse_last(times);
    }

    /// The memory of the next receives, see [`Responder::next_receives`].
    pub(crate) fn next_receives<'a>(
        &'a self,
        resources: &'a Resources,
    ) -> impl Iterator<Item = Piece> + 'a {
        self.responder.next_receives(self.common.pd(), resources)
    }

    /// Announces a receive that was posted to a shared queue to a peer that waits for it; whether one did.
    pub(crate) fn announce_receive(&mut self, resources: &mut Resources) -> bool {
        let now = Instant::default();
        let cx = &Context {
            qp: &mut self.common,
            resources,
            now,
            origin: Origin::Network,
        };
        self.responder.announce_receive(cx)
    }

    /// Completes posted receives with "flushed".
    pub(crate) fn flush_receives(&mut self, resources: &mut Resources, now: Instant) {
        operate!(self, resources, now, Origin::Network, |cx| self
            .responder
            .flush(cx));
    }

    /// Enters the error state: posted requests complete as flushed, a NAK that the responder owes is still
    /// sent.
    pub(crate) fn fail(&mut self, resources: &mut Resources, now: Instant) {
        operate!(self, resources, now, Origin::Network, |cx| cx.fail());
    }

    /// Enters the error state on request of the program: from any state, RESET included.
    fn fail_to_error(&mut self, resources: &mut Resources, now: Instant) {
        if self.common.state == State::Reset {
            self.common.state = State::Error;
        }
        self.responder.forget_answers();
        self.fail(resources, now);
    }

    /// Completes all posted requests with "flushed" (IBTA 10.3.1.7).
    #[cold]
    fn flush_failed(&mut self, resources: &mut Resources, now: Instant) {
        self.common.has_failed = false;
        let cx = &mut Context {
            qp: &mut self.common,
            resources,
            now,
            origin: Origin::Network,
        };
        self.forwarder
            .iter_mut()
            .for_each(|forwarder| forwarder.close(cx));
        self.completer.stop();
        self.requester.stop(cx.qp);
        self.requester.flush(cx);
        self.responder.flush(cx);
        if cx.qp.init.srq.is_some() {
            cx.resources
                .events
                .push_back(Event::LastWqeReached(cx.qp.qpn));
        }
    }

    /// Returns to the initial state: no posted requests, no owed responses, no completions.
    pub(crate) fn reset(&mut self, resources: &mut Resources, now: Instant) {
        self.common.state = State::Reset;
        resources.note_queue(self.common.qpn);
        let cx = &mut Context {
            qp: &mut self.common,
            resources,
            now,
            origin: Origin::Network,
        };
        self.forwarder
            .iter_mut()
            .for_each(|forwarder| forwarder.close(cx));
        self.requester.reset();
        self.completer = Completer::default();
        self.responder.reset();
        self.common.timers.stop_all();
        let config = &resources.config;
        self.common.congestion = Control::new(&config.congestion, config.window_bytes);
        for cq in [self.common.init.send_cq, self.common.init.receive_cq]
            .into_iter()
            .flatten()
        {
            resources.cqs.purge(cq, self.common.qpn);
        }
    }
}

/// An arriving packet, and the data that its handlers need.
pub(crate) struct Inbound<'a> {
    pub(crate) arrival: &'a Arrival,
    pub(crate) origin: Origin,
    pub(crate) packet: &'a Packet,
    pub(crate) payload: Payload<'a>,
}

/// Handlers of arriving packets.
impl Qp {
    /// Handles a packet; whether it was for this queue pair. (Inlined into its one caller, since it runs for
    /// each packet.)
    #[inline(always)]
    pub(crate) fn handle_packet(
        &mut self,
        resources: &mut Resources,
        now: Instant,
        inbound: &Inbound<'_>,
        memory: &mut impl Memory,
    ) -> bool {
        let Inbound {
            arrival,
            origin,
            packet,
            payload,
        } = *inbound;
        if self.common.kind == QpType::XrcReceive && is_response(packet) {
            self.handle_forwarded_response(resources, now, inbound, memory);
            return true;
        }
        if !self.may_come_from(inbound) {
            resources.port.counters.dropped_wrong_address += 1;
            return false;
        }
        if !self.is_in_partition(resources, packet) {
            resources.port.counters.dropped_bad_pkey += 1;
            return false;
        }
        let is_notification = packet.message == Message::Congestion;
        if !is_notification && packet.service != self.common.service() {
            resources.port.counters.dropped_wrong_service += 1;
            return false;
        }
        self.common.counters.received_packets += 1;
        self.common.counters.received_bytes += u64::from(payload.len());
        let Self {
            requester,
            completer,
            responder,
            ..
        } = self;
        let cx = &mut Context {
            qp: &mut self.common,
            resources,
            now,
            origin,
        };
        if arrival.congestion_experienced() && !is_notification {
            responder.congestion_seen(cx);
        }
        match packet.message {
            Message::Congestion => completer.handle_notification(cx, requester),
            Message::Datagram { .. } => {
                responder.handle_datagram(cx, arrival, packet, payload, memory)
            }
            _ if is_response(packet) => {
                cx.qp.congestion.travelled(arrival.hop_limit);
                completer.handle_response(cx, requester, packet, payload, memory);
            }
            _ => Self::handle_request(cx, responder, &mut self.forwarder, packet, payload, memory),
        }
        if self.common.has_failed {
            self.flush_failed(resources, now);
        }
        true
    }

    /// Whether a packet comes from the connected peer, to the address that the connection uses (a spoofed
    /// source is the first step of most attacks in ReDMArk). The process at the other end of a shared-memory
    /// channel can only use its own queue pair numbers.
    #[inline(always)]
    fn may_come_from(&self, inbound: &Inbound<'_>) -> bool {
        let (arrival, path) = (inbound.arrival, &self.common.path);
        let is_peer = arrival.source.is(&path.destination) && arrival.destination.is(&path.source);
        let sender = match inbound.packet.message {
            Message::Datagram { deth, .. } => deth.source,
            _ => self.common.attr.destination,
        };
        (is_peer || self.common.kind == QpType::Ud) && inbound.origin.may_be(sender)
    }

    /// Whether a packet is of the queue pair's partition (IBTA 9.6.1.4). RoCE has one partition, which was
    /// checked.
    #[inline(always)]
    fn is_in_partition(&self, resources: &Resources, packet: &Packet) -> bool {
        let index = self.common.attr.pkey_index;
        let subnet = resources.port.subnet.as_ref();
        subnet.is_none_or(|port| port.has_partition(index, packet.pkey))
    }

    /// Handles a request: the responder executes it, unless the front end of the XRC domain takes it.
    #[inline(always)]
    fn handle_request(
        cx: &mut Context<'_>,
        responder: &mut Responder,
        forwarder: &mut Option<Box<Forwarder>>,
        packet: &Packet,
        payload: Payload<'_>,
        memory: &mut impl Memory,
    ) {
        if !cx.qp.is_receiving() || cx.qp.kind == QpType::XrcSend {
            cx.resources.port.counters.dropped_no_qp += 1;
            return;
        }
        responder.note_established(cx);
        match forwarder {
            Some(forwarder) if forwarder.takes(cx, packet) => {
                forwarder.handle_request(cx, responder, packet, payload, memory);
            }
            _ => responder.handle_request(cx, packet, payload, memory),
        }
    }

    /// Handles the answer of an SRQ owner to a forwarded request.
    fn handle_forwarded_response(
        &mut self,
        resources: &mut Resources,
        now: Instant,
        inbound: &Inbound<'_>,
        memory: &mut impl Memory,
    ) {
        let Inbound {
            origin,
            packet,
            payload,
            ..
        } = *inbound;
        let Some(forwarder) = &mut self.forwarder else {
            resources.port.counters.dropped_unexpected_response += 1;
            return;
        };
        let responder = &mut self.responder;
        operate!(self, resources, now, origin, |cx| {
            forwarder.handle_response(cx, responder, packet, payload, memory);
        });
    }

    /// Handles the end of a shared-memory channel: requests that were forwarded on it and not answered are
    /// refused.
    pub(crate) fn close_forwarding(
        &mut self,
        resources: &mut Resources,
        channel: u16,
        now: Instant,
    ) {
        let Some(forwarder) = &mut self.forwarder else {
            return;
        };
        let responder = &mut self.responder;
        operate!(self, resources, now, Origin::Network, |cx| forwarder
            .close_channel(cx, responder, channel));
    }
}

fn is_response(packet: &Packet) -> bool {
    matches!(
        packet.message,
        Message::Acknowledge(_) | Message::AtomicAcknowledge { .. } | Message::ReadResponse { .. }
    )
}

/// Sending, and timers.
impl Qp {
    /// Sends up to `budget` packets: requests first, so that an acknowledgement ends the batch. On a
    /// shared-memory channel an acknowledgement is sent before the requests. Returns the number of packets,
    /// and whether there is nothing more to send until the next input.
    pub(crate) fn transmit(
        &mut self,
        resources: &mut Resources,
        now: Instant,
        budget: usize,
        sink: &mut impl Sink,
    ) -> (usize, bool) {
        self.common.waits_for_room = false;
        operate!(self, resources, now, Origin::Network, |cx| {
            let (requester, expected) = (&mut self.requester, &mut self.completer.expected);
            let responder = &mut self.responder;
            // One place of the turn is kept for an answer, which a busy requester would otherwise starve.
            let mut sent = 0;
            if cx.qp.transport.acknowledges_first() && responder.owes_only_acknowledgement() {
                send_while(&mut sent, 1, || responder.next_answer(cx, sink));
            }
            send_while(&mut sent, budget.max(2) - 1, || {
                requester.next_packet(cx, expected, sink)
            });
            if let Some(forwarder) = &mut self.forwarder {
                send_while(&mut sent, budget, || {
                    forwarder.next_request(cx, responder, sink)
                });
            }
            let requests_blocked = sent + 1 < budget.max(2);
            if let Some(at) = sink.asks_again_at().filter(|_| sent > 0) {
                requester.rest_until(cx.qp, at.max(now));
            }
            let limit = budget.max(1);
            let answers_blocked = send_while(&mut sent, limit, || responder.next_answer(cx, sink));
            (sent, requests_blocked && answers_blocked)
        })
    }

    /// Sends the answers that the responder owes, up to the next READ response.
    pub(crate) fn answer_at_once(&mut self, resources: &mut Resources, sink: &mut impl Sink) {
        let now = Instant::default();
        let cx = &mut Context {
            qp: &mut self.common,
            resources,
            now,
            origin: Origin::Network,
        };
        while self.responder.has_short_answer()
            && self.responder.next_answer(cx, sink) == Step::Sent
        {}
    }

    pub(crate) fn owes_acknowledgement(&self) -> bool {
        self.responder.owes_acknowledgement()
    }

    /// Whether the channel was full in its last turn to send.
    pub(crate) fn waits_for_room(&self) -> bool {
        self.common.waits_for_room
    }

    /// Whether requests wait for acknowledgement.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.common.is_reliable()
            && self.common.state != State::Error
            && self.requester.is_waiting()
    }

    #[inline]
    pub(crate) fn urgency(&self) -> Urgency {
        let sends = self.requester.has_turn(&self.common) && self.common.is_sending();
        let forwards = self.forwarder.as_deref().is_some_and(Forwarder::has_data);
        if sends || self.responder.has_data() || forwards {
            Urgency::Data
        } else if self.responder.owes_acknowledgement() {
            Urgency::Acknowledgement
        } else {
            Urgency::None
        }
    }

    /// The earliest deadline of its timers, and of the congestion control's; [`Instant::NEVER`] where there
    /// is none.
    #[inline]
    pub(crate) fn deadline(&self) -> Instant {
        self.common
            .timers
            .next()
            .min(self.common.congestion.deadline())
    }

    /// Handles the timers that have expired.
    pub(crate) fn handle_timeout(&mut self, resources: &mut Resources, now: Instant) {
        let Common {
            timers, congestion, ..
        } = &mut self.common;
        if timers.take_expired(Timer::Resume, now) {
            self.completer.handle_resume();
        }
        timers.take_expired(Timer::Pace, now);
        if congestion.deadline() <= now {
            congestion.handle_timeout(now);
        }
        if timers.take_expired(Timer::Retransmit, now) {
            let (requester, completer) = (&mut self.requester, &mut self.completer);
            operate!(self, resources, now, Origin::Network, |cx| {
                completer.handle_ack_timeout(cx, requester);
            });
        }
    }
}

/// Runs a role until `limit` packets have left in all, or it cannot send; whether it could not.
#[inline(always)]
fn send_while(sent: &mut usize, limit: usize, mut next: impl FnMut() -> Step) -> bool {
    while *sent < limit {
        match next() {
            Step::Sent => *sent += 1,
            Step::Progressed => {}
            Step::Blocked => return true,
        }
    }
    false
}
