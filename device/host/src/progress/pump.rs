//! The state that a device's lock protects: the state machine, its socket and its shared-memory channels.

use crate::channel::{AsyncEvents, CompletionChannel};
use crate::counters::LinkCounters;
use crate::egress::Egress;
use crate::lab::LabPort;
use crate::log::HOST;
use crate::progress::batching::{Batching, YIELD_AFTER};
use crate::progress::clock::RecentClock;
use crate::progress::receive::Receiver;
use crate::progress::traffic::Traffic;
use crate::shm::ShmChannels;
use crate::transmit::Transmitter;
use link::memory::Sleeper;
use link::udp::Socket;
use rnic::{Arm, Cq, Error, Event, Gid, Instant, Nanos, Pending, SendRequest};
use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use wire::Qpn;

/// Limit of receive calls in a row, of up to 64 KiB each, before completions are looked for again.
const RECEIVES_MAX: usize = 8;
/// Limit of receive calls in a row where all arrived packets have to be taken, as before the first record of
/// a channel.
const RECEIVES_ALL: usize = 1024;
/// Timers run without another read of the socket if the socket was found empty less than this ago: paced
/// queue pairs have a timer for each packet.
const LATE: Nanos = Nanos::from_micros(20);
/// Limit of rounds over the shared-memory channels before timers run: enough for the capacity of the rings.
const ROUNDS_ALL: usize = 128;
/// Limit of rounds over the shared-memory channels in which answers are looked for before a transmission.
const ANSWER_TURNS: usize = 8;
/// Packets that are made before the socket is read: a device that sends without a pause has to receive
/// meanwhile, because the kernel's receive buffer is bounded. Acknowledgements pace reliable queue pairs;
/// nothing else paces unreliable ones.
const TRANSMIT_BUDGET: usize = 256;
/// Number of queue pairs with unacknowledged requests from which on packets are held back for full batches:
/// each queue pair then has little to send, and answers keep arriving.
const CROWD: u32 = 8;
/// Interval between reads of the socket, which are system calls, while there are shared-memory channels to
/// read as well.
const SOCKET_INTERVAL: Nanos = Nanos::from_micros(5);
/// Time for which acknowledgements wait for the answer of a program that now waits for something other than
/// completions: the answer may come from another host, or a busy one.
const ANSWERS_WITHIN: Nanos = Nanos::from_millis(1);
/// Time after a packet in which acknowledgements do not wait: a peer on a network sends more when it gets
/// them.
const PACKETS_WITHIN: Nanos = Nanos::from_millis(10);
/// Number of requests that are executed when they are posted before what has arrived is taken.
const EXECUTED_MAX: u32 = 256;
/// Longest time for which a posted request is held back, and the interval at which the progress thread checks
/// whether the program still polls.
pub(crate) const TICK: Nanos = Nanos::from_millis(4);

/// The state of a device.
#[derive(Debug)]
pub(crate) struct Pump {
    pub(crate) rnic: rnic::Device,
    transmitter: Transmitter,
    receiver: Receiver,
    pub(crate) shm: ShmChannels,
    /// In a host of a lab: the port that takes the place of the socket.
    pub(crate) lab: Option<LabPort>,
    socket: SocketReads,
    traffic: Traffic,
    channels: HashMap<Cq, (Arc<CompletionChannel>, u64)>,
    /// The completion queue that a program waits for in place of the progress thread. Its completions are
    /// reported through the wake-up socket, and not through the queue's completion channel.
    awaited: Option<Cq>,
    /// Connections to the agent, one for each range of queue pair numbers; none in the child of a fork.
    leases: Vec<OwnedFd>,
    batching: Batching,
    pub(crate) sleepers: Sleepers,
    /// Start of the time in which acknowledgements wait for the program's answer.
    held_since: Option<Instant>,
    /// Number of requests that were executed when they were posted, since the last progress.
    executed: u32,
    /// Bytes that were copied to and from peers' memory since [`Self::take_copied`].
    copied: u32,
    clock: RecentClock,
}

/// Times of reads of the socket, which are system calls.
#[derive(Default, Debug)]
struct SocketReads {
    last: Instant,
    /// Time at which the socket and all rings were last found empty.
    emptied_at: Instant,
    /// Packets composed since the last read.
    made_since: usize,
    /// Time of the last arrived packet.
    heard_at: Option<Instant>,
}

/// Sleeping threads, and their wake-up times.
#[derive(Default, Debug)]
pub(crate) struct Sleepers {
    /// Latest time at which the progress thread wakes.
    pub(crate) wakes_at: Instant,
    /// Time from which a poll postpones the next tick of the progress thread; `None` while it must not.
    pub(crate) postpones_at: Option<Instant>,
    /// The progress thread sleeps, and arrivals wake it.
    pub(crate) thread: bool,
    /// The program sleeps in place of the progress thread, see [`super::event_wait`].
    pub(crate) program: bool,
}

impl Pump {
    pub(crate) fn new(rnic: rnic::Device, socket: Socket, lease: OwnedFd, interface: u32) -> Self {
        let socket = Arc::new(socket);
        Self {
            rnic,
            transmitter: Transmitter::new(Arc::clone(&socket), interface),
            receiver: Receiver::new(socket),
            shm: ShmChannels::new(),
            lab: None,
            socket: SocketReads::default(),
            traffic: Traffic::default(),
            channels: HashMap::new(),
            awaited: None,
            leases: vec![lease],
            batching: Batching::default(),
            sleepers: Sleepers::default(),
            held_since: None,
            executed: 0,
            copied: 0,
            clock: RecentClock::new(),
        }
    }

    /// The time; reads the clock unless the last reading is recent.
    pub(crate) fn clock(&mut self) -> Instant {
        self.clock.read()
    }

    /// The last reading of the clock.
    pub(crate) fn last_reading(&self) -> Instant {
        self.clock.last()
    }

    /// Closes sockets and channels in the child of a fork: they are the parent's.
    pub(crate) fn sever(&mut self) {
        self.transmitter.sever();
        self.receiver.sever();
        self.shm.sever();
        self.lab = None;
        self.leases.clear();
    }

    /// Whether the device belongs to the parent of a fork.
    pub(crate) fn is_severed(&self) -> bool {
        self.leases.is_empty()
    }

    /// Attaches a queue pair to a multicast group; for the first one the host joins the group. Returns the
    /// descriptor of the group's socket if there is a new one.
    pub(crate) fn attach(
        &mut self,
        qpn: Qpn,
        group: Gid,
        interface: u32,
    ) -> Result<Option<RawFd>, Error> {
        let joined = self.rnic.multicast().has(group);
        self.rnic.multicast().attach(qpn, group)?;
        if joined {
            return Ok(None);
        }
        match self.receiver.join(group, interface) {
            Ok(descriptor) => Ok(Some(descriptor)),
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::EMFILE)) => {
                self.rnic.multicast().detach(qpn, group)?;
                Err(Error::Exhausted("sockets for multicast groups"))
            }
            // The kernel cannot join a group on some interfaces, such as loopback.
            Err(error) => {
                tracing::warn!(target: HOST, %group, "the host does not join the group: {error}");
                Ok(None)
            }
        }
    }

    /// Detaches a queue pair from a multicast group. After the last one the host leaves the group, when the
    /// socket that this returns is dropped.
    pub(crate) fn detach(&mut self, qpn: Qpn, group: Gid) -> Result<Option<Socket>, Error> {
        self.rnic.multicast().detach(qpn, group)?;
        Ok(if self.rnic.multicast().has(group) {
            None
        } else {
            self.receiver.leave(group)
        })
    }

    /// The connection to the agent; none in the child of a fork.
    pub(crate) fn agent(&self) -> Option<RawFd> {
        self.leases.first().map(AsRawFd::as_raw_fd)
    }

    /// Adds a further range of queue pair numbers, with its socket and its connection to the agent.
    pub(crate) fn add_share(&mut self, socket: Socket, lease: OwnedFd, first: Qpn, count: u32) {
        self.receiver.add(socket);
        self.leases.push(lease);
        self.rnic.add_qpn_range(first, count);
    }

    pub(crate) fn attach_cq(&mut self, cq: Cq, channel: Arc<CompletionChannel>, cookie: u64) {
        self.channels.insert(cq, (channel, cookie));
    }

    pub(crate) fn detach_cq(&mut self, cq: Cq) {
        if let Some((channel, cookie)) = self.channels.remove(&cq) {
            channel.forget(cookie);
        }
    }

    /// The completion channel of a queue, and the queue's cookie there.
    pub(crate) fn channel_of(&self, cq: Cq) -> Option<(Arc<CompletionChannel>, u64)> {
        self.channels.get(&cq).cloned()
    }

    /// Requests reports of completions of a queue to a program that waits in place of the progress thread.
    pub(crate) fn begin_await(&mut self, cq: Cq) {
        // An error means that the program destroys the queue for which it waits.
        let _ = self.rnic.cqs_mut().arm(cq, Arm::Any);
        self.awaited = Some(cq);
        self.sleepers.program = true;
    }

    /// Ends [`Self::begin_await`]: the program polls the queue itself.
    pub(crate) fn end_await(&mut self, cq: Cq) {
        self.rnic.cqs_mut().disarm(cq);
        self.awaited = None;
        self.sleepers.program = false;
        self.shm.wake();
    }

    pub(crate) fn counters(&self) -> &LinkCounters {
        &self.transmitter.counters
    }

    /// Notes a wait of the program. Whether it may take packets in place of the progress thread, because few
    /// have come and gone since the waits before. In a host of a lab packets wake the progress thread alone.
    pub(crate) fn note_light_wait(&mut self) -> bool {
        let counters = &self.transmitter.counters;
        let is_light = self
            .traffic
            .is_light(counters.sent_datagrams + counters.received_datagrams);
        is_light && self.lab.is_none()
    }

    /// Delivers the device's events to the program, and changes of its grants to peers on this host.
    #[inline]
    pub(crate) fn pump_events(&mut self, events: &AsyncEvents) {
        if self.rnic.has_news() {
            self.pump_news(events);
        }
    }

    fn pump_news(&mut self, events: &AsyncEvents) {
        self.shm.publish(&mut self.rnic);
        while let Some(event) = self.rnic.poll_event() {
            match event {
                Event::Completion(cq) if self.awaited == Some(cq) => {
                    self.shm
                        .wake_up()
                        .iter()
                        .for_each(|wake_up| wake_up.signal());
                }
                Event::Completion(cq) => {
                    if let Some((channel, cookie)) = self.channels.get(&cq) {
                        channel.push(*cookie);
                        if let Some(wake_up) = self.shm.wake_up().filter(|_| channel.is_waiting()) {
                            wake_up.signal();
                        }
                    }
                }
                event => events.push(event),
            }
        }
    }

    /// Records a posted request of so many bytes.
    pub(crate) fn note_posted(&mut self, bytes: u64) {
        self.batching.note_posted(bytes);
    }

    /// Records that the program found completions.
    pub(crate) fn note_taken(&mut self) {
        self.batching.note_taken(self.rnic.in_flight());
    }

    /// Records that the program is about to wait for an event, or has called a control verb.
    pub(crate) fn note_away(&mut self) {
        self.batching.note_away();
    }

    /// Whether polls have found nothing for long, see [`Batching::waits_long`]. In a host of a lab they have
    /// at once: a program always waits for the work of another thread of this machine there.
    pub(crate) fn waits_long(&self, now: Instant) -> bool {
        self.batching.waits_long(
            now,
            if self.lab.is_some() {
                Nanos(0)
            } else {
                YIELD_AFTER
            },
        )
    }

    /// Executes a request in the call that posts it, where the peer shares the memory that it names and
    /// nothing is before it. False where it has to be posted.
    #[inline]
    pub(crate) fn execute_at_once(&mut self, qpn: Qpn, request: &SendRequest<'_>) -> bool {
        let Self {
            rnic, shm, clock, ..
        } = self;
        rnic.execute_at_once(
            qpn,
            request,
            || clock.read(),
            |path, qpns, reth, direct| shm.execute_at_once(path, qpns, reth, direct),
        )
    }

    /// Ends a call in which so many requests were executed at once. A program that always finds completions
    /// makes no progress by its polls, so what has arrived is taken here from time to time.
    #[inline]
    pub(crate) fn end_execution(&mut self, executed: u32) {
        self.shm.end_execution();
        self.transmitter.counters.shm_direct += u64::from(executed);
        self.batching.note_executed_at_once();
        self.executed += executed;
        if self.executed >= EXECUTED_MAX {
            let now = self.clock();
            self.progress(now, false);
        }
    }

    /// After posting: the first request is sent at once if nothing was outstanding before (`idle`); later
    /// ones are held back until the next poll, so that they leave in one batch.
    pub(crate) fn transmit_posted(&mut self, idle: bool) {
        let full = self.batching.note_post_call(!self.shm.is_empty());
        if !idle && !full {
            return;
        }
        let now = self.clock();
        if idle && !self.shm.is_empty() {
            self.fill_with(now, true);
            self.transmitter.hold();
        } else if idle {
            self.transmit_holding(now);
        } else {
            // Packets that do not fill a batch wait for more.
            self.fill(now);
        }
    }

    /// Bytes that were copied to and from peers' memory since the last call.
    pub(crate) fn take_copied(&mut self) -> u32 {
        std::mem::take(&mut self.copied)
    }

    /// Whether a request that is posted now should be sent at once.
    pub(crate) fn is_idle(&self) -> bool {
        self.batching.is_idle(self.rnic.in_flight())
    }

    /// Sends all packets of the device.
    pub(crate) fn transmit(&mut self, now: Instant) {
        self.fill(now);
        self.transmitter.flush();
    }

    /// Sends all packets, except that those that do not fill a batch may be held back: with many active queue
    /// pairs until nothing more has arrived, otherwise as [`Transmitter::hold`] decides.
    fn transmit_holding(&mut self, now: Instant) {
        self.fill(now);
        if self.rnic.in_flight() < CROWD {
            self.transmitter.hold();
        }
    }

    fn fill(&mut self, now: Instant) {
        self.fill_with(now, false);
    }

    fn fill_with(&mut self, now: Instant, may_call: bool) {
        self.batching.note_transmission();
        self.held_since = None;
        if self.shm.begin_round() {
            self.rnic.resume();
        }
        self.take_answers(now);
        if let Some(lab) = &mut self.lab {
            lab.begin(now);
        }
        loop {
            let (transmitter, shm, lab) = (&mut self.transmitter, &mut self.shm, self.lab.as_mut());
            let mut egress = Egress {
                transmitter,
                shm,
                lab,
                may_call,
                called: 0,
                executes: false,
            };
            let made = self.rnic.transmit(now, TRANSMIT_BUDGET, &mut egress);
            let executes = egress.executes;
            self.copied = self.copied.saturating_add(egress.called);
            if made > 0 {
                self.batching.note_executed(executes);
            }
            self.socket.made_since += made;
            if self.socket.made_since >= TRANSMIT_BUDGET {
                for _ in 0..RECEIVES_MAX {
                    if !self.receive(now) {
                        break;
                    }
                }
            }
            if made < TRANSMIT_BUDGET {
                break;
            }
        }
        if let Some(lab) = &mut self.lab {
            lab.end();
        }
        self.shm.end_round();
        self.shm.ask_wanted(now);
    }

    /// Takes the records that have arrived, if requests wait for answers that may be among them: a WRITE or
    /// READ of a shared mapping can be executed here when those before it are answered.
    fn take_answers(&mut self, now: Instant) {
        if self.rnic.in_flight() == 0 || !self.shm.has_mappings() {
            return;
        }
        for _ in 0..ANSWER_TURNS {
            let records = self
                .shm
                .receive(&mut self.rnic, now, |rnic| rnic.in_flight() == 0);
            self.transmitter.counters.shm_received += records as u64;
            if records == 0 || self.rnic.in_flight() == 0 {
                break;
            }
        }
        self.shm.publish(&mut self.rnic);
    }

    /// Reads the socket once. False when nothing had arrived.
    fn receive(&mut self, now: Instant) -> bool {
        self.socket.made_since = 0;
        let arrived = self
            .receiver
            .receive(&mut self.rnic, now, &mut self.transmitter.counters);
        if arrived {
            self.socket.heard_at = Some(now);
        }
        arrived
    }

    /// Time until which a program may sleep before [`Self::transmit`] where only acknowledgements of requests
    /// from shared memory wait; `None` where it may not. Sent alone, they would wake a peer that waits for
    /// the answer.
    pub(crate) fn holds_until(&mut self, now: Instant) -> Option<Instant> {
        let hears_packets = self
            .socket
            .heard_at
            .is_some_and(|at| now < at + PACKETS_WITHIN);
        if self.rnic.pending() != Pending::Acknowledgements
            || self.transmitter.is_holding()
            || hears_packets
        {
            return None;
        }
        let until = *self.held_since.get_or_insert(now) + ANSWERS_WITHIN;
        (now < until).then_some(until)
    }

    /// Handles a poll that found no completion: sends, takes arrived packets, and sends answers that cannot
    /// wait. The program takes up to `most` completions. A program that has waited gets the first one at
    /// once: to look for a second one takes as long as to deliver the first.
    pub(crate) fn poll_empty(&mut self, now: Instant, cq: Cq, most: usize) {
        let enough = if self.batching.note_empty_poll(now) {
            1
        } else {
            most
        };
        self.progress_until(now, false, Some((cq, enough)));
    }

    /// Runs timers, sends, receives, and sends again. Returns whether anything arrived. Positive
    /// acknowledgements are sent at the next call, so that they leave in a batch with the program's answer,
    /// or later as long as they are `held`.
    pub(crate) fn progress(&mut self, now: Instant, held: bool) -> bool {
        self.progress_until(now, held, None)
    }

    /// Makes progress, but returns once a queue has so many completions (`enough`).
    fn progress_until(&mut self, now: Instant, held: bool, enough: Option<(Cq, usize)>) -> bool {
        self.executed = 0;
        let mut arrived = self.progress_in_memory(now, held, enough);
        let polls_memory = !self.shm.is_empty() || self.lab.is_some();
        if polls_memory && (arrived || now < self.socket.last + SOCKET_INTERVAL) {
            return arrived;
        }
        self.socket.last = now;
        for _ in 0..RECEIVES_MAX {
            if !self.receive(now) {
                break;
            }
            arrived = true;
            if self.rnic.pending() == Pending::Data {
                self.transmit_holding(now);
            }
            if enough.is_some_and(|(cq, _)| self.rnic.cqs().has_completions(cq)) {
                break;
            }
        }
        if !arrived {
            self.socket.emptied_at = now;
            self.transmitter.flush();
        }
        arrived
    }

    /// Makes progress without the socket: timers, pending packets, and the shared-memory channels.
    pub(crate) fn progress_in_memory(
        &mut self,
        now: Instant,
        held: bool,
        enough: Option<(Cq, usize)>,
    ) -> bool {
        self.run_timers(now);
        if self.rnic.has_stalled() {
            self.rnic.resume();
        }
        let pending = self.rnic.pending();
        if pending == Pending::Data || (pending == Pending::Acknowledgements && !held) {
            self.transmit_holding(now);
        }
        if self.shm.sees_beginning() {
            self.receive_all(now);
            self.shm.begin();
        }
        let arrived = self.receive_from_channels(now, |rnic| {
            enough.is_some_and(|(cq, enough)| rnic.cqs().completions(cq) >= enough)
        });
        arrived | self.receive_from_lab(now)
    }

    /// Runs the timers that are due, after all arrivals were taken: an acknowledgement that waits in a ring
    /// or in the socket's buffer, because this process did not run, is not overdue.
    #[inline]
    fn run_timers(&mut self, now: Instant) {
        if self.rnic.next_timeout().is_some_and(|at| at <= now) {
            self.run_due_timers(now);
        }
    }

    fn run_due_timers(&mut self, now: Instant) {
        if now > self.socket.emptied_at + LATE {
            self.shm.sees_beginning();
            self.receive_all(now);
            self.shm.begin();
            for _ in 0..ROUNDS_ALL {
                if !self.receive_from_channels(now, |_| false) {
                    break;
                }
            }
            for _ in 0..ROUNDS_ALL {
                if !self.receive_from_lab(now) {
                    break;
                }
            }
            self.socket.emptied_at = now;
        }
        self.rnic.handle_timeout(now);
    }

    /// Makes the next [`Self::progress`] read the socket, even if the last read is recent.
    pub(crate) fn read_socket_next(&mut self) {
        self.socket.last = Instant(0);
    }

    /// Takes everything that has arrived so far, through shared memory and the socket, and answers it.
    pub(crate) fn take_arrived(&mut self) {
        for _ in 0..RECEIVES_ALL / RECEIVES_MAX {
            self.read_socket_next();
            let now = self.clock();
            if !self.progress(now, false) {
                break;
            }
        }
    }

    /// Takes the datagrams in the socket, with a limit for peers that send faster than this reads.
    fn receive_all(&mut self, now: Instant) {
        for _ in 0..RECEIVES_ALL {
            if !self.receive(now) {
                break;
            }
        }
    }

    fn receive_from_channels(
        &mut self,
        now: Instant,
        is_enough: impl Fn(&rnic::Device) -> bool,
    ) -> bool {
        if self.shm.is_empty() {
            return false;
        }
        let records = self.shm.receive(&mut self.rnic, now, is_enough);
        self.transmitter.counters.shm_received += records as u64;
        if records == 0 {
            return false;
        }
        // Peers must find changed grants before they get the answer.
        self.shm.publish(&mut self.rnic);
        if self.rnic.pending() == Pending::Data {
            self.transmit_holding(now);
        }
        self.shm.end_round();
        true
    }

    /// Takes the records of the lab, and answers them.
    fn receive_from_lab(&mut self, now: Instant) -> bool {
        let Some(lab) = &mut self.lab else {
            return false;
        };
        let arrived = lab.receive(&mut self.rnic, now);
        if arrived && self.rnic.pending() == Pending::Data {
            self.transmit_holding(now);
        }
        arrived
    }

    /// Prepares the sleep of the progress thread. True when records wait already, so that it must not sleep.
    pub(crate) fn sleep(&mut self) -> bool {
        self.sleepers.thread = true;
        let has_records = self.lab.as_mut().is_some_and(LabPort::sleep);
        self.shm.sleep(if self.sleepers.program {
            Sleeper::Program
        } else {
            Sleeper::Thread
        }) || has_records
    }

    /// Ends the sleep of the progress thread: it reads the rings itself.
    pub(crate) fn wake(&mut self) {
        self.sleepers.thread = false;
        self.lab.iter_mut().for_each(LabPort::wake);
        self.shm.wake();
    }

    /// Begins a tick of the progress thread: it reads no ring, and a program that sleeps is woken as before.
    pub(crate) fn begin_tick(&mut self) {
        self.sleepers.thread = false;
        self.lab.iter_mut().for_each(LabPort::wake);
        if !self.sleepers.program {
            self.shm.wake();
        }
    }

    /// Whether packets are held back or made at the next transmission.
    fn has_unsent(&self) -> bool {
        self.transmitter.is_holding()
            || self.rnic.pending() != Pending::Nothing
            || self.shm.has_later()
    }

    /// While the program polls: runs timers that are due, and sends what has been held back since the last
    /// tick. Younger packets stay: an acknowledgement sent alone would end its peer's polling before the
    /// answer is there, and programs that read memory next would not receive it.
    pub(crate) fn tick(&mut self, now: Instant) {
        self.run_timers(now);
        if self.batching.note_tick() && self.has_unsent() {
            self.transmit(now);
        }
    }

    /// Whether the progress thread sleeps longer than the next timer or held-back packets allow.
    pub(crate) fn oversleeps(&self, now: Instant) -> bool {
        let deferred = self.has_unsent().then_some(now + TICK);
        [self.rnic.next_timeout(), deferred]
            .into_iter()
            .flatten()
            .any(|at| at < self.sleepers.wakes_at)
    }
}
