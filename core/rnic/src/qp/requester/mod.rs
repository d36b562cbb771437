//! The requester: turns work requests into request packets (IBTA 9.7.3, 9.7.4).

mod at_once;
mod direct;
mod emit;

use super::attr::{QpType, State};
use super::context::Context;
use super::expected::Expected;
use super::identity::Common;
use super::log;
use super::send_queue::{SendEntry, SendQueue};
use super::step::Step;
use super::timer::Timer;
use crate::access::Access;
use crate::completion::{CompletionKind, Status};
use crate::cq::Notice;
use crate::error::Error;
use crate::event::Event;
use crate::sink::{Channels, PacketKind, Sink};
use crate::time::{Instant, Nanos};
use crate::work::{Operation, SendFlags, SendRequest, Sge};
use alloc::collections::VecDeque;
use wire::Psn;

/// READs are requested in pieces of at most this many packets, so that the window also paces the responses.
const READ_PACKETS_MAX: u32 = 64;

/// The send queue, and its position.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Requester {
    /// The entry that is being sent, and the packet in it.
    cursor: usize,
    /// Number of entries that were begun at least once.
    started: usize,
    packet: u32,
    packets_since_ack_request: u32,
    /// The PSN of the next packet.
    next: Psn,
    /// The oldest PSN that is not acknowledged.
    unacknowledged: Psn,
    /// The PSN after the highest one ever sent.
    high: Psn,
    /// The PSN that the next posted request begins with.
    posted: Psn,
    /// Time at which pacing permits the next packet.
    pace_at: Instant,
    /// Whether the peer has executed a request: it is ready to receive.
    heard: bool,
    /// Error of the entry at the cursor, which cannot be sent; it fails when those before it are done.
    fault: Option<Status>,
    drain_announced: bool,
    queue: SendQueue,
    /// Single packets to retransmit (out-of-order mode).
    resend: VecDeque<Psn>,
    /// The packet that was retransmitted to have it acknowledged at once.
    urged: Option<Psn>,
}

/// A run of packets of one entry that leaves as one unit.
#[derive(Clone, Copy, Debug)]
struct Unit {
    /// Index of the entry in the send queue.
    index: usize,
    /// The first packet, counted from the beginning of the entry.
    packet: u32,
    /// Number of packets. For a READ: number of response packets that are requested.
    packets: u32,
    /// Whether it requests an acknowledgement.
    ack: bool,
}

fn completion_kind(operation: &Operation) -> CompletionKind {
    match operation {
        Operation::Send(_) => CompletionKind::Send,
        Operation::Write { .. } => CompletionKind::Write,
        Operation::Read { .. } => CompletionKind::Read,
        Operation::CompareSwap { .. } => CompletionKind::CompareSwap,
        Operation::FetchAdd { .. } => CompletionKind::FetchAdd,
        Operation::AtomicWrite { .. } => CompletionKind::AtomicWrite,
        Operation::LocalInvalidate(_) => CompletionKind::LocalInvalidate,
        Operation::BindWindow(_) => CompletionKind::BindWindow,
    }
}

/// Life cycle of the send queue.
impl Requester {
    pub(super) fn new(queue: SendQueue) -> Self {
        Self {
            queue,
            cursor: 0,
            packet: 0,
            started: 0,
            next: Psn::default(),
            unacknowledged: Psn::default(),
            high: Psn::default(),
            posted: Psn::default(),
            resend: VecDeque::new(),
            heard: false,
            fault: None,
            packets_since_ack_request: 0,
            urged: None,
            pace_at: Instant::default(),
            drain_announced: false,
        }
    }

    /// Drops all posted requests.
    pub(super) fn reset(&mut self) {
        let mut queue = core::mem::take(&mut self.queue);
        queue.clear();
        *self = Self::new(queue);
    }

    /// Starts the numbering of packets (the change to RTS).
    pub(super) fn start(&mut self, first: Psn) {
        self.next = first;
        self.unacknowledged = first;
        self.high = first;
        self.posted = first;
    }

    /// Checks and queues a send (`ibv_post_send`).
    pub(super) fn post(
        &mut self,
        cx: &mut Context<'_>,
        request: &SendRequest<'_>,
    ) -> Result<(), Error> {
        if matches!(
            cx.qp.state,
            State::Reset | State::Init | State::ReadyToReceive
        ) {
            return Err(Error::WrongState);
        }
        check_operation(cx.qp.kind, request)?;
        let reads = matches!(
            request.operation,
            Operation::Read { .. } | Operation::CompareSwap { .. } | Operation::FetchAdd { .. }
        );
        if reads && cx.qp.attr.max_rd_atomic == 0 {
            return Err(Error::Invalid(
                "max_rd_atomic of the queue pair is 0: it cannot READ",
            ));
        }
        let mtu = if cx.qp.kind == QpType::Ud {
            0
        } else {
            cx.qp.mtu()
        };
        let packets = self.queue.post(request, self.posted, mtu)?;
        self.posted = self.posted.plus(packets);
        if matches!(cx.qp.state, State::Error | State::SendQueueError) {
            self.flush(cx);
        }
        Ok(())
    }

    /// Called when the queue pair has become SQD: the send queue may be drained already.
    pub(super) fn drain(&mut self, cx: &mut Context<'_>) {
        self.drain_announced = false;
        if self.packet == 0 {
            self.ask_late(cx.qp);
        }
        self.announce_if_drained(cx);
    }

    fn announce_if_drained(&mut self, cx: &mut Context<'_>) {
        let drained = cx.qp.state == State::SendQueueDrained && self.started == 0;
        if drained && !self.drain_announced {
            self.drain_announced = true;
            if cx.qp.attr.drain_notify {
                cx.resources
                    .events
                    .push_back(Event::SendQueueDrained(cx.qp.qpn));
            }
        }
    }

    /// Cancels retransmissions, and stops all timers.
    pub(super) fn stop(&mut self, qp: &mut Common) {
        qp.timers.stop_all();
        self.resend.clear();
    }

    /// Completes all posted requests with "flushed" (IBTA 10.3.1.7).
    pub(super) fn flush(&mut self, cx: &mut Context<'_>) {
        while let Some(entry) = self.queue.pop() {
            let flushed =
                cx.completion(entry.id, Status::Flushed, completion_kind(&entry.operation));
            cx.complete_send(flushed, Notice::Ordinary);
        }
        self.cursor = 0;
        self.packet = 0;
        self.started = 0;
        self.fault = None;
        self.next = self.posted;
        self.unacknowledged = self.posted;
        self.high = self.posted;
    }

    /// Completes the oldest request with an error, flushes the rest, and leaves the send queue in error: RC
    /// goes to ERR, UC and UD to SQE (IBTA 10.3.1.6).
    pub(super) fn fail_oldest(&mut self, cx: &mut Context<'_>, status: Status) {
        log::request_failed(cx.qp, status);
        if let Some(entry) = self.queue.pop() {
            let failed = cx.completion(entry.id, status, completion_kind(&entry.operation));
            cx.complete_send(failed, Notice::Solicited);
        }
        if cx.qp.is_reliable() {
            cx.fail();
        } else {
            cx.qp.state = State::SendQueueError;
        }
        self.stop(cx.qp);
        self.flush(cx);
    }

    /// Completes the entries that are done, from the front.
    #[inline(always)]
    pub(super) fn retire(&mut self, cx: &mut Context<'_>) {
        while self.cursor > 0 {
            let Some(front) = self.queue.front() else {
                break;
            };
            if self.unacknowledged.is_before(front.end_psn()) {
                break;
            }
            if wants_completion(cx, front.flags) {
                complete(cx, front.id, &front.operation, front.length);
            }
            self.queue.drop_front();
            self.cursor -= 1;
            self.started -= 1;
        }
        if let (Some(status), 0) = (self.fault, self.cursor) {
            self.fail_oldest(cx, status);
        }
        self.announce_if_drained(cx);
    }
}

/// Whether the program wants a completion of a request with these flags that succeeds.
#[inline(always)]
fn wants_completion(cx: &Context<'_>, flags: SendFlags) -> bool {
    cx.qp.init.signal_all || flags.contains(SendFlags::SIGNALED)
}

/// Completes a request with success.
fn complete(cx: &mut Context<'_>, id: u64, operation: &Operation, length: u32) {
    let mut done = cx.completion(id, Status::Success, completion_kind(operation));
    done.length = length;
    cx.complete_send(done, Notice::Ordinary);
}

/// Checks that the transport service supports the operation (IBTA table 37, 10.2.8).
fn check_operation(kind: QpType, request: &SendRequest<'_>) -> Result<(), Error> {
    let unsupported = Err(Error::Invalid("the transport does not have this operation"));
    match (kind, &request.operation) {
        (QpType::XrcReceive, _) => unsupported,
        (QpType::Ud, Operation::Send(wire::Tail::None | wire::Tail::Immediate(_))) => {
            request.destination.map_or(
                Err(Error::Invalid("a datagram needs an address handle")),
                |_| Ok(()),
            )
        }
        (QpType::Ud, _) => unsupported,
        (QpType::Uc, Operation::Send(wire::Tail::Invalidate(_))) => unsupported,
        (QpType::Uc, operation) => match operation {
            Operation::Send(_) | Operation::Write { .. } => Ok(()),
            Operation::BindWindow(_) | Operation::LocalInvalidate(_) => Ok(()),
            _ => unsupported,
        },
        (QpType::XrcSend, _) if request.xrc_srq.is_none() => {
            Err(Error::Invalid("an XRC request needs the peer's SRQ number"))
        }
        _ => Ok(()),
    }
}

/// Outstanding packets, for the completer.
impl Requester {
    /// Whether packets wait for acknowledgement.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        self.unacknowledged.is_before(self.high)
    }

    /// Whether a packet with this PSN was sent and is not acknowledged.
    #[inline]
    pub(super) fn is_outstanding(&self, psn: Psn) -> bool {
        !psn.is_before(self.unacknowledged) && psn.is_before(self.high)
    }

    /// Whether this is the oldest unacknowledged packet, and it is about to be retransmitted.
    pub(super) fn is_about_to_resend(&self, psn: Psn) -> bool {
        psn == self.next && psn == self.unacknowledged
    }

    /// Whether a packet left within this time.
    pub(super) fn has_sent_within(&self, span: Nanos, now: Instant) -> bool {
        now <= self.pace_at + span
    }

    /// Number of messages that the peer may have completed since its last answer, counting a READ as one
    /// message.
    pub(super) fn messages_outstanding(&self, qp: &Common) -> u32 {
        if qp.write_only {
            // Each packet of a WRITE is a message.
            return self.high.distance_from(self.unacknowledged).max(0) as u32;
        }
        self.started as u32
    }

    /// Index of the begun entry that has a packet with this PSN.
    fn find(&self, psn: Psn) -> Option<usize> {
        self.queue.find(psn, self.started)
    }

    /// Scatter/gather elements of a request.
    pub(super) fn sges(&self, entry: &SendEntry) -> impl Iterator<Item = &Sge> {
        self.queue.sges(entry)
    }

    /// The begun entry that has a packet with this PSN.
    pub(super) fn entry_of(&self, psn: Psn) -> Option<&SendEntry> {
        self.queue.entry(self.find(psn)?)
    }

    /// The first PSN before `end` that waits for a response. Derived from the requests themselves: after
    /// going back, a READ that is to be sent again is not outstanding, and a late acknowledgement must not
    /// pass it.
    pub(super) fn unanswered_before(&self, end: Psn) -> Option<Psn> {
        let begun = (0..self.started).filter_map(|index| self.queue.entry(index));
        let unanswered = begun
            .take_while(|entry| entry.first_psn.is_before(end))
            .find(|entry| {
                entry.wants_response() && self.unacknowledged.is_before(entry.end_psn())
            })?;
        let partly = unanswered.first_psn.is_before(self.unacknowledged);
        Some(if partly {
            self.unacknowledged
        } else {
            unanswered.first_psn
        })
    }

    /// Moves the acknowledged edge to `end`. Returns by how many packets, 0 if it was there already.
    pub(super) fn acknowledge_before(&mut self, end: Psn) -> u32 {
        let gained = end.distance_from(self.unacknowledged);
        if gained <= 0 {
            return 0;
        }
        self.unacknowledged = end;
        self.heard = true;
        if self.next.is_before(end) {
            // A late acknowledgement of packets that were to be retransmitted.
            self.seek(end);
        }
        gained as u32
    }

    /// Goes back to the oldest unacknowledged packet.
    pub(super) fn go_back(&mut self) {
        self.resend.clear();
        // Detected again in its turn.
        self.fault = None;
        self.seek(self.unacknowledged);
    }

    /// Queues the retransmission of one packet, out of order (out-of-order mode).
    pub(super) fn resend(&mut self, psn: Psn) {
        if !self.resend.contains(&psn) {
            self.resend.push_back(psn);
        }
    }

    /// Restarts the ACK timer, or stops it when nothing is outstanding.
    pub(super) fn restart_ack_timer(&self, cx: &mut Context<'_>) {
        match cx
            .qp
            .transport
            .ack_timeout(cx.qp.attr.timeout)
            .filter(|_| self.is_waiting())
        {
            Some(timeout) => cx.qp.timers.set(Timer::Retransmit, cx.now + timeout),
            None => cx.qp.timers.stop(Timer::Retransmit),
        }
    }

    /// Moves the cursor to the packet with this PSN, among the entries that were begun.
    fn seek(&mut self, psn: Psn) {
        self.next = psn;
        match self.find(psn) {
            Some(index) => {
                self.cursor = index;
                let entry = self.queue.entry(index);
                self.packet = entry.map_or(0, |entry| psn.distance_from(entry.first_psn) as u32);
            }
            None => {
                self.cursor = self.started;
                self.packet = 0;
            }
        }
    }
}

/// Sending request packets.
impl Requester {
    fn has_work(&self) -> bool {
        self.cursor < self.queue.len() || !self.resend.is_empty()
    }

    /// Whether there is something to send that pacing does not delay; for a delayed packet the timer gives
    /// the turn.
    #[inline]
    pub(super) fn has_turn(&self, qp: &Common) -> bool {
        self.has_work() && !(qp.timers.is_set(Timer::Pace) && self.resend.is_empty())
    }

    /// The lines of the oldest request.
    #[cfg(feature = "simulation")]
    #[inline]
    pub(super) fn lines(&self, load: &impl Fn(*const u8)) {
        self.queue.lines(load);
    }

    /// Sends the next request packet, executes the next local request, or finds that it must wait. (Inlined
    /// into its one caller, since it runs for each packet.)
    #[inline(always)]
    pub(super) fn next_packet(
        &mut self,
        cx: &mut Context<'_>,
        expected: &mut Expected,
        sink: &mut impl Sink,
    ) -> Step {
        if !cx.qp.is_sending() || cx.qp.timers.is_set(Timer::Resume) {
            return Step::Blocked;
        }
        if !self.resend.is_empty() && cx.qp.room(PacketKind::Data, sink) == 0 {
            return cx.qp.wait_for_room();
        }
        if let Some(psn) = self.resend.pop_front() {
            return self.send_again(cx, psn, sink);
        }
        if self.fault.is_some() {
            return Step::Blocked;
        }
        let index = self.cursor;
        let Some(entry) = self.queue.entry(index).copied() else {
            return Step::Blocked;
        };
        let fresh = index >= self.started;
        if fresh && self.packet == 0 {
            if !may_begin(cx.qp, expected, &entry) {
                return Step::Blocked;
            }
            if let Err(status) = self.check_local_target(cx, &entry) {
                return self.fail_at_cursor(cx, status);
            }
        }
        if entry.is_local() {
            return self.execute_locally(cx, &entry, fresh);
        }
        if !self.pace(cx) || (index > 0 && fresh && self.waits_to_execute(cx.qp, &entry, sink)) {
            return Step::Blocked;
        }
        if fresh
            && self.packet == 0
            && let Some(step) = self.wait_for_direct_execution(cx, &entry, sink)
        {
            return step;
        }
        if fresh && self.execute_run(cx, &entry, sink) {
            return Step::Sent;
        }
        let room = self.room(cx, index, sink);
        if room == 0 {
            return cx.qp.wait_for_room();
        }
        let Some(packets) = self.window_allows(cx.qp, expected, &entry, room) else {
            return Step::Blocked;
        };
        self.begin(index);
        if self.execute_directly(cx, index, &entry, sink) {
            cx.count_sent(if entry.wants_response() {
                0
            } else {
                entry.length
            });
            self.executed(cx, &entry, 1);
            return Step::Sent;
        }
        if fresh && self.packet == 0 {
            self.begins_in_channel(cx, &entry, sink);
        }
        let packet = self.packet;
        let ack = self.wants_acknowledgement(cx.qp, &entry, index, packets);
        let unit = Unit {
            index,
            packet,
            packets,
            ack,
        };
        if let Err(status) = self.emit(cx, &entry, unit, sink) {
            return self.fail_at_cursor(cx, status);
        }
        self.sent(cx, expected, &entry, packets, ack);
        Step::Sent
    }

    fn begin(&mut self, index: usize) {
        self.started = self.started.max(index + 1);
    }

    /// Whether nothing is outstanding, the entry is the oldest one, and the peer is ready for it.
    fn is_idle_before(&self, index: usize) -> bool {
        let idle = self.unacknowledged == self.high && index == 0;
        idle && self.heard && self.packet == 0
    }

    /// Whether the entry waits until the peer has answered an earlier one.
    fn waits_to_execute(&self, qp: &Common, entry: &SendEntry, sink: &mut impl Sink) -> bool {
        !self.heard
            && self.is_waiting()
            && qp
                .transport
                .waits_to_execute(qp.kind, &qp.path, entry, sink)
    }

    /// Records `count` requests, up to and with `last`, that were sent, executed and answered at once.
    fn executed(&mut self, cx: &mut Context<'_>, last: &SendEntry, count: usize) {
        self.next = last.end_psn();
        self.high = self.next;
        self.unacknowledged = self.next;
        self.cursor += count;
        self.retire(cx);
    }

    /// Checks the local memory that READs and atomics store into: a wrong key must be found before the peer
    /// executes the request.
    fn check_local_target(&self, cx: &mut Context<'_>, entry: &SendEntry) -> Result<(), Status> {
        let stores =
            entry.wants_response() && !matches!(entry.operation, Operation::AtomicWrite { .. });
        if !stores {
            return Ok(());
        }
        cx.resources
            .resolve(
                cx.qp.pd(),
                self.queue.sges(entry),
                0,
                entry.length,
                Access::LOCAL_WRITE,
            )
            .map(|_| ())
            .map_err(|_| Status::LocalProtection)
    }

    /// Number of packets of the entry that may be sent as one unit; 0 while the channel is full.
    fn room(&self, cx: &mut Context<'_>, index: usize, sink: &mut impl Sink) -> u32 {
        if cx.qp.kind != QpType::Ud {
            return cx.qp.room(PacketKind::Data, sink);
        }
        match self.aim(cx, index) {
            Some((path, qpn)) => {
                let channels = sink.channels();
                let channel = channels.map_or(0, |channels| {
                    channels.datagram_channel(&path, cx.qp.qpn, qpn)
                });
                cx.qp.set_path(crate::address::Path { channel, ..path });
                let mtu = cx.resources.port.active_mtu.bytes();
                cx.qp
                    .transport
                    .room(&cx.qp.path, mtu, PacketKind::Data, sink)
                    .min(1)
            }
            // The error is reported when it is sent.
            None => 1,
        }
    }

    /// Number of packets that the next request may request or consist of, given that some may go together:
    /// `None` if the window is full.
    #[inline]
    fn window_allows(
        &self,
        qp: &Common,
        expected: &Expected,
        entry: &SendEntry,
        together: u32,
    ) -> Option<u32> {
        let left = entry.packets - self.packet;
        if !qp.is_reliable() {
            return Some(left.min(together));
        }
        if entry.wants_response() && expected.responses() >= usize::from(qp.attr.max_rd_atomic) {
            return None;
        }
        let window = qp.window_packets();
        let room = window.saturating_sub(self.in_flight());
        if !matches!(entry.operation, Operation::Read { .. }) {
            return (room > 0).then_some(left.min(together).min(room));
        }
        let wanted = left
            .min(READ_PACKETS_MAX)
            .min(expected.packets_to_read_end(self.next));
        // A small remainder of the window does not justify a request of its own.
        let worth = wanted.min(window.div_ceil(4));
        (room >= worth).then(|| wanted.min(room))
    }

    fn in_flight(&self) -> u32 {
        self.next.distance_from(self.unacknowledged).max(0) as u32
    }

    /// Whether the rate limit permits a packet now. If not, the queue pair has no turn before the pace timer
    /// expires.
    fn pace(&self, cx: &mut Context<'_>) -> bool {
        let waits = cx.now < self.pace_at;
        if waits {
            cx.qp.timers.set(Timer::Pace, self.pace_at);
        } else {
            cx.qp.timers.stop(Timer::Pace);
        }
        !waits
    }

    /// Starts the pace timer when pacing delays the next request beyond `at`.
    pub(super) fn rest_until(&self, qp: &mut Common, at: Instant) {
        let next = self
            .queue
            .entry(self.cursor)
            .filter(|entry| !entry.is_local());
        if next.is_some() && self.resend.is_empty() && at < self.pace_at {
            qp.timers.set(Timer::Pace, self.pace_at);
        }
    }

    /// Whether to request an acknowledgement: at the end of a message that no other follows at once, at
    /// intervals, and when the window is about to close on packets without a request for one. On a
    /// shared-memory channel also for each short request with a completion: no system call is needed there.
    #[inline]
    fn wants_acknowledgement(
        &self,
        qp: &Common,
        entry: &SendEntry,
        index: usize,
        packets: u32,
    ) -> bool {
        if !qp.is_reliable() {
            return false;
        }
        let silent = self.packets_since_ack_request;
        if silent + 1 >= qp.ack_interval {
            return true;
        }
        let is_last = self.packet + packets >= entry.packets;
        let ends = is_last && !(is_plain(entry) && self.continues(qp, index + 1));
        let (window, in_flight) = (qp.window_packets(), self.in_flight());
        let interval = (window / 4).clamp(1, qp.ack_interval);
        let asks_early = qp.transport.asks_early();
        let first = !self.heard && asks_early;
        let is_short = entry.packets == 1;
        let completes = is_short && asks_early && entry.flags.contains(SendFlags::SIGNALED);
        ends || first
            || completes
            || silent + 1 >= interval
            || (in_flight + packets >= window && silent >= in_flight)
    }

    /// Whether the entry at `index` is sent right after the one before it.
    fn continues(&self, qp: &Common, index: usize) -> bool {
        qp.state == State::ReadyToSend
            && !qp.congestion.is_pacing()
            && self.queue.entry(index).is_some_and(is_plain)
    }

    /// Retransmits the last packet with AckReq set, because the request that was to carry AckReq is not sent.
    fn ask_late(&mut self, qp: &Common) {
        let waits = qp.is_reliable() && self.is_waiting();
        if waits && core::mem::take(&mut self.packets_since_ack_request) > 0 {
            self.resend.push_back(self.next.minus(1));
        }
    }

    /// Retransmits the last packet with AckReq set, once, even if it had it before: nothing is sent until the
    /// peer acknowledges it, and the acknowledgement may be delayed to be sent together with an answer. A
    /// response needs no such request.
    fn urge(&mut self) {
        let last = self.next.minus(1);
        if self.urged != Some(last)
            && self
                .entry_of(last)
                .is_some_and(|entry| !entry.wants_response())
        {
            self.urged = Some(last);
            self.packets_since_ack_request = 0;
            self.resend.push_back(last);
        }
    }

    #[inline]
    fn sent(
        &mut self,
        cx: &mut Context<'_>,
        expected: &mut Expected,
        entry: &SendEntry,
        packets: u32,
        ack: bool,
    ) {
        let full = cx.qp.mtu() * packets;
        let bytes = if entry.wants_response() {
            0
        } else {
            full.min(entry.length)
        };
        cx.qp.congestion.sent(full, cx.now);
        self.pace_at = cx
            .qp
            .congestion
            .paced(bytes + cx.resources.config.overhead_bytes, cx.now);
        self.packets_since_ack_request = if ack {
            0
        } else {
            self.packets_since_ack_request + 1
        };
        let end = self.next.plus(packets);
        if entry.wants_response() {
            expected.add(
                self.next,
                end,
                matches!(entry.operation, Operation::Read { .. }),
            );
        }
        if self.next.is_before(self.high) {
            cx.count_retransmitted();
        }
        self.next = end;
        if self.high.is_before(end) {
            self.high = end;
        }
        self.packet += packets;
        if self.packet >= entry.packets {
            self.packet = 0;
            self.cursor += 1;
        }
        if cx.qp.is_reliable() {
            self.arm_ack_timer(cx);
        } else {
            self.unacknowledged = end;
            self.retire(cx);
        }
    }

    /// Starts the ACK timer unless it runs.
    fn arm_ack_timer(&self, cx: &mut Context<'_>) {
        if !cx.qp.timers.is_set(Timer::Retransmit) {
            self.restart_ack_timer(cx);
        }
    }

    /// LOCAL INVALIDATE and BIND: executed once, when the requests before them have been sent.
    fn execute_locally(&mut self, cx: &mut Context<'_>, entry: &SendEntry, fresh: bool) -> Step {
        if fresh {
            let (qpn, pd) = (cx.qp.qpn, cx.qp.pd());
            let regions = &mut cx.resources.regions;
            let done = match &entry.operation {
                Operation::LocalInvalidate(rkey) => regions
                    .invalidate(qpn, pd, *rkey)
                    .ok_or(Status::LocalQpOperation),
                Operation::BindWindow(binding) => {
                    regions.bind(qpn, pd, binding).ok_or(Status::WindowBind)
                }
                _ => Ok(()),
            };
            if let Err(status) = done {
                return self.fail_at_cursor(cx, status);
            }
        }
        self.begin(self.cursor);
        self.cursor += 1;
        self.retire(cx);
        Step::Progressed
    }

    /// Lets the entry at the cursor fail with `status` once those before it have completed.
    fn fail_at_cursor(&mut self, cx: &mut Context<'_>, status: Status) -> Step {
        self.fault = Some(status);
        self.ask_late(cx.qp);
        self.retire(cx);
        if self.resend.is_empty() {
            Step::Blocked
        } else {
            Step::Progressed
        }
    }

    /// Whether a single packet may be retransmitted: it was not acknowledged meanwhile.
    fn is_lost(&self, psn: Psn) -> bool {
        !psn.is_before(self.unacknowledged) && psn.is_before(self.next)
    }
}

/// Whether an entry may be begun: the queue is not draining, and no fence waits. (The limit of outstanding
/// READs and atomics is part of the window.)
fn may_begin(qp: &Common, expected: &Expected, entry: &SendEntry) -> bool {
    let waits = entry.flags.contains(SendFlags::FENCE) && expected.responses() > 0;
    qp.state != State::SendQueueDrained && !waits
}

/// Whether only the window can delay an entry, and only an acknowledgement completes it.
fn is_plain(entry: &SendEntry) -> bool {
    !entry.is_local() && !entry.wants_response() && !entry.flags.contains(SendFlags::FENCE)
}
