//! A queue: one connection of one host. It determines which data a command needs before they are transferred,
//! and executes the command with them.

mod authentication;
mod fused;
mod io;
#[cfg(test)]
mod resets;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use server::Wake;
use wire::nvme::auth::CONNECT_AUTHENTICATE;
use wire::nvme::command::PSDT_SGL;
use wire::nvme::fabrics::{Connect, ConnectData};
use wire::nvme::log::AnaState;
use wire::nvme::opcode::FABRICS;
use wire::nvme::{Command, Completion, Direction, Fabrics, Fuse, Status};

use self::authentication::Standing;
use self::fused::Pairs;
use self::io::Work as IoWork;
use super::barrier::Barrier;
use super::connect::Connected;
use super::origin::{Origin, Proved, Source};
use super::session::Session;
use super::subsystem::Subsystem;
use super::{Namespace, Target};
use crate::engine::{Action, Finished, Task};
use crate::latency::QueueName;
use crate::limits::{DEPTH_BEFORE_TRUST, TRANSFER_BYTES_MAX};
use buffer::Buffer;

/// The result of [`Queue::accept`]: a failed command, or a request whose data are to be transferred.
#[derive(Debug)]
pub enum Plan {
    /// Nothing: the command has failed with this status.
    Refuse(Status),
    /// Data of [`Request::length`] bytes, to or from the host.
    Take(Request),
}

/// A parsed command.
#[derive(Debug)]
pub struct Request {
    /// The command identifier (CID).
    pub cid: u16,
    /// The direction of its data.
    pub direction: Direction,
    /// The length of its data in bytes.
    pub length: usize,
    /// Where the data begin in the buffer: 0 unless [`Request::is_written_in_place`].
    pub data_at: usize,
    pub(in crate::controller) work: Work,
}

impl Request {
    /// Whether the command can be executed without a buffer, with memory that the store of its namespace
    /// lends. Asked once for each command, because the store counts short reads.
    pub fn lends(&self) -> bool {
        matches!(&self.work, Work::Io(work) if work.lends(self.length))
    }

    /// Whether the command is the second of a fused pair, whose first one may hold a buffer until it is
    /// executed.
    pub fn completes_pair(&self) -> bool {
        matches!(&self.work, Work::Io(work) if work.fuse == Fuse::Second)
    }

    /// Whether the transport may leave the data of the command in the message that they arrived in, and
    /// execute it with the buffer of that message: a memory namespace takes them at any address.
    pub fn is_written_in_place(&self) -> bool {
        matches!(&self.work, Work::Io(work) if work.is_written_in_place())
    }

    /// Asks the processor to fetch the memory that the command will access.
    pub fn prefetch(&self) {
        if let Work::Io(work) = &self.work {
            work.prefetch();
        }
    }
}

#[derive(Debug)]
pub(in crate::controller) enum Work {
    Fabrics(Fabrics, Command),
    Admin(Command),
    Io(IoWork),
}

/// The result of executing a command.
#[derive(Debug)]
pub enum Outcome {
    /// The command is finished. Data for the host are at the start of the buffer, [`Request::length`] bytes.
    Reply(Completion, Option<Buffer>),
    /// The engine has to execute this task; its result has to be passed to [`Queue::finish`].
    Task(Task),
    /// The command waits for an event: it is an event request, or the first command of a fused pair.
    Waits,
}

/// The progress of a connection.
#[derive(Debug)]
enum Stage {
    Fresh,
    Connected(Membership),
}

/// The controller of a queue, and its authentication.
#[derive(Debug)]
pub(in crate::controller) struct Membership {
    pub(in crate::controller) session: Arc<Session>,
    pub(in crate::controller) queue_id: u16,
    epoch: u64,
    pub(in crate::controller) standing: Standing,
    /// Whether no secret was asked of the host, although this target has secrets.
    is_guest: bool,
    pub(in crate::controller) view: View,
}

/// A copy of the state of the subsystem, refreshed only when that has changed.
#[derive(Debug, Default)]
pub(in crate::controller) struct View {
    subsystem: Option<Arc<Subsystem>>,
    generation: Option<u64>,
    namespaces: BTreeMap<u32, (Arc<Namespace>, AnaState)>,
}

impl View {
    #[inline]
    pub(in crate::controller) fn namespace(
        &mut self,
        nsid: u32,
        port: u16,
    ) -> Option<(&Arc<Namespace>, AnaState)> {
        let generation = self
            .subsystem
            .as_ref()
            .map(|subsystem| subsystem.generation());
        if generation != self.generation {
            self.look(port);
            self.generation = generation;
        }
        self.namespaces
            .get(&nsid)
            .map(|(namespace, access)| (namespace, *access))
    }

    fn look(&mut self, port: u16) {
        let Some(subsystem) = &self.subsystem else {
            return;
        };
        let snapshot = subsystem.snapshot();
        let seen = |namespace: &Arc<Namespace>| {
            (
                namespace.nsid(),
                (
                    Arc::clone(namespace),
                    snapshot.access(port, namespace.group()),
                ),
            )
        };
        self.namespaces = snapshot.namespaces.values().map(seen).collect();
    }
}

/// A queue of a host on one connection.
#[derive(Debug)]
pub struct Queue {
    pub(in crate::controller) target: Arc<Target>,
    pub(in crate::controller) origin: Origin,
    /// Where its commands are counted, so that queues do not share the counters.
    pub(in crate::controller) stripe: usize,
    proved: Option<Proved>,
    wake: Arc<dyn Wake>,
    stage: Stage,
    head: u16,
    entries: u16,
    flow_control: bool,
    pub(in crate::controller) pairs: Pairs,
    /// Completions that do not belong to the command being executed.
    pub(in crate::controller) extra: Vec<Completion>,
}

impl Queue {
    /// The queue of a new connection, before Connect. `wake` has to cause a call of [`Queue::poll`].
    pub fn new(target: Arc<Target>, origin: Origin, wake: Arc<dyn Wake>) -> Self {
        static STRIPE: AtomicUsize = AtomicUsize::new(0);
        Self {
            target,
            origin,
            stripe: STRIPE.fetch_add(1, Ordering::Relaxed),
            proved: None,
            wake,
            stage: Stage::Fresh,
            head: 0,
            entries: 1,
            flow_control: true,
            pairs: Pairs::default(),
            extra: Vec::new(),
        }
    }

    /// The queue of a connection with TLS: only the host of the PSK may use it.
    #[must_use]
    pub fn proved(mut self, proved: Option<Proved>) -> Self {
        self.proved = proved;
        self
    }

    /// The number of commands that the host may have outstanding.
    pub fn depth(&self) -> u16 {
        match self.stage {
            Stage::Fresh => 1,
            Stage::Connected(_) if !self.is_trusted() => self.entries.min(DEPTH_BEFORE_TRUST),
            Stage::Connected(_) => self.entries,
        }
    }

    /// Whether submission queue flow control is enabled, so that completions have SQHD.
    pub fn has_flow_control(&self) -> bool {
        self.flow_control
    }

    /// Whether Connect is complete, and authentication too if it is required.
    pub fn is_trusted(&self) -> bool {
        self.membership().is_some_and(|it| it.standing.is_trusted())
    }

    /// Whether the host has proved its identity, or this target asks no host for a proof. A host of the
    /// discovery service, or of a subsystem that is open to all, has not, where another host needs a secret.
    pub fn is_authenticated(&self) -> bool {
        self.membership()
            .is_some_and(|it| it.standing.is_trusted() && !it.is_guest)
    }

    /// The queue identifier (QID); `None` before Connect.
    pub fn id(&self) -> Option<u16> {
        self.membership().map(|it| it.queue_id)
    }

    /// The name of the queue in counters: controller, queue and host; `None` before Connect.
    pub fn name(&self) -> Option<QueueName> {
        let (session, queue) = self.session().zip(self.id())?;
        Some(QueueName {
            controller: session.id,
            queue,
            host: session.host.clone(),
        })
    }

    /// The session of the controller; `None` before Connect.
    pub fn session(&self) -> Option<&Arc<Session>> {
        self.membership().map(|it| &it.session)
    }

    fn membership(&self) -> Option<&Membership> {
        match &self.stage {
            Stage::Fresh => None,
            Stage::Connected(membership) => Some(membership),
        }
    }

    pub(in crate::controller) fn membership_mut(&mut self) -> Option<&mut Membership> {
        match &mut self.stage {
            Stage::Fresh => None,
            Stage::Connected(membership) => Some(membership),
        }
    }

    /// Whether the connection has to be closed: its controller was removed, or was reset and this is an I/O
    /// queue.
    pub fn is_over(&self) -> bool {
        self.membership().is_some_and(|it| {
            it.session.is_closed()
                || it.queue_id != 0 && it.session.epoch.load(Ordering::SeqCst) != it.epoch
        })
    }

    /// Parses and checks a command whose SGL names `length` bytes.
    pub fn accept(&mut self, command: &Command, length: u32, now_ns: u64) -> Plan {
        self.accept_described(command, Ok(length), now_ns)
    }

    /// As [`Queue::accept`]; a command whose SGL is wrong is refused with a status.
    pub fn accept_described(
        &mut self,
        command: &Command,
        length: Result<u32, Status>,
        now_ns: u64,
    ) -> Plan {
        self.head = if self.head + 1 >= self.entries {
            0
        } else {
            self.head + 1
        };
        let planned = length.and_then(|length| self.plan(command, length, now_ns));
        let planned = match self.id() {
            None | Some(0) => planned,
            Some(_) => self.match_fused(command, planned),
        };
        match planned {
            Ok(request) => Plan::Take(request),
            Err(status) => {
                self.note_failure(command, status);
                Plan::Refuse(status)
            }
        }
    }

    fn plan(&mut self, command: &Command, length: u32, now_ns: u64) -> Result<Request, Status> {
        if command.psdt() != PSDT_SGL {
            return Err(Status::INVALID_FIELD.permanent());
        }
        let is_fabrics = command.opcode == FABRICS;
        let Stage::Connected(membership) = &self.stage else {
            return match Fabrics::parse(command.fabrics_type()) {
                Some(Fabrics::Connect) if is_fabrics => fabrics(Fabrics::Connect, command, length),
                _ => Err(Status::COMMAND_SEQUENCE.permanent()),
            };
        };
        if !membership.standing.is_trusted() && !is_authentication(command) {
            return Err(Status::AUTHENTICATION_REQUIRED.permanent());
        }
        membership.session.heard_ns.store(now_ns, Ordering::Relaxed);
        let queue_id = membership.queue_id;
        if queue_id != 0 && !is_fabrics {
            return self.plan_io(command, length);
        }
        if command.fuse() != Fuse::No {
            return Err(Status::INVALID_FIELD.permanent());
        }
        if is_fabrics {
            return plan_fabrics(command, length, queue_id);
        }
        // Before CSTS.RDY only Fabrics commands are executed, as by the targets of SPDK and Linux.
        if !membership.session.is_ready.load(Ordering::Acquire) {
            return Err(Status::COMMAND_SEQUENCE.permanent());
        }
        self.plan_admin(command, length)
    }

    /// Executes a command. The buffer contains the data of the host, or receives those for the host.
    pub fn execute(&mut self, request: Request, buffer: Option<Buffer>, now_ns: u64) -> Outcome {
        let Request {
            cid,
            length,
            data_at,
            work,
            ..
        } = request;
        match work {
            Work::Fabrics(Fabrics::AuthenticationReceive, command) => {
                self.authentication_receive(&command, length, buffer)
            }
            Work::Fabrics(kind, command) => {
                let data = buffer
                    .as_deref()
                    .and_then(|bytes| bytes.get(..length))
                    .unwrap_or_default();
                let resets = self.session().map(|it| it.epoch.load(Ordering::SeqCst));
                let (status, result) = self.fabrics(kind, &command, data, now_ns);
                match resets == self.session().map(|it| it.epoch.load(Ordering::SeqCst)) {
                    false if kind == Fabrics::PropertySet => self.has_reset(cid, buffer),
                    _ => self.reply(cid, status, result, buffer),
                }
            }
            Work::Admin(command) => self.admin(&command, length, buffer, now_ns),
            Work::Io(work) => self.execute_io(cid, work, length, data_at, buffer),
        }
    }

    /// Fails a command whose data the transport could not transfer.
    pub fn abandon(&mut self, request: Request, status: Status) -> Completion {
        if let Work::Io(work) = &request.work {
            self.abandon_half(request.cid, work.fuse);
        }
        self.completion(request.cid, status, 0)
    }

    /// Builds the completion for a finished task. A fused pair has a second completion in [`Queue::extra`].
    pub fn finish(&mut self, finished: &Finished) -> Completion {
        if let Some((cid, status)) = finished.first_of_pair {
            let first = self.completion(cid, status, 0);
            self.extra.push(first);
        }
        self.completion(finished.cid, finished.status, 0)
    }

    /// The next completion that does not belong to a command being executed: of an event request, or of an
    /// aborted half of a fused pair.
    pub fn poll(&mut self) -> Option<Completion> {
        if let Some(completion) = self.extra.pop() {
            return Some(completion);
        }
        let membership = self.membership().filter(|it| it.queue_id == 0)?;
        let id = membership.session.id;
        let completion = self.target.lock().controllers.get_mut(&id)?.next_event()?;
        Some(Completion {
            sq_head: self.reported_head(),
            ..completion
        })
    }

    /// The time in nanoseconds at which the keep alive timer expires; of admin queues only.
    pub fn deadline_ns(&self) -> Option<u64> {
        let membership = self.membership().filter(|it| it.queue_id == 0)?;
        let state = self.target.lock();
        let controller = state.controllers.get(&membership.session.id)?;
        let timeout_ns = u64::from(controller.keep_alive_ms) * 1_000_000;
        let heard_ns = membership.session.heard_ns.load(Ordering::Relaxed);
        (timeout_ns != 0).then(|| heard_ns.saturating_add(timeout_ns))
    }

    pub(in crate::controller) fn reply(
        &mut self,
        cid: u16,
        status: Status,
        result: u64,
        buffer: Option<Buffer>,
    ) -> Outcome {
        Outcome::Reply(self.completion(cid, status, result), buffer)
    }

    /// Completes a command that has revoked rights, when no command of before it is executed any more.
    pub(in crate::controller) fn reply_behind(
        &mut self,
        cid: u16,
        barrier: Barrier,
        buffer: Option<Buffer>,
    ) -> Outcome {
        match barrier.has_passed() {
            true => self.reply(cid, Status::SUCCESS, 0, buffer),
            false => Outcome::Task(Task::behind(barrier, cid, Action::Nothing(buffer))),
        }
    }

    /// Completes the Property Set that has reset the controller: the commands of its I/O queues are ended.
    fn has_reset(&mut self, cid: u16, buffer: Option<Buffer>) -> Outcome {
        let subsystem = self
            .session()
            .and_then(|it| self.target.subsystem(&it.subsystem).ok());
        let namespaces = subsystem.map(|it| it.namespaces()).unwrap_or_default();
        self.reply_behind(cid, self.barrier(&namespaces), buffer)
    }

    /// A barrier behind a change of the rights on namespaces, which wakes the connection.
    pub(in crate::controller) fn barrier(&self, namespaces: &[Arc<Namespace>]) -> Barrier {
        Barrier::new(namespaces, Some(&self.wake))
    }

    /// The completion of a command that was refused, or whose data the transport could not transfer.
    pub fn completion(&self, cid: u16, status: Status, result: u64) -> Completion {
        Completion {
            result,
            sq_head: self.reported_head(),
            ..Completion::new(cid, status)
        }
    }

    fn reported_head(&self) -> u16 {
        if self.flow_control { self.head } else { 0xffff }
    }

    pub(in crate::controller) fn note_failure(&self, command: &Command, status: Status) {
        let Some(membership) = self.membership() else {
            return;
        };
        let (nsid, lba) = match membership.queue_id {
            0 => (0, 0),
            _ => (command.nsid, command.qword10()),
        };
        if let Some(controller) = self
            .target
            .lock()
            .controllers
            .get_mut(&membership.session.id)
        {
            controller.failed(membership.queue_id, command.cid, status, nsid, lba);
        }
    }

    fn fabrics(
        &mut self,
        kind: Fabrics,
        command: &Command,
        data: &[u8],
        now_ns: u64,
    ) -> (Status, u64) {
        match kind {
            Fabrics::Connect => self.connect(command, data, now_ns),
            Fabrics::PropertyGet | Fabrics::PropertySet => self.property(kind, command),
            Fabrics::Disconnect => (Status::SUCCESS, 0),
            Fabrics::AuthenticationSend => (self.authentication_send(data, now_ns), 0),
            // Handled by Queue::execute, because it returns data.
            Fabrics::AuthenticationReceive => (Status::INTERNAL_ERROR, 0),
        }
    }

    fn connect(&mut self, command: &Command, data: &[u8], now_ns: u64) -> (Status, u64) {
        if self.membership().is_some() {
            return (Status::COMMAND_SEQUENCE.permanent(), 0);
        }
        let Some((data, _)) = ConnectData::split(data) else {
            return (Status::SGL_LENGTH_INVALID.permanent(), 0);
        };
        let fields = Connect::parse(command);
        let source = Source {
            origin: &self.origin,
            proved: self.proved.as_ref(),
        };
        match self
            .target
            .connect(fields, &data, source, &self.wake, now_ns)
        {
            Err(refusal) => (refusal.status, refusal.result),
            Ok(connected) => {
                let id = u64::from(connected.session.id);
                let asks = connected.authenticator.is_some();
                self.join(connected);
                (
                    Status::SUCCESS,
                    id | if asks { CONNECT_AUTHENTICATE } else { 0 },
                )
            }
        }
    }

    fn join(&mut self, connected: Connected) {
        let Connected {
            session,
            epoch,
            queue_id,
            entries,
            flow_control,
            authenticator,
            is_guest,
        } = connected;
        let standing = Standing::of(authenticator);
        let subsystem = self.target.subsystem(&session.subsystem).ok();
        let view = View {
            subsystem,
            ..View::default()
        };
        self.stage = Stage::Connected(Membership {
            session,
            queue_id,
            epoch,
            standing,
            is_guest,
            view,
        });
        // Connect uses the first entry of the submission queue.
        (self.head, self.entries, self.flow_control) = (1 % entries, entries, flow_control);
    }

    fn property(&mut self, kind: Fabrics, command: &Command) -> (Status, u64) {
        let property = wire::nvme::fabrics::Property::parse(command);
        let Some((property, membership)) = property.zip(self.membership()) else {
            return (Status::INVALID_FIELD.permanent(), 0);
        };
        let mut state = self.target.lock();
        let Some(controller) = state.controllers.get_mut(&membership.session.id) else {
            return (Status::INTERNAL_ERROR, 0);
        };
        let done = match kind {
            Fabrics::PropertyGet => controller.property(property),
            _ => controller.set_property(property).map(|()| 0),
        };
        done.map_or_else(|status| (status, 0), |value| (Status::SUCCESS, value))
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let Some(membership) = self.membership() else {
            return;
        };
        let (id, queue_id, epoch) = (membership.session.id, membership.queue_id, membership.epoch);
        if queue_id == 0 {
            // A controller ends with its admin queue.
            self.target.drop_controller(id);
            return;
        }
        // Compared under the lock: after a reset, another connection may have this queue's number.
        let mut state = self.target.lock();
        if membership.session.epoch.load(Ordering::Acquire) == epoch
            && let Some(controller) = state.controllers.get_mut(&id)
        {
            controller.queues.remove(&queue_id);
        }
    }
}

fn is_authentication(command: &Command) -> bool {
    let kind = Fabrics::parse(command.fabrics_type()).filter(|_| command.opcode == FABRICS);
    matches!(
        kind,
        Some(Fabrics::AuthenticationSend | Fabrics::AuthenticationReceive)
    )
}

fn plan_fabrics(command: &Command, length: u32, queue_id: u16) -> Result<Request, Status> {
    let kind = Fabrics::parse(command.fabrics_type()).ok_or(Status::INVALID_OPCODE.permanent())?;
    let is_property = matches!(kind, Fabrics::PropertyGet | Fabrics::PropertySet);
    if is_property && queue_id != 0 || kind == Fabrics::Disconnect && queue_id == 0 {
        return Err(Status::INVALID_FIELD.permanent());
    }
    fabrics(kind, command, length)
}

fn fabrics(kind: Fabrics, command: &Command, length: u32) -> Result<Request, Status> {
    let direction = Direction::of(kind as u8);
    let expected = match kind {
        Fabrics::Connect => ConnectData::SIZE as u32,
        Fabrics::AuthenticationSend | Fabrics::AuthenticationReceive => {
            authentication::length(command)?
        }
        _ => 0,
    };
    let length = transfer(expected, length)?;
    Ok(Request {
        cid: command.cid,
        direction,
        length,
        data_at: 0,
        work: Work::Fabrics(kind, *command),
    })
}

/// The length of the data of a command with a data structure of `expected` bytes. The SGL may describe more:
/// Linux sends 16 bytes with Reservation Release, whose structure has 8, and a buffer for 256 ranges with
/// Dataset Management. What the host sends behind the structure is ignored, what it could receive is not
/// sent.
pub(in crate::controller) fn structure(
    direction: Direction,
    expected: u32,
    described: u32,
) -> Result<usize, Status> {
    let sends_more = direction == Direction::FromHost && expected != 0 && described > expected;
    let receives_more = direction == Direction::ToHost && described > expected;
    let length = if sends_more { described } else { expected };
    transfer(length, if receives_more { expected } else { described })
}

/// The length of the data of a command, if its SGL names the same length and it is within the limit.
pub(in crate::controller) fn transfer(expected: u32, described: u32) -> Result<usize, Status> {
    if expected as usize > TRANSFER_BYTES_MAX {
        return Err(Status::INVALID_FIELD.permanent());
    }
    // If the command has no data, the length in the SGL is ignored.
    if expected != 0 && expected != described {
        return Err(Status::SGL_LENGTH_INVALID.permanent());
    }
    Ok(expected as usize)
}
