//! What a device's lock protects: the state machine, and what joins it with the network.

use crate::agent::protocol::{ANSWER_BYTES, Answer, DomainRequest};
use crate::channel::{AsyncEvents, CompletionChannel};
use crate::clock;
use crate::counters::LinkCounters;
use crate::lane::{Exit, Lanes};
use crate::receive::Receiver;
use crate::sys::{ticks, unix};
use crate::transmit::Transmitter;
use link::memory::Sleeper;
use link::udp::Socket;
use rnic::{Cq, Error, Event, Gid, Instant, Nanos, Pending};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;
use wire::Qpn;

/// Receives in a row before completions are looked at again: 64 KiB each.
const RECEIVES_MAX: usize = 8;
/// How many before the first messages of a lane.
const RECEIVES_ALL: usize = 1024;
/// Packets that are made before the socket is looked at: whoever sends without end must not be deaf
/// meanwhile, for the kernel keeps only so much of what others send. Acknowledgements pace reliable queue
/// pairs, but nothing else paces the others.
const TRANSMIT_BUDGET: usize = 256;
/// Queue pairs that wait for acknowledgements from which on sends wait for each other: then each has little
/// to send, and answers keep coming.
const CROWD: u32 = 8;
/// Work requests that wait for company before they are sent, and their bytes.
const DEFERRED_MAX: usize = 64;
const DEFERRED_BYTES_MAX: u64 = 64 << 10;
/// How long polls find nothing before each gives the core to whoever wants it. When nobody does, that costs a
/// tenth of a microsecond.
const YIELD_AFTER: Nanos = Nanos::from_micros(10);
/// How often the socket is looked at, which is a system call, while there are lanes to look at as well.
const SOCKET_INTERVAL: Nanos = Nanos::from_micros(5);
/// For how many ticks of the processor's counter a look at the clock counts: below two microseconds where it
/// goes at 1 GHz or more. A counter that has not moved means that hardly anything was done.
const FRESH_TICKS: u64 = 2000;
/// How long the agent may take to answer.
const AGENT_PATIENCE: Duration = Duration::from_secs(5);
/// How long a posted request may be deferred at most, and how often the progress thread looks whether the
/// program still polls.
pub(crate) const TICK: Nanos = Nanos::from_millis(4);

/// The state of a device.
#[derive(Debug)]
pub(crate) struct Pump {
    pub(crate) rnic: rnic::Device,
    transmitter: Transmitter,
    receiver: Receiver,
    pub(crate) lanes: Lanes,
    /// When the socket was looked at last.
    looked_at: Instant,
    channels: HashMap<Cq, (Arc<CompletionChannel>, u64)>,
    /// Our shares of the port; none in the child of a fork.
    leases: Vec<OwnedFd>,
    /// Posted since the last transmission.
    deferred: usize,
    deferred_bytes: u64,
    /// Packets made since the socket was last looked at.
    unheard: usize,
    /// Since when polls have found nothing; `None` when something else happened last.
    empty_since: Option<Instant>,
    /// Transmissions so far, and up to the last tick: what waits to be sent is old when none was between.
    transmissions: u64,
    transmissions_at_tick: u64,
    /// The program has polled in vain since it last posted: it waits for an answer, not for a queue to fill.
    polled: bool,
    /// When the progress thread wakes at the latest.
    pub(crate) wakes_at: Instant,
    /// The progress thread sleeps, and is woken by what comes.
    pub(crate) thread_sleeps: bool,
    /// The program sleeps in its place, see [`crate::wait`].
    pub(crate) program_sleeps: bool,
    /// When the clock was read last.
    pub(crate) read_at: Instant,
    read_at_ticks: u64,
}

impl Pump {
    pub(crate) fn new(
        rnic: rnic::Device,
        socket: Socket,
        lease: OwnedFd,
        interface: u32,
    ) -> io::Result<Self> {
        Ok(Self {
            rnic,
            transmitter: Transmitter::new(socket.try_clone()?, interface),
            receiver: Receiver::new(socket),
            lanes: Lanes::new(),
            looked_at: Instant(0),
            channels: HashMap::new(),
            leases: vec![lease],
            deferred: 0,
            deferred_bytes: 0,
            unheard: 0,
            empty_since: None,
            transmissions: 0,
            transmissions_at_tick: 0,
            polled: true,
            wakes_at: Instant(0),
            thread_sleeps: false,
            program_sleeps: false,
            read_at: clock::now(),
            read_at_ticks: ticks::now(),
        })
    }

    /// Reads the clock, unless that was just done: it would be a fifth of what a small message costs, and
    /// most of what a look that finds nothing does.
    pub(crate) fn clock(&mut self) -> Instant {
        let ticks = ticks::now();
        if ticks == 0 || ticks.wrapping_sub(self.read_at_ticks) > FRESH_TICKS {
            (self.read_at, self.read_at_ticks) = (clock::now(), ticks);
        }
        self.read_at
    }

    /// In the child of a fork: the network is the parent's.
    pub(crate) fn sever(&mut self) {
        self.transmitter.sever();
        self.receiver.sever();
        self.lanes.sever();
        self.leases.clear();
    }

    /// Whether the device is the parent's.
    pub(crate) fn is_severed(&self) -> bool {
        self.leases.is_empty()
    }

    /// Attaches a queue pair to a multicast group; the first one has the host join it. Says which descriptor
    /// has to be looked at from now on, if there is a new one.
    pub(crate) fn attach(&mut self, qpn: Qpn, group: Gid, interface: u32) -> Result<Option<RawFd>, Error> {
        let joined = self.rnic.has_multicast(group);
        self.rnic.attach_multicast(qpn, group)?;
        if joined {
            return Ok(None);
        }
        match self.receiver.join(group, interface) {
            Ok(descriptor) => Ok(Some(descriptor)),
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::EMFILE)) => {
                self.rnic.detach_multicast(qpn, group)?;
                Err(Error::Exhausted("sockets for multicast groups"))
            }
            // The kernel need not have a way for a group, as on the loopback interface.
            Err(_) => Ok(None),
        }
    }

    /// Detaches it; the last one has the host leave, when what this returns is dropped.
    pub(crate) fn detach(&mut self, qpn: Qpn, group: Gid) -> Result<Option<Socket>, Error> {
        self.rnic.detach_multicast(qpn, group)?;
        Ok(if self.rnic.has_multicast(group) { None } else { self.receiver.leave(group) })
    }

    /// Asks the agent about an XRC domain, and waits for its answer.
    pub(crate) fn ask_agent(&self, request: DomainRequest) -> io::Result<()> {
        let lease = self.leases.first().ok_or(io::ErrorKind::NotConnected)?.as_raw_fd();
        unix::set_patience(lease, AGENT_PATIENCE)?;
        unix::send(lease, &request.to_bytes(), None)?;
        let mut answer = [0; ANSWER_BYTES];
        match unix::receive_next(lease, &mut answer)? {
            ANSWER_BYTES => Answer::parse(answer).map(drop),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Takes a further share of the port.
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

    pub(crate) fn counters(&self) -> &LinkCounters {
        &self.transmitter.counters
    }

    /// Passes the device's events on, to the program and to peers on this host who know what it grants.
    #[inline]
    pub(crate) fn pump_events(&mut self, events: &AsyncEvents) {
        if self.rnic.has_news() {
            self.pump_news(events);
        }
    }

    fn pump_news(&mut self, events: &AsyncEvents) {
        self.lanes.publish(&mut self.rnic);
        while let Some(event) = self.rnic.poll_event() {
            match event {
                Event::Completion(cq) => {
                    if let Some((channel, cookie)) = self.channels.get(&cq) {
                        channel.push(*cookie);
                        if let Some(bell) = self.lanes.bell().filter(|_| channel.is_waiting()) {
                            bell.ring();
                        }
                    }
                }
                event => events.push(event),
            }
        }
    }

    /// Notes a posted request, of so many bytes.
    pub(crate) fn note_posted(&mut self, bytes: u64) {
        self.deferred += 1;
        self.deferred_bytes += bytes;
    }

    /// Notes that the program found completions.
    pub(crate) fn note_taken(&mut self) {
        self.empty_since = None;
        // Whoever has taken the last answer waits for nothing: what it posts next goes at once.
        self.polled |= self.deferred == 0 && self.rnic.in_flight() == 0;
    }

    /// Notes that the program is about to wait for an event, or came for control verbs.
    pub(crate) fn note_away(&mut self) {
        self.polled = true;
        self.empty_since = None;
    }

    /// Whether the program has polled in vain for longer than a round trip takes. On a machine with fewer
    /// cores than polling programs, the peer may be waiting for this core.
    pub(crate) fn waits_long(&self, now: Instant) -> bool {
        self.empty_since.is_some_and(|since| now >= since + YIELD_AFTER)
    }

    /// After posting: the first request goes at once when nothing is on its way, others wait for company
    /// until the next poll. `idle` says whether nothing was on its way before.
    pub(crate) fn transmit_posted(&mut self, idle: bool) {
        self.empty_since = None;
        self.polled = false;
        let full = self.deferred >= DEFERRED_MAX || self.deferred_bytes >= DEFERRED_BYTES_MAX;
        if !idle && !full {
            return;
        }
        let now = self.clock();
        if idle && !self.lanes.is_empty() {
            self.fill_with(now, true);
            self.transmitter.hold();
        } else if idle {
            self.transmit_holding(now);
        } else {
            // What makes no full batch waits for the rest.
            self.fill(now);
        }
    }

    /// Whether a request posted now should go at once.
    pub(crate) fn is_idle(&self) -> bool {
        self.polled && self.rnic.in_flight() == 0 && self.deferred == 0
    }

    /// Sends everything that the device has to send.
    pub(crate) fn transmit(&mut self, now: Instant) {
        self.fill(now);
        self.transmitter.flush();
    }

    /// The same, but what makes no full batch may wait for company: with many queue pairs at work until the
    /// socket has nothing more to answer, else as [`Transmitter::hold`] says.
    fn transmit_holding(&mut self, now: Instant) {
        self.fill(now);
        if self.rnic.in_flight() < CROWD {
            self.transmitter.hold();
        }
    }

    fn fill(&mut self, now: Instant) {
        self.fill_with(now, false);
    }

    fn fill_with(&mut self, now: Instant, direct: bool) {
        (self.deferred, self.deferred_bytes) = (0, 0);
        self.transmissions += 1;
        loop {
            let mut exit = Exit { transmitter: &mut self.transmitter, lanes: &mut self.lanes, direct };
            let made = self.rnic.transmit(now, TRANSMIT_BUDGET, &mut exit);
            self.unheard += made;
            if self.unheard >= TRANSMIT_BUDGET {
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
        self.lanes.ring_bells();
        self.lanes.ask_wanted(now);
    }

    /// Takes what one look at the socket gives. False when nothing was there.
    fn receive(&mut self, now: Instant) -> bool {
        self.unheard = 0;
        self.receiver.receive(&mut self.rnic, now, &mut self.transmitter.counters)
    }

    /// A poll that found no completion: sends, takes what arrived, and answers it as far as it cannot wait.
    /// The program takes up to `most` completions. One is enough for a program that waits: to see that there
    /// is no second one costs as much time as to bring the first.
    pub(crate) fn poll_empty(&mut self, now: Instant, cq: Cq, most: usize) {
        self.polled = true;
        let enough = if self.empty_since.is_some() { 1 } else { most };
        self.empty_since.get_or_insert(now);
        self.progress_until(now, false, Some((cq, enough)));
    }

    /// Timers, out, in, out. Says whether anything arrived. Positive acknowledgements of what arrives stay
    /// for the next call, so that they travel with what the program answers; or for a later one, as long as
    /// they are `held`.
    pub(crate) fn progress(&mut self, now: Instant, held: bool) -> bool {
        self.progress_until(now, held, None)
    }

    /// `enough` are so many completions of a queue.
    fn progress_until(&mut self, now: Instant, held: bool, enough: Option<(Cq, usize)>) -> bool {
        if self.rnic.next_timeout().is_some_and(|at| at <= now) {
            self.rnic.handle_timeout(now);
        }
        if self.rnic.has_stalled() {
            self.rnic.resume();
        }
        let pending = self.rnic.pending();
        if pending == Pending::Data || (pending == Pending::Acknowledgements && !held) {
            self.transmit_holding(now);
        }
        if self.lanes.sees_beginning() {
            self.receive_all(now);
            self.lanes.begin();
        }
        let mut arrived = self.receive_from_lanes(now, |rnic| {
            enough.is_some_and(|(cq, enough)| rnic.completions(cq) >= enough)
        });
        if !self.lanes.is_empty() && (arrived || now < self.looked_at + SOCKET_INTERVAL) {
            return arrived;
        }
        self.looked_at = now;
        for _ in 0..RECEIVES_MAX {
            if !self.receive(now) {
                break;
            }
            arrived = true;
            if self.rnic.pending() == Pending::Data {
                self.transmit_holding(now);
            }
            if enough.is_some_and(|(cq, _)| self.rnic.has_completions(cq)) {
                break;
            }
        }
        if !arrived {
            self.transmitter.flush();
        }
        arrived
    }

    /// Takes what the socket has, but does not listen for ever to somebody who never stops.
    fn receive_all(&mut self, now: Instant) {
        for _ in 0..RECEIVES_ALL {
            if !self.receive(now) {
                break;
            }
        }
    }

    fn receive_from_lanes(&mut self, now: Instant, is_enough: impl Fn(&rnic::Device) -> bool) -> bool {
        if self.lanes.is_empty() {
            return false;
        }
        let records = self.lanes.receive(&mut self.rnic, now, is_enough);
        self.transmitter.counters.lane_received += records as u64;
        if records == 0 {
            return false;
        }
        // What they may do by themselves from now on has to be known before the answer.
        self.lanes.publish(&mut self.rnic);
        if self.rnic.pending() == Pending::Data {
            self.transmit_holding(now);
        }
        self.lanes.ring_bells();
        true
    }

    /// Before the progress thread sleeps: whether there is something to do instead.
    pub(crate) fn sleep(&mut self) -> bool {
        self.thread_sleeps = true;
        self.lanes.sleep(if self.program_sleeps { Sleeper::Program } else { Sleeper::Thread })
    }

    /// The progress thread looks by itself.
    pub(crate) fn wake(&mut self) {
        self.thread_sleeps = false;
        self.lanes.wake();
    }

    /// Whether something waits to be sent.
    fn has_unsent(&self) -> bool {
        self.transmitter.is_holding() || self.rnic.pending() != Pending::Nothing
    }

    /// While the program polls: runs timers that are due, and sends what has waited for company since the
    /// last tick. What is younger stays: an acknowledgement sent alone would end its peer's polling before
    /// the answer is there, and programs that look at memory next would not receive it.
    pub(crate) fn tick(&mut self, now: Instant) {
        if self.rnic.next_timeout().is_some_and(|at| at <= now) {
            self.rnic.handle_timeout(now);
        }
        let is_old = self.transmissions == self.transmissions_at_tick;
        if is_old && self.has_unsent() {
            self.transmit(now);
        }
        self.transmissions_at_tick = self.transmissions;
    }

    /// Whether the progress thread sleeps longer than what is to be done allows.
    pub(crate) fn oversleeps(&self, now: Instant) -> bool {
        let deferred = self.has_unsent().then_some(now + TICK);
        [self.rnic.next_timeout(), deferred].into_iter().flatten().any(|at| at < self.wakes_at)
    }
}
