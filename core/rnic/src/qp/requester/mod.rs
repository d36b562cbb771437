//! The requester: turns work requests into request packets (IBTA 9.7.3, 9.7.4).

mod ack_request;
mod at_once;
mod direct;
mod emit;
mod outstanding;
mod way;
mod window;

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
use crate::sink::{PacketKind, Sink};
use crate::time::Instant;
use crate::work::{Operation, SendFlags, SendRequest};
use alloc::collections::VecDeque;
use way::Way;
use wire::Psn;

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
    /// Whether the packet requests an acknowledgement (AckReq).
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
        Operation::Fault { kind, .. } => *kind,
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
        check_in_state(cx.qp, request)?;
        let packets = self.queue.post(request, self.posted, message_mtu(cx.qp))?;
        self.posted = self.posted.plus(packets);
        if matches!(cx.qp.state, State::Error | State::SendQueueError) {
            self.flush(cx);
        }
        Ok(())
    }

    /// Whether [`Self::post`] would accept the request after `before` others.
    pub(super) fn check_send(
        &self,
        qp: &Common,
        request: &SendRequest<'_>,
        before: usize,
    ) -> Result<(), Error> {
        check_in_state(qp, request)?;
        self.queue.check_after(request, message_mtu(qp), before)
    }

    /// The PSN of the next new packet.
    pub(super) fn next_psn(&self) -> Psn {
        self.next
    }

    /// Whether requests that were started are outstanding.
    pub(super) fn is_draining(&self) -> bool {
        self.started > 0
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
/// Whether the queue pair takes the request in its state and with its attributes.
#[inline(always)]
fn check_in_state(qp: &Common, request: &SendRequest<'_>) -> Result<(), Error> {
    if matches!(qp.state, State::Reset | State::Init | State::ReadyToReceive) {
        return Err(Error::WrongState);
    }
    check_operation(qp.kind, request)?;
    let reads = matches!(
        request.operation,
        Operation::Read { .. } | Operation::CompareSwap { .. } | Operation::FetchAdd { .. }
    );
    if reads && qp.attr.max_rd_atomic == 0 {
        return Err(Error::Invalid(
            "max_rd_atomic of the queue pair is 0: it cannot READ",
        ));
    }
    Ok(())
}

/// Bytes of a message that fit into a packet; 0 for datagrams, which are always one packet.
#[inline(always)]
fn message_mtu(qp: &Common) -> u32 {
    if qp.kind == QpType::Ud { 0 } else { qp.mtu() }
}

fn check_operation(kind: QpType, request: &SendRequest<'_>) -> Result<(), Error> {
    let unsupported = Err(Error::Invalid("the transport does not have this operation"));
    match (kind, &request.operation) {
        (QpType::XrcReceive, _) => unsupported,
        (_, Operation::Fault { .. }) => Ok(()),
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
        if fresh
            && self.packet == 0
            && let Some(step) = self.hold_back(cx, expected, &entry)
        {
            return step;
        }
        if entry.is_local() {
            return self.execute_locally(cx, &entry, fresh);
        }
        if !self.pace(cx) {
            return Step::Blocked;
        }
        let way = self.way_in_turn(cx, &entry, fresh, sink);
        if let Some(step) = self.wait_for_way(cx, &entry, way, sink) {
            return step;
        }
        if way == Way::Run && self.execute_run(cx, &entry, sink) {
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
        let is_direct = matches!(way, Way::Run | Way::Direct);
        if is_direct && self.execute_directly(cx, &entry, sink) {
            cx.count_sent(entry.sent_bytes());
            self.executed(cx, &entry, 1);
            return Step::Sent;
        }
        if fresh && self.packet == 0 {
            self.record_in_channel(cx, &entry, sink);
        }
        let unit = self.next_unit(cx.qp, &entry, packets);
        if let Err(status) = self.emit(cx, &entry, unit, sink) {
            return self.fail_at_cursor(cx, status);
        }
        self.sent(cx, expected, &entry, unit);
        Step::Sent
    }

    /// Lets an entry wait that may not begin, or fail that names no memory for its response. `None` where it
    /// may begin.
    #[inline]
    fn hold_back(
        &mut self,
        cx: &mut Context<'_>,
        expected: &Expected,
        entry: &SendEntry,
    ) -> Option<Step> {
        if !may_begin(cx.qp, expected, entry) {
            return Some(Step::Blocked);
        }
        let status = self.check_local_target(cx, entry).err()?;
        Some(self.fail_at_cursor(cx, status))
    }

    /// The next `packets` packets of the entry at the cursor, as the unit in which they leave.
    #[inline]
    fn next_unit(&self, qp: &Common, entry: &SendEntry, packets: u32) -> Unit {
        Unit {
            index: self.cursor,
            packet: self.packet,
            packets,
            ack: self.wants_acknowledgement(qp, entry, self.cursor, packets),
        }
    }

    fn begin(&mut self, index: usize) {
        self.started = self.started.max(index + 1);
    }

    /// Whether nothing is outstanding, the entry is the oldest one, and the peer is ready for it.
    fn is_idle_before(&self, index: usize) -> bool {
        let idle = self.unacknowledged == self.high && index == 0;
        idle && self.heard && self.packet == 0
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

    /// Records a unit that has left: pacing, the window, the position in the queue, and the timer.
    #[inline]
    fn sent(
        &mut self,
        cx: &mut Context<'_>,
        expected: &mut Expected,
        entry: &SendEntry,
        unit: Unit,
    ) {
        let Unit { packets, ack, .. } = unit;
        let full = cx.qp.mtu() * packets;
        let bytes = full.min(entry.sent_bytes());
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

    /// LOCAL INVALIDATE, BIND and faults: executed once, when the requests before them have been sent.
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
                Operation::Fault { status, .. } => Err(*status),
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
