//! XRC forwarding: requests that name a shared receive queue of another device of the domain
//! ([`crate::domain`]). The queue pair that receives them is the front end: it forwards them in order among
//! its own, and relays the answers. It is separate from the responder, and uses its operations.
//!
//! ```text
//!                 decided          expected            taken
//! ────────────────┼────────────────┼───────────────────┼────▶ PSN
//!  executed, and   forwarded, not   wait: for a        not
//!  answered        answered yet     channel, or for    here
//!                                   those before
//! ```
//!
//! Requests to one SRQ owner follow each other without a pause; one to another owner, or to this device,
//! waits until all before it are decided. A refusal takes the queue pair back to the refused request.

use super::context::Context;
use super::refusal::Refusal;
use super::responder::{Body, Responder, check_packet_length, response_packets};
use super::step::Step;
use super::transport::{Origin, READY, Transport};
use crate::access::Access;
use crate::address::Path;
use crate::domain::{DomainName, ForwardedRequest, SrqOwner};
use crate::memory::{Memory, Payload};
use crate::resources::Resources;
use crate::sink::{ChannelRings, PacketKind, Sink};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use wire::{Message, Packet, Position, Psn, Qpn, Syndrome};

/// Limits of the requests that wait, and of their bytes. Further ones are dropped, as on a network: when
/// those before are decided, the peer gets a NAK and sends them again.
const WAITING_MAX: usize = 4096;
const WAITING_BYTES_MAX: usize = 4 << 20;
/// Mask of connection numbers, which have 24 bits.
pub(super) const CONNECTION_MASK: u32 = 0xff_ffff;

/// The front end of a queue pair whose domain other devices share.
#[derive(Debug)]
pub(crate) struct Forwarder {
    domain: DomainName,
    /// The connection of the queue pair, from the first request that named another device's queue on.
    session: Option<Box<Session>>,
}

/// A connection whose requests are forwarded.
#[derive(Debug)]
struct Session {
    /// Number of the connection, which distinguishes it from earlier ones of the queue pair.
    connection: u32,
    /// Destination of the last forwarded request: the channel, and the queue that it named.
    channel: u16,
    srq: Qpn,
    /// Whether the owner has answered on that channel.
    heard: bool,
    /// All channels whose other end has a proxy.
    channels: Vec<u16>,
    decided: Psn,
    taken: Psn,
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    /// Last PSNs of the messages that are forwarded and not decided.
    ends: VecDeque<Psn>,
    /// Whether a request was lost. The NAK is sent when everything before is decided, because a NAK
    /// acknowledges that.
    gap: bool,
}

#[derive(Debug)]
struct Waiting {
    packet: Packet,
    payload: Box<[u8]>,
    /// Number of PSNs of the request; 0 for a repeated READ.
    packets: u32,
    /// Whether the send queue belongs to another device.
    is_foreign: bool,
    origin: Origin,
}

impl Session {
    fn new(connection: u32, expected: Psn) -> Self {
        Self {
            connection,
            channel: 0,
            srq: Qpn::new(0),
            heard: false,
            channels: Vec::new(),
            decided: expected,
            taken: expected,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            ends: VecDeque::new(),
            gap: false,
        }
    }

    /// While nothing is undecided, requests that this device executes are not counted here.
    fn catch_up(&mut self, expected: Psn) {
        if self.decided == self.taken {
            (self.decided, self.taken) = (expected, expected);
        }
    }

    /// Goes back to `psn`: the peer has to send everything from there on again.
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

/// Requests to forward.
impl Forwarder {
    pub(super) fn new(domain: DomainName) -> Self {
        Self {
            domain,
            session: None,
        }
    }

    /// Whether requests of this connection were forwarded.
    pub(super) fn has_session(&self) -> bool {
        self.session.is_some()
    }

    /// Whether a request cannot simply be executed: it is for another device, or one before it is not
    /// decided.
    pub(super) fn takes(&self, cx: &Context<'_>, packet: &Packet) -> bool {
        let is_behind = |session: &Session| session.decided != session.taken;
        is_foreign(cx.resources, packet) || self.session.as_deref().is_some_and(is_behind)
    }

    /// Whether a request waits to be forwarded.
    pub(super) fn has_data(&self) -> bool {
        let next = self
            .session
            .as_ref()
            .and_then(|session| session.waiting.front());
        next.is_some_and(|next| next.is_foreign)
    }

    /// Takes a request that is to be forwarded, or that comes after one.
    pub(super) fn handle_request(
        &mut self,
        cx: &mut Context<'_>,
        responder: &mut Responder,
        packet: &Packet,
        payload: Payload<'_>,
        memory: &mut impl Memory,
    ) {
        let connections = &mut cx.resources.connections;
        let session = self.session.get_or_insert_with(|| {
            *connections = (*connections + 1) & CONNECTION_MASK;
            Box::new(Session::new(*connections, responder.expected()))
        });
        session.catch_up(responder.expected());
        match packet.psn.distance_from(session.taken) {
            0 => session.enqueue(cx, responder, packet, payload, memory),
            1.. => {
                session.gap = true;
                cx.count_out_of_sequence();
            }
            _ => session.repeat(cx, responder, packet),
        }
        self.execute_waiting(cx, responder, memory);
    }
}

impl Session {
    fn enqueue(
        &mut self,
        cx: &Context<'_>,
        responder: &mut Responder,
        packet: &Packet,
        payload: Payload<'_>,
        memory: &mut impl Memory,
    ) {
        let packets = match packet.message {
            Message::Send { position, .. } | Message::Write { position, .. } => {
                check_packet_length(cx, position, payload.len()).ok()
            }
            Message::ReadRequest { reth, .. } => {
                (reth.length <= 1 << 31).then(|| response_packets(cx, &reth))
            }
            Message::CompareSwap(_) | Message::FetchAdd(_) | Message::AtomicWrite(_) => Some(1),
            _ => None,
        };
        let bytes = self.waiting_bytes + payload.len() as usize;
        if self.waiting.len() >= WAITING_MAX || bytes > WAITING_BYTES_MAX {
            self.gap = true;
            return;
        }
        self.waiting_bytes = bytes;
        self.taken = self.taken.plus(packets.unwrap_or(1));
        self.gap = false;
        let mut packet = *packet;
        // As in `execute_in_turn`.
        packet.ack_req |= responder.end_silence();
        self.waiting.push_back(Waiting {
            packet,
            payload: memory.keep(payload),
            packets: packets.unwrap_or(1),
            // This device refuses a malformed one, in its turn.
            is_foreign: packets.is_some() && is_foreign(cx.resources, &packet),
            origin: cx.origin,
        });
    }

    /// Handles a repeated request. Those that are not decided yet will be answered.
    fn repeat(&mut self, cx: &mut Context<'_>, responder: &mut Responder, packet: &Packet) {
        let is_behind = self.decided != self.taken;
        let read_end = match packet.message {
            Message::ReadRequest { reth, .. } => Some(packet.psn.plus(response_packets(cx, &reth))),
            _ => None,
        };
        let is_decided = read_end.map_or(packet.psn.is_before(self.decided), |end| {
            !self.decided.is_before(end)
        });
        if is_behind && !is_decided {
            cx.resources.port.counters.duplicate_request += 1;
            return;
        }
        match read_end.filter(|_| is_foreign(cx.resources, packet)) {
            Some(end) => {
                cx.resources.port.counters.duplicate_request += 1;
                responder.forget_answers_from(cx, packet.psn);
                if self.waiting.len() >= WAITING_MAX {
                    return;
                }
                // A requester whose window has grown requests larger pieces than before.
                let packets = end.distance_from(self.taken).max(0) as u32;
                self.taken = self.taken.plus(packets);
                let (packet, payload, origin) = (*packet, Box::default(), cx.origin);
                self.waiting.push_back(Waiting {
                    packet,
                    payload,
                    packets,
                    is_foreign: true,
                    origin,
                });
            }
            None if is_plain(packet) => responder.acknowledge(self.decided.minus(1), Syndrome::ACK),
            None => responder.handle_duplicate(cx, packet, Payload::EMPTY),
        }
    }
}

/// Execution and forwarding of waiting requests.
impl Forwarder {
    /// Executes waiting requests for this device, once everything before them is decided.
    fn execute_waiting(
        &mut self,
        cx: &mut Context<'_>,
        responder: &mut Responder,
        memory: &mut impl Memory,
    ) {
        let Some(session) = &mut self.session else {
            return;
        };
        let origin = cx.origin;
        while cx.qp.is_receiving() {
            let is_ours = session.waiting.front().is_some_and(|next| !next.is_foreign);
            if session.decided != responder.expected() || !is_ours {
                break;
            }
            let Some(next) = session.pop() else { break };
            cx.origin = next.origin;
            let body = Body::Here(Payload::Bytes(&next.payload));
            responder.execute_in_turn(cx, &next.packet, body, memory);
            if responder.is_silent() {
                session.turn_back(responder.expected());
            }
            session.decided = responder.expected();
        }
        cx.origin = origin;
        if cx.qp.is_receiving()
            && session.decided == session.taken
            && core::mem::take(&mut session.gap)
        {
            responder.sequence_nak(cx);
        }
    }

    /// Forwards the next request, if possible.
    pub(super) fn next_request(
        &mut self,
        cx: &mut Context<'_>,
        responder: &mut Responder,
        sink: &mut impl Sink,
    ) -> Step {
        let forwarded = self.describe(cx);
        let Some(session) = self.session.as_mut().filter(|_| cx.qp.is_receiving()) else {
            return Step::Blocked;
        };
        session.catch_up(responder.expected());
        let Some(next) = session.waiting.front().filter(|next| next.is_foreign) else {
            return Step::Blocked;
        };
        let (psn, srq) = (next.packet.psn, next.packet.xrc_srq.unwrap_or(Qpn::new(0)));
        let is_free = session.decided == responder.expected();
        let owner = sink.channels().map_or(SrqOwner::Absent, |channels| {
            channels.srq_owner(cx.qp.qpn, srq)
        });
        let (channel, refusal) = match owner {
            _ if responder.is_within_message() => (0, Some(Refusal::Invalid)),
            SrqOwner::Channel(channel) => (channel, None),
            SrqOwner::Pending => return cx.qp.wait_for_room(),
            SrqOwner::Absent => (0, Some(Refusal::Invalid)),
            SrqOwner::Unreachable => (0, Some(Refusal::Gone)),
        };
        if !is_free && (refusal.is_some() || channel != session.channel) {
            return Step::Blocked;
        }
        if let Some(refusal) = refusal {
            responder.refuse(cx, psn, refusal);
            return Step::Progressed;
        }
        let path = Path {
            channel,
            ..cx.qp.path
        };
        if Transport::SharedMemory.room(&path, cx.qp.mtu(), PacketKind::Data, sink) == 0 {
            return cx.qp.wait_for_room();
        }
        let Some(mut next) = session.pop() else {
            return Step::Blocked;
        };
        if channel != session.channel {
            (session.channel, session.heard) = (channel, false);
        }
        if !session.channels.contains(&channel) {
            session.channels.push(channel);
        }
        session.srq = srq;
        let ends = ends_message(&next.packet);
        next.packet.ack_req |= ends;
        responder.expect(responder.expected().plus(next.packets));
        if ends && next.packets > 0 {
            session.ends.push_back(responder.expected().minus(1));
        }
        if let (Some(forwarded), Some(channels)) = (forwarded, sink.channels()) {
            channels.forward(channel, &forwarded, &next.packet, &next.payload);
        }
        Step::Sent
    }

    /// Description of the connection for SRQ owners.
    fn describe(&self, cx: &Context<'_>) -> Option<ForwardedRequest> {
        let attr = &cx.qp.attr;
        Some(ForwardedRequest {
            front_end: cx.qp.qpn,
            connection: self.session.as_ref()?.connection,
            domain: self.domain,
            access: attr.access & Access::REMOTE,
            path_mtu: attr.path_mtu,
            min_rnr_timer: attr.min_rnr_timer,
            max_dest_rd_atomic: attr.max_dest_rd_atomic,
            is_close_notice: false,
        })
    }
}

/// Answers of SRQ owners.
impl Forwarder {
    /// Handles the answer of an SRQ owner to a forwarded request.
    pub(super) fn handle_response(
        &mut self,
        cx: &mut Context<'_>,
        responder: &mut Responder,
        packet: &Packet,
        payload: Payload<'_>,
        memory: &mut impl Memory,
    ) {
        let Some(session) = &mut self.session else {
            return drop_unexpected(cx);
        };
        if !session.expects(cx, responder, packet) {
            return drop_unexpected(cx);
        }
        match packet.message {
            Message::Acknowledge(aeth) => {
                session.handle_acknowledge(cx, responder, packet.psn, aeth.syndrome)
            }
            Message::AtomicAcknowledge { original, .. } => {
                session.relay_original(cx, responder, packet.psn, original);
            }
            Message::ReadResponse { position, .. } => {
                session.relay(cx, responder, packet.psn, position, memory.keep(payload));
            }
            _ => {}
        }
        self.execute_waiting(cx, responder, memory);
    }

    /// Handles the end of a channel.
    pub(super) fn close_channel(
        &mut self,
        cx: &mut Context<'_>,
        responder: &mut Responder,
        channel: u16,
    ) {
        let Some(session) = &mut self.session else {
            return;
        };
        session.catch_up(responder.expected());
        session.channels.retain(|known| *known != channel);
        if session.channel != channel {
            return;
        }
        session.channel = 0;
        let psn = session.decided;
        if psn != responder.expected() {
            responder.expect(psn);
            responder.refuse(cx, psn, Refusal::Gone);
        }
    }

    /// Ends the connection: a close notice is sent to each owner to which requests were forwarded.
    pub(super) fn close(&mut self, cx: &mut Context<'_>) {
        let Some(notice) = self.describe(cx) else {
            return;
        };
        let Some(session) = self.session.take() else {
            return;
        };
        let notice = ForwardedRequest {
            is_close_notice: true,
            ..notice
        };
        cx.resources
            .close_notices
            .extend(session.channels.iter().map(|channel| (*channel, notice)));
    }
}

impl Session {
    /// Whether an answer belongs to this connection, and comes from the owner of the last forwarded request.
    /// READ responses Middle do not contain the connection; those before them did.
    fn expects(&mut self, cx: &Context<'_>, responder: &Responder, packet: &Packet) -> bool {
        self.catch_up(responder.expected());
        let aeth = match packet.message {
            Message::Acknowledge(aeth) | Message::AtomicAcknowledge { aeth, .. } => Some(aeth),
            Message::ReadResponse { aeth, .. } => aeth,
            _ => None,
        };
        let ours = aeth.map_or(self.heard, |aeth| aeth.msn == self.connection);
        let is_expected = ours && cx.origin.is_known(self.srq);
        self.heard |= is_expected;
        is_expected
    }

    /// Records that everything before `end` is decided; whether that is new.
    fn decide(&mut self, responder: &mut Responder, end: Psn) -> bool {
        let is_new = self.decided.is_before(end) && !responder.expected().is_before(end);
        if is_new {
            self.decided = end;
            while self.ends.front().is_some_and(|last| last.is_before(end)) {
                self.ends.pop_front();
                responder.count_message();
            }
        }
        is_new
    }

    fn handle_acknowledge(
        &mut self,
        cx: &mut Context<'_>,
        responder: &mut Responder,
        psn: Psn,
        syndrome: Syndrome,
    ) {
        if let Syndrome::Ack(_) = syndrome {
            if self.decide(responder, psn.plus(1)) {
                responder.acknowledge(psn, Syndrome::ACK);
            }
            return;
        }
        if psn.is_before(self.decided) || responder.expected().is_before(psn) {
            return;
        }
        if syndrome == READY {
            let waits = responder.is_silent() && psn == responder.expected();
            if waits && cx.qp.transport.announces_receives() {
                responder.acknowledge(psn, READY);
            }
            return;
        }
        if psn == responder.expected() {
            return;
        }
        self.decide(responder, psn);
        responder.expect(psn);
        self.turn_back(psn);
        match syndrome {
            Syndrome::RnrNak(code) => responder.rnr_nak(cx, psn, code),
            Syndrome::Nak(1) => responder.refuse(cx, psn, Refusal::Invalid),
            Syndrome::Nak(2) => responder.refuse(cx, psn, Refusal::Access),
            Syndrome::Nak(3) => responder.refuse(cx, psn, Refusal::Gone),
            _ => responder.sequence_nak(cx),
        }
    }

    /// Relays the result of an atomic of an owner to the peer.
    fn relay_original(
        &mut self,
        cx: &Context<'_>,
        responder: &mut Responder,
        psn: Psn,
        original: u64,
    ) {
        if self.decide(responder, psn.plus(1)) {
            responder.answer_atomic(cx, psn, original);
        }
    }

    /// Relays READ responses of an owner to the peer.
    fn relay(
        &mut self,
        cx: &Context<'_>,
        responder: &mut Responder,
        psn: Psn,
        position: Position,
        data: Box<[u8]>,
    ) {
        let packets = (data.len() as u32).div_ceil(cx.qp.mtu()).max(1);
        let end = psn.plus(packets);
        let is_late = !self.decided.is_before(end);
        if !responder.expected().is_before(end) && (is_late || self.decide(responder, end)) {
            responder.relay(cx, psn, position, data);
        }
    }
}

fn drop_unexpected(cx: &mut Context<'_>) {
    cx.resources.port.counters.dropped_unexpected_response += 1;
}

fn is_foreign(resources: &Resources, packet: &Packet) -> bool {
    packet
        .xrc_srq
        .is_some_and(|number| resources.srqs.by_number(number).is_none())
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
