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
use mio::Interest;
use mio::unix::SourceFd;
use rdma::{BATCH, Completion as Completed, Connection, Done, SharedReceives};
use server::budget::Charge;
use server::event_loop::{Armed, Driven, Waiting, drive};
use server::{ConnectionPermit, Counted, StallTimer};
use slab::Slab;

use super::close_reason::Over;
use super::guest::Guest;
use super::receives::{RECEIVE_BYTES, connection_bytes, other};
use super::wakeups::{CHECK_INTERVAL_NS, Wakeups, until_check};
use super::{End, Shared};
use crate::controller::{Origin, Queue};
use crate::engine::Engine;
use crate::limits::{CONNECTIONS_MAX, RECEIVES_BEFORE_TRUST, STALL_BYTES};
use crate::pool::Pool;
use commands::{InPlace, RdmaCommand};
use os::wait::wait;
use transfers::{Response, Transfer};

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
            let waiting = Waiting {
                poll_time: shared.tuning.poll.max(POLL_MIN),
                idle_time: IDLE_AFTER,
            };
            let over = drive(&mut driver, &shared.clock, &shared.spinners, waiting);
            shared.ended(over.end, Some(&driver.queue), peer, &over.why);
            driver.posted
        }
    };
    buffer::note_freed(connection_bytes(entries) + receives * RECEIVE_BYTES);
}

struct Driver<'a> {
    guest: Guest<'a, IpAddr>,
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
    /// Capsule buffers whose commands were processed, to be posted as receives again.
    taken: Vec<Buffer>,
    wakeups: Wakeups,
    /// Notifications are on, and nothing has come since then.
    is_armed: bool,
    /// Other threads know that this one waits for more than completions.
    has_announced_waits: bool,
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
        let wakeups = Wakeups::new()?;
        for descriptor in connection.descriptors() {
            wakeups.watch(&mut SourceFd(&descriptor), Interest::READABLE)?;
        }
        let wake = wakeups.wake();
        let guest = Guest::new(shared, peer, permit, began_ns);
        guest.wake_when_displaced(&wake);
        let share = shared.budget.share(peer, Arc::clone(&wake));
        let receive_charge = Charge::none(&shared.receive_budget.share(peer, Arc::clone(&wake)));
        let pool = Pool::registered(Arc::clone(connection.domain()), share);
        Ok(Self {
            pool: pool.of_guest(guest.memory().cloned()),
            guest,
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
            taken: Vec::new(),
            wakeups,
            is_armed: false,
            has_announced_waits: false,
            stall_timer: StallTimer::new(shared.tuning.stall_timeout, STALL_BYTES),
        })
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
                .end_round(self.guest.shared().now_ns(), &|| self.queue.name());
        }
        worked
    }

    /// Ends the charges to the budget of unauthenticated hosts once the host is authenticated.
    fn note_authenticated(&mut self) {
        if self.guest.note_authenticated(&self.queue) {
            self.pool.mark_authenticated();
        }
    }

    /// Checks the limits of the host and its controller.
    fn check_limits(&mut self, now_ns: u64) -> Result<(), End> {
        if self.queue.is_over() {
            return Err(End::Controller);
        }
        self.note_authenticated();
        let is_overdrawn = self.pool.is_overdrawn();
        self.guest
            .check_may_go_on(&self.queue, is_overdrawn, now_ns)?;
        self.resume(now_ns);
        let is_waited_for = self.connection.in_flight() > 0;
        if self.stall_timer.is_too_long(is_waited_for, now_ns) {
            return Err(End::Stalled);
        }
        if self.queue.id() == Some(0) {
            self.extra();
            let deadline_ns = self.queue.deadline_ns();
            if deadline_ns.is_some_and(|deadline_ns| deadline_ns <= now_ns) {
                return Err(match self.queue.is_over() {
                    true => End::Controller,
                    false => End::Host,
                });
            }
        }
        Ok(())
    }

    /// Sends responses, and posts receives.
    fn answer(&mut self) -> io::Result<()> {
        self.receive_more()?;
        self.flush()?;
        self.receive_again()?;
        self.connection.flush().map_err(other)
    }

    /// Tells the device that this thread waits for more than completions once the engine has an operation in
    /// the kernel.
    fn announce_waits(&mut self) -> io::Result<()> {
        if !self.has_announced_waits && self.engine.in_kernel() > 0 {
            self.connection.announce_other_waits().map_err(other)?;
            self.has_announced_waits = true;
        }
        Ok(())
    }

    /// Turns notifications on, and looks for events of the connection.
    fn watch(&mut self) -> io::Result<Armed> {
        if !self.is_armed {
            self.connection.arm().map_err(other)?;
            self.wakeups.watch_ring(&self.engine)?;
            self.is_armed = true;
            // Completions that arrived before arming cause no notification.
            return Ok(Armed::Now);
        }
        self.connection.check_events().map_err(other)?;
        Ok(Armed::Before)
    }
}

impl Driven for Driver<'_> {
    type End = Over;

    fn turn(&mut self, now_ns: u64) -> Result<bool, Over> {
        self.engine.begin_round(now_ns);
        let mut progress = self.receive(now_ns).map_err(over)?;
        // Before the work: memory that another connection returned lets commands begin, and the thread may
        // sleep after this turn.
        self.check_limits(now_ns)?;
        progress |= self.work(now_ns);
        self.answer().map_err(over)?;
        if progress {
            self.is_armed = false;
        } else {
            self.announce_waits().map_err(over)?;
        }
        Ok(progress)
    }

    fn may_poll(&self) -> bool {
        !self.is_armed && self.queue.id().is_some_and(|id| id != 0)
    }

    fn arm(&mut self) -> Result<Armed, Over> {
        self.watch().map_err(over)
    }

    fn time_to_sleep(&mut self, now_ns: u64) -> Result<Option<Duration>, Over> {
        if self.queue.id().is_some_and(|id| id != 0) {
            // No event tells when unauthenticated hosts return memory.
            let is_waited_for = self.connection.in_flight() > 0 || self.guest.memory().is_some();
            return Ok(is_waited_for.then_some(Duration::from_nanos(CHECK_INTERVAL_NS)));
        }
        let deadline_ns = self.queue.deadline_ns().unwrap_or(u64::MAX);
        Ok(Some(until_check(deadline_ns, now_ns)))
    }

    fn sleep(&mut self, time_max: Option<Duration>) -> Result<(), Over> {
        self.is_armed = false;
        self.wakeups.sleep(time_max).map_err(over)
    }

    fn release_idle(&mut self) {
        self.pool.release_idle();
    }
}

/// The end of a connection by an error of verbs or of the protocol.
fn over(error: io::Error) -> Over {
    let why = error.to_string();
    match error.kind() {
        io::ErrorKind::NotConnected => End::Host.into(),
        io::ErrorKind::InvalidData => Over {
            end: End::Fault,
            why,
        },
        _ => Over {
            end: End::Broken,
            why,
        },
    }
}
