//! The state that a device's lock protects: the state machine, its socket and its shared-memory channels, and
//! how packets pass between them. When they do, the [`Schedule`] decides.

use super::clock::RecentClock;
use super::completion_routes::CompletionRoutes;
use super::constants::{
    ANSWER_ROUNDS, CROWD, RECEIVES_ALL, RECEIVES_MAX, SHM_ROUNDS_ALL, TICK, TRANSMIT_BUDGET,
};
use super::receive::Receiver;
use super::schedule::Schedule;
use crate::agent::leases::Leases;
use crate::channel::AsyncEvents;
use crate::counters::LinkCounters;
use crate::egress::Egress;
use crate::lab::LabPort;
use crate::shm::ShmChannels;
use crate::transmit::Transmitter;
use link::udp::Socket;
use rnic::{Cq, Event, Instant, Pending, SendRequest};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use wire::Qpn;

/// The state of a device.
#[derive(Debug)]
pub(crate) struct Pump {
    pub(crate) rnic: rnic::Device,
    transmitter: Transmitter,
    pub(crate) receiver: Receiver,
    pub(crate) shm: ShmChannels,
    /// In a host of a lab: the port that takes the place of the socket.
    pub(crate) lab: Option<LabPort>,
    pub(crate) routes: CompletionRoutes,
    pub(crate) leases: Leases,
    pub(crate) schedule: Schedule,
    /// Bytes that were copied to and from peers' memory since [`Self::take_copied`].
    copied: u32,
    pub(crate) clock: RecentClock,
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
            routes: CompletionRoutes::default(),
            leases: Leases::new(lease),
            schedule: Schedule::default(),
            copied: 0,
            clock: RecentClock::new(),
        }
    }

    /// Closes sockets and channels in the child of a fork: they are the parent's.
    pub(crate) fn sever(&mut self) {
        self.transmitter.sever();
        self.receiver.sever();
        self.shm.sever();
        self.lab = None;
        self.leases.sever();
    }

    /// Adds a further range of queue pair numbers, with its socket and its connection to the agent.
    pub(crate) fn add_share(&mut self, socket: Socket, lease: OwnedFd, first: Qpn, count: u32) {
        self.receiver.add(socket);
        self.leases.add(lease);
        self.rnic.add_qpn_range(first, count);
    }

    pub(crate) fn counters(&self) -> &LinkCounters {
        &self.transmitter.counters
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
                Event::Completion(cq) => self.routes.deliver_event(cq, self.shm.wake_up()),
                event => events.push(event),
            }
        }
    }

    /// Records that the program found completions.
    pub(crate) fn note_taken(&mut self) {
        self.schedule.batching.note_taken(self.rnic.in_flight());
    }

    /// Whether polls have found nothing for long, see [`Schedule::waits_long`].
    pub(crate) fn waits_long(&self, now: Instant) -> bool {
        self.schedule.waits_long(now, self.lab.is_some())
    }

    /// Executes a request in the call that posts it, where the peer shares the memory that it names and
    /// nothing is before it. False where it has to be posted.
    #[inline]
    pub(crate) fn execute_at_once(&mut self, qpn: Qpn, request: &SendRequest<'_>) -> bool {
        let Self {
            rnic, shm, clock, ..
        } = self;
        shm.has_mappings() && rnic.execute_at_once(qpn, request, || clock.read(), shm)
    }

    /// Ends a call in which so many requests were executed at once. A program that always finds completions
    /// makes no progress by its polls, so what has arrived is taken here from time to time.
    #[inline]
    pub(crate) fn end_execution(&mut self, executed: u32) {
        self.shm.end_execution();
        self.transmitter.counters.shm_direct += u64::from(executed);
        if self.schedule.note_executed_at_once(executed) {
            let now = self.clock.read();
            self.progress(now, false);
        }
    }

    /// After posting: the first request is sent at once if nothing was outstanding before (`idle`); later
    /// ones are held back until the next poll, so that they leave in one batch.
    pub(crate) fn transmit_posted(&mut self, idle: bool) {
        let full = self.schedule.batching.note_post_call(!self.shm.is_empty());
        if !idle && !full {
            return;
        }
        let now = self.clock.read();
        if idle && !self.shm.is_empty() {
            self.fill(now, true);
            self.transmitter.hold();
        } else if idle {
            self.transmit_holding(now);
        } else {
            // Packets that do not fill a batch wait for more.
            self.fill(now, false);
        }
    }

    /// Bytes that were copied to and from peers' memory since the last call.
    pub(crate) fn take_copied(&mut self) -> u32 {
        std::mem::take(&mut self.copied)
    }

    /// Whether a request that is posted now should be sent at once.
    pub(crate) fn is_idle(&self) -> bool {
        self.schedule.batching.is_idle(self.rnic.in_flight())
    }

    /// Sends all packets of the device.
    pub(crate) fn transmit(&mut self, now: Instant) {
        self.fill(now, false);
        self.transmitter.flush();
    }

    /// Sends all packets, except that those that do not fill a batch may be held back: with many active queue
    /// pairs until nothing more has arrived, otherwise as [`Transmitter::hold`] decides.
    fn transmit_holding(&mut self, now: Instant) {
        self.fill(now, false);
        if self.rnic.in_flight() < CROWD {
            self.transmitter.hold();
        }
    }

    /// Makes packets for all requests that may be sent. `may_call`: whether the first request may be executed
    /// by a system call on the peer's memory.
    fn fill(&mut self, now: Instant, may_call: bool) {
        self.schedule.note_transmission();
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
                self.schedule.batching.note_executed(executes);
            }
            if self.schedule.socket.note_made(made) {
                self.receive_times(RECEIVES_MAX, now);
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
        for _ in 0..ANSWER_ROUNDS {
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
        let counters = &mut self.transmitter.counters;
        let arrived = self.receiver.receive(&mut self.rnic, now, counters);
        self.schedule.socket.note_read(now, arrived);
        arrived
    }

    /// Reads the socket until nothing has arrived, with a limit for peers that send faster than this reads.
    fn receive_times(&mut self, limit: usize, now: Instant) {
        for _ in 0..limit {
            if !self.receive(now) {
                break;
            }
        }
    }

    /// Time until which acknowledgements may be held, see [`Schedule::acks_held_until`].
    pub(crate) fn acks_held_until(&mut self, now: Instant) -> Option<Instant> {
        if self.transmitter.is_holding() {
            return None;
        }
        self.schedule.acks_held_until(now, self.rnic.pending())
    }

    /// Handles a poll that found no completion: sends, takes arrived packets, and sends answers that cannot
    /// wait. The program takes up to `most` completions. A program that has waited gets the first one at
    /// once: to look for a second one takes as long as to deliver the first.
    pub(crate) fn poll_empty(&mut self, now: Instant, cq: Cq, most: usize) {
        let enough = if self.schedule.batching.note_empty_poll(now) {
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
        self.schedule.note_progress();
        let mut arrived = self.progress_in_memory(now, held, enough);
        let polls_memory = !self.shm.is_empty() || self.lab.is_some();
        if (polls_memory && arrived) || !self.schedule.socket.begin(now, polls_memory) {
            return arrived;
        }
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
            self.schedule.socket.note_empty(now);
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
            self.receive_times(RECEIVES_ALL, now);
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
        if !self.schedule.socket.was_just_empty(now) {
            self.shm.sees_beginning();
            self.receive_times(RECEIVES_ALL, now);
            self.shm.begin();
            for _ in 0..SHM_ROUNDS_ALL {
                if !self.receive_from_channels(now, |_| false) {
                    break;
                }
            }
            for _ in 0..SHM_ROUNDS_ALL {
                if !self.receive_from_lab(now) {
                    break;
                }
            }
            self.schedule.socket.note_empty(now);
        }
        self.rnic.handle_timeout(now);
    }

    /// Takes everything that has arrived so far, through shared memory and the socket, and answers it.
    pub(crate) fn take_arrived(&mut self) {
        for _ in 0..RECEIVES_ALL / RECEIVES_MAX {
            self.schedule.socket.read_next();
            let now = self.clock.read();
            if !self.progress(now, false) {
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
        if self.schedule.batching.note_tick() && self.has_unsent() {
            self.transmit(now);
        }
    }

    /// Whether the progress thread sleeps longer than the next timer or held-back packets allow.
    pub(crate) fn oversleeps(&self, now: Instant) -> bool {
        let deferred = self.has_unsent().then_some(now + TICK);
        [self.rnic.next_timeout(), deferred]
            .into_iter()
            .flatten()
            .any(|at| at < self.schedule.sleepers.wakes_at)
    }
}
