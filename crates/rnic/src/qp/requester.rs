//! The requester: turns work requests into request packets (IBTA 9.7.3, 9.7.4).

use super::Qp;
use super::attr::{QpType, State};
use super::send_queue::{SendEntry, SendQueue};
use crate::access::Access;
use crate::address::Path;
use crate::completion::{CompletionKind, Status};
use crate::cq::Notice;
use crate::error::Error;
use crate::event::Event;
use crate::memory::Gather;
use crate::resources::{Resources, completion};
use crate::sink::{Direct, Sink};
use crate::time::Instant;
use crate::work::{Operation, SendFlags, SendRequest};
use alloc::collections::VecDeque;
use wire::{Psn, Reth};

/// A READ is asked for in pieces of so many packets, so that the window also paces what comes back.
pub(super) const READ_PACKETS_MAX: u32 = 64;

/// Packets that may be on their way on a lane: far from half of the PSN space, within which they are
/// compared.
const LANE_WINDOW_PACKETS: u32 = 1 << 20;

/// A READ or atomic that waits for its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outstanding {
    /// The next response packet expected.
    pub(super) next: Psn,
    /// Behind the last.
    pub(super) end: Psn,
}

/// Where the requester stands.
#[derive(Debug, Default)]
pub(crate) struct Requester {
    /// The entry that is being sent, and the packet in it.
    cursor: usize,
    packet: u32,
    /// Entries that were begun at least once.
    pub(super) started: usize,
    /// The PSN of the next packet.
    pub(super) next: Psn,
    /// The oldest PSN that is not acknowledged.
    pub(super) unacknowledged: Psn,
    /// Behind the highest PSN ever sent.
    pub(super) high: Psn,
    /// The PSN that the next posted request begins with.
    pub(super) posted: Psn,
    pub(super) outstanding: VecDeque<Outstanding>,
    /// Where pieces of READs ended that were asked for and not answered yet, in their order. What is asked
    /// for again must not reach beyond: the peer may have executed the first of two, and then knows no
    /// request that begins before what it expects and ends behind it (IBTA 9.7.5.1.5).
    read_ends: VecDeque<Psn>,
    /// Single packets to send again (out-of-order mode).
    pub(super) resend: VecDeque<Psn>,
    /// Retries since the last progress.
    pub(super) retries: u8,
    pub(super) rnr_retries: u8,
    /// A gap was answered by going back; more of the same gap is no news.
    pub(super) recovering: bool,
    /// The peer has executed something that was sent to it: it is ready to receive.
    pub(super) heard: bool,
    /// The entry at the cursor cannot be sent; it fails when those before it are done.
    pub(super) fault: Option<Status>,
    packets_since_ack_request: u32,
    /// When the local ACK timer runs out.
    pub(super) retransmit_at: Option<Instant>,
    /// When an RNR NAK's wait is over.
    pub(super) resume_at: Option<Instant>,
    /// When pacing lets the next packet go.
    pub(super) pace_at: Instant,
    /// Something was held back until then: it needs a timer.
    pub(super) waits_for_pace: bool,
    /// Single response packets of READs that arrived ahead (out-of-order mode).
    pub(super) ahead: super::reorder::Arrived,
    drain_announced: bool,
}

/// What came of trying to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// A packet left.
    Sent,
    /// Something else was done; there may be more.
    Went,
    /// Nothing can be done now.
    Blocked,
}

pub(super) fn completion_kind(operation: &Operation) -> CompletionKind {
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

impl Requester {
    /// Starts numbering (the change to RTS).
    pub(crate) fn start(&mut self, first: Psn) {
        self.next = first;
        self.unacknowledged = first;
        self.high = first;
        self.posted = first;
    }

    pub(crate) fn has_work(&self, queue: &SendQueue) -> bool {
        self.cursor < queue.len() || !self.resend.is_empty()
    }

    /// The same, as far as pacing does not hold it back: then the timer brings its turn.
    pub(crate) fn may_have_turn(&self, queue: &SendQueue) -> bool {
        self.has_work(queue) && !(self.waits_for_pace && self.resend.is_empty())
    }

    /// Whether packets wait for acknowledgement.
    pub(crate) fn is_waiting(&self) -> bool {
        self.unacknowledged.is_before(self.high)
    }

    /// Touches it.
    #[inline]
    pub(super) fn bring(&self) -> u32 {
        let places = self.cursor as u32 ^ self.next.value() ^ self.outstanding.len() as u32;
        places ^ self.resend.len() as u32 ^ self.pace_at.0 as u32
    }

    pub(super) fn stop(&mut self) {
        self.retransmit_at = None;
        self.resume_at = None;
        self.waits_for_pace = false;
        self.resend.clear();
        self.outstanding.clear();
        self.read_ends.clear();
    }

    pub(super) fn forget_queue(&mut self) {
        self.cursor = 0;
        self.packet = 0;
        self.started = 0;
        self.fault = None;
        self.next = self.posted;
        self.unacknowledged = self.posted;
        self.high = self.posted;
    }

    /// Packets up to the first end of a piece that was asked for before.
    fn packets_to_read_end(&self) -> u32 {
        let end = self.read_ends.iter().find(|end| self.next.is_before(**end));
        end.map_or(u32::MAX, |end| end.distance_from(self.next) as u32)
    }

    /// A piece ends there: at an end that is known, or before the next that is.
    fn note_read_end(&mut self, end: Psn) {
        let place = self.read_ends.iter().position(|known| !known.is_before(end));
        match place {
            Some(place) if self.read_ends[place] == end => {}
            Some(place) => self.read_ends.insert(place, end),
            None => self.read_ends.push_back(end),
        }
    }

    /// Ends of what is answered.
    pub(super) fn forget_read_ends(&mut self) {
        while self.read_ends.front().is_some_and(|end| !self.unacknowledged.is_before(*end)) {
            self.read_ends.pop_front();
        }
    }

    pub(super) fn in_flight(&self) -> u32 {
        self.next.distance_from(self.unacknowledged).max(0) as u32
    }

    /// Draining waits until everything begun is acknowledged (the change to SQD).
    pub(crate) fn announce_drain(&mut self) {
        self.drain_announced = false;
    }

    /// Puts the cursor on the packet with this PSN, among the entries that were begun.
    pub(super) fn seek(&mut self, queue: &SendQueue, psn: Psn) {
        self.next = psn;
        match queue.find(psn, self.started) {
            Some(index) => {
                self.cursor = index;
                self.packet = queue.entry(index).map_or(0, |entry| psn.distance_from(entry.first_psn) as u32);
            }
            None => {
                self.cursor = self.started;
                self.packet = 0;
            }
        }
    }
}

impl Qp {
    /// Checks and queues a send (`ibv_post_send`).
    pub(crate) fn post_send(
        &mut self,
        resources: &mut Resources,
        request: &SendRequest<'_>,
        now: Instant,
    ) -> Result<(), Error> {
        match self.state {
            State::Reset | State::Init | State::ReadyToReceive => return Err(Error::WrongState),
            _ => {}
        }
        self.check_operation(request)?;
        let reads = matches!(
            request.operation,
            Operation::Read { .. } | Operation::CompareSwap { .. } | Operation::FetchAdd { .. }
        );
        if reads && self.attr.max_rd_atomic == 0 {
            return Err(Error::Invalid("max_rd_atomic of the queue pair is 0: it cannot READ"));
        }
        let mtu = if self.kind == QpType::Ud { 0 } else { self.mtu() };
        let packets = self.send.post(request, self.requester.posted, mtu)?;
        self.requester.posted = self.requester.posted.plus(packets);
        if matches!(self.state, State::Error | State::SendQueueError) {
            self.flush_sends(resources, now);
        }
        Ok(())
    }

    /// Which operations a transport has (IBTA table 37, 10.2.8).
    fn check_operation(&self, request: &SendRequest<'_>) -> Result<(), Error> {
        let unsupported = Err(Error::Invalid("the transport does not have this operation"));
        match (self.kind, &request.operation) {
            (QpType::XrcReceive, _) => unsupported,
            (QpType::Ud, Operation::Send(wire::Tail::None | wire::Tail::Immediate(_))) => request
                .destination
                .map_or(Err(Error::Invalid("a datagram needs an address handle")), |_| Ok(())),
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

    /// Sends the next request packet, or executes the next local request, or finds that it must wait.
    pub(super) fn advance(&mut self, resources: &mut Resources, now: Instant, sink: &mut impl Sink) -> Step {
        if !matches!(self.state, State::ReadyToSend | State::SendQueueDrained)
            || self.requester.resume_at.is_some()
        {
            return Step::Blocked;
        }
        if !self.requester.resend.is_empty() && sink.room(&self.path, self.mtu()) == 0 {
            return self.wait_for_room();
        }
        if let Some(psn) = self.requester.resend.pop_front() {
            return self.resend(resources, psn, now, sink);
        }
        if self.requester.fault.is_some() {
            return Step::Blocked;
        }
        let index = self.requester.cursor;
        let Some(entry) = self.send.entry(index).copied() else { return Step::Blocked };
        let fresh = index >= self.requester.started;
        if fresh && self.requester.packet == 0 {
            if !self.may_begin(&entry) {
                return Step::Blocked;
            }
            if let Err(status) = self.check_local_target(resources, &entry) {
                return self.stall(resources, status, now);
            }
        }
        if entry.is_local() {
            return self.execute_locally(resources, &entry, fresh, now);
        }
        if !self.pace(now) || (index > 0 && fresh && self.waits_to_execute(&entry, sink)) {
            return Step::Blocked;
        }
        let room = self.room(resources, index, sink);
        if room == 0 {
            return self.wait_for_room();
        }
        let Some(packets) = self.window_allows(&entry, room) else { return Step::Blocked };
        self.begin(index);
        if self.execute_itself(resources, index, &entry, sink) {
            self.executed(resources, &entry, now);
            return Step::Sent;
        }
        let packet = self.requester.packet;
        let ack = self.wants_acknowledgement(&entry, index, packet, packets);
        if let Err(status) = self.emit_request(resources, index, &entry, packet, packets, ack, sink) {
            return self.stall(resources, status, now);
        }
        self.sent(resources, &entry, packets, ack, now);
        Step::Sent
    }

    /// A WRITE, READ or atomic that nothing is before may be executed here and now, on a lane. Never the
    /// first request: what the peer dropped because it was not ready could not be told from what it need not
    /// see.
    fn execute_itself(
        &mut self,
        resources: &mut Resources,
        index: usize,
        entry: &SendEntry,
        sink: &mut impl Sink,
    ) -> bool {
        let idle = self.requester.unacknowledged == self.requester.high && index == 0;
        let ready = idle && self.requester.heard && self.requester.packet == 0;
        if self.path.lane == 0 || !ready || self.kind != QpType::Rc {
            return false;
        }
        let (address, rkey, need) = match entry.operation {
            Operation::Write { address, rkey, immediate: None } => (address, rkey, Access::empty()),
            Operation::Read { address, rkey }
            | Operation::FetchAdd { address, rkey, .. }
            | Operation::CompareSwap { address, rkey, .. } => (address, rkey, Access::LOCAL_WRITE),
            _ => return false,
        };
        let (path, from, to) = (&self.path, self.qpn, self.attr.destination);
        let reth = Reth { address, rkey, length: entry.length };
        if let Some(bytes) = self.send.inline(entry) {
            return sink.execute(path, from, to, &reth, Direct::Write(Gather::Inline(bytes)));
        }
        let resolved = resources.resolve(self.pd(), self.send.sges(entry), 0, entry.length, need);
        let Ok(pieces) = resolved.map(Gather::Pieces) else { return false };
        let direct = match entry.operation {
            Operation::Read { .. } => Direct::Read(pieces),
            Operation::FetchAdd { add, .. } => Direct::FetchAdd { add, into: pieces },
            Operation::CompareSwap { compare, swap, .. } => {
                Direct::CompareSwap { compare, swap, into: pieces }
            }
            _ => Direct::Write(pieces),
        };
        sink.execute(path, from, to, &reth, direct)
    }

    /// Once requests follow each other on the lane, those behind have to go there too.
    fn waits_to_execute(&self, entry: &SendEntry, sink: &mut impl Sink) -> bool {
        let unheard = self.path.lane != 0 && !self.requester.heard && self.kind == QpType::Rc;
        let executable = match entry.operation {
            Operation::Write { immediate, .. } => immediate.is_none(),
            Operation::Read { .. } | Operation::FetchAdd { .. } | Operation::CompareSwap { .. } => true,
            _ => false,
        };
        unheard && executable && self.requester.is_waiting() && sink.prefers_to_execute(&self.path)
    }

    /// A request was sent, executed and answered at once.
    fn executed(&mut self, resources: &mut Resources, entry: &SendEntry, now: Instant) {
        self.requester.next = entry.end_psn();
        self.requester.high = self.requester.next;
        self.requester.unacknowledged = self.requester.next;
        self.requester.cursor += 1;
        self.count_sent(resources, if entry.wants_response() { 0 } else { entry.length });
        self.retire(resources, now);
    }

    fn begin(&mut self, index: usize) {
        self.requester.started = self.requester.started.max(index + 1);
    }

    /// Whether an entry may be begun: the fence, the drain, and the limit of outstanding READs and atomics.
    fn may_begin(&self, entry: &SendEntry) -> bool {
        if self.state == State::SendQueueDrained {
            return false;
        }
        let waits = entry.flags.contains(SendFlags::FENCE) && !self.requester.outstanding.is_empty();
        !waits
    }

    /// READs and atomics store into local memory: a wrong key must be found before the peer acts.
    fn check_local_target(&mut self, resources: &mut Resources, entry: &SendEntry) -> Result<(), Status> {
        let stores = entry.wants_response() && !matches!(entry.operation, Operation::AtomicWrite { .. });
        if !stores {
            return Ok(());
        }
        resources
            .resolve(self.pd(), self.send.sges(entry), 0, entry.length, Access::LOCAL_WRITE)
            .map(|_| ())
            .map_err(|_| Status::LocalProtection)
    }

    /// How many packets of the entry may go as one; none while the lane is full.
    fn room(&mut self, resources: &Resources, index: usize, sink: &mut impl Sink) -> u32 {
        if self.kind != QpType::Ud {
            return sink.room(&self.path, self.mtu());
        }
        match self.aim(resources, index) {
            Some((path, qpn)) => {
                self.path = Path { lane: sink.lane(&path, self.qpn, qpn), ..path };
                sink.room(&self.path, resources.active_mtu.bytes()).min(1)
            }
            // It fails when it is sent.
            None => 1,
        }
    }

    pub(super) fn wait_for_room(&mut self) -> Step {
        self.is_stalled = true;
        Step::Blocked
    }

    /// Packets that the next request may ask for or be, of which some may go together: `None` if the window
    /// is full.
    fn window_allows(&self, entry: &SendEntry, together: u32) -> Option<u32> {
        let left = entry.packets - self.requester.packet;
        if !self.is_reliable() {
            return Some(left.min(together));
        }
        let response = entry.wants_response();
        if response && self.requester.outstanding.len() >= usize::from(self.attr.max_rd_atomic) {
            return None;
        }
        let window = self.window_packets();
        let room = window.saturating_sub(self.requester.in_flight());
        if !matches!(entry.operation, Operation::Read { .. }) {
            return (room > 0).then_some(left.min(together).min(room));
        }
        let wanted = left.min(READ_PACKETS_MAX).min(self.requester.packets_to_read_end());
        // A small remainder of the window is not worth a request of its own.
        let worth = wanted.min(window.div_ceil(4));
        (room >= worth).then(|| wanted.min(room))
    }

    pub(super) fn window_packets(&self) -> u32 {
        if self.path.lane != 0 {
            // A lane loses nothing, and says itself when it is full.
            return LANE_WINDOW_PACKETS;
        }
        let window = self.congestion.window_packets(self.mtu());
        // What arrives ahead is kept in a window of its own, which must not be outrun.
        if self.out_of_order { window.min(self.reorder_window) } else { window }
    }

    /// Whether the rate limit lets a packet go now; if not, a timer is set.
    fn pace(&mut self, now: Instant) -> bool {
        self.requester.waits_for_pace = now < self.requester.pace_at;
        !self.requester.waits_for_pace
    }

    /// Notes it when pacing holds the next request back for longer than until `at`.
    pub(super) fn rest_until(&mut self, at: Instant) {
        let requester = &mut self.requester;
        let next = self.send.entry(requester.cursor).filter(|entry| !entry.is_local());
        if next.is_some() && requester.resend.is_empty() && at < requester.pace_at {
            requester.waits_for_pace = true;
        }
    }

    /// An acknowledgement is asked for at the end of a message that no other follows at once, at intervals,
    /// and when the window is about to close on packets of which none asked.
    fn wants_acknowledgement(&self, entry: &SendEntry, index: usize, packet: u32, packets: u32) -> bool {
        if !self.is_reliable() {
            return false;
        }
        let ends = packet + packets >= entry.packets && !(self.is_plain(entry) && self.continues(index + 1));
        let (window, in_flight) = (self.window_packets(), self.requester.in_flight());
        let silent = self.requester.packets_since_ack_request;
        let interval = (window / 4).clamp(1, self.ack_interval);
        let first = self.path.lane != 0 && !self.requester.heard;
        ends || first || silent + 1 >= interval || (in_flight + packets >= window && silent >= in_flight)
    }

    /// Whether the entry at `index` leaves right after the one before it.
    fn continues(&self, index: usize) -> bool {
        self.state == State::ReadyToSend
            && !self.congestion.is_pacing()
            && self.send.entry(index).is_some_and(|entry| self.is_plain(entry))
    }

    /// Whether nothing but the window can hold an entry back, and only an acknowledgement completes it.
    fn is_plain(&self, entry: &SendEntry) -> bool {
        !entry.is_local() && !entry.wants_response() && !entry.flags.contains(SendFlags::FENCE)
    }

    /// What should have followed at once does not: the last packet goes again, and asks for the
    /// acknowledgement that it left to others to ask for.
    fn ask_late(&mut self) {
        let waits = self.is_reliable() && self.requester.is_waiting();
        if waits && core::mem::take(&mut self.requester.packets_since_ack_request) > 0 {
            self.requester.resend.push_back(self.requester.next.minus(1));
        }
    }

    fn sent(&mut self, resources: &mut Resources, entry: &SendEntry, packets: u32, ack: bool, now: Instant) {
        let bytes = if entry.wants_response() { 0 } else { (self.mtu() * packets).min(entry.length) };
        self.congestion.sent(self.mtu() * packets, now);
        let next = self.congestion.paced(bytes + resources.config.overhead_bytes, now);
        let requester = &mut self.requester;
        requester.pace_at = next;
        requester.packets_since_ack_request = if ack { 0 } else { requester.packets_since_ack_request + 1 };
        if matches!(entry.operation, Operation::Read { .. }) {
            requester.note_read_end(requester.next.plus(packets));
        }
        if entry.wants_response() {
            requester
                .outstanding
                .push_back(Outstanding { next: requester.next, end: requester.next.plus(packets) });
        }
        if requester.next.is_before(requester.high) {
            self.counters.retransmitted_packets += 1;
            resources.counters.retransmitted_packets += 1;
        }
        requester.next = requester.next.plus(packets);
        if requester.high.is_before(requester.next) {
            requester.high = requester.next;
        }
        requester.packet += packets;
        if requester.packet >= entry.packets {
            requester.packet = 0;
            requester.cursor += 1;
        }
        if self.is_reliable() {
            self.arm_retransmit(now);
        } else {
            self.requester.unacknowledged = self.requester.next;
            self.retire(resources, now);
        }
    }

    /// LOCAL INVALIDATE and BIND: executed once, when the requests before them have been sent.
    fn execute_locally(
        &mut self,
        resources: &mut Resources,
        entry: &SendEntry,
        fresh: bool,
        now: Instant,
    ) -> Step {
        if fresh {
            let done = match &entry.operation {
                Operation::LocalInvalidate(rkey) => {
                    resources.regions.invalidate(self.qpn, self.pd(), *rkey).ok_or(Status::LocalQpOperation)
                }
                Operation::BindWindow(binding) => {
                    resources.regions.bind(self.qpn, self.pd(), binding).ok_or(Status::WindowBind)
                }
                _ => Ok(()),
            };
            if let Err(status) = done {
                return self.stall(resources, status, now);
            }
        }
        self.begin(self.requester.cursor);
        self.requester.cursor += 1;
        self.retire(resources, now);
        Step::Went
    }

    /// The entry at the cursor fails with `status` once those before it have completed.
    pub(super) fn stall(&mut self, resources: &mut Resources, status: Status, now: Instant) -> Step {
        self.requester.fault = Some(status);
        self.ask_late();
        self.retire(resources, now);
        if self.requester.resend.is_empty() { Step::Blocked } else { Step::Went }
    }

    /// Completes entries from the front as far as they are done.
    pub(super) fn retire(&mut self, resources: &mut Resources, now: Instant) {
        while self.requester.cursor > 0 {
            let Some(front) = self.send.front() else { break };
            if self.requester.unacknowledged.is_before(front.end_psn()) {
                break;
            }
            self.report(resources, front, now);
            self.send.drop_front();
            self.requester.cursor -= 1;
            self.requester.started -= 1;
        }
        if let (Some(status), 0) = (self.requester.fault, self.requester.cursor) {
            self.fail_request(resources, status, now);
        }
        self.announce_if_drained(resources);
    }

    fn report(&self, resources: &mut Resources, entry: &SendEntry, now: Instant) {
        if !(self.init.signal_all || entry.flags.contains(SendFlags::SIGNALED)) {
            return;
        }
        let kind = completion_kind(&entry.operation);
        let mut done = completion(self.qpn, entry.id, Status::Success, kind, now);
        done.length = entry.length;
        resources.complete(self.send_cq(), done, Notice::Ordinary);
    }

    fn announce_if_drained(&mut self, resources: &mut Resources) {
        let drained = self.state == State::SendQueueDrained && self.requester.started == 0;
        if drained && !self.requester.drain_announced {
            self.requester.drain_announced = true;
            if self.attr.drain_notify {
                resources.events.push_back(Event::SendQueueDrained(self.qpn));
            }
        }
    }

    /// To be called when the queue pair has become SQD: there may be nothing to wait for.
    pub(crate) fn drain(&mut self, resources: &mut Resources) {
        self.requester.announce_drain();
        if self.requester.packet == 0 {
            self.ask_late();
        }
        self.announce_if_drained(resources);
    }

    /// Completes the oldest request with an error, flushes the rest, and leaves the send queue in error: RC
    /// goes to ERR, UC and UD to SQE (IBTA 10.3.1.6).
    pub(super) fn fail_request(&mut self, resources: &mut Resources, status: Status, now: Instant) {
        if let Some(entry) = self.send.pop() {
            let kind = completion_kind(&entry.operation);
            let failed = completion(self.qpn, entry.id, status, kind, now);
            resources.complete(self.send_cq(), failed, Notice::Solicited);
        }
        if self.is_reliable() {
            self.fail(resources, now);
        } else {
            self.state = State::SendQueueError;
            self.requester.stop();
            self.flush_sends(resources, now);
        }
    }
}
