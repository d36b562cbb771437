//! The commands of I/O queues (NVM 3).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use wire::nvme::dsm::{self, CopyRange, Range};
use wire::nvme::log::AnaState;
use wire::nvme::reservation::{AcquireData, RegisterData, ReleaseData, ReservationType};
use wire::nvme::{Command, Direction, Fuse, Io, Status};

use super::{Outcome, Queue, Request, Work as QueueWork, structure, transfer};
use crate::controller::aborted::Mark;
use crate::controller::barrier::{Counted, Underway};
use crate::controller::namespace::Namespace;
use crate::controller::reservation::{Change, Notice, Reservations};
use crate::controller::session::Session;
use crate::engine::{Action, Task};
use crate::limits::{COPY_RANGES_MAX, RANGE_BYTES_MAX, TRANSFER_BYTES_MAX};
use buffer::Buffer;

const ALL_NAMESPACES: u32 = 0xffff_ffff;
const INVALID: Status = Status::INVALID_FIELD.permanent();

/// A parsed I/O command.
#[derive(Debug)]
pub(in crate::controller) struct Work {
    pub(super) command: Command,
    kind: Io,
    pub(super) namespace: Option<Arc<Namespace>>,
    /// The first byte in the namespace.
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) fuse: Fuse,
    /// When the command arrived, in relation to Preempt and Abort.
    pub(super) mark: Mark,
}

impl Work {
    pub(super) fn lends(&self, length: usize) -> bool {
        self.kind == Io::Read
            && self
                .namespace
                .as_ref()
                .is_some_and(|it| it.store().lends(length))
    }

    /// Whether the data are written from where they are.
    pub(super) fn is_written_in_place(&self) -> bool {
        let is_plain = self.kind == Io::Write && self.fuse == Fuse::No;
        is_plain
            && self
                .namespace
                .as_ref()
                .is_some_and(|it| it.store().is_memory())
    }

    pub(super) fn prefetch(&self) {
        if let Some(namespace) = &self.namespace {
            namespace
                .store()
                .prefetch(self.offset, self.length as usize);
        }
    }
}

impl Queue {
    pub(super) fn plan_io(&mut self, command: &Command, length: u32) -> Result<Request, Status> {
        let kind = Io::parse(command.opcode).ok_or(Status::INVALID_OPCODE.permanent())?;
        let membership = self
            .membership_mut()
            .ok_or(Status::COMMAND_SEQUENCE.permanent())?;
        if !membership
            .session
            .is_ready
            .load(std::sync::atomic::Ordering::Acquire)
        {
            return Err(Status::COMMAND_SEQUENCE.permanent());
        }
        let (port, host) = (membership.session.port, membership.session.host_id);
        if kind == Io::Flush && command.nsid == ALL_NAMESPACES {
            let (offset, length, fuse, mark) = (0, 0, Fuse::No, 0);
            let work = Work {
                command: *command,
                kind,
                namespace: None,
                offset,
                length,
                fuse,
                mark,
            };
            return Ok(request(command.cid, Direction::None, 0, work));
        }
        let found = membership.view.namespace(command.nsid, port);
        let (namespace, access) = found.ok_or(Status::INVALID_NAMESPACE.permanent())?;
        let mark = namespace.aborted.mark();
        check_rights(namespace, access, &host, kind)?;
        let namespace = Arc::clone(namespace);
        let (offset, length_of_range, fuse) = (0, 0, command.fuse());
        let work = Work {
            command: *command,
            kind,
            offset,
            length: length_of_range,
            fuse,
            namespace: None,
            mark,
        };
        plan(work, namespace, length)
    }

    pub(super) fn execute_io(
        &mut self,
        cid: u16,
        work: Work,
        length: usize,
        data_at: usize,
        buffer: Option<Buffer>,
    ) -> Outcome {
        if work.fuse != Fuse::No {
            return self.half_is_there(work, buffer);
        }
        if is_reservation(work.kind) {
            return self.reserve(cid, &work, length, buffer);
        }
        if work.namespace.is_none() {
            let subsystem = self
                .session()
                .and_then(|it| self.target.subsystem(&it.subsystem).ok());
            let all = subsystem
                .map(|subsystem| subsystem.begin_on_all(self.stripe))
                .unwrap_or_default();
            let (namespaces, underway) = all.into_iter().unzip();
            let task = Task::new(cid, Action::FlushAll(namespaces), None, 0, 0);
            return Outcome::Task(task.counted(Counted::Several(underway)));
        }
        let underway = match self.begin(&work) {
            Ok(underway) => underway,
            Err(status) => return self.reply(cid, status, 0, buffer),
        };
        match self.task(cid, work, length, data_at, buffer) {
            Ok(task) => Outcome::Task(task.counted(Counted::One(underway))),
            Err(status) => self.reply(cid, status, 0, None),
        }
    }

    /// Counts a command whose data have come, and checks its rights again: the data may have come long after
    /// the command, and a change that has returned meanwhile holds for it.
    pub(super) fn begin(&mut self, work: &Work) -> Result<Underway, Status> {
        let named = work.namespace.as_ref().ok_or(Status::INTERNAL_ERROR)?;
        let underway = Underway::new(named, self.stripe);
        if self.is_over() {
            return Err(Status::ABORTED_QUEUE_DELETED);
        }
        let membership = self
            .membership_mut()
            .ok_or(Status::COMMAND_SEQUENCE.permanent())?;
        let (port, host) = (membership.session.port, membership.session.host_id);
        let found = membership.view.namespace(work.command.nsid, port);
        let found = found.filter(|(namespace, _)| Arc::ptr_eq(namespace, named));
        let (namespace, access) = found.ok_or(Status::INVALID_NAMESPACE.permanent())?;
        check_rights(namespace, access, &host, work.kind)?;
        if namespace.aborted.has(&host, work.mark) {
            return Err(Status::ABORTED_PREEMPTED);
        }
        if work.length != 0 {
            namespace.range(work.command.blocks())?;
        }
        Ok(underway)
    }

    fn task(
        &self,
        cid: u16,
        work: Work,
        length: usize,
        data_at: usize,
        buffer: Option<Buffer>,
    ) -> Result<Task, Status> {
        let Work {
            command,
            kind,
            namespace,
            offset,
            length: bytes,
            ..
        } = work;
        let namespace = namespace.ok_or(Status::INTERNAL_ERROR)?;
        let durable = self.is_durable(&command);
        let data = |buffer: Option<Buffer>| buffer.ok_or(Status::INTERNAL_ERROR);
        let action = match kind {
            Io::Read => buffer.map_or(Action::Lend, Action::Read),
            Io::Write => Action::Write {
                data: data(buffer)?,
                from: data_at,
                durable,
            },
            Io::Compare => Action::Compare(data(buffer)?),
            Io::Flush => Action::Flush,
            Io::Verify => Action::Verify,
            Io::WriteZeroes => {
                const DEALLOCATE: u32 = 1 << 25;
                Action::Zero {
                    deallocate: command.cdw12 & DEALLOCATE != 0,
                    durable,
                }
            }
            Io::DatasetManagement => {
                let buffer = data(buffer)?;
                Action::Discard(discarded(&namespace, &command, &buffer[..length])?)
            }
            Io::Copy => {
                let buffer = data(buffer)?;
                let (sources, bytes) = copied(&namespace, &command, &buffer[..length])?;
                let (offset, _) = namespace.range(wire::nvme::command::Blocks {
                    start: command.qword10(),
                    count: (bytes >> namespace.shift()) as u32,
                })?;
                let action = Action::Copy { sources, durable };
                return Ok(Task::new(cid, action, Some(namespace), offset, bytes));
            }
            Io::ReservationRegister
            | Io::ReservationReport
            | Io::ReservationAcquire
            | Io::ReservationRelease => return Err(Status::INTERNAL_ERROR),
        };
        Ok(Task::new(cid, action, Some(namespace), offset, bytes))
    }

    /// Whether the data of a write have to be on the medium when it completes.
    pub(super) fn is_durable(&self, command: &Command) -> bool {
        let writes_through =
            |session: &Arc<Session>| session.writes_through.load(Ordering::Relaxed);
        command.forces_unit_access() || self.session().is_some_and(writes_through)
    }

    fn reserve(&mut self, cid: u16, work: &Work, length: usize, buffer: Option<Buffer>) -> Outcome {
        let Some((session, namespace)) = self.session().cloned().zip(work.namespace.clone()) else {
            return self.reply(cid, Status::INTERNAL_ERROR, 0, None);
        };
        let underway = match self.begin(work) {
            Ok(underway) => underway,
            Err(status) => return self.reply(cid, status, 0, buffer),
        };
        if work.kind == Io::ReservationReport {
            // The extended data structure is for 128-bit Host Identifiers, which all NVMe-oF hosts have.
            let extended = work.command.cdw11 & 1 == 1;
            if !extended {
                return self.reply(cid, Status::HOST_ID_INCONSISTENT.permanent(), 0, None);
            }
            let report = namespace.reservations(|it| it.report(true));
            let buffer = buffer.map(|mut buffer| {
                let take = report.len().min(length);
                buffer[..take].copy_from_slice(&report[..take]);
                buffer[take..length].fill(0);
                buffer
            });
            return self.reply(cid, Status::SUCCESS, 0, buffer);
        }
        let data = buffer
            .as_deref()
            .and_then(|bytes| bytes.get(..length))
            .unwrap_or_default();
        let host = session.host_id;
        let change =
            namespace.change_reservations(|it| change(it, work.kind, &work.command, data, host));
        drop(underway);
        match change {
            Err(status) => self.reply(cid, status, 0, buffer),
            Ok(notices) => {
                if is_preempt_and_abort(work) {
                    let preempted = notices
                        .iter()
                        .filter(|(_, it)| *it == Notice::RegistrationPreempted);
                    namespace.aborted.add(preempted.map(|(host, _)| *host));
                }
                let mut state = self.target.lock();
                for controller in state.controllers.values_mut() {
                    let of_subsystem = controller.session.subsystem == session.subsystem;
                    let host_id = controller.session.host_id;
                    let told = notices.iter().filter(|(host, _)| *host == host_id);
                    for (_, notice) in told.filter(|_| of_subsystem) {
                        controller.reservation_changed(namespace.nsid(), *notice);
                    }
                }
                drop(state);
                // Commands that began before have ended when this one completes: Preempt and Abort aborts
                // those that wait for data, and waits for the others.
                self.reply_behind(cid, self.barrier(&[namespace]), buffer)
            }
        }
    }
}

fn change(
    it: &mut Reservations,
    kind: Io,
    command: &Command,
    data: &[u8],
    host: [u8; 16],
) -> Change {
    const IGNORE_KEY: u32 = 1 << 3;
    let ignores_key = command.cdw10 & IGNORE_KEY != 0;
    let action = command.cdw10 & 7;
    let reserved = ReservationType::parse((command.cdw10 >> 8) as u8);
    match kind {
        Io::ReservationRegister => {
            let (RegisterData { current, new }, _) = RegisterData::split(data).ok_or(INVALID)?;
            // "Change persist through power loss state" (Base figure 421).
            match command.cdw10 >> 30 {
                0 => {}
                2 => it.set_persistence(false)?,
                3 => it.request_persistence(),
                _ => return Err(INVALID),
            }
            let key = (!ignores_key).then_some(current);
            match action {
                0 => it.register(host, new),
                1 => it.unregister(host, key),
                2 => it.replace(host, key, new),
                _ => Err(INVALID),
            }
        }
        Io::ReservationAcquire if !ignores_key => {
            let (AcquireData { current, preempted }, _) =
                AcquireData::split(data).ok_or(INVALID)?;
            let kind = reserved.ok_or(INVALID)?;
            match action {
                0 => it.acquire(host, current, kind),
                1 | 2 => it.preempt(host, current, preempted, kind),
                _ => Err(INVALID),
            }
        }
        Io::ReservationRelease if !ignores_key => {
            let (ReleaseData { current }, _) = ReleaseData::split(data).ok_or(INVALID)?;
            match action {
                0 => it.release(host, current, reserved.ok_or(INVALID)?),
                1 => it.clear(host, current),
                _ => Err(INVALID),
            }
        }
        _ => Err(INVALID),
    }
}

fn request(cid: u16, direction: Direction, length: usize, work: Work) -> Request {
    let direction = if length == 0 {
        Direction::None
    } else {
        direction
    };
    Request {
        cid,
        direction,
        length,
        data_at: 0,
        work: QueueWork::Io(work),
    }
}

/// Determines the data of a command, and its range in the namespace.
fn plan(mut work: Work, namespace: Arc<Namespace>, described: u32) -> Result<Request, Status> {
    let command = work.command;
    let moved = match work.kind {
        Io::Read | Io::Write | Io::Compare => {
            // Blocks have no protection information.
            if command.protection() != 0 {
                return Err(INVALID);
            }
            (work.offset, work.length) = namespace.range(command.blocks())?;
            u32::try_from(work.length).map_err(|_| INVALID)?
        }
        Io::WriteZeroes | Io::Verify => {
            (work.offset, work.length) = namespace.range(command.blocks())?;
            if work.length > RANGE_BYTES_MAX {
                return Err(INVALID);
            }
            0
        }
        Io::DatasetManagement => ((command.cdw10 & 0xff) + 1) * Range::SIZE as u32,
        Io::Copy => {
            let ranges = (command.cdw12 & 0xff) + 1;
            if ranges > u32::from(COPY_RANGES_MAX) {
                return Err(Status::COMMAND_SIZE_LIMIT.permanent());
            }
            const FORMAT: u32 = 0xf << 8;
            if command.cdw12 & FORMAT != 0 {
                return Err(INVALID);
            }
            ranges * CopyRange::SIZE as u32
        }
        Io::Flush => 0,
        Io::ReservationRegister => RegisterData::SIZE as u32,
        Io::ReservationAcquire => AcquireData::SIZE as u32,
        Io::ReservationRelease => ReleaseData::SIZE as u32,
        Io::ReservationReport => {
            let bytes = (u64::from(command.cdw10) + 1) * 4;
            u32::try_from(bytes).map_err(|_| INVALID)?
        }
    };
    work.namespace = Some(namespace);
    let direction = Direction::of(command.opcode);
    let length = match work.kind {
        Io::Read | Io::Write | Io::Compare => transfer(moved, described)?,
        _ => structure(direction, moved, described)?,
    };
    Ok(request(command.cid, direction, length, work))
}

fn accessible(access: AnaState) -> Result<(), Status> {
    match access {
        AnaState::Optimized | AnaState::NonOptimized => Ok(()),
        AnaState::Inaccessible => Err(Status::ANA_INACCESSIBLE),
        AnaState::PersistentLoss => Err(Status::ANA_PERSISTENT_LOSS),
        AnaState::Change => Err(Status::ANA_TRANSITION),
    }
}

/// Checks that a host may execute a command of this kind.
fn check_rights(
    namespace: &Namespace,
    access: AnaState,
    host: &[u8; 16],
    kind: Io,
) -> Result<(), Status> {
    accessible(access)?;
    if !is_reservation(kind) && !namespace.permits(host, is_of_write_group(kind)) {
        return Err(Status::RESERVATION_CONFLICT.permanent());
    }
    if writes(kind) && namespace.is_read_only() {
        return Err(Status::NAMESPACE_WRITE_PROTECTED.permanent());
    }
    Ok(())
}

fn is_preempt_and_abort(work: &Work) -> bool {
    work.kind == Io::ReservationAcquire && work.command.cdw10 & 7 == 2
}

const fn writes(kind: Io) -> bool {
    matches!(
        kind,
        Io::Write | Io::WriteZeroes | Io::DatasetManagement | Io::Copy
    )
}

/// Whether a reservation treats the command as a write (Base figure 587).
const fn is_of_write_group(kind: Io) -> bool {
    writes(kind) || matches!(kind, Io::Flush)
}

const fn is_reservation(kind: Io) -> bool {
    matches!(
        kind,
        Io::ReservationRegister
            | Io::ReservationReport
            | Io::ReservationAcquire
            | Io::ReservationRelease
    )
}

/// The ranges that Dataset Management deallocates, in bytes. Its other attributes are hints, which are
/// ignored.
fn discarded(
    namespace: &Namespace,
    command: &Command,
    data: &[u8],
) -> Result<Vec<(u64, u64)>, Status> {
    let mut ranges = Vec::new();
    let named = (command.cdw10 & 0xff) as usize + 1;
    for chunk in data.chunks_exact(Range::SIZE).take(named) {
        let (range, _) = Range::split(chunk).ok_or(INVALID)?;
        let blocks = wire::nvme::command::Blocks {
            start: range.start,
            count: range.count,
        };
        let bytes = namespace.range(blocks)?;
        if command.cdw11 & dsm::DEALLOCATE != 0 && bytes.1 != 0 {
            ranges.push(bytes);
        }
    }
    Ok(ranges)
}

/// The source ranges of a Copy in bytes, and their total length.
fn copied(
    namespace: &Namespace,
    command: &Command,
    data: &[u8],
) -> Result<(Vec<(u64, u64)>, u64), Status> {
    let mut ranges = Vec::new();
    let mut bytes = 0;
    for chunk in data
        .chunks_exact(CopyRange::SIZE)
        .take((command.cdw12 & 0xff) as usize + 1)
    {
        let (range, _) = CopyRange::split(chunk).ok_or(INVALID)?;
        let count = u32::from(range.count_less_one) + 1;
        let range = namespace.range(wire::nvme::command::Blocks {
            start: range.start,
            count,
        })?;
        bytes += range.1;
        ranges.push(range);
    }
    if bytes > TRANSFER_BYTES_MAX as u64 {
        return Err(Status::COMMAND_SIZE_LIMIT.permanent());
    }
    Ok((ranges, bytes))
}
