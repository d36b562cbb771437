//! The thread of one RDMA connection: capsules are messages, and the target reads and writes the memory of
//! the host (RDMA transport 1.0).

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use buffer::Buffer;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use rdma::{BATCH, Completion as Completed, Connection, Done, SharedReceives};
use slab::Slab;
use wire::nvme::{Command, Completion, Direction, Sgl, Status};

use super::connection::{CHECK_INTERVAL_NS, PollWaker, RING, WOKEN};
use super::connection_limiter::ConnectionPermit;
use super::idle::Idle;
use super::receives::{
    RECEIVE_BYTES, capsule, connection_bytes, other, post_receive, post_shared, sizes,
};
use super::stall_timer::StallTimer;
use super::{Counted, End, Shared};
use crate::budget::Charge;
use crate::controller::{Origin, Outcome, Plan, Queue, Request, Wake};
use crate::engine::{Engine, Finished};
use crate::limits::{
    ADMIN_ENTRIES, CONNECTIONS_MAX, RECEIVES_BEFORE_TRUST, RECEIVES_OF_GUESTS, STALL_BYTES,
};
use crate::pool::Pool;
use crate::store::Lent;
use crate::sys::wait::wait;

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
pub(super) mod token {
    pub(super) use super::super::receives::RECEIVE;
    pub(super) const READ: u64 = 1 << 32;
    pub(super) const WRITE: u64 = 2 << 32;
    /// A WRITE of lent memory, with its share of the charge in bytes in the lower half.
    pub(super) const LENT: u64 = 3 << 32;
    pub(super) const LOW: u64 = 0xffff_ffff;
}

/// The memory of the host that a command names in its SGL.
#[derive(Clone, Copy, Debug, Default)]
struct Remote {
    address: u64,
    key: u32,
    invalidate: bool,
}

/// The data of a command, and where they are.
#[derive(Clone, Copy, Debug)]
struct Data {
    remote: Remote,
    length: usize,
    /// Its buffer is the capsule that it came in.
    in_place: bool,
}

/// A command that is not finished at once. It leaves the table when its completion is known; its RDMA WRITEs
/// and its response are then in the queues of transfers and responses.
#[derive(Debug)]
struct RdmaCommand {
    state: CommandState,
    data: Data,
}

/// The state of a command.
#[derive(Debug)]
enum CommandState {
    /// The command waits in `awaiting_buffer` until the pool has a data buffer for it.
    AwaitingBuffer(Request),
    /// An RDMA READ fetches the data from the memory of the host; the command is executed when it completes.
    ReadingData(Request),
    /// The engine executes the command, for a disk that blocks.
    Executing,
}

/// An RDMA transfer that waits for a free entry of the send queue.
#[derive(Debug)]
struct Transfer {
    /// The command whose data an RDMA READ fetches; `None` for an RDMA WRITE.
    read_for: Option<usize>,
    source: Source,
    remote: Remote,
}

/// The local memory of a transfer.
#[derive(Debug)]
enum Source {
    Own(Buffer, usize),
    /// Lent memory, and its share of the charge.
    Lent(Arc<Buffer>, Range<usize>, usize),
}

/// A response to send, and the key of the host to invalidate with it (SEND with invalidate).
type Response = (Completion, Option<u32>);

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
    in_place: Vec<(Request, Buffer, Data)>,
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
            stall_timer: StallTimer::new(shared.tuning.stall_timeout),
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
        let mut idle = Idle::new(self.shared, POLL_MIN);
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
                idle.worked();
                continue;
            }
            if !has_announced && self.engine.in_kernel() > 0 {
                self.connection.announce_other_waits().map_err(other)?;
                has_announced = true;
            }
            if !is_armed && self.queue.id().is_some_and(|id| id != 0) && idle.may_poll(now_ns) {
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
                _ => (is_armed, _) = (false, idle.slept()),
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

    /// Posts receives for the commands that the host may send when Connect and authentication are complete,
    /// before it gets that response. If the budget does not allow all of them, further ones follow when
    /// other connections return memory.
    fn receive_more(&mut self) -> io::Result<()> {
        if !self.queue.is_trusted() {
            return Ok(());
        }
        self.note_authenticated();
        if let Some(receives) = self.receives.clone() {
            // Broken connections may have kept some of the shared receives: the queue is filled up.
            for _ in 0..if self.has_filled_shared {
                0
            } else {
                receives.room()
            } {
                post_shared(&receives, capsule(self.connection.domain())?)?;
            }
            self.has_filled_shared = true;
            return Ok(());
        }
        while self.posted < self.receives_wanted() && self.charge_receive() {
            let buffer = capsule(self.connection.domain())?;
            post_receive(&mut self.connection, None, buffer)?;
            self.posted += 1;
        }
        Ok(())
    }

    /// Ends the charges to the budget of unauthenticated hosts once the host is authenticated.
    fn note_authenticated(&mut self) {
        if self.queue.is_authenticated() && self.permit.mark_authenticated() {
            self.pool.mark_authenticated();
        }
    }

    /// Receives for the commands that the host may have outstanding, and for one batch more, because used
    /// receives are posted again after the responses. A host that is not authenticated sends few commands to
    /// its admin queue, and further ones wait at the sender (RNR).
    fn receives_wanted(&self) -> usize {
        let is_admin = self.queue.id() == Some(0);
        let entries = self.entries.min(self.queue.depth());
        let entries = if is_admin {
            entries.min(ADMIN_ENTRIES)
        } else {
            entries
        };
        let wanted = sizes(entries).receive as usize;
        if is_admin && self.permit.memory().is_some() {
            wanted.min(RECEIVES_OF_GUESTS)
        } else {
            wanted
        }
    }

    /// Charges one more receive to the budget that the host belongs to.
    fn charge_receive(&mut self) -> bool {
        match self.permit.memory() {
            Some(memory) => memory.grow(RECEIVE_BYTES),
            None => self.receive_charge.grow(RECEIVE_BYTES),
        }
    }

    /// Posts the used receives again, after the responses, whose latency counts. Until then one batch of
    /// receives more is posted than the host may send commands.
    fn receive_again(&mut self) -> io::Result<()> {
        for buffer in self.taken.drain(..) {
            post_receive(&mut self.connection, self.receives.as_deref(), buffer)?;
        }
        Ok(())
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

    /// Processes a capsule: a command with in-capsule data.
    fn capsule(&mut self, buffer: Buffer, bytes: usize, now_ns: u64) -> io::Result<()> {
        let message = buffer.get(..bytes).unwrap_or_default();
        let Some((command, behind)) = Command::split(message) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        if self.commands.len() + self.in_place.len() + self.responses.len()
            >= usize::from(self.queue.depth())
        {
            // The host has more commands outstanding than entries (Base 3.3.1.2).
            return Err(io::ErrorKind::InvalidData.into());
        }
        if let Some(capsule) = self.command(&command, bytes - behind.len(), bytes, buffer, now_ns) {
            self.taken.push(capsule);
        }
        Ok(())
    }

    /// Begins a command whose in-capsule data are `data_from..end` of the capsule. Returns the capsule unless
    /// the command is executed with the data in it.
    fn command(
        &mut self,
        command: &Command,
        data_from: usize,
        end: usize,
        capsule: Buffer,
        now_ns: u64,
    ) -> Option<Buffer> {
        let (described, in_capsule, remote) = match describe(command, &capsule[data_from..end]) {
            Ok((length, in_capsule, remote)) => (Ok(length), in_capsule, remote),
            Err(status) => (Err(status), None, Remote::default()),
        };
        let mut request = match self.queue.accept_described(command, described, now_ns) {
            Plan::Take(request) => request,
            Plan::Refuse(status) => {
                let completion = self.queue.completion(command.cid, status, 0);
                self.refuse(completion, remote);
                return Some(capsule);
            }
        };
        let length = request.length;
        if let Some(data) = in_capsule
            .clone()
            .filter(|_| request.direction == Direction::FromHost)
        {
            let from = data_from + data.start;
            if request.is_written_in_place() {
                request.data_at = from;
                request.prefetch();
                self.in_place.push((
                    request,
                    capsule,
                    Data {
                        remote,
                        length,
                        in_place: true,
                    },
                ));
                return None;
            }
            let mut buffer = self.pool.take_beyond(length);
            buffer[..length].copy_from_slice(&capsule[from..from + length]);
            self.execute(
                request,
                Some(buffer),
                Data {
                    remote,
                    length,
                    in_place: false,
                },
                now_ns,
            );
            return Some(capsule);
        }
        if in_capsule.is_some_and(|data| !data.is_empty()) {
            let completion = self
                .queue
                .abandon(request, Status::SGL_TYPE_INVALID.permanent());
            self.refuse(completion, remote);
            return Some(capsule);
        }
        let data = Data {
            remote,
            length,
            in_place: false,
        };
        match request.direction {
            Direction::None => self.execute(request, None, data, now_ns),
            _ => self.provide(request, data, now_ns),
        }
        Some(capsule)
    }

    /// Executes the commands whose data are in the capsules of this round.
    fn write_in_place(&mut self, now_ns: u64) {
        let mut all = std::mem::take(&mut self.in_place);
        for (request, capsule, data) in all.drain(..) {
            self.execute(request, Some(capsule), data, now_ns);
        }
        self.in_place = all;
    }

    /// Gives a command its buffer, and continues it; it waits if other commands wait already, or the pool has
    /// no buffer.
    fn provide(&mut self, request: Request, data: Data, now_ns: u64) {
        let provided = if self.awaiting_buffer.is_empty() {
            self.pool.provide(&request)
        } else {
            None
        };
        match provided {
            Some(provided) => self.go_on(request, provided, data, now_ns),
            None => {
                let state = CommandState::AwaitingBuffer(request);
                self.awaiting_buffer
                    .push_back(self.commands.insert(RdmaCommand { state, data }));
            }
        }
    }

    /// Continues a command that has a buffer, or gets lent memory: fetches its data, or executes it.
    fn go_on(&mut self, request: Request, provided: Option<Buffer>, data: Data, now_ns: u64) {
        match provided {
            Some(buffer) if request.direction == Direction::FromHost => {
                let state = CommandState::ReadingData(request);
                let read_for = Some(self.commands.insert(RdmaCommand { state, data }));
                let (source, remote) = (Source::Own(buffer, data.length), data.remote);
                self.transfers.push_back(Transfer {
                    read_for,
                    source,
                    remote,
                });
            }
            provided => self.execute(request, provided, data, now_ns),
        }
    }

    /// Continues commands that wait for a buffer.
    fn resume(&mut self, now_ns: u64) {
        while let Some(index) = self.awaiting_buffer.front().copied() {
            let provided = match self.commands.get(index).map(|command| &command.state) {
                Some(CommandState::AwaitingBuffer(request)) => self.pool.provide(request),
                _ => {
                    self.awaiting_buffer.pop_front();
                    continue;
                }
            };
            let Some(provided) = provided else { return };
            self.awaiting_buffer.pop_front();
            if let Some(RdmaCommand {
                state: CommandState::AwaitingBuffer(request),
                data,
            }) = self.commands.try_remove(index)
            {
                self.go_on(request, provided, data, now_ns);
            }
        }
    }

    /// Executes a command whose data an RDMA READ has fetched.
    fn fetched(&mut self, index: usize, buffer: Buffer, now_ns: u64) {
        if let Some(RdmaCommand {
            state: CommandState::ReadingData(request),
            data,
        }) = self.commands.try_remove(index)
        {
            self.execute(request, Some(buffer), data, now_ns);
        }
    }

    fn execute(&mut self, request: Request, buffer: Option<Buffer>, data: Data, now_ns: u64) {
        let gives = request.direction == Direction::ToHost;
        let lent = if gives && buffer.is_none() {
            Pool::lent_charge(request.length)
        } else {
            0
        };
        match self.queue.execute(request, buffer, now_ns) {
            Outcome::Task(task) => match self.engine.run_in_memory(task) {
                Ok(finished) => {
                    self.has_executed = true;
                    self.conclude(finished, data, now_ns);
                }
                Err(mut task) => {
                    let state = CommandState::Executing;
                    task.tag = self.commands.insert(RdmaCommand { state, data }) as u32;
                    self.engine.begin(task);
                }
            },
            Outcome::Reply(completion, buffer) => {
                self.pool.lent_back(lent);
                self.reply(data, completion, buffer, gives, now_ns);
            }
            Outcome::Waits => {}
        }
        self.extra();
    }

    /// Answers a command that the engine has executed.
    fn finish(&mut self, finished: Finished, now_ns: u64) {
        if let Some(command) = self.commands.try_remove(finished.tag as usize) {
            self.conclude(finished, command.data, now_ns);
            self.extra();
        }
    }

    fn conclude(&mut self, finished: Finished, data: Data, now_ns: u64) {
        let completion = self.queue.finish(&finished);
        match finished.lent {
            Some(lent) if finished.status.is_success() => self.lend(lent, data),
            Some(_) => self.pool.lent_back(Pool::lent_charge(finished.length)),
            None => {}
        }
        self.reply(
            data,
            completion,
            finished.buffer,
            finished.length > 0,
            now_ns,
        );
    }

    /// Queues RDMA WRITEs from lent memory to the memory of the host.
    fn lend(
        &mut self,
        lent: Lent,
        Data {
            mut remote, length, ..
        }: Data,
    ) {
        let mut surcharge = Pool::lent_charge(length) - length;
        for (buffer, range) in lent.into_pieces() {
            let length = range.len();
            let source = Source::Lent(buffer, range, length + std::mem::take(&mut surcharge));
            self.transfers.push_back(Transfer {
                read_for: None,
                source,
                remote,
            });
            remote.address = remote.address.wrapping_add(length as u64);
        }
    }

    /// Queues the RDMA WRITE of the data of a command, and its response.
    fn reply(
        &mut self,
        Data {
            remote,
            length,
            in_place,
        }: Data,
        completion: Completion,
        buffer: Option<Buffer>,
        gives: bool,
        now_ns: u64,
    ) {
        match buffer {
            Some(capsule) if in_place => self.taken.push(capsule),
            Some(buffer) if gives && completion.status().is_success() => {
                let source = Source::Own(buffer, length);
                self.transfers.push_back(Transfer {
                    read_for: None,
                    source,
                    remote,
                });
            }
            Some(buffer) => self.give(buffer, now_ns),
            None => {}
        }
        self.respond(completion, remote);
    }

    fn respond(&mut self, completion: Completion, remote: Remote) {
        self.responses
            .push_back((completion, remote.invalidate.then_some(remote.key)));
    }

    fn refuse(&mut self, completion: Completion, remote: Remote) {
        self.respond(completion, remote);
        self.extra();
    }

    fn extra(&mut self) {
        while let Some(completion) = self.queue.poll() {
            self.respond(completion, Remote::default());
        }
    }

    fn give(&mut self, buffer: Buffer, now_ns: u64) {
        self.pool.give(buffer);
        self.resume(now_ns);
    }

    /// Posts queued work requests while the send queue has room: all data transfers first, then responses. On
    /// the same machine a WRITE without an earlier SEND in the queue is executed by the sender alone, without
    /// the receiving process.
    fn flush(&mut self) -> io::Result<()> {
        while self.connection.room() > 0
            && let Some(Transfer {
                read_for,
                source,
                remote,
            }) = self.transfers.pop_front()
        {
            let place = (remote.address, remote.key);
            let (buffer, length) = match source {
                Source::Own(buffer, length) => (buffer, length),
                Source::Lent(buffer, range, charge) => {
                    let length = range.len();
                    let token = token::LENT | charge as u64;
                    if self
                        .connection
                        .write_shared(&buffer, range.clone(), place, token)
                        .map_err(other)?
                    {
                        continue;
                    }
                    // The memory is registered with another device: it is copied.
                    self.pool.lent_back(charge);
                    let mut copy = self.pool.take_beyond(length);
                    copy[..length].copy_from_slice(&buffer[range]);
                    (copy, length)
                }
            };
            let posted = match read_for {
                Some(index) => {
                    self.connection
                        .read(buffer, length, place, token::READ | index as u64)
                }
                None => self.connection.write(buffer, length, place, token::WRITE),
            };
            posted.map_err(|(error, _)| other(error))?;
        }
        while self.transfers.is_empty()
            && self.connection.room() > 0
            && let Some((completion, invalidate)) = self.responses.pop_front()
        {
            self.connection
                .send_short(&completion.to_bytes(), invalidate)
                .map_err(other)?;
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

impl Drop for Driver<'_> {
    /// Fills up the shared receives: this connection has kept those whose commands it did not finish, and the
    /// other connections may have no further one. Before its host was trusted it could keep no more than were
    /// posted for it.
    fn drop(&mut self) {
        let Some(receives) = self.receives.as_deref().filter(|_| self.has_filled_shared) else {
            return;
        };
        let kept = self
            .taken
            .drain(..)
            .chain(self.in_place.drain(..).map(|(_, capsule, _)| capsule));
        let fresh = std::iter::from_fn(|| capsule(receives.domain()).ok());
        for buffer in kept.chain(fresh).take(receives.room()) {
            if post_shared(receives, buffer).is_err() {
                return;
            }
        }
    }
}

/// The length that the SGL of a command names, its in-capsule data, and the memory of the host for the other
/// data (RDMA transport 1.0, 2.3).
fn describe(
    command: &Command,
    behind: &[u8],
) -> Result<(u32, Option<Range<usize>>, Remote), Status> {
    match command.sgl() {
        Ok(Sgl::Keyed {
            address,
            length,
            key,
            invalidate,
        }) => Ok((
            length,
            None,
            Remote {
                address,
                key,
                invalidate: invalidate && length > 0,
            },
        )),
        Ok(Sgl::InCapsule { offset, length }) => {
            let start =
                usize::try_from(offset).map_err(|_| Status::SGL_OFFSET_INVALID.permanent())?;
            let end = start
                .checked_add(length as usize)
                .filter(|end| *end <= behind.len());
            let end = end.ok_or(Status::SGL_OFFSET_INVALID.permanent())?;
            Ok((length, Some(start..end), Remote::default()))
        }
        Ok(Sgl::Address { length: 0, .. }) => Ok((0, None, Remote::default())),
        _ => Err(Status::SGL_TYPE_INVALID.permanent()),
    }
}
