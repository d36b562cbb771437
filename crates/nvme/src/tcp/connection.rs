//! One connection of a host.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};

use slab::Slab;
use wire::nvme::tcp::{
    Data, Digests, Fatal, Frame, Header, Initialize, Kind, ReadyToTransfer, TERMINATION_DATA_MAX, Terminate,
    flag,
};
use wire::nvme::{Command, Completion, Direction, Sgl, Status};

use super::inbound::{Event, Fault, Inbound, Sink};
use super::outbound::Outbound;
use crate::engine::{Finished, Task};
use crate::limits::{TCP_IN_CAPSULE, TCP_IN_CAPSULE_ADMIN, TRANSFER_BYTES_MAX};
use crate::pool::Pool;
use crate::target::{Outcome, Plan, Queue, Request};
use rdma::Buffer;

/// Data of one H2CData: all of the largest transfer.
const HOST_DATA_MAX: usize = TRANSFER_BYTES_MAX;
/// The largest unit of alignment that a PDU's header has room for, in dwords.
const ALIGNMENT_MAX: u8 = 31;

/// Why a connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Closing {
    /// It does not.
    No,
    /// The host broke the rules, and is told so.
    Fault(Fatal),
    /// The host gave up, or disconnected.
    Host,
    /// The controller is gone.
    Controller,
}

/// A command between its arrival and its completion.
#[derive(Debug)]
struct Slot {
    cid: u16,
    /// Until it is executed.
    request: Option<Request>,
    buffer: Option<Buffer>,
    /// Bytes of data that came.
    received: usize,
    /// Bytes of data that come.
    length: usize,
    /// Whether the host was asked for data.
    asked: bool,
    /// Whether some of the data were damaged on their way.
    damaged: bool,
}

/// One connection of a host.
#[derive(Debug)]
pub struct Connection {
    queue: Queue,
    is_initialized: bool,
    closing: Closing,
    inbound: Inbound,
    outbound: Outbound,
    slots: Slab<Slot>,
    /// Commands that wait for a buffer, the oldest first.
    stalled: VecDeque<usize>,
    tasks: VecDeque<Task>,
    pool: Pool,
    implies_success: bool,
}

impl Connection {
    /// A connection that has said nothing.
    pub fn new(queue: Queue) -> Self {
        Self {
            queue,
            is_initialized: false,
            closing: Closing::No,
            inbound: Inbound::new(),
            outbound: Outbound::default(),
            slots: Slab::new(),
            stalled: VecDeque::new(),
            tasks: VecDeque::new(),
            pool: Pool::default(),
            implies_success: false,
        }
    }

    /// Its queue.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Whether nothing more is received, and why.
    pub fn closing(&self) -> Closing {
        if self.closing == Closing::No && self.queue.is_over() { Closing::Controller } else { self.closing }
    }

    /// Whether it can be closed: nothing more comes, and what had to be said is said.
    pub fn is_over(&self) -> bool {
        self.closing() != Closing::No && (self.outbound.is_empty() || self.closing == Closing::Host)
    }

    /// Room for what comes: the first slice, which may be empty, is a command's own.
    pub fn room(&mut self) -> [IoSliceMut<'_>; 2] {
        let direct = self.inbound.direct();
        let place = direct.and_then(|(slot, range)| {
            let buffer = self.slots.get_mut(slot)?.buffer.as_deref_mut()?;
            buffer.get_mut(range)
        });
        [IoSliceMut::new(place.unwrap_or_default()), self.inbound.room()]
    }

    /// So many bytes came to [`Connection::room`].
    pub fn received(&mut self, bytes: usize, now_ns: u64) {
        let direct = self.inbound.direct().map_or(0, |(_, range)| range.len());
        self.inbound.received(bytes, direct);
        self.advance(now_ns);
    }

    /// Whether bytes should be read. Not while the host takes no answers.
    pub fn wants_input(&self) -> bool {
        self.closing() == Closing::No && !self.outbound.is_full()
    }

    fn advance(&mut self, now_ns: u64) {
        while self.closing == Closing::No && !self.outbound.is_full() {
            let is_admin = self.queue.id().is_none_or(|id| id == 0);
            let is_initialized = self.is_initialized;
            let slots = &mut self.slots;
            let event = self.inbound.next(
                move |slot| slots.get_mut(slot)?.buffer.as_deref_mut(),
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

    /// Something for an engine.
    pub fn task(&mut self) -> Option<Task> {
        self.tasks.pop_front()
    }

    /// An engine finished something.
    pub fn finish(&mut self, finished: Finished, now_ns: u64) {
        let completion = self.queue.finish(&finished);
        self.extra();
        self.slots.try_remove(finished.tag as usize);
        if let Some(lent) = finished.lent {
            if finished.status.is_success() {
                self.outbound.push_lent(lent, &completion, self.implies_success);
            } else {
                self.pool.lent_back(finished.length);
                self.outbound.push(&Header::Response(completion), &[]);
            }
            return;
        }
        match finished.buffer {
            Some(buffer) if finished.length > 0 && finished.status.is_success() => {
                self.outbound.push_data(buffer, finished.length, &completion, self.implies_success);
            }
            buffer => {
                self.give(buffer, now_ns);
                self.outbound.push(&Header::Response(completion), &[]);
            }
        }
    }

    /// Looks for what came up without the host: events, a controller that is gone.
    pub fn poll(&mut self, now_ns: u64) {
        if !self.is_initialized || self.closing() != Closing::No {
            return;
        }
        self.extra();
        if self.queue.deadline_ns().is_some_and(|deadline_ns| deadline_ns <= now_ns) {
            // The host is silent: its controller goes, and the other connections with it (Base 3.9).
            self.closing = Closing::Controller;
        }
    }

    fn extra(&mut self) {
        while let Some(completion) = self.queue.poll() {
            self.outbound.push(&Header::Response(completion), &[]);
        }
    }

    /// Lets go of memory that is not needed while nothing happens.
    pub fn rest(&mut self) {
        self.pool.rest();
    }

    /// What to send next, appended to `out`.
    pub fn pieces<'a>(&'a self, out: &mut Vec<IoSlice<'a>>) {
        self.outbound.pieces(out);
    }

    /// Whether there is something to send.
    pub fn has_output(&self) -> bool {
        !self.outbound.is_empty()
    }

    /// So many bytes of [`Connection::pieces`] went.
    pub fn sent(&mut self, bytes: usize, now_ns: u64) {
        let was_full = self.outbound.is_full();
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
            return Err(Fault { status: Fatal::Unsupported, information: 8, header: Vec::new() });
        }
        if request.alignment > ALIGNMENT_MAX {
            return Err(Fault { status: Fatal::HeaderField, information: 10, header: Vec::new() });
        }
        let digests = Digests::parse(request.digests);
        let limit = HOST_DATA_MAX as u32;
        let response = Initialize { format: 0, alignment: 0, digests: digests.bits(), limit };
        self.outbound.push(&Header::InitializeResponse(response), &[]);
        self.inbound.digests = digests;
        self.outbound.digests = digests;
        self.outbound.alignment = (usize::from(request.alignment) + 1) * 4;
        self.is_initialized = true;
        Ok(())
    }

    fn command(&mut self, command: &Command, frame: &Frame, now_ns: u64) -> Result<(), Fault> {
        if self.slots.len() >= usize::from(self.queue.depth()) {
            // More commands than the queue has entries (Base 3.3.1.2).
            return Err(sequence(Kind::Command));
        }
        let described = described(command, frame.data);
        let plan = match described {
            Ok(length) => self.queue.accept(command, length, now_ns),
            Err(status) => Plan::Refuse(status),
        };
        let request = match plan {
            Plan::Take(request) => request,
            Plan::Refuse(status) => {
                self.refuse(command.cid, status, frame);
                return Ok(());
            }
        };
        if frame.data != 0 {
            if request.direction != Direction::FromHost || request.length != frame.data {
                // It brought data that it has no use for.
                self.refuse(command.cid, Status::SGL_LENGTH_INVALID.permanent(), frame);
                return Ok(());
            }
            let buffer = self.pool.take_beyond(request.length);
            let slot = self.insert(request, Some(buffer));
            self.inbound.expect(Sink::Slot(slot), 0, frame);
            return Ok(());
        }
        if request.direction == Direction::None {
            self.execute(request, None, now_ns);
            return Ok(());
        }
        let provided = if self.stalled.is_empty() { self.pool.provide(&request) } else { None };
        let is_provided = provided.is_some();
        let slot = self.insert(request, provided.flatten());
        if is_provided {
            self.begin(slot, now_ns)
        } else {
            self.stalled.push_back(slot)
        }
        Ok(())
    }

    fn insert(&mut self, request: Request, buffer: Option<Buffer>) -> usize {
        let (cid, length) = (request.cid, request.length);
        self.slots.insert(Slot {
            cid,
            request: Some(request),
            buffer,
            received: 0,
            length,
            asked: false,
            damaged: false,
        })
    }

    /// A command has its buffer: asks for data, or executes it.
    fn begin(&mut self, index: usize, now_ns: u64) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        if slot.request.as_ref().is_some_and(|request| request.direction == Direction::FromHost) {
            slot.asked = true;
            let (cid, length) = (slot.cid, slot.length as u32);
            let ready = ReadyToTransfer { cid, tag: index as u16, offset: 0, length };
            self.outbound.push(&Header::ReadyToTransfer(ready), &[]);
            return;
        }
        self.execute_slot(index, now_ns);
    }

    fn execute_slot(&mut self, index: usize, now_ns: u64) {
        let Some(slot) = self.slots.try_remove(index) else { return };
        if slot.damaged {
            return self.abandon(slot, now_ns);
        }
        if let Some(request) = slot.request {
            self.execute(request, slot.buffer, now_ns);
        }
    }

    /// A command's data did not arrive as they were sent: it fails, and the host may send it again.
    fn abandon(&mut self, slot: Slot, now_ns: u64) {
        if let Some(request) = slot.request {
            let completion = self.queue.abandon(request, Status::TRANSIENT_TRANSPORT);
            self.respond(&completion);
        }
        self.give(slot.buffer, now_ns);
        self.extra();
    }

    fn execute(&mut self, request: Request, buffer: Option<Buffer>, now_ns: u64) {
        let length = request.length;
        let gives = request.direction == Direction::ToHost;
        let (cid, lends) = (request.cid, request.lends());
        match self.queue.execute(request, buffer, now_ns) {
            Outcome::Task(mut task) => {
                let (asked, damaged) = (false, false);
                let slot = Slot { cid, request: None, buffer: None, received: 0, length: 0, asked, damaged };
                task.tag = self.slots.insert(slot) as u32;
                self.tasks.push_back(task);
            }
            Outcome::Reply(completion, Some(buffer)) if gives && completion.status().is_success() => {
                self.outbound.push_data(buffer, length, &completion, false);
            }
            Outcome::Reply(completion, buffer) => {
                if lends {
                    self.pool.lent_back(length);
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

    fn refuse(&mut self, cid: u16, status: Status, frame: &Frame) {
        let completion = self.queue.completion(cid, status, 0);
        self.respond(&completion);
        self.extra();
        if frame.data != 0 {
            self.inbound.expect(Sink::Nowhere, 0, frame);
        }
    }

    /// Data that the host was asked for (TCP transport 3.6.2.3).
    fn host_data(&mut self, data: &Data, frame: &Frame) -> Result<(), Fault> {
        let index = usize::from(data.tag);
        let wrong = |status, information| Fault { status, information, header: Vec::new() };
        let Some(slot) = self.slots.get_mut(index).filter(|slot| slot.asked) else {
            return Err(wrong(Fatal::HeaderField, 10));
        };
        if slot.cid != data.cid {
            return Err(wrong(Fatal::HeaderField, 8));
        }
        if data.length as usize != frame.data || frame.data == 0 {
            return Err(wrong(Fatal::HeaderField, 16));
        }
        if data.offset as usize != slot.received || frame.data > slot.length - slot.received {
            return Err(wrong(Fatal::DataRange, 12));
        }
        let is_last = slot.received + frame.data == slot.length;
        if is_last != (frame.flags & flag::LAST != 0) {
            return Err(wrong(Fatal::HeaderField, 1));
        }
        self.inbound.expect(Sink::Slot(index), slot.received, frame);
        slot.received += frame.data;
        Ok(())
    }

    /// All data of a PDU came: executes what has all of its own.
    fn data_came(&mut self, intact: bool, now_ns: u64) {
        let Some(index) = self.inbound.take_filled() else { return };
        if let Some(slot) = self.slots.get_mut(index) {
            slot.damaged |= !intact;
        }
        let is_complete = self
            .slots
            .get(index)
            .is_some_and(|slot| slot.request.is_some() && (!slot.asked || slot.received == slot.length));
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

    /// Buffers came back: goes on with commands that wait for one.
    fn resume(&mut self, now_ns: u64) {
        while let Some(index) = self.stalled.front().copied() {
            let Some(slot) = self.slots.get_mut(index) else {
                self.stalled.pop_front();
                continue;
            };
            let Some(request) = &slot.request else { return };
            let Some(provided) = self.pool.provide(request) else { return };
            slot.buffer = provided;
            self.stalled.pop_front();
            self.begin(index, now_ns);
        }
    }

    /// Says what was wrong, and ends.
    fn fail(&mut self, fault: Fault) {
        self.closing = Closing::Fault(fault.status);
        let terminate = Terminate { status: fault.status as u16, information: fault.information };
        let data = &fault.header[..fault.header.len().min(TERMINATION_DATA_MAX)];
        self.outbound.push(&Header::ControllerTermination(terminate), data);
    }
}

fn sequence(kind: Kind) -> Fault {
    Fault { status: Fatal::Sequence, information: 0, header: vec![kind as u8] }
}

/// The most data that a PDU may bring.
fn data_max(kind: u8, is_admin: bool, is_initialized: bool) -> usize {
    match Kind::parse(kind) {
        Some(Kind::HostTermination) => TERMINATION_DATA_MAX,
        Some(Kind::Command) if is_admin && is_initialized => TCP_IN_CAPSULE_ADMIN,
        Some(Kind::Command) if is_initialized => TCP_IN_CAPSULE,
        Some(Kind::HostData) if is_initialized => HOST_DATA_MAX,
        _ => 0,
    }
}

/// Bytes that a command's descriptor names, when it is one that TCP has (TCP transport 3.4.1).
fn described(command: &Command, in_capsule: usize) -> Result<u32, Status> {
    match command.sgl() {
        Ok(Sgl::InCapsule { offset: 0, length }) if length as usize == in_capsule => Ok(length),
        Ok(Sgl::InCapsule { offset: 0, .. }) => Err(Status::SGL_LENGTH_INVALID.permanent()),
        Ok(Sgl::InCapsule { .. }) => Err(Status::SGL_OFFSET_INVALID.permanent()),
        Ok(Sgl::Transport { length }) if in_capsule == 0 => Ok(length),
        // Commands without data have a descriptor of zeros.
        Ok(Sgl::Address { length: 0, .. }) if in_capsule == 0 => Ok(0),
        _ => Err(Status::SGL_TYPE_INVALID.permanent()),
    }
}
