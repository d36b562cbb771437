//! The controller side of one NVMe/TCP connection.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};

use slab::Slab;
use wire::nvme::tcp::{
    Data, Digests, Fatal, Frame, Header, Initialize, Kind, ReadyToTransfer, TERMINATION_DATA_MAX,
    Terminate, flag,
};
use wire::nvme::{Command, Completion, Direction, Sgl, Status};

use super::inbound::{Event, Fault, Inbound, Sink};
use super::outbound::Outbound;
use crate::controller::{Outcome, Plan, Queue, Request};
use crate::engine::{Finished, Task};
use crate::limits::{TCP_IN_CAPSULE, TCP_IN_CAPSULE_ADMIN, TRANSFER_BYTES_MAX};
use crate::pool::Pool;
use crate::zero_copy::Reference;
use buffer::Buffer;

/// MAXH2CDATA: the data of one H2CData PDU, as long as the longest transfer.
const HOST_DATA_MAX: usize = TRANSFER_BYTES_MAX;
/// The largest data alignment (CPDA) that fits the header of a PDU, in dwords.
const ALIGNMENT_MAX: u8 = 31;
/// PDUs in the send queue beyond two for each entry of the queue: events, and the first PDUs of a connection.
const ANSWERS_SPARE: usize = 64;

/// Whether and why the connection is closing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Closing {
    /// The connection is not closing.
    No,
    /// The host violated the protocol, and gets a C2HTermReq.
    Fault(Fatal),
    /// The host sent H2CTermReq or Disconnect.
    Host,
    /// The controller was removed or reset.
    Controller,
}

/// A command between its arrival and its completion.
#[derive(Debug)]
struct TcpCommand {
    cid: u16,
    /// The parsed command; `None` once it is executed.
    request: Option<Request>,
    buffer: Option<Buffer>,
    /// Bytes of its data that have arrived.
    received: usize,
    /// Bytes of its data in all.
    length: usize,
    /// Whether an R2T was sent for its data.
    asked: bool,
    /// Whether a data digest was wrong.
    damaged: bool,
}

/// The controller side of one NVMe/TCP connection.
#[derive(Debug)]
pub struct Connection {
    queue: Queue,
    is_initialized: bool,
    closing: Closing,
    inbound: Inbound,
    outbound: Outbound,
    commands: Slab<TcpCommand>,
    /// Commands that wait for a buffer, the oldest first.
    awaiting_buffer: VecDeque<usize>,
    tasks: VecDeque<Task>,
    pool: Pool,
    /// The number of commands with an R2T whose data have not all arrived.
    asked: usize,
    implies_success: bool,
}

impl Connection {
    /// A new connection.
    pub fn new(queue: Queue) -> Self {
        let mut connection = Self::with(queue, Pool::default());
        connection.mark_authenticated();
        connection
    }

    /// A new connection with this pool of buffers.
    pub(crate) fn with(queue: Queue, pool: Pool) -> Self {
        Self {
            queue,
            is_initialized: false,
            closing: Closing::No,
            inbound: Inbound::new(),
            outbound: Outbound::default(),
            commands: Slab::new(),
            awaiting_buffer: VecDeque::new(),
            tasks: VecDeque::new(),
            pool,
            asked: 0,
            implies_success: false,
        }
    }

    /// The NVMe queue that this connection carries.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Bytes of data buffers, and of memory that stores lend, for commands that are not answered.
    pub fn data_bytes(&self) -> usize {
        self.pool.used_bytes()
    }

    /// Whether the connection is closing; nothing more is received then.
    pub fn closing(&self) -> Closing {
        if self.closing == Closing::No && self.queue.is_over() {
            Closing::Controller
        } else {
            self.closing
        }
    }

    /// Whether the connection can be closed: nothing more is received, and all output was sent.
    pub fn is_over(&self) -> bool {
        self.closing() != Closing::No && (self.outbound.is_empty() || self.closing == Closing::Host)
    }

    /// Space for received bytes: the first slice, which may be empty, is part of the buffer of a command.
    pub fn room(&mut self) -> [IoSliceMut<'_>; 2] {
        let direct = self.inbound.direct();
        let place = direct.and_then(|(index, range)| {
            let buffer = self.commands.get_mut(index)?.buffer.as_deref_mut()?;
            buffer.get_mut(range)
        });
        [
            IoSliceMut::new(place.unwrap_or_default()),
            self.inbound.room(),
        ]
    }

    /// Processes bytes that were received into [`Connection::room`].
    pub fn received(&mut self, bytes: usize, now_ns: u64) {
        let direct = self.inbound.direct().map_or(0, |(_, range)| range.len());
        self.inbound.received(bytes, direct);
        self.advance(now_ns);
    }

    /// Whether bytes should be read: not while the send queue is full, nor while all connections together
    /// exceed the budget of the server and this one could send something first.
    pub fn wants_input(&self) -> bool {
        let may_wait = self.asked == 0 && !self.outbound.is_empty() && self.pool.is_exceeded();
        self.closing() == Closing::No && !self.is_full() && !may_wait
    }

    /// Whether an R2T is outstanding.
    pub fn awaits_data(&self) -> bool {
        self.asked > 0
    }

    /// Whether the send queue is full.
    fn is_full(&self) -> bool {
        self.outbound.len() >= 2 * usize::from(self.queue.depth()) + ANSWERS_SPARE
    }

    fn advance(&mut self, now_ns: u64) {
        while self.closing == Closing::No && !self.is_full() {
            let is_admin = self.queue.id().is_none_or(|id| id == 0);
            let is_initialized = self.is_initialized;
            let commands = &mut self.commands;
            let event = self.inbound.next(
                move |index| commands.get_mut(index)?.buffer.as_deref_mut(),
                |kind| data_max(kind, is_admin, is_initialized),
            );
            match event {
                Ok(None) => return,
                Ok(Some(Event::Header(header, frame))) => {
                    if let Err(fault) = self.header(header, &frame, now_ns) {
                        self.fail(fault);
                    }
                }
                Ok(Some(Event::Data { intact })) => self.data_came(intact, now_ns),
                Err(fault) => self.fail(fault),
            }
        }
    }

    /// The next task for the engine.
    pub fn task(&mut self) -> Option<Task> {
        self.tasks.pop_front()
    }

    /// Processes a result of the engine.
    pub fn finish(&mut self, finished: Finished, now_ns: u64) {
        let completion = self.queue.finish(&finished);
        self.extra();
        self.commands.try_remove(finished.tag as usize);
        if let Some(lent) = finished.lent {
            if finished.status.is_success() {
                self.outbound
                    .push_lent(lent, &completion, self.implies_success);
            } else {
                self.pool.lent_back(Pool::lent_charge(finished.length));
                self.outbound.push(&Header::Response(completion), &[]);
            }
            return;
        }
        match finished.buffer {
            Some(buffer) if finished.length > 0 && finished.status.is_success() => {
                self.outbound
                    .push_data(buffer, finished.length, &completion, self.implies_success);
            }
            buffer => {
                self.give(buffer, now_ns);
                self.outbound.push(&Header::Response(completion), &[]);
            }
        }
    }

    /// Processes what happens without the host: events, memory that other connections returned, a removed
    /// controller.
    pub fn poll(&mut self, now_ns: u64) {
        if !self.is_initialized || self.closing() != Closing::No {
            return;
        }
        self.extra();
        // Another connection may have returned memory.
        self.resume(now_ns);
        if self
            .queue
            .deadline_ns()
            .is_some_and(|deadline_ns| deadline_ns <= now_ns)
        {
            // The keep alive timer has expired: the controller is removed, and its other connections end too
            // (Base 3.9).
            self.closing = Closing::Controller;
        }
    }

    fn extra(&mut self) {
        while let Some(completion) = self.queue.poll() {
            self.outbound.push(&Header::Response(completion), &[]);
        }
    }

    /// Notes that the host is authenticated: it gets the memory that such a host may have.
    pub(crate) fn mark_authenticated(&mut self) {
        self.pool.mark_authenticated();
        self.inbound.enlarge();
    }

    /// Whether the connection has to end, because the memory of unauthenticated hosts is used up.
    pub(crate) fn is_overdrawn(&self) -> bool {
        self.pool.is_overdrawn()
    }

    /// Frees buffers of an idle connection.
    pub fn release_idle(&mut self) {
        self.pool.release_idle();
    }

    /// Appends the output to send next to `out`.
    pub fn pieces<'a>(&'a self, out: &mut Vec<IoSlice<'a>>) {
        self.outbound.pieces(out, false);
    }

    /// As [`Connection::pieces`], but only the output before the next reference. Returns whether there is
    /// one.
    pub(crate) fn pieces_before_reference<'a>(&'a self, out: &mut Vec<IoSlice<'a>>) -> bool {
        self.outbound.pieces(out, true)
    }

    /// The output to send next, if it may be sent by reference.
    pub(crate) fn reference(&self) -> Option<Reference<'_>> {
        self.outbound.reference()
    }

    /// Whether there is output to send.
    pub fn has_output(&self) -> bool {
        !self.outbound.is_empty()
    }

    /// Confirms that this many bytes of the output were sent.
    pub fn sent(&mut self, bytes: usize, now_ns: u64) {
        let was_full = self.is_full();
        self.outbound.sent(bytes, &mut self.pool);
        self.resume(now_ns);
        if was_full {
            self.advance(now_ns);
        }
    }

    fn header(&mut self, header: Header, frame: &Frame, now_ns: u64) -> Result<(), Fault> {
        match (self.is_initialized, header) {
            (false, Header::InitializeRequest(request)) => self.initialize(&request, frame),
            (true, Header::Command(command)) => self.command(&command, frame, now_ns),
            (true, Header::HostData(data)) => self.host_data(&data, frame),
            (_, Header::HostTermination(_)) => {
                self.closing = Closing::Host;
                Ok(())
            }
            _ => Err(sequence(frame.kind)),
        }
    }

    fn initialize(&mut self, request: &Initialize, frame: &Frame) -> Result<(), Fault> {
        if frame.data != 0 {
            return Err(sequence(frame.kind));
        }
        if request.format != 0 {
            return Err(Fault {
                status: Fatal::Unsupported,
                information: 8,
                header: Vec::new(),
            });
        }
        if request.alignment > ALIGNMENT_MAX {
            return Err(Fault {
                status: Fatal::HeaderField,
                information: 10,
                header: Vec::new(),
            });
        }
        let digests = Digests::parse(request.digests);
        let limit = HOST_DATA_MAX as u32;
        let response = Initialize {
            format: 0,
            alignment: 0,
            digests: digests.bits(),
            limit,
        };
        self.outbound
            .push(&Header::InitializeResponse(response), &[]);
        self.inbound.digests = digests;
        self.outbound.digests = digests;
        self.outbound.alignment = (usize::from(request.alignment) + 1) * 4;
        self.is_initialized = true;
        Ok(())
    }

    fn command(&mut self, command: &Command, frame: &Frame, now_ns: u64) -> Result<(), Fault> {
        if self.commands.len() >= usize::from(self.queue.depth()) {
            // The host has more commands outstanding than entries (Base 3.3.1.2).
            return Err(sequence(Kind::Command));
        }
        let described = described(command, frame.data);
        let request = match self.queue.accept_described(command, described, now_ns) {
            Plan::Take(request) => request,
            Plan::Refuse(status) => {
                let completion = self.queue.completion(command.cid, status, 0);
                self.refuse(&completion, frame);
                return Ok(());
            }
        };
        if frame.data != 0 {
            if request.direction != Direction::FromHost || request.length != frame.data {
                // The capsule has data that the command does not use.
                let completion = self
                    .queue
                    .abandon(request, Status::SGL_LENGTH_INVALID.permanent());
                self.refuse(&completion, frame);
                return Ok(());
            }
            let buffer = self.pool.take_beyond(request.length);
            let index = self.insert(request, Some(buffer));
            self.inbound.expect(Sink::Command(index), 0, frame);
            return Ok(());
        }
        if request.direction == Direction::None {
            self.execute(request, None, now_ns);
            return Ok(());
        }
        let provided = if self.awaiting_buffer.is_empty() {
            self.pool.provide(&request)
        } else {
            None
        };
        let is_provided = provided.is_some();
        let index = self.insert(request, provided.flatten());
        if is_provided {
            self.begin(index, now_ns)
        } else {
            self.awaiting_buffer.push_back(index)
        }
        Ok(())
    }

    fn insert(&mut self, request: Request, buffer: Option<Buffer>) -> usize {
        let (cid, length) = (request.cid, request.length);
        self.commands.insert(TcpCommand {
            cid,
            request: Some(request),
            buffer,
            received: 0,
            length,
            asked: false,
            damaged: false,
        })
    }

    /// Continues a command that has its buffer: sends an R2T, or executes it.
    fn begin(&mut self, index: usize, now_ns: u64) {
        let Some(pending) = self.commands.get_mut(index) else {
            return;
        };
        if pending
            .request
            .as_ref()
            .is_some_and(|request| request.direction == Direction::FromHost)
        {
            pending.asked = true;
            self.asked += 1;
            let (cid, length) = (pending.cid, pending.length as u32);
            let ready = ReadyToTransfer {
                cid,
                tag: index as u16,
                offset: 0,
                length,
            };
            self.outbound.push(&Header::ReadyToTransfer(ready), &[]);
            return;
        }
        self.execute_slot(index, now_ns);
    }

    fn execute_slot(&mut self, index: usize, now_ns: u64) {
        let Some(pending) = self.commands.try_remove(index) else {
            return;
        };
        self.asked -= usize::from(pending.asked);
        if pending.damaged {
            return self.abandon(pending, now_ns);
        }
        if let Some(request) = pending.request {
            self.execute(request, pending.buffer, now_ns);
        }
    }

    /// Fails a command with a wrong data digest; the host may repeat it.
    fn abandon(&mut self, pending: TcpCommand, now_ns: u64) {
        if let Some(request) = pending.request {
            let completion = self.queue.abandon(request, Status::TRANSIENT_TRANSPORT);
            self.respond(&completion);
        }
        self.give(pending.buffer, now_ns);
        self.extra();
    }

    fn execute(&mut self, request: Request, buffer: Option<Buffer>, now_ns: u64) {
        let length = request.length;
        let gives = request.direction == Direction::ToHost;
        let (cid, lends) = (request.cid, gives && buffer.is_none());
        match self.queue.execute(request, buffer, now_ns) {
            Outcome::Task(mut task) => {
                let (asked, damaged) = (false, false);
                let pending = TcpCommand {
                    cid,
                    request: None,
                    buffer: None,
                    received: 0,
                    length: 0,
                    asked,
                    damaged,
                };
                task.tag = self.commands.insert(pending) as u32;
                self.tasks.push_back(task);
            }
            Outcome::Reply(completion, Some(buffer))
                if gives && completion.status().is_success() =>
            {
                self.outbound.push_data(buffer, length, &completion, false);
            }
            Outcome::Reply(completion, buffer) => {
                if lends {
                    self.pool.lent_back(Pool::lent_charge(length));
                }
                self.give(buffer, now_ns);
                self.respond(&completion);
            }
            Outcome::Waits => {}
        }
        self.extra();
        self.implies_success = !self.queue.has_flow_control();
    }

    fn respond(&mut self, completion: &Completion) {
        self.outbound.push(&Header::Response(*completion), &[]);
    }

    fn refuse(&mut self, completion: &Completion, frame: &Frame) {
        self.respond(completion);
        self.extra();
        if frame.data != 0 {
            self.inbound.expect(Sink::Discard, 0, frame);
        }
    }

    /// Processes H2CData (TCP transport 3.6.2.3).
    fn host_data(&mut self, data: &Data, frame: &Frame) -> Result<(), Fault> {
        let index = usize::from(data.tag);
        let wrong = |status, information| Fault {
            status,
            information,
            header: Vec::new(),
        };
        let Some(pending) = self.commands.get_mut(index).filter(|pending| pending.asked) else {
            return Err(wrong(Fatal::HeaderField, 10));
        };
        if pending.cid != data.cid {
            return Err(wrong(Fatal::HeaderField, 8));
        }
        if data.length as usize != frame.data || frame.data == 0 {
            return Err(wrong(Fatal::HeaderField, 16));
        }
        if data.offset as usize != pending.received
            || frame.data > pending.length - pending.received
        {
            return Err(wrong(Fatal::DataRange, 12));
        }
        let is_last = pending.received + frame.data == pending.length;
        if is_last != (frame.flags & flag::LAST != 0) {
            return Err(wrong(Fatal::HeaderField, 1));
        }
        self.inbound
            .expect(Sink::Command(index), pending.received, frame);
        pending.received += frame.data;
        Ok(())
    }

    /// Processes the end of the data of a PDU: executes a command that has all its data.
    fn data_came(&mut self, intact: bool, now_ns: u64) {
        let Some(index) = self.inbound.take_filled() else {
            return;
        };
        if let Some(pending) = self.commands.get_mut(index) {
            pending.damaged |= !intact;
        }
        let is_complete = self.commands.get(index).is_some_and(|pending| {
            pending.request.is_some() && (!pending.asked || pending.received == pending.length)
        });
        if is_complete {
            self.execute_slot(index, now_ns);
        }
    }

    fn give(&mut self, buffer: Option<Buffer>, now_ns: u64) {
        if let Some(buffer) = buffer {
            self.pool.give(buffer);
            self.resume(now_ns);
        }
    }

    /// Continues commands that wait for a buffer.
    fn resume(&mut self, now_ns: u64) {
        while let Some(index) = self.awaiting_buffer.front().copied() {
            let Some(pending) = self.commands.get_mut(index) else {
                self.awaiting_buffer.pop_front();
                continue;
            };
            let Some(request) = &pending.request else {
                return;
            };
            let Some(provided) = self.pool.provide(request) else {
                return;
            };
            pending.buffer = provided;
            self.awaiting_buffer.pop_front();
            self.begin(index, now_ns);
        }
    }

    /// Queues a C2HTermReq, and closes the connection.
    fn fail(&mut self, fault: Fault) {
        self.closing = Closing::Fault(fault.status);
        let terminate = Terminate {
            status: fault.status as u16,
            information: fault.information,
        };
        let data = &fault.header[..fault.header.len().min(TERMINATION_DATA_MAX)];
        self.outbound
            .push(&Header::ControllerTermination(terminate), data);
    }
}

fn sequence(kind: Kind) -> Fault {
    Fault {
        status: Fatal::Sequence,
        information: 0,
        header: vec![kind as u8],
    }
}

/// The longest data of a PDU of this type.
fn data_max(kind: u8, is_admin: bool, is_initialized: bool) -> usize {
    match Kind::parse(kind) {
        Some(Kind::HostTermination) => TERMINATION_DATA_MAX,
        Some(Kind::Command) if is_admin && is_initialized => TCP_IN_CAPSULE_ADMIN,
        Some(Kind::Command) if is_initialized => TCP_IN_CAPSULE,
        Some(Kind::HostData) if is_initialized => HOST_DATA_MAX,
        _ => 0,
    }
}

/// The length in the SGL of a command, if its descriptor type is one of TCP (TCP transport 3.4.1).
fn described(command: &Command, in_capsule: usize) -> Result<u32, Status> {
    match command.sgl() {
        Ok(Sgl::InCapsule { offset: 0, length }) if length as usize == in_capsule => Ok(length),
        Ok(Sgl::InCapsule { offset: 0, .. }) => Err(Status::SGL_LENGTH_INVALID.permanent()),
        Ok(Sgl::InCapsule { .. }) => Err(Status::SGL_OFFSET_INVALID.permanent()),
        Ok(Sgl::Transport { length }) if in_capsule == 0 => Ok(length),
        // Commands without data have an SGL of zeros.
        Ok(Sgl::Address { length: 0, .. }) if in_capsule == 0 => Ok(0),
        _ => Err(Status::SGL_TYPE_INVALID.permanent()),
    }
}
