//! Reads and writes stores: immediately where the store does not block, with io_uring where the kernel waits
//! for a disk, and otherwise by blocking calls in the thread of the connection.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Once};

use slab::Slab;
use wire::nvme::Status;

use crate::controller::{Admitted, Barrier, Counted, Effect, Namespace};
use crate::latency::{Class, Observer, QueueName};
use crate::store::{Clear, Lent, Store};
use crate::sys::file::is_full;
use crate::sys::ring::{Completion, Operation, Ring};
use buffer::Buffer;

/// Entries of the io_uring of one connection; further operations wait.
const RING_ENTRIES: u32 = 256;
/// Completions of the ring that are processed in one round. After many completions at once the disk is idle
/// until the hosts have their responses and send new commands; a limit per round sends the first responses
/// while the others are still queued.
const ROUND_COMPLETIONS: usize = 2;
/// Operations that are submitted to the kernel at once. The kernel prepares all operations of a submission,
/// at 2 us each, before the disk gets the first one. A disk that has no other work is idle meanwhile.
const SUBMITTED_AT_ONCE: usize = 4;
/// Bytes that Verify and Compare read at a time.
const PIECE: usize = 256 << 10;

/// The action of a task.
#[derive(Debug)]
pub enum Action {
    /// Read into the buffer.
    Read(Buffer),
    /// Read without a buffer: the store lends its own memory.
    Lend,
    /// Write bytes of the buffer.
    Write {
        /// Buffer with the bytes to write.
        data: Buffer,
        /// Where the bytes to write begin in the buffer: 0 for disks that block.
        from: usize,
        /// Whether the data have to be on the medium before the task finishes (FUA).
        durable: bool,
    },
    /// Compare the store with the buffer.
    Compare(Buffer),
    /// Compare and Write: compare, and if the data are equal, write; fused operations of other commands are
    /// excluded meanwhile.
    CompareAndWrite {
        /// The identifier (CID) of the Compare command.
        first_cid: u16,
        /// The expected data.
        expected: Buffer,
        /// The data to write.
        data: Buffer,
        /// Whether the data have to be on the medium before the task finishes (FUA).
        durable: bool,
    },
    /// Nothing: the command has been executed, and completes behind a barrier.
    Nothing(Option<Buffer>),
    /// Flush one namespace to the medium.
    Flush,
    /// Flush several namespaces.
    FlushAll(Vec<Arc<Namespace>>),
    /// Read and discard the data, to find read errors.
    Verify,
    /// Makes a range read as zeros.
    Zero {
        /// Whether the blocks may be deallocated.
        deallocate: bool,
        /// Whether the zeros have to be on the medium before the task finishes (FUA).
        durable: bool,
    },
    /// Deallocate ranges: first byte and length of each.
    Discard(Vec<(u64, u64)>),
    /// Copy these ranges, one behind the other, to the offset of the task.
    Copy {
        /// The ranges to read: first byte and length of each.
        sources: Vec<(u64, u64)>,
        /// Whether the data have to be on the medium before the task finishes (FUA).
        durable: bool,
    },
}

/// An operation on a namespace for one command.
#[derive(Debug)]
pub struct Task {
    cid: u16,
    action: Action,
    namespace: Option<Arc<Namespace>>,
    offset: u64,
    length: u64,
    /// Counts the command until it is finished, for barriers.
    underway: Option<Counted>,
    /// What has to pass before the task begins.
    behind: Option<Barrier>,
    /// An identifier that the transport chose for the command.
    pub tag: u32,
}

impl Task {
    pub(crate) fn new(
        cid: u16,
        action: Action,
        namespace: Option<Arc<Namespace>>,
        offset: u64,
        length: u64,
    ) -> Self {
        let (underway, behind) = (None, None);
        Self {
            cid,
            action,
            namespace,
            offset,
            length,
            underway,
            behind,
            tag: 0,
        }
    }

    /// A task that begins when a barrier has passed.
    pub(crate) fn behind(barrier: Barrier, cid: u16, action: Action) -> Self {
        Self {
            behind: Some(barrier),
            ..Self::new(cid, action, None, 0, 0)
        }
    }

    /// The task of a command that is counted.
    #[must_use]
    pub(crate) fn counted(self, underway: Counted) -> Self {
        Self {
            underway: Some(underway),
            ..self
        }
    }
}

/// The result of a task.
#[derive(Debug)]
pub struct Finished {
    /// The identifier of the command (CID).
    pub cid: u16,
    /// The status of the completion.
    pub status: Status,
    /// CID and status of the first command of a fused pair.
    pub first_of_pair: Option<(u16, Status)>,
    /// The buffer of the task, with the data that were read at its start.
    pub buffer: Option<Buffer>,
    /// Data for the host in the memory of the store, instead of in a buffer.
    pub lent: Option<Lent>,
    /// The number of bytes for the host, in the buffer or lent.
    pub length: usize,
    /// An identifier that the transport chose for the command.
    pub tag: u32,
    /// Counts the command until its completion is queued.
    _underway: Option<Counted>,
}

/// A task that the kernel executes.
#[derive(Debug)]
struct InKernel {
    cid: u16,
    tag: u32,
    /// Given back when the kernel has finished, also if the connection ended meanwhile.
    namespace: Admitted,
    is_read: bool,
    length: usize,
    offset: u64,
    durable: bool,
    began_ns: u64,
    underway: Option<Counted>,
}

/// Executes the tasks of one connection.
#[derive(Debug, Default)]
pub struct Engine {
    ring: RingState,
    in_kernel: Slab<InKernel>,
    /// Completions of the ring that were processed in this round.
    taken: usize,
    finished: VecDeque<Finished>,
    /// Tasks whose barrier has not passed.
    behind: Vec<Task>,
    observer: Observer,
}

#[derive(Debug, Default)]
enum RingState {
    /// No task has needed a ring yet.
    #[default]
    Untried,
    Here(Box<Ring>),
    /// The kernel refuses io_uring to this process: files are read and written by blocking calls.
    Refused,
}

impl Engine {
    /// An engine without tasks.
    pub fn new() -> Self {
        Self::default()
    }

    /// A descriptor that is readable when [`Engine::finished`] has a result; `None` while there is no ring.
    pub fn descriptor(&self) -> Option<RawFd> {
        match &self.ring {
            RingState::Here(ring) => Some(ring.as_raw_fd()),
            RingState::Untried | RingState::Refused => None,
        }
    }

    /// Begins a round of the thread: the latency of tasks that begin in it counts from `now_ns`.
    pub fn begin_round(&mut self, now_ns: u64) {
        self.taken = 0;
        self.observer.begin_round(now_ns);
    }

    /// Ends a round: tasks that finished in it count as finished at `now_ns`, for the queue that `name`
    /// returns.
    pub fn end_round(&mut self, now_ns: u64, name: &dyn Fn() -> Option<QueueName>) {
        self.observer.end_round(now_ns, name);
    }

    /// The number of tasks that the kernel executes.
    pub fn in_kernel(&self) -> usize {
        self.in_kernel.len()
    }

    /// Begins a task, which may finish at once. [`Engine::submit`] has to be called before waiting.
    pub fn begin(&mut self, mut task: Task) {
        if task
            .behind
            .as_ref()
            .is_some_and(|barrier| !barrier.has_passed())
        {
            return self.behind.push(task);
        }
        let Some(namespace) = task.namespace.take() else {
            let finished = self.run_on_all(task);
            return self.finished.push_back(finished);
        };
        let finished = match task.action.effect() {
            None => self.run_alone(task, &namespace),
            Some(effect) => match self.admit(namespace, effect) {
                Err(status) => task.failed(status),
                Ok(namespace) => match self.hand_over(task, namespace) {
                    None => return self.submit_if_many(),
                    Some((task, namespace)) => run(task, &namespace, &mut self.observer),
                },
            },
        };
        self.finished.push_back(finished);
    }

    /// Executes a task at once, if its store is in memory. Returns any other task.
    ///
    /// # Errors
    /// The task, for [`Engine::begin`].
    #[expect(
        clippy::result_large_err,
        reason = "the task is not an error, and boxing it would allocate"
    )]
    pub fn run_in_memory(&mut self, mut task: Task) -> Result<Finished, Task> {
        let Some(namespace) = task.namespace.take_if(|it| it.store().is_memory()) else {
            return Err(task);
        };
        Ok(match task.action.effect() {
            None => self.run_alone(task, &namespace),
            Some(effect) => match self.admit(namespace, effect) {
                Err(status) => task.failed(status),
                Ok(namespace) => run(task, &namespace, &mut self.observer),
            },
        })
    }

    /// Waits until a task may act on its namespace. Before the thread sleeps for that, the tasks that it has
    /// in the kernel are finished: the other commands may wait for them.
    fn admit(&mut self, namespace: Arc<Namespace>, effect: Effect) -> Result<Admitted, Status> {
        match Admitted::at_once(namespace, effect) {
            Ok(admitted) => Ok(admitted),
            Err(namespace) => {
                self.drain()?;
                Ok(Admitted::in_turn(namespace, effect))
            }
        }
    }

    /// Executes a task that excludes all changes by other commands.
    fn run_alone(&mut self, task: Task, namespace: &Namespace) -> Finished {
        if let Err(status) = self.drain() {
            return task.failed(status);
        }
        let _alone = namespace.exclude_changes();
        run(task, namespace, &mut self.observer)
    }

    /// Flushes the namespaces of a task that has several.
    fn run_on_all(&mut self, task: Task) -> Finished {
        let Task {
            cid,
            action,
            underway,
            tag,
            ..
        } = task;
        let (all, buffer) = match action {
            Action::FlushAll(all) => (all, None),
            Action::Nothing(buffer) => (Vec::new(), buffer),
            _ => (Vec::new(), None),
        };
        let flush = |namespace| {
            let namespace = self.admit(namespace, Effect::Reads)?;
            match status_of(&namespace.store().flush(), true) {
                Status::SUCCESS => Ok(()),
                status => Err(status),
            }
        };
        // All are flushed, also behind one that fails.
        let results: Vec<_> = all.into_iter().map(flush).collect();
        let status = results
            .into_iter()
            .find_map(Result::err)
            .unwrap_or(Status::SUCCESS);
        let (first_of_pair, lent, length) = (None, None, 0);
        Finished {
            cid,
            status,
            first_of_pair,
            buffer,
            lent,
            length,
            tag,
            _underway: underway,
        }
    }

    /// Submits the queued operations to the kernel.
    pub fn submit(&mut self) {
        if let RingState::Here(ring) = &mut self.ring
            && let Err(error) = ring.submit()
        {
            // The kernel took none of the operations.
            tracing::warn!(
                "io_uring took no operations, and gets them again in the next round: {error}"
            );
        }
    }

    /// Submits the queued operations once there are [`SUBMITTED_AT_ONCE`].
    fn submit_if_many(&mut self) {
        if matches!(&self.ring, RingState::Here(ring) if ring.unsubmitted() >= SUBMITTED_AT_ONCE) {
            self.submit();
        }
    }

    /// The next finished task. A round returns a few; the others follow in the next round.
    pub fn finished(&mut self) -> Option<Finished> {
        let has_passed = |task: &Task| task.behind.as_ref().is_none_or(Barrier::has_passed);
        if let Some(at) = self.behind.iter().position(has_passed) {
            let task = self.behind.remove(at);
            self.begin(task);
        }
        if let Some(finished) = self.finished.pop_front() {
            return Some(finished);
        }
        if self.taken >= ROUND_COMPLETIONS {
            return None;
        }
        let RingState::Here(ring) = &mut self.ring else {
            return None;
        };
        let completion = ring.completed()?;
        self.taken += 1;
        let waiting = self.in_kernel.try_remove(completion.token as usize)?;
        Some(conclude(waiting, completion, &mut self.observer))
    }

    /// Waits until the kernel has finished all tasks.
    ///
    /// # Errors
    /// Internal Error, when the kernel does not say whether it has finished.
    fn drain(&mut self) -> Result<(), Status> {
        while !self.in_kernel.is_empty() {
            let RingState::Here(ring) = &mut self.ring else {
                return Err(Status::INTERNAL_ERROR);
            };
            if let Err(error) = ring.wait() {
                tracing::error!("io_uring cannot be waited for: {error}");
                return Err(Status::INTERNAL_ERROR);
            }
            while let Some(completion) = ring.completed() {
                if let Some(waiting) = self.in_kernel.try_remove(completion.token as usize) {
                    self.finished
                        .push_back(conclude(waiting, completion, &mut self.observer));
                }
            }
        }
        Ok(())
    }

    fn ring(&mut self) -> Option<&mut Ring> {
        if matches!(self.ring, RingState::Untried) {
            self.ring = match Ring::new(RING_ENTRIES) {
                Ok(ring) => RingState::Here(Box::new(ring)),
                Err(error) => {
                    static ONCE: Once = Once::new();
                    ONCE.call_once(|| {
                        tracing::warn!(
                            "io_uring is refused, and blocking calls are used instead: {error}"
                        );
                    });
                    RingState::Refused
                }
            };
        }
        match &mut self.ring {
            RingState::Here(ring) => Some(ring),
            RingState::Untried | RingState::Refused => None,
        }
    }

    /// Returns the task when the kernel cannot execute it as one operation: there is no ring, or it is full.
    fn hand_over(&mut self, task: Task, namespace: Admitted) -> Option<(Task, Admitted)> {
        let Store::File(file) = namespace.store() else {
            return Some((task, namespace));
        };
        let file = Arc::clone(file);
        if !task.action.suits_a_ring() || !self.ring().is_some_and(|ring| ring.has_room()) {
            return Some((task, namespace));
        }
        // The store returns the error, in this thread.
        let refused = match &task.action {
            Action::Flush | Action::Write { durable: true, .. } => file.check_flush().is_err(),
            Action::Write { .. } => file.check_length().is_err(),
            _ => false,
        };
        if refused {
            return Some((task, namespace));
        }
        let Task {
            cid,
            action,
            offset,
            length,
            tag,
            underway,
            ..
        } = task;
        let bytes = length as usize;
        let (operation, is_read, length, durable) = match action {
            Action::Read(buffer) => (
                Operation::Read {
                    buffer,
                    length: bytes,
                },
                true,
                bytes,
                false,
            ),
            Action::Write {
                data,
                from: 0,
                durable,
            } => (
                Operation::Write {
                    buffer: data,
                    length: bytes,
                    durable,
                },
                false,
                bytes,
                durable,
            ),
            Action::Flush => (Operation::Flush, false, 0, false),
            action => {
                let task = Task {
                    cid,
                    action,
                    namespace: None,
                    offset,
                    length,
                    underway,
                    behind: None,
                    tag,
                };
                return Some((task, namespace));
            }
        };
        let began_ns = self.observer.now_ns();
        let waiting = InKernel {
            cid,
            tag,
            namespace,
            is_read,
            length,
            offset,
            durable,
            began_ns,
            underway,
        };
        let token = self.in_kernel.insert(waiting) as u64;
        if let RingState::Here(ring) = &mut self.ring {
            let pushed = ring.push(file.file(), offset, operation, token);
            debug_assert!(pushed.is_ok(), "it had room");
        }
        None
    }
}

impl Drop for Engine {
    /// The connection may end while the kernel executes its tasks. Their buffers, and their places among the
    /// commands of the namespaces, are given back when the kernel has finished, and a failed flush is noted.
    fn drop(&mut self) {
        if self.drain().is_err() {
            // The kernel may still change the medium.
            std::mem::forget(std::mem::take(&mut self.in_kernel));
        }
    }
}

impl Action {
    /// What the task does to the medium; `None` for one that excludes changes by other commands.
    fn effect(&self) -> Option<Effect> {
        match self {
            Self::Read(_) | Self::Lend | Self::Compare(_) | Self::Verify => Some(Effect::Reads),
            Self::Nothing(_) | Self::Flush | Self::FlushAll(_) => Some(Effect::Reads),
            Self::Write { .. } | Self::Zero { .. } | Self::Discard(_) | Self::Copy { .. } => {
                Some(Effect::Changes)
            }
            Self::CompareAndWrite { .. } => None,
        }
    }

    /// Whether one operation of io_uring does the whole task.
    fn suits_a_ring(&self) -> bool {
        matches!(self, Self::Read(_) | Self::Flush | Self::Write { .. })
    }
}

impl Task {
    /// The result of a task that was not executed.
    fn failed(self, status: Status) -> Finished {
        let Self {
            cid,
            action,
            underway,
            tag,
            ..
        } = self;
        let first_of_pair = match action {
            Action::CompareAndWrite { first_cid, .. } => Some((first_cid, status)),
            _ => None,
        };
        let lent = matches!(action, Action::Lend).then(Lent::default);
        let length = if lent.is_some() {
            self.length as usize
        } else {
            0
        };
        Finished {
            cid,
            status,
            first_of_pair,
            buffer: None,
            lent,
            length,
            tag,
            _underway: underway,
        }
    }
}

fn conclude(waiting: InKernel, completion: Completion, observer: &mut Observer) -> Finished {
    let InKernel {
        cid,
        tag,
        namespace,
        is_read,
        length,
        offset,
        durable,
        began_ns,
        underway,
    } = waiting;
    let Completion {
        result, mut buffer, ..
    } = completion;
    // The kernel may transfer fewer bytes than requested, for example at the end of a file: the rest is
    // transferred here.
    let result = result.and_then(|done| match buffer.as_deref_mut() {
        Some(bytes) if done < length => {
            let rest = bytes.get_mut(done..length).unwrap_or_default();
            let at = offset + done as u64;
            match is_read {
                true => namespace.store().read(at, rest),
                false => namespace.store().write(at, rest, durable),
            }
        }
        _ => Ok(()),
    });
    if let Store::File(file) = namespace.store()
        && !is_read
        && (length == 0 || durable && !file.is_direct())
    {
        // A failed direct write concerns its own bytes; a failed flush concerns all bytes that were written
        // before.
        file.flushed(&result);
    }
    let status = status_of(&result, !is_read);
    count(&namespace, length, is_read, length != 0, status);
    observer.ended(namespace.observed(), class(is_read, length != 0), began_ns);
    let length = if is_read { length } else { 0 };
    Finished {
        cid,
        status,
        first_of_pair: None,
        buffer,
        lent: None,
        length,
        tag,
        _underway: underway,
    }
}

/// The completion status for an error of a file.
fn status_of(result: &io::Result<()>, wrote: bool) -> Status {
    match result {
        Ok(()) => Status::SUCCESS,
        Err(error) if is_full(error) => Status::CAPACITY_EXCEEDED.permanent(),
        Err(_) if wrote => Status::WRITE_FAULT,
        Err(_) => Status::UNRECOVERED_READ,
    }
}

fn count(namespace: &Namespace, length: usize, is_read: bool, has_data: bool, status: Status) {
    let counters = &namespace.counters;
    let (commands, bytes) = match (has_data, is_read) {
        (false, _) => (&counters.others, None),
        (true, true) => (&counters.reads, Some(&counters.read_bytes)),
        (true, false) => (&counters.writes, Some(&counters.written_bytes)),
    };
    commands.fetch_add(1, Ordering::Relaxed);
    if let Some(bytes) = bytes {
        bytes.fetch_add(length as u64, Ordering::Relaxed);
    }
    if !status.is_success() {
        counters.errors.fetch_add(1, Ordering::Relaxed);
    }
}

fn class(is_read: bool, has_data: bool) -> Class {
    match (has_data, is_read) {
        (false, _) => Class::Other,
        (true, true) => Class::Read,
        (true, false) => Class::Write,
    }
}

/// Executes a task by blocking calls.
fn run(task: Task, namespace: &Namespace, observer: &mut Observer) -> Finished {
    let Task {
        cid,
        action,
        offset,
        length,
        underway,
        tag,
        ..
    } = task;
    let (status, first_of_pair, lent) = (Status::SUCCESS, None, None);
    let mut finished = Finished {
        cid,
        status,
        first_of_pair,
        buffer: None,
        lent,
        length: 0,
        tag,
        _underway: underway,
    };
    let store = namespace.store();
    let bytes = length as usize;
    let (is_read, has_data) = match &action {
        Action::Read(_) | Action::Lend | Action::Compare(_) | Action::Verify => (true, true),
        Action::Write { .. } | Action::CompareAndWrite { .. } | Action::Copy { .. } => {
            (false, true)
        }
        Action::Nothing(_)
        | Action::Flush
        | Action::FlushAll(_)
        | Action::Zero { .. }
        | Action::Discard(_) => (false, false),
    };
    finished.status = match action {
        Action::Read(mut buffer) => {
            let result = store.read(offset, &mut buffer[..bytes]);
            (finished.buffer, finished.length) = (Some(buffer), bytes);
            status_of(&result, false)
        }
        Action::Lend => {
            let lent = store.lend(offset, bytes);
            let status = if lent.is_some() {
                Status::SUCCESS
            } else {
                Status::INTERNAL_ERROR
            };
            (finished.lent, finished.length) = (Some(lent.unwrap_or_default()), bytes);
            status
        }
        Action::Write {
            data,
            from,
            durable,
        } => {
            let (result, back) = store.write_buffer(offset, data, from..from + bytes, durable);
            let status = status_of(&result, true);
            finished.buffer = Some(back);
            status
        }
        Action::Compare(expected) => {
            let status = compare(store, offset, &expected[..bytes]);
            finished.buffer = Some(expected);
            status
        }
        Action::CompareAndWrite {
            first_cid,
            expected,
            data,
            durable,
        } => {
            let (first, second) =
                compare_and_write(store, offset, &expected[..bytes], &data[..bytes], durable);
            finished.first_of_pair = Some((first_cid, first));
            finished.buffer = Some(data);
            second
        }
        Action::Nothing(buffer) => {
            finished.buffer = buffer;
            Status::SUCCESS
        }
        Action::Flush | Action::FlushAll(_) => status_of(&store.flush(), true),
        Action::Verify => verify(store, offset, length),
        Action::Zero {
            deallocate,
            durable,
        } => {
            let how = if deallocate {
                Clear::Deallocate
            } else {
                Clear::Zero
            };
            status_of(&zero(store, how, offset, length, durable), true)
        }
        Action::Discard(ranges) => {
            let clear = |(offset, length)| store.clear(Clear::Deallocate, offset, length);
            status_of(&ranges.into_iter().try_for_each(clear), true)
        }
        Action::Copy { sources, durable } => copy(store, offset, length, &sources, durable),
    };
    count(namespace, bytes, is_read, has_data, finished.status);
    observer.ended(
        namespace.observed(),
        class(is_read, has_data),
        observer.now_ns(),
    );
    finished
}

/// Makes a range read as zeros: writes zeros where the file system cannot punch a hole.
fn zero(store: &Store, how: Clear, offset: u64, length: u64, durable: bool) -> io::Result<()> {
    let can_hole = matches!(store, Store::File(file) if file.can_clear());
    let how = if can_hole { how } else { Clear::Zero };
    store.clear(how, offset, length)?;
    if how == Clear::Deallocate && matches!(store, Store::File(file) if !file.can_clear()) {
        store.clear(Clear::Zero, offset, length)?;
    }
    if durable { store.flush() } else { Ok(()) }
}

fn compare(store: &Store, offset: u64, expected: &[u8]) -> Status {
    let mut found = Buffer::zeroed(expected.len().min(PIECE));
    for (index, piece) in expected.chunks(PIECE).enumerate() {
        let place = &mut found[..piece.len()];
        if let Err(error) = store.read(offset + (index * PIECE) as u64, place) {
            return status_of(&Err(error), false);
        }
        if *place != *piece {
            return Status::COMPARE_FAILURE.permanent();
        }
    }
    Status::SUCCESS
}

fn compare_and_write(
    store: &Store,
    offset: u64,
    expected: &[u8],
    data: &[u8],
    durable: bool,
) -> (Status, Status) {
    let first = compare(store, offset, expected);
    if !first.is_success() {
        return (first, Status::ABORTED_FUSED_FAILED.permanent());
    }
    (first, status_of(&store.write(offset, data, durable), true))
}

fn verify(store: &Store, offset: u64, length: u64) -> Status {
    let mut found = Buffer::zeroed(PIECE.min(length as usize));
    let mut done = 0;
    while done < length {
        let take = (length - done).min(found.len() as u64);
        if let Err(error) = store.read(offset + done, &mut found[..take as usize]) {
            return status_of(&Err(error), false);
        }
        done += take;
    }
    Status::SUCCESS
}

fn copy(store: &Store, offset: u64, length: u64, sources: &[(u64, u64)], durable: bool) -> Status {
    // All sources are read before the destination is written, because the ranges may overlap.
    let mut data = Buffer::zeroed(length as usize);
    let mut done = 0;
    for (from, bytes) in sources {
        let place = &mut data[done..done + *bytes as usize];
        if let Err(error) = store.read(*from, place) {
            return status_of(&Err(error), false);
        }
        done += *bytes as usize;
    }
    status_of(&store.write(offset, &data[..done], durable), true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::Identity;
    use crate::store::FileStore;

    const BLOCK: u64 = 4096;

    fn file_namespace(folder: &tempfile::TempDir, bytes: u64) -> Arc<Namespace> {
        let path = folder.path().join("disk");
        FileStore::extend(&path, bytes).unwrap();
        let file = FileStore::open(&path, BLOCK as usize, false, true).unwrap();
        file.promise(bytes);
        let identity = Identity::of(&"nqn.2024-01.org.example:disk".parse().unwrap(), 1);
        Arc::new(Namespace::new(
            1,
            identity,
            BLOCK as u32,
            bytes,
            Store::File(Arc::new(file)),
        ))
    }

    fn write_of(namespace: &Arc<Namespace>, cid: u16) -> Task {
        let write = Action::Write {
            data: Buffer::zeroed(4096),
            from: 0,
            durable: false,
        };
        Task::new(cid, write, Some(Arc::clone(namespace)), 0, BLOCK)
    }

    fn compare_and_write_of(namespace: &Arc<Namespace>) -> Task {
        let [expected, data] = [0, 1].map(|byte| {
            let mut buffer = Buffer::zeroed(4096);
            buffer.fill(byte);
            buffer
        });
        let action = Action::CompareAndWrite {
            first_cid: 1,
            expected,
            data,
            durable: false,
        };
        Task::new(2, action, Some(Arc::clone(namespace)), 0, BLOCK)
    }

    #[test]
    fn writes_of_an_ended_connection_do_not_hold_up_compare_and_write() {
        let folder = tempfile::tempdir().unwrap();
        let namespace = file_namespace(&folder, 1 << 16);
        let mut ended = Engine::new();
        (0..3).for_each(|cid| ended.begin(write_of(&namespace, cid)));
        assert_eq!(
            (namespace.in_flight(), ended.in_kernel()),
            (3, 3),
            "the test needs io_uring"
        );
        drop(ended);
        assert_eq!(namespace.in_flight(), 0);
        let mut other = Engine::new();
        other.begin(compare_and_write_of(&namespace));
        let finished = other.finished().unwrap();
        assert_eq!(
            (finished.status, finished.first_of_pair),
            (Status::SUCCESS, Some((1, Status::SUCCESS)))
        );
        assert_eq!(namespace.in_flight(), 0);
    }

    /// A thread with writes in the kernel waits for a Compare and Write that waits for these writes.
    #[test]
    fn a_write_behind_a_waiting_compare_and_write_finishes_earlier_writes_first() {
        let folder = tempfile::tempdir().unwrap();
        let namespace = file_namespace(&folder, 1 << 16);
        let mut engine = Engine::new();
        engine.begin(write_of(&namespace, 7));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut other = Engine::new();
                other.begin(compare_and_write_of(&namespace));
                assert_eq!(
                    other.finished().unwrap().first_of_pair,
                    Some((1, Status::SUCCESS))
                );
            });
            while namespace.in_flight() != 2 {
                std::thread::yield_now();
            }
            engine.begin(write_of(&namespace, 8));
            assert_eq!(engine.finished().unwrap().cid, 7);
        });
        drop(engine);
        assert_eq!(namespace.in_flight(), 0);
    }

    /// Each of these changes the medium, and waits for a Compare and Write as for any exclusion.
    #[test]
    fn no_change_begins_while_changes_are_excluded() {
        let folder = tempfile::tempdir().unwrap();
        let memory = || {
            let identity = Identity::of(&"nqn.2024-01.org.example:disk".parse().unwrap(), 2);
            let store = Store::Memory(crate::store::Memory::new(1 << 16).unwrap());
            Arc::new(Namespace::new(2, identity, BLOCK as u32, 1 << 16, store))
        };
        let changes: [fn() -> Action; 7] = [
            || Action::Write {
                data: Buffer::zeroed(4096),
                from: 0,
                durable: false,
            },
            || Action::Write {
                data: Buffer::zeroed(4096),
                from: 0,
                durable: true,
            },
            || Action::Zero {
                deallocate: false,
                durable: false,
            },
            || Action::Zero {
                deallocate: true,
                durable: true,
            },
            || Action::Discard(vec![(0, BLOCK)]),
            || Action::Copy {
                sources: vec![(BLOCK, BLOCK)],
                durable: false,
            },
            || {
                let [expected, data] = [(); 2].map(|()| Buffer::zeroed(4096));
                Action::CompareAndWrite {
                    first_cid: 1,
                    expected,
                    data,
                    durable: false,
                }
            },
        ];
        for namespace in [file_namespace(&folder, 1 << 16), memory()] {
            for change in changes {
                let alone = namespace.exclude_changes();
                std::thread::scope(|scope| {
                    let changing = scope.spawn(|| {
                        let mut engine = Engine::new();
                        engine.begin(Task::new(
                            9,
                            change(),
                            Some(Arc::clone(&namespace)),
                            0,
                            BLOCK,
                        ));
                        engine.drain().unwrap();
                        assert_eq!(engine.finished().unwrap().status, Status::SUCCESS);
                    });
                    // It has come, and neither acts nor has ended.
                    while namespace.in_flight() != 2 && !changing.is_finished() {
                        std::thread::yield_now();
                    }
                    assert!(!changing.is_finished(), "{:?}", change());
                    drop(alone);
                });
                assert_eq!(namespace.in_flight(), 0);
            }
        }
    }

    #[test]
    fn many_operations_reach_the_disk_before_the_round_ends() {
        let folder = tempfile::tempdir().unwrap();
        let namespace = file_namespace(&folder, 1 << 16);
        let mut engine = Engine::new();
        let unsubmitted: Vec<_> = { 0..SUBMITTED_AT_ONCE as u16 + 1 }
            .map(|cid| {
                let read = Action::Read(Buffer::zeroed(4096));
                engine.begin(Task::new(cid, read, Some(Arc::clone(&namespace)), 0, 4096));
                let RingState::Here(ring) = &engine.ring else {
                    panic!("the test needs io_uring")
                };
                ring.unsubmitted()
            })
            .collect();
        assert_eq!(unsubmitted, [1, 2, 3, 0, 1]);
        engine.drain().unwrap();
        assert_eq!(
            engine
                .finished
                .iter()
                .filter(|it| it.status.is_success())
                .count(),
            unsubmitted.len()
        );
    }
}
