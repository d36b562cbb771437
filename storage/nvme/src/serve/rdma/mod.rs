//! The thread of one RDMA connection: capsules are messages, and the target reads and writes the memory of
//! the host (RDMA transport 1.0).

mod commands;
mod posted;
mod sgl;
mod transfers;

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use buffer::Buffer;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use rdma::{BATCH, Completion as Completed, Connection, Done, SharedReceives};
use server::budget::Charge;
use server::{ConnectionPermit, Counted, Spin, StallTimer};
use slab::Slab;

use super::connection::{CHECK_INTERVAL_NS, PollWaker, RING, WOKEN};
use super::receives::{RECEIVE_BYTES, connection_bytes, other};
use super::{End, Shared};
use crate::controller::{Origin, Queue, Wake};
use crate::engine::Engine;
use crate::limits::{CONNECTIONS_MAX, RECEIVES_BEFORE_TRUST, STALL_BYTES};
use crate::pool::Pool;
use crate::sys::wait::wait;
use commands::{InPlace, RdmaCommand};
use transfers::{Response, Transfer};

const COMPLETIONS: Token = Token(3);
const STATE: Token = Token(4);

/// The shortest polling time before the thread sleeps, whatever the tuning: a wake-up costs as much.
const POLL_MIN: Duration = Duration::from_micros(20);
/// How long a connection is idle before it frees its buffers: longer than over TCP, because registering
/// memory again costs more.
const IDLE_AFTER: Duration = Duration::from_secs(5);
/// Completions of one poll after which another poll follows in the same round. One that finds nothing costs
/// about as much as a command.
const TURN_MANY: usize = 8;
/// IBV_WC_WR_FLUSH_ERR: the status of a work request that was not executed because its queue pair was in the
/// error state.
const FLUSHED: u32 = 5;
/// How long to wait for the event that tells why work requests were flushed.
const REASON_TIMEOUT: Duration = Duration::from_secs(1);

/// The `wr_id` of a work request: its kind in the upper half, the index of its command in the lower half.
mod token {
    pub(super) use super::super::receives::RECEIVE;
    pub(super) const READ: u64 = 1 << 32;
    pub(super) const WRITE: u64 = 2 << 32;
    /// A WRITE of lent memory, with its share of the charge in bytes in the lower half.
    pub(super) const LENT: u64 = 3 << 32;
    pub(super) const LOW: u64 = 0xffff_ffff;
}

/// A connection that its peer has confirmed (RTU).
pub(super) struct Confirmed {
    pub(super) connection: Connection,
    pub(super) peer: IpAddr,
    pub(super) permit: ConnectionPermit,
    pub(super) origin: Origin,
    /// Entries of the queue that the private data of the request asked for.
    pub(super) entries: u16,
    /// The shared receive queue; `None` if the connection has its own.
    pub(super) receives: Option<Arc<SharedReceives>>,
    /// The time at which the request arrived, in nanoseconds.
    pub(super) began_ns: u64,
}

/// Serves one connection until it ends.
pub(super) fn serve(shared: &Arc<Shared>, confirmed: Confirmed) {
    let peer = confirmed.peer;
    let Some(_one) = Counted::one_more(&shared.connections, CONNECTIONS_MAX) else {
        return shared.ended(End::Full, None, peer, "RDMA");
    };
    let entries = confirmed.entries;
    let receives = match Driver::new(shared, confirmed) {
        Err(error) => {
            shared.ended(End::Broken, None, peer, &error.to_string());
            0
        }
        Ok(mut driver) => {
            let (end, why) = driver
                .run()
                .map_or_else(|error| driver.end_of(&error), |()| (End::Host, None));
            shared.ended(end, Some(&driver.queue), peer, &why.unwrap_or_default());
            driver.posted
        }
    };
    buffer::note_freed(connection_bytes(entries) + receives * RECEIVE_BYTES);
}

struct Driver<'a> {
    shared: &'a Shared,
    peer: IpAddr,
    permit: ConnectionPermit,
    connection: Connection,
    /// The shared receive queue; `None` if the connection has its own.
    receives: Option<Arc<SharedReceives>>,
    queue: Queue,
    engine: Engine,
    pool: Pool,
    commands: Slab<RdmaCommand>,
    /// Commands that wait for a data buffer, the oldest first.
    awaiting_buffer: VecDeque<usize>,
    transfers: VecDeque<Transfer>,
    responses: VecDeque<Response>,
    completed: Vec<Completed>,
    /// Commands with data in their capsules, executed when all capsules of the round are accepted: the memory
    /// that they write is fetched meanwhile.
    in_place: Vec<InPlace>,
    /// Commands were executed at once in this round.
    has_executed: bool,
    /// Entries of the queue that the private data of the request asked for.
    entries: u16,
    /// Receives of this connection, or with a shared receive queue whether that was filled up.
    posted: usize,
    has_filled_shared: bool,
    /// The bytes of receives of an authenticated host.
    receive_charge: Charge,
    has_announced_host: bool,
    /// Capsule buffers whose commands were processed, to be posted as receives again.
    taken: Vec<Buffer>,
    poll: Poll,
    ring_is_watched: bool,
    began_ns: u64,
    /// Checks that the host acknowledges messages and executes RDMA READs.
    stall_timer: StallTimer,
}

impl<'a> Driver<'a> {
    fn new(shared: &'a Shared, confirmed: Confirmed) -> io::Result<Self> {
        let Confirmed {
            connection,
            peer,
            permit,
            origin,
            entries,
            receives,
            began_ns,
        } = confirmed;
        let poll = Poll::new()?;
        for (descriptor, token) in connection
            .descriptors()
            .into_iter()
            .zip([COMPLETIONS, STATE])
        {
            poll.registry()
                .register(&mut SourceFd(&descriptor), token, Interest::READABLE)?;
        }
        let waker = mio::Waker::new(poll.registry(), WOKEN)?;
        let wake: Arc<dyn Wake> = Arc::new(PollWaker(waker));
        let share = shared.budget.share(peer, Arc::clone(&wake));
        let receive_charge = Charge::none(&shared.receive_budget.share(peer, Arc::clone(&wake)));
        if let Some(memory) = permit.memory() {
            let wake = Arc::clone(&wake);
            memory.on_displaced(move || wake.wake());
        }
        let pool = Pool::registered(Arc::clone(connection.domain()), share);
        Ok(Self {
            shared,
            peer,
            pool: pool.of_guest(permit.memory().cloned()),
            permit,
            connection,
            receives,
            queue: Queue::new(Arc::clone(&shared.target), origin, wake),
            engine: Engine::new(),
            commands: Slab::new(),
            awaiting_buffer: VecDeque::new(),
            transfers: VecDeque::new(),
            responses: VecDeque::new(),
            completed: Vec::new(),
            in_place: Vec::new(),
            has_executed: false,
            entries,
            posted: RECEIVES_BEFORE_TRUST,
            has_filled_shared: false,
            receive_charge,
            has_announced_host: false,
            taken: Vec::new(),
            poll,
            ring_is_watched: false,
            began_ns,
            stall_timer: StallTimer::new(shared.tuning.stall_timeout, STALL_BYTES),
        })
    }

    /// The reason for the end of the connection, and its text in the log.
    fn end_of(&mut self, error: &io::Error) -> (End, Option<String>) {
        match error.kind() {
            io::ErrorKind::ConnectionAborted if self.queue.is_over() => (End::Controller, None),
            io::ErrorKind::ConnectionAborted | io::ErrorKind::NotConnected => (End::Host, None),
            io::ErrorKind::TimedOut => (End::ConnectTimeout, None),
            io::ErrorKind::WouldBlock => (End::Stalled, None),
            io::ErrorKind::QuotaExceeded => (End::Displaced, None),
            io::ErrorKind::InvalidData => (End::Fault, Some(error.to_string())),
            _ => (End::Broken, Some(error.to_string())),
        }
    }

    /// Translates the error status of a work completion. When the host disconnects, outstanding work requests
    /// are flushed, possibly before the event of the disconnection arrives.
    fn failed(&mut self, status: u32) -> io::Error {
        let unknown = io::Error::other(format!("verbs status {status}"));
        if status != FLUSHED {
            return unknown;
        }
        let deadline = Instant::now() + REASON_TIMEOUT;
        let [_, events] = self.connection.descriptors();
        loop {
            if let Err(error) = self.connection.check_events() {
                return other(error);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || wait([(events, false)], left).is_err() {
                return unknown;
            }
        }
    }

    /// Runs until the connection ends.
    fn run(&mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(8);
        let poll = self.shared.tuning.poll.max(POLL_MIN);
        let mut spin = Spin::new(&self.shared.spinners, poll);
        let (mut is_armed, mut is_released) = (false, true);
        let mut has_announced = false;
        loop {
            let now_ns = self.shared.now_ns();
            self.engine.begin_round(now_ns);
            let mut progress = self.receive(now_ns)?;
            // Before the work: memory that another connection returned lets commands begin, and the thread
            // may sleep after this round.
            self.check(now_ns)?;
            progress |= self.work(now_ns);
            self.receive_more()?;
            self.flush()?;
            self.receive_again()?;
            self.connection.flush().map_err(other)?;
            if progress {
                (is_armed, is_released) = (false, false);
                spin.worked();
                continue;
            }
            if !has_announced && self.engine.in_kernel() > 0 {
                self.connection.announce_other_waits().map_err(other)?;
                has_announced = true;
            }
            if !is_armed && self.queue.id().is_some_and(|id| id != 0) && spin.may_poll(now_ns) {
                std::hint::spin_loop();
                continue;
            }
            if !is_armed {
                // Completions that arrived before arming cause no notification: poll once more.
                self.connection.arm().map_err(other)?;
                self.watch_ring()?;
                is_armed = true;
                continue;
            }
            self.connection.check_events().map_err(other)?;
            let most = self.sleep(now_ns);
            let most = if is_released {
                most
            } else {
                Some(most.map_or(IDLE_AFTER, |it| it.min(IDLE_AFTER)))
            };
            match self.poll.poll(&mut events, most) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => (is_armed, _) = (false, spin.slept()),
            }
            if events.is_empty() && !is_released {
                self.pool.release_idle();
                is_released = true;
            }
        }
    }

    fn receive(&mut self, now_ns: u64) -> io::Result<bool> {
        let in_flight = self.connection.in_flight();
        let mut completed = std::mem::take(&mut self.completed);
        // A poll takes what one turn of the device brings. After many commands the next turn brings more, and
        // all are answered by one list of requests.
        let mut count = 0;
        while count < BATCH {
            let more = self
                .connection
                .poll_most(BATCH - count, &mut completed)
                .map_err(other)?;
            count += more;
            if more < TURN_MANY {
                break;
            }
        }
        if in_flight > self.connection.in_flight() {
            // A work request of any length counts as full progress, because it is acknowledged as a whole.
            self.stall_timer.moved(STALL_BYTES);
        }
        for Completed {
            token,
            done,
            buffer,
            ..
        } in completed.drain(..)
        {
            let done = match done {
                Ok(done) => done,
                Err(status) => return Err(self.failed(status)),
            };
            let low = (token & token::LOW) as usize;
            if token & !token::LOW == token::LENT {
                self.pool.lent_back(low);
                self.resume(now_ns);
            }
            let Some(buffer) = buffer else { continue };
            match (token & !token::LOW, done) {
                (token::RECEIVE, Done::Receive(bytes)) => self.capsule(buffer, bytes, now_ns)?,
                (token::READ, _) => self.fetched(low, buffer, now_ns),
                _ => self.give(buffer, now_ns),
            }
        }
        self.completed = completed;
        self.write_in_place(now_ns);
        Ok(count > 0)
    }

    /// Passes the results of the engine to the queue.
    fn work(&mut self, now_ns: u64) -> bool {
        self.engine.submit();
        let mut worked = std::mem::take(&mut self.has_executed);
        while let Some(finished) = self.engine.finished() {
            self.finish(finished, now_ns);
            worked = true;
        }
        if worked {
            self.engine
                .end_round(self.shared.now_ns(), &|| self.queue.name());
        }
        worked
    }

    /// Ends the charges to the budget of unauthenticated hosts once the host is authenticated.
    fn note_authenticated(&mut self) {
        if self.queue.is_authenticated() && self.permit.mark_authenticated() {
            self.pool.mark_authenticated();
        }
    }

    fn check(&mut self, now_ns: u64) -> io::Result<()> {
        let gone = || Err(io::ErrorKind::ConnectionAborted.into());
        if self.queue.is_over() {
            return gone();
        }
        self.note_authenticated();
        if self.queue.is_trusted() {
            if !std::mem::replace(&mut self.has_announced_host, true) {
                self.shared.connected(&self.queue, self.peer);
            }
        } else if now_ns - self.began_ns > self.shared.connect_timeout_ns() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if self.permit.is_displaced() || self.pool.is_overdrawn() {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        self.resume(now_ns);
        if self
            .stall_timer
            .is_too_long(self.connection.in_flight() > 0, now_ns)
        {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if self.queue.id() == Some(0) {
            self.extra();
            if self
                .queue
                .deadline_ns()
                .is_some_and(|deadline_ns| deadline_ns <= now_ns)
            {
                return gone();
            }
        }
        Ok(())
    }

    fn sleep(&self, now_ns: u64) -> Option<Duration> {
        if self.queue.id().is_some_and(|id| id != 0) {
            // No event tells when unauthenticated hosts return memory.
            let is_waited_for = self.connection.in_flight() > 0 || self.permit.memory().is_some();
            return is_waited_for.then_some(Duration::from_nanos(CHECK_INTERVAL_NS));
        }
        let deadline_ns = self.queue.deadline_ns().unwrap_or(u64::MAX);
        let until_ns = deadline_ns
            .saturating_sub(now_ns)
            .clamp(1_000_000, CHECK_INTERVAL_NS);
        Some(Duration::from_nanos(until_ns))
    }

    fn watch_ring(&mut self) -> io::Result<()> {
        if !self.ring_is_watched
            && let Some(descriptor) = self.engine.descriptor()
        {
            self.poll
                .registry()
                .register(&mut SourceFd(&descriptor), RING, Interest::READABLE)?;
            self.ring_is_watched = true;
        }
        Ok(())
    }
}
