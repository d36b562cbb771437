//! Brings data to and from stores: at once where that takes no time, with io_uring where the kernel has to
//! wait for a disk, and otherwise in the thread that asks.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use slab::Slab;
use wire::nvme::Status;

use crate::latency::{Class, Observer};
use crate::store::{Clear, FileStore, Lent, Store};
use crate::sys::file::is_full;
use crate::sys::ring::{Completion, Operation, Ring};
use crate::target::{Namespace, Queue};
use rdma::Buffer;

/// Operations that one connection's ring has at once; more wait.
const RING_ENTRIES: u32 = 256;
/// Completions of a ring that one round takes. Disks finish many at once, and would have nothing to do until
/// hosts have heard of them all and sent as many: this way the first of those come while others are told of.
const ROUND_COMPLETIONS: usize = 2;
/// What Verify and Compare read at once.
const PIECE: usize = 256 << 10;

/// What to do.
#[derive(Debug)]
pub enum Action {
    /// Fill the buffer.
    Read(Buffer),
    /// Read without a buffer, from a store that lends.
    Lend,
    /// Write the buffer.
    Write {
        /// From where.
        data: Buffer,
        /// Whether it has to be on the medium.
        durable: bool,
    },
    /// Compare with the buffer.
    Compare(Buffer),
    /// Compare, and if nothing differs, write, with no other such pair between.
    CompareAndWrite {
        /// The command that compares.
        first_cid: u16,
        /// What has to be there.
        expected: Buffer,
        /// What is written.
        data: Buffer,
        /// Whether it has to be on the medium.
        durable: bool,
    },
    /// Bring what was written to the medium.
    Flush,
    /// The same for several.
    FlushAll(Vec<Arc<Namespace>>),
    /// Read, and see whether that works.
    Verify,
    /// Make zeros.
    Zero {
        /// Whether their room may be given back.
        deallocate: bool,
        /// Whether they have to be on the medium.
        durable: bool,
    },
    /// Give room back, by first byte and length.
    Discard(Vec<(u64, u64)>),
    /// Write what is read from these places, by first byte and length, one behind the other.
    Copy {
        /// From where.
        sources: Vec<(u64, u64)>,
        /// Whether it has to be on the medium.
        durable: bool,
    },
}

/// Something to do with a namespace.
#[derive(Debug)]
pub struct Task {
    cid: u16,
    action: Action,
    namespace: Option<Arc<Namespace>>,
    offset: u64,
    length: u64,
    /// The transport's own name for the command.
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
        Self { cid, action, namespace, offset, length, tag: 0 }
    }
}

/// What was done.
#[derive(Debug)]
pub struct Finished {
    /// The command.
    pub cid: u16,
    /// How it went.
    pub status: Status,
    /// The first of a fused pair, and how that went.
    pub first_of_pair: Option<(u16, Status)>,
    /// The task's buffer, with what was read at its start.
    pub buffer: Option<Buffer>,
    /// Bytes for the host instead of a buffer.
    pub lent: Option<Lent>,
    /// Bytes for the host, at the start of the buffer, or lent.
    pub length: usize,
    /// The transport's own name for the command.
    pub tag: u32,
}

/// What waits for the kernel.
#[derive(Debug)]
struct InKernel {
    cid: u16,
    tag: u32,
    namespace: Arc<Namespace>,
    is_read: bool,
    length: usize,
    offset: u64,
    durable: bool,
    began_ns: u64,
}

/// A connection's way to stores.
#[derive(Debug, Default)]
pub struct Engine {
    ring: RingState,
    in_kernel: Slab<InKernel>,
    /// Completions of the ring that were taken in this round.
    taken: usize,
    finished: VecDeque<Finished>,
    observer: Observer,
}

#[derive(Debug, Default)]
enum RingState {
    /// Nobody needed one yet.
    #[default]
    Untried,
    Here(Box<Ring>),
    /// The kernel does not let us: files are read and written in the thread that asks.
    Refused,
}

impl Engine {
    /// An engine that has nothing to do.
    pub fn new() -> Self {
        Self::default()
    }

    /// A descriptor that can be read when [`Engine::finished`] has something; `None` while there is no ring.
    pub fn descriptor(&self) -> Option<RawFd> {
        match &self.ring {
            RingState::Here(ring) => Some(ring.as_raw_fd()),
            RingState::Untried | RingState::Refused => None,
        }
    }

    /// A round of the connection's thread begins: what is begun in it counts from now.
    pub fn begin_round(&mut self, now_ns: u64) {
        self.taken = 0;
        self.observer.begin_round(now_ns);
    }

    /// A round ends: what has finished in it took until now.
    pub fn end_round(&mut self, now_ns: u64, queue: &Queue) {
        self.observer.end_round(now_ns, Some(queue));
    }

    /// Tasks that the kernel works on.
    pub fn in_kernel(&self) -> usize {
        self.in_kernel.len()
    }

    /// Begins a task, and perhaps finishes it. [`Engine::submit`] has to be called before waiting.
    pub fn begin(&mut self, task: Task) {
        let file = match task.namespace.as_deref().map(Namespace::store) {
            Some(Store::File(file)) => Some(Arc::clone(file)),
            _ => None,
        };
        let task = match file.filter(|_| task.suits_a_ring()) {
            Some(file) => match self.hand_over(task, &file) {
                None => return,
                Some(task) => task,
            },
            None => task,
        };
        if matches!(task.action, Action::CompareAndWrite { .. }) {
            self.drain();
        }
        let finished = run(task, &mut self.observer);
        self.finished.push_back(finished);
    }

    /// Hands what was begun to the kernel.
    pub fn submit(&mut self) {
        if let RingState::Here(ring) = &mut self.ring
            && ring.submit().is_err()
        {
            // Nothing of it has begun; the next call tries again.
        }
    }

    /// Something that is finished. A round has a few; what it has not told of is of the next.
    pub fn finished(&mut self) -> Option<Finished> {
        if let Some(finished) = self.finished.pop_front() {
            return Some(finished);
        }
        if self.taken >= ROUND_COMPLETIONS {
            return None;
        }
        let RingState::Here(ring) = &mut self.ring else { return None };
        let completion = ring.completed()?;
        self.taken += 1;
        let waiting = self.in_kernel.try_remove(completion.token as usize)?;
        Some(conclude(waiting, completion, &mut self.observer))
    }

    /// Waits for everything that the kernel has.
    fn drain(&mut self) {
        while !self.in_kernel.is_empty() {
            let RingState::Here(ring) = &mut self.ring else { return };
            if ring.wait().is_err() {
                return;
            }
            while let Some(completion) = ring.completed() {
                if let Some(waiting) = self.in_kernel.try_remove(completion.token as usize) {
                    self.finished.push_back(conclude(waiting, completion, &mut self.observer));
                }
            }
        }
    }

    fn ring(&mut self) -> Option<&mut Ring> {
        if matches!(self.ring, RingState::Untried) {
            self.ring = match Ring::new(RING_ENTRIES) {
                Ok(ring) => RingState::Here(Box::new(ring)),
                Err(_) => RingState::Refused,
            };
        }
        match &mut self.ring {
            RingState::Here(ring) => Some(ring),
            RingState::Untried | RingState::Refused => None,
        }
    }

    /// Gives the task back when there is no ring, or no room in it.
    fn hand_over(&mut self, task: Task, file: &Arc<FileStore>) -> Option<Task> {
        match self.ring() {
            Some(ring) if ring.has_room() => {}
            _ => return Some(task),
        }
        let Task { cid, action, namespace, offset, length, tag } = task;
        let namespace = namespace?;
        let bytes = length as usize;
        let (operation, is_read, durable) = match action {
            Action::Read(buffer) => (Operation::Read { buffer, length: bytes }, true, false),
            Action::Write { data, durable } => {
                if !namespace.fusing.begin_free() {
                    let action = Action::Write { data, durable };
                    return Some(Task { cid, action, namespace: Some(namespace), offset, length, tag });
                }
                (Operation::Write { buffer: data, length: bytes, durable }, false, durable)
            }
            Action::Flush => (Operation::Flush, false, false),
            action => return Some(Task { cid, action, namespace: Some(namespace), offset, length, tag }),
        };
        let bytes = if matches!(operation, Operation::Flush) { 0 } else { bytes };
        let began_ns = self.observer.now_ns();
        let waiting = InKernel { cid, tag, namespace, is_read, length: bytes, offset, durable, began_ns };
        let token = self.in_kernel.insert(waiting) as u64;
        if let RingState::Here(ring) = &mut self.ring {
            let pushed = ring.push(file.file(), offset, operation, token);
            debug_assert!(pushed.is_ok(), "it had room");
        }
        None
    }
}

impl Task {
    /// Whether the kernel can do it alone.
    fn suits_a_ring(&self) -> bool {
        matches!(self.action, Action::Read(_) | Action::Flush | Action::Write { .. })
    }
}

fn conclude(waiting: InKernel, completion: Completion, observer: &mut Observer) -> Finished {
    let InKernel { cid, tag, namespace, is_read, length, offset, durable, began_ns } = waiting;
    let Completion { result, mut buffer, .. } = completion;
    // The kernel may do less than asked, at the end of a file for one: the rest is done here.
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
    if !is_read && length != 0 {
        namespace.fusing.end_free();
    }
    let status = status_of(&result, !is_read);
    count(&namespace, length, is_read, length != 0, status);
    observer.ended(&namespace, class(is_read, length != 0), began_ns);
    let length = if is_read { length } else { 0 };
    Finished { cid, status, first_of_pair: None, buffer, lent: None, length, tag }
}

/// What a command's completion says of a file's error.
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

/// Does a task here and now.
fn run(task: Task, observer: &mut Observer) -> Finished {
    let Task { cid, action, namespace, offset, length, tag } = task;
    let status = Status::SUCCESS;
    let mut finished =
        Finished { cid, status, first_of_pair: None, buffer: None, lent: None, length: 0, tag };
    let Some(namespace) = namespace else {
        if let Action::FlushAll(all) = action {
            let failed = all.iter().map(|it| it.store().flush()).find(io::Result::is_err);
            finished.status = status_of(&failed.unwrap_or(Ok(())), true);
        }
        return finished;
    };
    let store = namespace.store();
    let bytes = length as usize;
    let (is_read, has_data) = match &action {
        Action::Read(_) | Action::Lend | Action::Compare(_) | Action::Verify => (true, true),
        Action::Write { .. } | Action::CompareAndWrite { .. } | Action::Copy { .. } => (false, true),
        Action::Flush | Action::FlushAll(_) | Action::Zero { .. } | Action::Discard(_) => (false, false),
    };
    finished.status = match action {
        Action::Read(mut buffer) => {
            let result = store.read(offset, &mut buffer[..bytes]);
            (finished.buffer, finished.length) = (Some(buffer), bytes);
            status_of(&result, false)
        }
        Action::Lend => {
            let lent = store.lend(offset, bytes);
            let status = if lent.is_some() { Status::SUCCESS } else { Status::INTERNAL_ERROR };
            (finished.lent, finished.length) = (Some(lent.unwrap_or_default()), bytes);
            status
        }
        Action::Write { data, durable } => {
            let (status, back) = write(&namespace, offset, data, bytes, durable);
            finished.buffer = Some(back);
            status
        }
        Action::Compare(expected) => {
            let status = compare(store, offset, &expected[..bytes]);
            finished.buffer = Some(expected);
            status
        }
        Action::CompareAndWrite { first_cid, expected, data, durable } => {
            let (first, second) =
                compare_and_write(&namespace, offset, &expected[..bytes], &data[..bytes], durable);
            finished.first_of_pair = Some((first_cid, first));
            finished.buffer = Some(data);
            second
        }
        Action::Flush | Action::FlushAll(_) => status_of(&store.flush(), true),
        Action::Verify => verify(store, offset, length),
        Action::Zero { deallocate, durable } => {
            let how = if deallocate { Clear::Deallocate } else { Clear::Zero };
            status_of(&zero(store, how, offset, length, durable), true)
        }
        Action::Discard(ranges) => {
            let clear = |(offset, length)| store.clear(Clear::Deallocate, offset, length);
            status_of(&ranges.into_iter().try_for_each(clear), true)
        }
        Action::Copy { sources, durable } => copy(&namespace, offset, length, &sources, durable),
    };
    count(&namespace, bytes, is_read, has_data, finished.status);
    observer.ended(&namespace, class(is_read, has_data), observer.now_ns());
    finished
}

/// Writes the first bytes of a buffer. What comes back may be another one.
fn write(namespace: &Namespace, offset: u64, data: Buffer, bytes: usize, durable: bool) -> (Status, Buffer) {
    let write = || {
        let (result, buffer) = namespace.store().write_buffer(offset, data, bytes, durable);
        (status_of(&result, true), buffer)
    };
    if namespace.fusing.begin_free() {
        let written = write();
        namespace.fusing.end_free();
        return written;
    }
    let _turn = namespace.fusing.turn();
    write()
}

/// Zeros must read as zeros: where a hole cannot be made, they are written.
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
    namespace: &Namespace,
    offset: u64,
    expected: &[u8],
    data: &[u8],
    durable: bool,
) -> (Status, Status) {
    let _turn = namespace.fusing.turn_of_pair();
    let first = compare(namespace.store(), offset, expected);
    if !first.is_success() {
        return (first, Status::ABORTED_FUSED_FAILED.permanent());
    }
    (first, status_of(&namespace.store().write(offset, data, durable), true))
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

fn copy(namespace: &Namespace, offset: u64, length: u64, sources: &[(u64, u64)], durable: bool) -> Status {
    // All is read before anything is written: ranges may overlap.
    let mut data = Buffer::zeroed(length as usize);
    let mut done = 0;
    for (from, bytes) in sources {
        let place = &mut data[done..done + *bytes as usize];
        if let Err(error) = namespace.store().read(*from, place) {
            return status_of(&Err(error), false);
        }
        done += *bytes as usize;
    }
    write(namespace, offset, data, done, durable).0
}
