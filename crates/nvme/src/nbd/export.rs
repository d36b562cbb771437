//! One NBD client: its stream, and the NVMe queue that executes its requests.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use buffer::Buffer;
use slab::Slab;
use thiserror::Error;
use wire::nvme::command::Blocks;
use wire::nvme::{Command, Io};

use super::Errno;
use super::session::{Demand, Session};
use super::terms::{Export, Fault, flag};
use crate::host::{Client, Done, HostError, Namespace, Payload, Queue};
use crate::limits::{CONNECT_TIMEOUT, NBD_BYTES, NBD_CLIENT_BYTES};
use crate::serve::StallTimer;
use crate::sys::wait::wait;

/// Outstanding NVMe commands of one client.
const DEPTH: u16 = 128;
/// Requests of a client that are executed at once. No further request is read beyond it.
const REQUESTS_MAX: usize = 256;
/// Bytes of one read from the client.
const STAGING: usize = 256 << 10;
/// Buffers up to this size and larger ones have separate free lists.
const SMALL: usize = 64 << 10;
/// Buffers in a free list.
const BUFFERS_MAX: usize = 64;
/// Blocks of one Write Zeroes: its count has 16 bits.
const ZERO_BLOCKS_MAX: u64 = 1 << 16;
/// How long the thread polls before it sleeps.
const POLL_TIME: Duration = Duration::from_micros(50);
/// How often the stall timer is checked while the client has to read.
const STALL_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How often a session that waits for memory checks whether other clients have returned some.
const MEMORY_CHECK_INTERVAL: Duration = Duration::from_millis(10);
/// The longest interval without a command to the controller (Keep Alive).
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// Optional commands of a controller (Identify, ONCS).
const HAS_DATASET_MANAGEMENT: u16 = 1 << 2;
const HAS_WRITE_ZEROES: u16 = 1 << 3;
/// Bits of dword 12: force unit access, and zeros that may be holes.
const FORCE_UNIT_ACCESS: u32 = 1 << 30;
const DEALLOCATE: u32 = 1 << 25;

/// Why the export ended for a client.
#[derive(Debug, Error)]
pub enum NbdError {
    /// The client does not read its replies.
    #[error("the client did not read its replies for {} s", .0.as_secs_f64())]
    Stalled(Duration),
    /// The client did not finish its negotiation in time.
    #[error("the client did not finish its negotiation within {} s", CONNECT_TIMEOUT.as_secs())]
    Handshake,
    /// The client violated the protocol.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The connection to the NVMe target failed, or a command did.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The connection of the client failed.
    #[error("the NBD client's connection failed: {0}")]
    Stream(#[from] io::Error),
}

/// A controller and one of its namespaces, which a client uses.
#[derive(Debug)]
pub struct Target {
    /// The controller that this NBD client has for itself.
    pub client: Client,
    /// The namespace that is exported.
    pub namespace: Namespace,
    /// Whether the export is read-only.
    pub read_only: bool,
    /// How long the client may leave its replies unread: [`crate::limits::STALL_TIMEOUT`], except in tests.
    pub stall_timeout: Duration,
}

impl Target {
    fn export(&self, name: &str) -> Export {
        let optional = self.client.controller().identified.io_commands;
        let may = |bit: u16, flag: u16| if optional & bit != 0 && !self.read_only { flag } else { 0 };
        let read_only = if self.read_only { flag::READ_ONLY } else { 0 };
        let always = flag::HAS_FLAGS | flag::FLUSH | flag::FUA | flag::MULTIPLE;
        let flags = always
            | read_only
            | may(HAS_DATASET_MANAGEMENT, flag::TRIM)
            | may(HAS_WRITE_ZEROES, flag::WRITE_ZEROES);
        let size = self.namespace.blocks.saturating_mul(self.namespace.block_size as u64);
        Export { name: name.to_owned(), size, block_size: self.namespace.block_size as u32, flags }
    }
}

/// A request of a client, until all of its NVMe commands are finished.
struct Pending {
    cookie: u64,
    errno: Errno,
    commands: usize,
    /// The data that were read so far.
    data: Vec<u8>,
    /// Bytes charged to the limit of the client.
    bytes: usize,
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
    /// Data from the target, of which the bytes from `skip` on are copied to `at` of the data of the request.
    In {
        length: usize,
        skip: usize,
        at: usize,
    },
}

/// The request of an outstanding command, and where its data go.
type Underway = (usize, Option<(usize, usize)>);

struct Exporting<'a, Stream> {
    stream: &'a mut Stream,
    session: Session,
    queue: Queue,
    namespace: Namespace,
    transfer_max: usize,
    pending: Slab<Pending>,
    pieces: VecDeque<Piece>,
    underway: Slab<Underway>,
    free: [Vec<Buffer>; 2],
    held: Held,
    answers: StallTimer,
    stall_timeout: Duration,
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

/// Serves one client until it disconnects. The stream has to be non-blocking.
///
/// # Errors
/// When the client or the target violates its protocol, or its connection breaks.
pub fn serve<Stream: Read + Write + AsRawFd>(
    stream: &mut Stream,
    mut target: Target,
    name: &str,
) -> Result<(), NbdError> {
    let session = Session::new(target.export(name));
    let queue = target.client.queues(1, DEPTH)?.remove(0);
    let transfer_max = target.client.controller().transfer_max / target.namespace.block_size;
    let transfer_max = transfer_max * target.namespace.block_size;
    let mut exporting = Exporting {
        stream,
        session,
        queue,
        namespace: target.namespace,
        transfer_max,
        pending: Slab::new(),
        pieces: VecDeque::new(),
        underway: Slab::new(),
        free: Default::default(),
        held: Held::default(),
        answers: StallTimer::new(target.stall_timeout),
        stall_timeout: target.stall_timeout,
    };
    exporting.run(&mut target.client)
}

impl<Stream: Read + Write + AsRawFd> Exporting<'_, Stream> {
    fn run(&mut self, client: &mut Client) -> Result<(), NbdError> {
        let mut staging = vec![0; STAGING];
        let mut done = Vec::new();
        let (mut active, mut told) = (Instant::now(), Instant::now());
        let mut is_armed = false;
        let (began, handshake) = (Instant::now(), CONNECT_TIMEOUT);
        loop {
            let mut progress = self.receive(&mut staging)?;
            self.take_demands()?;
            self.submit()?;
            progress |= self.queue.poll(&mut done)? > 0;
            done.drain(..).for_each(|done| self.finish(done));
            progress |= self.send()?;
            let is_idle = self.pending.is_empty() && self.session.output().is_empty();
            if self.session.is_over() && is_idle {
                return Ok(());
            }
            let now = Instant::now();
            let now_ns = u64::try_from((now - began).as_nanos()).unwrap_or(u64::MAX);
            if self.answers.is_too_long(self.has_output(), now_ns) {
                return Err(NbdError::Stalled(self.stall_timeout));
            }
            if !self.session.is_negotiated() && now - began > handshake {
                return Err(NbdError::Handshake);
            }
            if now - told > KEEP_ALIVE {
                client.keep_alive()?;
                told = now;
            }
            if progress {
                (active, is_armed) = (now, false);
            } else if now - active > POLL_TIME {
                if is_armed {
                    let [one, other] = self.queue.watched();
                    let wants_input = self.wants_input();
                    let fd = if wants_input || self.has_output() { self.stream.as_raw_fd() } else { -1 };
                    let most = if !self.session.is_negotiated() || self.has_output() {
                        STALL_CHECK_INTERVAL
                    } else {
                        KEEP_ALIVE
                    };
                    // No descriptor tells when other clients return memory: check periodically.
                    let most = if self.waits_for_memory() { MEMORY_CHECK_INTERVAL } else { most };
                    wait([(fd, self.has_output()), one, other], most)?;
                    (active, is_armed) = (Instant::now(), false);
                } else {
                    self.queue.arm()?;
                    is_armed = true;
                }
            }
        }
    }

    fn has_output(&self) -> bool {
        !self.session.output().is_empty()
    }

    fn wants_input(&self) -> bool {
        self.session.wants_input() && self.pending.len() < REQUESTS_MAX && !self.waits_for_memory()
    }

    /// Whether the session reads no further request because memory is short.
    fn waits_for_memory(&self) -> bool {
        self.held.is_full(self.session.output().len())
    }

    fn receive(&mut self, staging: &mut [u8]) -> Result<bool, NbdError> {
        if !self.wants_input() {
            return Ok(false);
        }
        match self.stream.read(staging) {
            Ok(0) => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(bytes) => {
                self.session.received(&staging[..bytes]);
                Ok(true)
            }
            Err(error) if is_later(&error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn send(&mut self) -> Result<bool, NbdError> {
        let mut progress = false;
        while self.has_output() {
            match self.stream.write(self.session.output()) {
                Ok(bytes) => {
                    self.answers.moved(bytes);
                    self.session.sent(bytes);
                }
                Err(error) if is_later(&error) => break,
                Err(error) => return Err(error.into()),
            }
            progress = true;
        }
        Ok(progress)
    }

    /// Turns the demands of the client into NVMe commands.
    fn take_demands(&mut self) -> Result<(), NbdError> {
        while self.pending.len() < REQUESTS_MAX && !self.waits_for_memory() {
            let nsid = self.namespace.nsid;
            let block = self.namespace.block_size as u64;
            let Some(demand) = self.session.next_demand()? else { return Ok(()) };
            match demand {
                Demand::Read { cookie, offset, length } => {
                    self.held.add(length);
                    let request = begin(&mut self.pending, cookie, length);
                    self.pending[request].bytes = length;
                    self.read(request, offset, length);
                }
                Demand::Write { cookie, offset, data, durable } => {
                    self.held.add(data.len());
                    let request = begin(&mut self.pending, cookie, 0);
                    self.pending[request].bytes = data.len();
                    for (index, part) in data.chunks(self.transfer_max).enumerate() {
                        let start = (offset + (index * self.transfer_max) as u64) / block;
                        let mut command = transfer(Io::Write, nsid, start, part.len() as u64 / block);
                        command.cdw12 |= if durable { FORCE_UNIT_ACCESS } else { 0 };
                        let mut buffer = take(&mut self.free, &self.queue, part.len(), self.transfer_max)?;
                        buffer[..part.len()].copy_from_slice(part);
                        let data = Data::Out(buffer, part.len());
                        self.pieces.push_back(Piece { request, command, data });
                        self.pending[request].commands += 1;
                    }
                }
                Demand::Flush { cookie } => {
                    let request = begin(&mut self.pending, cookie, 0);
                    self.push(request, transfer(Io::Flush, nsid, 0, 1), Data::None);
                }
                Demand::Trim { cookie, offset, length } => {
                    let request = begin(&mut self.pending, cookie, 0);
                    let mut buffer = take(&mut self.free, &self.queue, SMALL, self.transfer_max)?;
                    // One range: attributes, blocks, the first of them (NVM command set, figure 31).
                    buffer[..4].fill(0);
                    buffer[4..8].copy_from_slice(&((length / block) as u32).to_le_bytes());
                    buffer[8..16].copy_from_slice(&(offset / block).to_le_bytes());
                    let opcode = Io::DatasetManagement as u8;
                    let command = Command { opcode, nsid, cdw11: 1 << 2, ..Command::default() };
                    self.push(request, command, Data::Out(buffer, 16));
                }
                Demand::Zero { cookie, offset, length, may_deallocate, durable } => {
                    let request = begin(&mut self.pending, cookie, 0);
                    let (mut start, end) = (offset / block, (offset + length) / block);
                    while start < end {
                        let count = ZERO_BLOCKS_MAX.min(end - start);
                        let mut command = transfer(Io::WriteZeroes, nsid, start, count);
                        command.cdw12 |= if durable { FORCE_UNIT_ACCESS } else { 0 };
                        command.cdw12 |= if may_deallocate { DEALLOCATE } else { 0 };
                        self.push(request, command, Data::None);
                        start += count;
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads whole blocks; the first and last may contain bytes outside the request.
    fn read(&mut self, request: usize, offset: u64, length: usize) {
        let block = self.namespace.block_size as u64;
        let end = offset + length as u64;
        let mut from = offset / block * block;
        while from < end {
            let to = (from + self.transfer_max as u64).min(end.next_multiple_of(block));
            let command = transfer(Io::Read, self.namespace.nsid, from / block, (to - from) / block);
            let skip = offset.saturating_sub(from) as usize;
            let at = from.saturating_sub(offset) as usize;
            self.push(request, command, Data::In { length: (to - from) as usize, skip, at });
            from = to;
        }
    }

    fn push(&mut self, request: usize, command: Command, data: Data) {
        self.pieces.push_back(Piece { request, command, data });
        self.pending[request].commands += 1;
    }

    /// Submits commands until the queue is full.
    fn submit(&mut self) -> Result<(), NbdError> {
        while self.queue.outstanding() < self.queue.depth()
            && let Some(Piece { request, command, data }) = self.pieces.pop_front()
        {
            let (payload, place) = match data {
                Data::None => (Payload::None, None),
                Data::Out(buffer, length) => (Payload::Out(buffer, length), None),
                Data::In { length, skip, at } => {
                    let buffer = take(&mut self.free, &self.queue, length, self.transfer_max)?;
                    (Payload::In(buffer, length), Some((skip, at)))
                }
            };
            let token = self.underway.insert((request, place)) as u64;
            self.queue.submit(command, payload, token)?;
        }
        Ok(())
    }

    fn finish(&mut self, done: Done) {
        let Some((request, place)) = self.underway.try_remove(done.token as usize) else { return };
        let Some(pending) = self.pending.get_mut(request) else { return };
        pending.commands -= 1;
        if !done.completion.status().is_success() {
            pending.errno = Errno::Io;
        }
        if let Some(buffer) = done.buffer {
            if let Some((skip, at)) = place {
                let rest = &mut pending.data[at..];
                let count = rest.len().min(self.transfer_max - skip).min(buffer.len() - skip);
                rest[..count].copy_from_slice(&buffer[skip..skip + count]);
            }
            let kind = usize::from(buffer.len() > SMALL);
            if self.free[kind].len() < BUFFERS_MAX {
                self.free[kind].push(buffer);
            }
        }
        if pending.commands == 0 {
            let Pending { cookie, errno, data, bytes, .. } = self.pending.remove(request);
            self.held.sub(bytes);
            let data = if errno == Errno::Success { &data[..] } else { &[] };
            self.session.reply(cookie, errno, data);
        }
    }
}

fn begin(pending: &mut Slab<Pending>, cookie: u64, length: usize) -> usize {
    pending.insert(Pending { cookie, errno: Errno::Success, commands: 0, data: vec![0; length], bytes: 0 })
}

fn transfer(kind: Io, nsid: u32, start: u64, count: u64) -> Command {
    let blocks = Blocks { start, count: count as u32 };
    Command { opcode: kind as u8, nsid, ..Command::default() }.with_blocks(blocks)
}

/// A buffer of at least this length, from one of the two free lists.
fn take(
    free: &mut [Vec<Buffer>; 2],
    queue: &Queue,
    length: usize,
    transfer_max: usize,
) -> Result<Buffer, HostError> {
    let kind = usize::from(length > SMALL);
    match free[kind].pop() {
        Some(buffer) => Ok(buffer),
        None => queue.buffer(if kind == 0 { SMALL } else { transfer_max.max(length) }),
    }
}

fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
