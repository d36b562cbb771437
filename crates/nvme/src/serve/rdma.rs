//! The thread of one RDMA connection: capsules come as messages, data are read from and written to the host's
//! memory (RDMA transport 1.0).

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use rdma::{BATCH, Buffer, Completion as Completed, Connection, Done, SharedReceives, Sizes};
use slab::Slab;
use wire::nvme::rdma::{Accept, Reject, RejectReason, Request as Private};
use wire::nvme::{COMMAND_SIZE, Command, Completion, Direction, Sgl, Status};

use super::connection::{LOOK_EVERY_NS, RING, WOKEN, Waking};
use super::doorman::Guest;
use super::idle::Idle;
use super::{Counted, End, Shared};
use crate::engine::{Engine, Finished};
use crate::limits::{CONNECTIONS_MAX, QUEUE_ENTRIES_MAX, RDMA_IN_CAPSULE};
use crate::pool::Pool;
use crate::store::Lent;
use crate::target::{Origin, Outcome, Plan, Queue, Request, Wake};

const COMPLETIONS: Token = Token(3);
const STATE: Token = Token(4);

/// How long completions are looked for before the thread sleeps, whatever the tuning: a wake-up costs as
/// much.
const LOOK: Duration = Duration::from_micros(20);
/// Requests beyond those of commands: responses whose completions were not seen yet.
const SPARE: u32 = 64;

/// What a completion's token says: the kind above, a slot below.
mod token {
    pub(super) const RECEIVE: u64 = 0;
    pub(super) const READ: u64 = 1 << 32;
    pub(super) const WRITE: u64 = 2 << 32;
    /// Of what is lent: bytes below.
    pub(super) const LENT: u64 = 3 << 32;
    pub(super) const SLOT: u64 = 0xffff_ffff;
}

/// The host's memory that a command names.
#[derive(Clone, Copy, Debug, Default)]
struct Remote {
    address: u64,
    key: u32,
    invalidate: bool,
}

/// A command between its arrival and its completion.
#[derive(Debug)]
struct Slot {
    request: Option<Request>,
    remote: Remote,
    length: usize,
}

/// Data to move.
#[derive(Debug)]
struct Transfer {
    /// Of the command that waits for what is read; the others are written.
    slot: Option<usize>,
    source: Source,
    remote: Remote,
}

/// Where data are on this side.
#[derive(Debug)]
enum Source {
    Own(Buffer, usize),
    Lent(Arc<Buffer>, Range<usize>),
}

/// A completion to send, and a key of the host to take back on the way.
type Response = (Completion, Option<u32>);

/// Why a request for a connection is refused.
fn refuse(request: rdma::Request, reason: RejectReason) {
    request.reject(&Reject { format: 0, status: reason as u16 }.to_bytes());
}

/// Serves one connection until it ends.
pub(super) fn serve(
    shared: &Arc<Shared>,
    request: rdma::Request,
    origin: Origin,
    receives: Option<Arc<SharedReceives>>,
) {
    let peer = request.peer();
    let not_now = |end: End, request: rdma::Request| {
        shared.ended(end, None, peer, "RDMA");
        refuse(request, RejectReason::Resources);
    };
    let Some(_one) = Counted::one_more(&shared.connections, CONNECTIONS_MAX) else {
        return not_now(End::Full, request);
    };
    let guest = match shared.doorman.let_in(peer) {
        Ok(guest) => guest,
        Err(end) => return not_now(end, request),
    };
    let Some((private, _)) = Private::split(&request.private_data) else {
        return refuse(request, RejectReason::Length);
    };
    if private.format != 0 {
        return refuse(request, RejectReason::Format);
    }
    let entries = private.send_size.saturating_add(1);
    if entries > QUEUE_ENTRIES_MAX {
        return refuse(request, RejectReason::SendSize);
    }
    if private.receive_size == 0 {
        return refuse(request, RejectReason::ReceiveSize);
    }
    // What goes wrong here is the connection's end, which the host sees.
    if let Ok(mut driver) = Driver::new(shared, request, guest, origin, entries, receives) {
        let ended = driver.run();
        let (end, why) = match ended {
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {
                (if driver.queue.is_over() { End::Controller } else { End::Host }, String::new())
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => (End::Silent, String::new()),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => (End::Fault, error.to_string()),
            Err(error) => (End::Broken, error.to_string()),
            Ok(()) => (End::Host, String::new()),
        };
        shared.ended(end, Some(&driver.queue), peer, &why);
    } else {
        shared.count_end(End::Broken);
    }
}

struct Driver<'a> {
    shared: &'a Shared,
    peer: IpAddr,
    guest: Guest<'a>,
    connection: Connection,
    /// Receives that are not only this connection's.
    receives: Option<Arc<SharedReceives>>,
    queue: Queue,
    engine: Engine,
    pool: Pool,
    slots: Slab<Slot>,
    /// Commands that wait for a buffer, the oldest first.
    stalled: VecDeque<usize>,
    transfers: VecDeque<Transfer>,
    responses: VecDeque<Response>,
    completed: Vec<Completed>,
    /// Capsules whose commands are taken, to receive into again.
    taken: Vec<Buffer>,
    poll: Poll,
    ring_is_watched: bool,
    began_ns: u64,
}

fn other(error: rdma::Error) -> io::Error {
    io::Error::other(error)
}

/// Receives into a buffer, for this connection or for all that share.
fn post_receive(
    connection: &mut Connection,
    receives: Option<&SharedReceives>,
    buffer: Buffer,
) -> io::Result<()> {
    match receives {
        None => connection.receive(buffer, token::RECEIVE).map_err(|(error, _)| other(error)),
        Some(receives) => match receives.receive(buffer, token::RECEIVE) {
            // Another connection has filled it up meanwhile.
            Err((rdma::Error::Full, _)) => Ok(()),
            posted => posted.map_err(|(error, _)| other(error)),
        },
    }
}

impl<'a> Driver<'a> {
    fn new(
        shared: &'a Shared,
        request: rdma::Request,
        guest: Guest<'a>,
        origin: Origin,
        entries: u16,
        receives: Option<Arc<SharedReceives>>,
    ) -> io::Result<Self> {
        let peer = request.peer();
        let depth = u32::from(entries);
        let sizes = Sizes { send: 2 * depth + SPARE, receive: depth + 1 + BATCH as u32 };
        let mut connection = match &receives {
            None => {
                let domain = request.domain().map_err(other)?;
                request.prepare(&domain, sizes).map_err(other)?
            }
            Some(receives) => request.prepare_shared(sizes, receives).map_err(other)?,
        };
        let domain = Arc::clone(connection.domain());
        // Connections that broke may have kept some of those that are shared.
        let room = receives.as_ref().map_or(sizes.receive as usize, |it| it.room());
        for _ in 0..room {
            let buffer = Buffer::registered(&domain, COMMAND_SIZE + RDMA_IN_CAPSULE).map_err(other)?;
            post_receive(&mut connection, receives.as_deref(), buffer)?;
        }
        let poll = Poll::new()?;
        for (descriptor, token) in connection.descriptors().into_iter().zip([COMPLETIONS, STATE]) {
            poll.registry().register(&mut SourceFd(&descriptor), token, Interest::READABLE)?;
        }
        let waker = mio::Waker::new(poll.registry(), WOKEN)?;
        let wake: Arc<dyn Wake> = Arc::new(Waking(waker));
        connection.accept(&Accept { format: 0, receive_size: entries }.to_bytes()).map_err(other)?;
        Ok(Self {
            shared,
            peer,
            guest,
            connection,
            receives,
            queue: Queue::new(Arc::clone(&shared.target), origin, wake),
            engine: Engine::new(),
            pool: Pool::registered(domain),
            slots: Slab::new(),
            stalled: VecDeque::new(),
            transfers: VecDeque::new(),
            responses: VecDeque::new(),
            completed: Vec::new(),
            taken: Vec::new(),
            poll,
            ring_is_watched: false,
            began_ns: shared.now_ns(),
        })
    }

    /// Until the host has gone, or has to.
    fn run(&mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(8);
        let mut idle = Idle::new(self.shared, LOOK);
        let mut is_armed = false;
        loop {
            let now_ns = self.shared.now_ns();
            self.engine.begin_round(now_ns);
            let mut progress = self.receive(now_ns)?;
            progress |= self.work(now_ns);
            self.look(now_ns)?;
            self.flush()?;
            self.receive_again()?;
            self.connection.flush().map_err(other)?;
            if progress {
                (is_armed, _) = (false, idle.worked());
                continue;
            }
            if !is_armed && self.queue.id().is_some_and(|id| id != 0) && idle.may_look(now_ns) {
                std::hint::spin_loop();
                continue;
            }
            if !is_armed {
                // What came before this is looked for once more.
                self.connection.arm().map_err(other)?;
                self.watch_ring()?;
                is_armed = true;
                continue;
            }
            self.connection.look().map_err(other)?;
            match self.poll.poll(&mut events, self.sleep(now_ns)) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => (is_armed, _) = (false, idle.slept()),
            }
        }
    }

    fn receive(&mut self, now_ns: u64) -> io::Result<bool> {
        let mut completed = std::mem::take(&mut self.completed);
        let count = self.connection.poll(&mut completed).map_err(other)?;
        for Completed { token, done, buffer } in completed.drain(..) {
            let done = done.map_err(|status| io::Error::other(format!("verbs status {status}")))?;
            let slot = (token & token::SLOT) as usize;
            if token & !token::SLOT == token::LENT {
                self.pool.lent_back(slot);
                self.resume(now_ns);
            }
            let Some(buffer) = buffer else { continue };
            match (token & !token::SLOT, done) {
                (token::RECEIVE, Done::Receive(bytes)) => self.capsule(buffer, bytes, now_ns)?,
                (token::READ, _) => self.execute_slot(slot, Some(buffer), now_ns),
                _ => self.give(buffer, now_ns),
            }
        }
        self.completed = completed;
        Ok(count > 0)
    }

    /// After the answers have gone, which somebody waits for. Until then there are a batch of receives more
    /// than the host has commands.
    fn receive_again(&mut self) -> io::Result<()> {
        for buffer in self.taken.drain(..) {
            post_receive(&mut self.connection, self.receives.as_deref(), buffer)?;
        }
        Ok(())
    }

    /// Hands tasks to the engine and back.
    fn work(&mut self, now_ns: u64) -> bool {
        self.engine.submit();
        let mut worked = false;
        while let Some(finished) = self.engine.finished() {
            self.finish(finished, now_ns);
            worked = true;
        }
        if worked {
            self.engine.end_round(self.shared.now_ns(), &self.queue);
        }
        worked
    }

    fn look(&mut self, now_ns: u64) -> io::Result<()> {
        let gone = || Err(io::ErrorKind::ConnectionAborted.into());
        if self.queue.is_over() {
            return gone();
        }
        if self.queue.is_trusted() {
            if self.guest.is_known_now() {
                self.shared.connected(&self.queue, self.peer);
            }
        } else if now_ns - self.began_ns > self.shared.patience_ns() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if self.queue.id() == Some(0) {
            self.extra();
            if self.queue.deadline_ns().is_some_and(|deadline_ns| deadline_ns <= now_ns) {
                return gone();
            }
        }
        Ok(())
    }

    /// A command, and perhaps data behind it.
    fn capsule(&mut self, buffer: Buffer, bytes: usize, now_ns: u64) -> io::Result<()> {
        let message = buffer.get(..bytes).unwrap_or_default();
        let Some((command, behind)) = Command::split(message) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        if self.slots.len() >= usize::from(self.queue.depth()) {
            // More commands than the queue has entries.
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.command(&command, behind, now_ns);
        self.taken.push(buffer);
        Ok(())
    }

    fn command(&mut self, command: &Command, behind: &[u8], now_ns: u64) {
        let (described, in_capsule, remote) = match describe(command, behind) {
            Ok(described) => described,
            Err(status) => return self.refuse(command, status, Remote::default()),
        };
        let request = match self.queue.accept(command, described, now_ns) {
            Plan::Take(request) => request,
            Plan::Refuse(status) => return self.refuse(command, status, remote),
        };
        let length = request.length;
        if let Some(data) = in_capsule.filter(|_| request.direction == Direction::FromHost) {
            let mut buffer = self.pool.take_beyond(length);
            buffer[..length].copy_from_slice(data);
            let slot = self.slots.insert(Slot { request: Some(request), remote, length });
            return self.execute_slot(slot, Some(buffer), now_ns);
        }
        if in_capsule.is_some_and(|data| !data.is_empty()) {
            return self.refuse(command, Status::SGL_TYPE_INVALID.permanent(), remote);
        }
        let has_data = request.direction != Direction::None;
        let slot = self.slots.insert(Slot { request: Some(request), remote, length });
        if !has_data {
            return self.execute_slot(slot, None, now_ns);
        }
        self.stalled.push_back(slot);
        self.resume(now_ns);
    }

    /// Goes on with commands that wait for a buffer.
    fn resume(&mut self, now_ns: u64) {
        while let Some(index) = self.stalled.front().copied() {
            let Some(slot) = self.slots.get(index) else {
                self.stalled.pop_front();
                continue;
            };
            let (length, remote) = (slot.length, slot.remote);
            let Some(request) = &slot.request else { return };
            let is_read = request.direction == Direction::FromHost;
            let Some(provided) = self.pool.provide(request) else { return };
            self.stalled.pop_front();
            match provided {
                Some(buffer) if is_read => {
                    let source = Source::Own(buffer, length);
                    self.transfers.push_back(Transfer { slot: Some(index), source, remote });
                }
                provided => self.execute_slot(index, provided, now_ns),
            }
        }
    }

    fn execute_slot(&mut self, index: usize, buffer: Option<Buffer>, now_ns: u64) {
        let Some(request) = self.slots.get_mut(index).and_then(|slot| slot.request.take()) else { return };
        let gives = request.direction == Direction::ToHost;
        let lent = if request.lends() { request.length } else { 0 };
        match self.queue.execute(request, buffer, now_ns) {
            Outcome::Task(mut task) => {
                task.tag = index as u32;
                self.engine.begin(task);
            }
            Outcome::Reply(completion, buffer) => {
                self.pool.lent_back(lent);
                self.reply(index, completion, buffer, gives, now_ns);
            }
            Outcome::Waits => _ = self.slots.try_remove(index),
        }
        self.extra();
    }

    fn finish(&mut self, finished: Finished, now_ns: u64) {
        let completion = self.queue.finish(&finished);
        self.extra();
        let (index, gives) = (finished.tag as usize, finished.length > 0);
        match finished.lent {
            Some(lent) if finished.status.is_success() => self.lend(index, lent),
            Some(_) => self.pool.lent_back(finished.length),
            None => {}
        }
        self.reply(index, completion, finished.buffer, gives, now_ns);
    }

    /// Writes data to the host from where they lie.
    fn lend(&mut self, index: usize, lent: Lent) {
        let Some(mut remote) = self.slots.get(index).map(|slot| slot.remote) else { return };
        for (buffer, range) in lent.pieces {
            let length = range.len() as u64;
            let source = Source::Lent(buffer, range);
            self.transfers.push_back(Transfer { slot: None, source, remote });
            remote.address = remote.address.wrapping_add(length);
        }
    }

    /// Writes data to the host, and sends the completion behind them.
    fn reply(
        &mut self,
        index: usize,
        completion: Completion,
        buffer: Option<Buffer>,
        gives: bool,
        now_ns: u64,
    ) {
        let slot = self.slots.try_remove(index);
        let (remote, length) = slot.map_or((Remote::default(), 0), |slot| (slot.remote, slot.length));
        match buffer {
            Some(buffer) if gives && completion.status().is_success() => {
                let source = Source::Own(buffer, length);
                self.transfers.push_back(Transfer { slot: None, source, remote });
            }
            Some(buffer) => self.give(buffer, now_ns),
            None => {}
        }
        self.respond(completion, remote);
    }

    fn respond(&mut self, completion: Completion, remote: Remote) {
        self.responses.push_back((completion, remote.invalidate.then_some(remote.key)));
    }

    fn refuse(&mut self, command: &Command, status: Status, remote: Remote) {
        let completion = self.queue.completion(command.cid, status, 0);
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

    /// Posts what there is room for: all data first, then the responses to them and others. WRITEs that no
    /// SEND is before reach memory of a host on this machine without its help.
    fn flush(&mut self) -> io::Result<()> {
        while self.connection.room() > 0
            && let Some(Transfer { slot, source, remote }) = self.transfers.pop_front()
        {
            let place = (remote.address, remote.key);
            let (buffer, length) = match source {
                Source::Own(buffer, length) => (buffer, length),
                Source::Lent(buffer, range) => {
                    let length = range.len();
                    let token = token::LENT | length as u64;
                    if self.connection.write_lent(&buffer, range.clone(), place, token).map_err(other)? {
                        continue;
                    }
                    // A second device: it gets a copy.
                    self.pool.lent_back(length);
                    let mut copy = self.pool.take_beyond(length);
                    copy[..length].copy_from_slice(&buffer[range]);
                    (copy, length)
                }
            };
            let posted = match slot {
                Some(slot) => self.connection.read(buffer, length, place, token::READ | slot as u64),
                None => self.connection.write(buffer, length, place, token::WRITE),
            };
            posted.map_err(|(error, _)| other(error))?;
        }
        while self.transfers.is_empty()
            && self.connection.room() > 0
            && let Some((completion, invalidate)) = self.responses.pop_front()
        {
            self.connection.send_short(&completion.to_bytes(), invalidate).map_err(other)?;
        }
        Ok(())
    }

    fn sleep(&self, now_ns: u64) -> Option<Duration> {
        if self.queue.id().is_some_and(|id| id != 0) {
            return None;
        }
        let deadline_ns = self.queue.deadline_ns().unwrap_or(u64::MAX);
        let until_ns = deadline_ns.saturating_sub(now_ns).clamp(1_000_000, LOOK_EVERY_NS);
        Some(Duration::from_nanos(until_ns))
    }

    fn watch_ring(&mut self) -> io::Result<()> {
        if !self.ring_is_watched
            && let Some(descriptor) = self.engine.descriptor()
        {
            self.poll.registry().register(&mut SourceFd(&descriptor), RING, Interest::READABLE)?;
            self.ring_is_watched = true;
        }
        Ok(())
    }
}

/// Bytes that a command's descriptor names, those of them that are in the capsule, and where the others are
/// (RDMA transport 1.0, 2.3).
fn describe<'a>(command: &Command, behind: &'a [u8]) -> Result<(u32, Option<&'a [u8]>, Remote), Status> {
    match command.sgl() {
        Ok(Sgl::Keyed { address, length, key, invalidate }) => {
            Ok((length, None, Remote { address, key, invalidate: invalidate && length > 0 }))
        }
        Ok(Sgl::InCapsule { offset, length }) => {
            let start = usize::try_from(offset).map_err(|_| Status::SGL_OFFSET_INVALID.permanent())?;
            let data = start.checked_add(length as usize).and_then(|end| behind.get(start..end));
            let data = data.ok_or(Status::SGL_OFFSET_INVALID.permanent())?;
            Ok((length, Some(data), Remote::default()))
        }
        Ok(Sgl::Address { length: 0, .. }) => Ok((0, None, Remote::default())),
        _ => Err(Status::SGL_TYPE_INVALID.permanent()),
    }
}
