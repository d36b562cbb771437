//! The requests of one NBD client as commands of an NVMe queue.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use buffer::Buffer;
use slab::Slab;
use wire::nvme::command::Blocks;
use wire::nvme::{Command, Io, Status};

use super::request::Demand;
use super::writes::{Claim, Writes};
use super::{Errno, Reply};
use crate::host::{Done, HostError, Namespace, Payload, Queue};
use crate::limits::{NBD_BYTES, NBD_CLIENT_BYTES};
use os::wait::wait;

/// Requests of a client that are executed at once. No further request is read beyond it.
const REQUESTS_MAX: usize = 256;
/// Buffers up to this size and larger ones have separate free lists.
const SMALL: usize = 64 << 10;
/// Buffers in a free list.
const BUFFERS_MAX: usize = 64;
/// Blocks of one Write Zeroes: its count has 16 bits.
const ZERO_BLOCKS_MAX: u64 = 1 << 16;
/// How often the queue is polled at the end of a session: TLS may have data that no descriptor announces, and
/// commands may have to be repeated.
const DRAIN_INTERVAL: Duration = Duration::from_millis(10);
/// Bits of dword 12: force unit access, and zeros that may be holes.
const FORCE_UNIT_ACCESS: u32 = 1 << 30;
const DEALLOCATE: u32 = 1 << 25;

/// A request of a client, until all of its NVMe commands are finished.
struct Pending {
    cookie: u64,
    errno: Errno,
    commands: usize,
    /// The first byte and the data of a read, as far as they are here.
    read: Option<(u64, Vec<u8>)>,
    /// Bytes charged to the limit of the client.
    bytes: usize,
    /// The blocks that the request writes.
    claim: Option<Claim>,
}

/// A request whose commands are finished.
pub(super) struct Finished {
    pub(super) cookie: u64,
    errno: Errno,
    read: Option<(u64, Vec<u8>)>,
}

impl Finished {
    pub(super) fn reply(&self) -> Reply<'_> {
        match (self.errno, &self.read) {
            (Errno::Success, Some((offset, bytes))) => Reply::Data {
                offset: *offset,
                bytes,
            },
            (Errno::Success, None) => Reply::Done,
            (errno, _) => Reply::Failed(errno),
        }
    }
}

/// A change of a range of bytes.
struct Change<'a> {
    request: usize,
    range: Range<u64>,
    /// The bytes to write; none for zeros.
    bytes: Option<Cow<'a, [u8]>>,
    durable: bool,
    may_deallocate: bool,
}

/// An NVMe command that waits for a free entry of the queue.
struct Piece {
    request: usize,
    command: Command,
    data: Data,
}

enum Data {
    None,
    /// Data for the target, from the start of the buffer.
    Out(Buffer, usize),
    /// Data from the target.
    In(usize, Then),
}

/// What happens with the data of a read.
enum Then {
    Nothing,
    /// The bytes from `skip` on are copied to `at` of the data of the request.
    Copy {
        skip: usize,
        at: usize,
    },
    /// The read was of one block, of which these bytes from `at` on are changed before it is written.
    Change {
        at: usize,
        bytes: Vec<u8>,
        write: Command,
    },
}

/// Bytes of the requests of one client, and of all clients.
#[derive(Default)]
struct Held(usize);

static ALL_HELD: AtomicUsize = AtomicUsize::new(0);

impl Held {
    fn add(&mut self, bytes: usize) {
        self.0 += bytes;
        ALL_HELD.fetch_add(bytes, Ordering::Relaxed);
    }

    fn sub(&mut self, bytes: usize) {
        self.0 -= bytes;
        ALL_HELD.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Whether a further request has to wait, given `answers` bytes of replies that the client has not read.
    fn is_full(&self, answers: usize) -> bool {
        let own = self.0 + answers;
        own >= NBD_CLIENT_BYTES || own > 0 && ALL_HELD.load(Ordering::Relaxed) >= NBD_BYTES
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.sub(self.0);
    }
}

/// The requests of a client that are being executed.
pub(super) struct Work {
    pub(super) queue: Queue,
    namespace: Namespace,
    transfer_max: usize,
    pending: Slab<Pending>,
    pieces: VecDeque<Piece>,
    /// The request of each outstanding command.
    underway: Slab<(usize, Then)>,
    finished: VecDeque<Finished>,
    free: [Vec<Buffer>; 2],
    held: Held,
    writes: Arc<Writes>,
    /// A change whose blocks another write has.
    blocked: Option<Change<'static>>,
}

impl Work {
    pub(super) fn new(
        queue: Queue,
        namespace: Namespace,
        transfer_max: usize,
        writes: Arc<Writes>,
    ) -> Self {
        Self {
            queue,
            namespace,
            transfer_max,
            pending: Slab::new(),
            pieces: VecDeque::new(),
            underway: Slab::new(),
            finished: VecDeque::new(),
            free: Default::default(),
            held: Held::default(),
            writes,
            blocked: None,
        }
    }

    /// Whether no request is being executed.
    pub(super) fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.finished.is_empty()
    }

    /// Whether another request is taken, given `answers` bytes of replies that the client has not read.
    pub(super) fn has_room(&self, answers: usize) -> bool {
        self.pending.len() < REQUESTS_MAX && !self.waits_for_others(answers)
    }

    /// Whether requests wait for memory, or for a write of another client.
    pub(super) fn waits_for_others(&self, answers: usize) -> bool {
        self.blocked.is_some() || self.held.is_full(answers)
    }

    /// Continues a change whose blocks another write had.
    pub(super) fn advance(&mut self) -> Result<(), HostError> {
        match self.blocked.take() {
            Some(change) => self.change(change),
            None => Ok(()),
        }
    }

    /// Takes a request.
    pub(super) fn take(&mut self, demand: Demand<'_>) -> Result<(), HostError> {
        let nsid = self.namespace.nsid;
        match demand {
            Demand::Read {
                cookie,
                offset,
                length,
            } => {
                let request = self.begin(cookie, length);
                self.pending[request].read = Some((offset, vec![0; length]));
                self.read(request, offset, length);
                Ok(())
            }
            Demand::Write {
                cookie,
                offset,
                data,
                durable,
            } => {
                let request = self.begin(cookie, data.len());
                let (range, bytes) = (
                    offset..offset + data.len() as u64,
                    Some(Cow::Borrowed(data)),
                );
                self.change(Change {
                    request,
                    range,
                    bytes,
                    durable,
                    may_deallocate: false,
                })
            }
            Demand::Zero {
                cookie,
                offset,
                length,
                may_deallocate,
                durable,
            } => {
                let request = self.begin(cookie, 0);
                let range = offset..offset + length;
                self.change(Change {
                    request,
                    range,
                    bytes: None,
                    durable,
                    may_deallocate,
                })
            }
            Demand::Flush { cookie } => {
                let request = self.begin(cookie, 0);
                self.push(request, transfer(Io::Flush, nsid, 0, 1), Data::None);
                Ok(())
            }
            Demand::Trim {
                cookie,
                offset,
                length,
            } => {
                let request = self.begin(cookie, 0);
                self.trim(request, offset, length)
            }
        }
    }

    fn begin(&mut self, cookie: u64, bytes: usize) -> usize {
        self.held.add(bytes);
        let errno = Errno::Success;
        self.pending.insert(Pending {
            cookie,
            errno,
            commands: 0,
            read: None,
            bytes,
            claim: None,
        })
    }

    fn push(&mut self, request: usize, command: Command, data: Data) {
        self.pieces.push_back(Piece {
            request,
            command,
            data,
        });
        self.pending[request].commands += 1;
    }

    /// Reads whole blocks; the first and last may contain bytes outside the request.
    fn read(&mut self, request: usize, offset: u64, length: usize) {
        let block = self.namespace.block_size as u64;
        let end = offset + length as u64;
        let mut from = offset / block * block;
        while from < end {
            let to = (from + self.transfer_max as u64).min(end.next_multiple_of(block));
            let command = transfer(
                Io::Read,
                self.namespace.nsid,
                from / block,
                (to - from) / block,
            );
            let skip = offset.saturating_sub(from) as usize;
            let at = from.saturating_sub(offset) as usize;
            self.push(
                request,
                command,
                Data::In((to - from) as usize, Then::Copy { skip, at }),
            );
            from = to;
        }
    }

    /// Deallocates the whole blocks of a range: a part of a block keeps its data, which NBD allows.
    fn trim(&mut self, request: usize, offset: u64, length: u64) -> Result<(), HostError> {
        let block = self.namespace.block_size as u64;
        let (start, end) = (offset.div_ceil(block), (offset + length) / block);
        if start >= end {
            self.conclude(request);
            return Ok(());
        }
        let mut buffer = self.buffer(SMALL)?;
        // One range: attributes, blocks, the first of them (NVM command set, figure 31).
        buffer[..4].fill(0);
        buffer[4..8].copy_from_slice(&((end - start) as u32).to_le_bytes());
        buffer[8..16].copy_from_slice(&start.to_le_bytes());
        let (opcode, nsid) = (Io::DatasetManagement as u8, self.namespace.nsid);
        let command = Command {
            opcode,
            nsid,
            cdw11: 1 << 2,
            ..Command::default()
        };
        self.push(request, command, Data::Out(buffer, 16));
        Ok(())
    }

    /// Writes bytes or zeros. Where the range begins or ends within a block, this block is read, changed and
    /// written, and no other write of the export may have it meanwhile.
    fn change(&mut self, change: Change<'_>) -> Result<(), HostError> {
        let block = self.namespace.block_size as u64;
        let Range { start, end } = change.range;
        let is_partial = !start.is_multiple_of(block) || !end.is_multiple_of(block);
        let claim = self
            .writes
            .claim(start / block..end.div_ceil(block), is_partial);
        if claim.is_none() {
            let bytes = change.bytes.map(|bytes| Cow::Owned(bytes.into_owned()));
            self.blocked = Some(Change { bytes, ..change });
            return Ok(());
        }
        self.pending[change.request].claim = claim;
        let inner = start.next_multiple_of(block)..end / block * block;
        if !start.is_multiple_of(block) {
            self.change_part(&change, start..end.min(inner.start));
        }
        if inner.start < inner.end {
            self.change_blocks(&change, inner.clone())?;
        }
        // Not where the range lies within one block, and begins behind its start.
        if !end.is_multiple_of(block) && inner.end >= start {
            self.change_part(&change, inner.end..end);
        }
        Ok(())
    }

    /// Changes a part of one block.
    fn change_part(&mut self, change: &Change<'_>, part: Range<u64>) {
        let block = self.namespace.block_size as u64;
        let (nsid, number, at) = (
            self.namespace.nsid,
            part.start / block,
            (part.start % block) as usize,
        );
        let bytes = change
            .part(&part)
            .map_or_else(|| vec![0; (part.end - part.start) as usize], <[u8]>::to_vec);
        let mut write = transfer(Io::Write, nsid, number, 1);
        write.cdw12 |= if change.durable { FORCE_UNIT_ACCESS } else { 0 };
        let then = Then::Change { at, bytes, write };
        self.push(
            change.request,
            transfer(Io::Read, nsid, number, 1),
            Data::In(block as usize, then),
        );
    }

    /// Writes whole blocks.
    fn change_blocks(&mut self, change: &Change<'_>, range: Range<u64>) -> Result<(), HostError> {
        let (block, nsid) = (self.namespace.block_size as u64, self.namespace.nsid);
        let force = if change.durable { FORCE_UNIT_ACCESS } else { 0 };
        let (mut start, end) = (range.start / block, range.end / block);
        let Some(bytes) = change.part(&range) else {
            while start < end {
                let count = ZERO_BLOCKS_MAX.min(end - start);
                let mut command = transfer(Io::WriteZeroes, nsid, start, count);
                command.cdw12 |= force | if change.may_deallocate { DEALLOCATE } else { 0 };
                self.push(change.request, command, Data::None);
                start += count;
            }
            return Ok(());
        };
        for part in bytes.chunks(self.transfer_max) {
            let count = part.len() as u64 / block;
            let mut command = transfer(Io::Write, nsid, start, count);
            command.cdw12 |= force;
            let mut buffer = self.buffer(part.len())?;
            buffer[..part.len()].copy_from_slice(part);
            self.push(change.request, command, Data::Out(buffer, part.len()));
            start += count;
        }
        Ok(())
    }

    /// Submits commands until the queue is full.
    pub(super) fn submit(&mut self) -> Result<(), HostError> {
        while self.queue.outstanding() < self.queue.depth()
            && let Some(Piece {
                request,
                command,
                data,
            }) = self.pieces.pop_front()
        {
            let (payload, then) = match data {
                Data::None => (Payload::None, Then::Nothing),
                Data::Out(buffer, length) => (Payload::Out(buffer, length), Then::Nothing),
                Data::In(length, then) => (Payload::In(self.buffer(length)?, length), then),
            };
            let token = self.underway.insert((request, then)) as u64;
            self.queue.submit(command, payload, token)?;
        }
        Ok(())
    }

    /// Waits until the target has completed the commands that were sent, at most until `deadline`. The data
    /// of reads are dropped.
    pub(super) fn drain(&mut self, deadline: Instant) -> Result<(), HostError> {
        let mut done = Vec::new();
        while self.queue.outstanding() > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            self.queue.arm()?;
            if self.queue.poll(&mut done)? == 0 {
                wait(self.queue.watched(), left.min(DRAIN_INTERVAL))?;
            }
            done.clear();
        }
        Ok(())
    }

    /// Notes that a command is finished.
    pub(super) fn finish(&mut self, done: Done) {
        let Some((request, then)) = self.underway.try_remove(done.token as usize) else {
            return;
        };
        let Some(pending) = self.pending.get_mut(request) else {
            return;
        };
        pending.commands -= 1;
        let status = done.completion.status();
        if !status.is_success() {
            pending.errno = errno(status);
        }
        match (done.buffer, then) {
            (Some(mut buffer), Then::Change { at, bytes, write }) if status.is_success() => {
                buffer[at..at + bytes.len()].copy_from_slice(&bytes);
                self.push(request, write, Data::Out(buffer, self.namespace.block_size));
            }
            (Some(buffer), then) => {
                if let (Then::Copy { skip, at }, Some((_, data))) = (then, &mut pending.read) {
                    let rest = &mut data[at..];
                    let count = rest
                        .len()
                        .min(self.transfer_max - skip)
                        .min(buffer.len() - skip);
                    rest[..count].copy_from_slice(&buffer[skip..skip + count]);
                }
                let kind = usize::from(buffer.len() > SMALL);
                if self.free[kind].len() < BUFFERS_MAX {
                    self.free[kind].push(buffer);
                }
            }
            (None, _) => {}
        }
        if self.pending[request].commands == 0 {
            self.conclude(request);
        }
    }

    fn conclude(&mut self, request: usize) {
        let Pending {
            cookie,
            errno,
            read,
            bytes,
            ..
        } = self.pending.remove(request);
        self.held.sub(bytes);
        self.finished.push_back(Finished {
            cookie,
            errno,
            read,
        });
    }

    /// A request that is to be answered.
    pub(super) fn finished(&mut self) -> Option<Finished> {
        self.finished.pop_front()
    }

    /// A buffer of at least this length, from one of the two free lists.
    fn buffer(&mut self, length: usize) -> Result<Buffer, HostError> {
        let kind = usize::from(length > SMALL);
        match self.free[kind].pop() {
            Some(buffer) => Ok(buffer),
            None => self.queue.buffer(if kind == 0 {
                SMALL
            } else {
                self.transfer_max.max(length)
            }),
        }
    }
}

impl Change<'_> {
    /// The bytes for a part of the range; `None` for zeros.
    fn part(&self, part: &Range<u64>) -> Option<&[u8]> {
        let begin = (part.start - self.range.start) as usize;
        self.bytes
            .as_ref()
            .map(|bytes| &bytes[begin..][..(part.end - part.start) as usize])
    }
}

/// The error value of a failed command.
fn errno(status: Status) -> Errno {
    match status.plain() {
        Status::NAMESPACE_WRITE_PROTECTED
        | Status::RESERVATION_CONFLICT
        | Status::ACCESS_DENIED => Errno::Permission,
        Status::CAPACITY_EXCEEDED => Errno::NoSpace,
        _ => Errno::Io,
    }
}

fn transfer(kind: Io, nsid: u32, start: u64, count: u64) -> Command {
    let blocks = Blocks {
        start,
        count: count as u32,
    };
    Command {
        opcode: kind as u8,
        nsid,
        ..Command::default()
    }
    .with_blocks(blocks)
}
