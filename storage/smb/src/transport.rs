//! Drives an SMB Direct connection over verbs: posts receives, sends fragments, and executes RDMA READs and
//! WRITEs over buffer descriptors.

use std::collections::{HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use buffer::Buffer;
use rdma::{BATCH, Completion, Done, Landing, Sizes, Watched, Woken};
use slab::Slab;
use wire::smb::direct::BufferDescriptor;

use crate::close_reason::Ended;
use crate::direct::{Connection, Parameters};
use crate::limits::{READ_WRITE_MAX, RECEIVES_BEFORE_TRUST};
use crate::memory::{Access, Pool};
use crate::peer::{Opened, Peer};
use crate::relay::Session;

/// Entries of the send queue: one for each credit, and for RDMA READs and WRITEs.
const SENDS: u32 = 512;
/// RDMA READs that are outstanding at once at most. Windows serves 16, ksmbd 8.
const READS: u8 = 16;
/// A SEND finds a receive posted, because it takes a credit for one.
const RNR_RETRY: u8 = 0;
/// IBV_WC_WR_FLUSH_ERR: the status of work requests after the connection has ended.
const FLUSHED: u32 = 5;
/// How long a thread polls before it sleeps, where that has helped lately: a server that is woken on another
/// core answers within this time, and to wake this thread's core would take a quarter of it.
const POLLS: Duration = Duration::from_micros(100);
/// How long to wait for the event with the reason for which work requests were flushed.
const REASON_TIMEOUT: Duration = Duration::from_secs(1);

/// The kind of a work request in its token; the lower half has the index of its operation.
mod token {
    pub(super) const RECEIVE: u64 = 0;
    pub(super) const SEND: u64 = 1 << 32;
    pub(super) const TRANSFER: u64 = 2 << 32;
    pub(super) const BINDING: u64 = 3 << 32;
    pub(super) const LOW: u64 = 0xffff_ffff;
}

/// Queue sizes of a connection, and its parameters.
pub fn sizes(parameters: &Parameters) -> Sizes {
    let receive = u32::from(parameters.credits) + BATCH as u32;
    Sizes {
        send: SENDS,
        receive,
        reads: READS,
        rnr_retry: RNR_RETRY,
    }
}

/// Posts the receive for the peer's negotiate message, which has to happen before the connection exists.
///
/// # Errors
/// As [`rdma::Connection::receive`].
pub fn first_receive(
    domain: &Arc<rdma::Domain>,
    parameters: &Parameters,
) -> Result<Buffer, rdma::Error> {
    domain.registered(parameters.receive_size as usize)
}

/// Whether the device has memory windows of type 2.
fn has_windows(domain: &Arc<rdma::Domain>) -> bool {
    let found = domain.windowed(1);
    if let Err(error) = &found {
        tracing::info!(%error, "no memory windows: answers do not invalidate the keys (Channel 1)");
    }
    found.is_ok()
}

/// The token of receives.
pub const RECEIVE: u64 = token::RECEIVE;

/// RDMA READs or WRITEs of one request.
#[derive(Debug)]
enum Operation {
    Fetch {
        number: u64,
        landing: Arc<Landing>,
        left: usize,
    },
    Place {
        source: Arc<Buffer>,
        left: usize,
    },
}

/// One RDMA READ or WRITE that waits for the queue.
#[derive(Debug)]
struct Transfer {
    operation: usize,
    range: Range<usize>,
    remote: rdma::RemoteMemory,
}

/// The verbs side of a relayed connection.
#[derive(Debug)]
pub struct Transport {
    connection: rdma::Connection,
    direct: Connection,
    origin: Instant,
    receive_size: usize,
    memory: Pool,
    /// Receive buffers whose messages were handled.
    received: Vec<Buffer>,
    /// Send buffers that are free.
    sends: Vec<Buffer>,
    /// Receive buffers that there are.
    receive_count: usize,
    /// Send buffers that there are.
    send_count: usize,
    completed: Vec<Completion>,
    operations: Slab<Operation>,
    reads: VecDeque<Transfer>,
    writes: VecDeque<Transfer>,
    outstanding_reads: usize,
    /// Keys of open buffers that the peer has invalidated.
    invalidated: HashSet<u32>,
    /// The device has memory windows, whose keys the peer can invalidate.
    has_windows: bool,
    /// Keys that a SEND with Invalidate has ended, of either side.
    invalidations: u64,
    /// The peer gets all receives, and there are as many send buffers as it grants credits.
    is_wide: bool,
    /// Receives are posted: the session takes more messages.
    is_receiving: bool,
}

impl Transport {
    /// A transport over a connection whose first receive is posted, with a pool for its data buffers.
    pub fn new(
        mut connection: rdma::Connection,
        parameters: Parameters,
        listens: bool,
        memory: Pool,
    ) -> Self {
        let before_trust = Parameters {
            credits: parameters.credits.min(RECEIVES_BEFORE_TRUST),
            ..parameters
        };
        let mut direct = match listens {
            true => Connection::listener(before_trust, Duration::ZERO),
            false => Connection::initiator(before_trust, Duration::ZERO),
        };
        direct.receives_posted(1);
        // Half of the send buffers come back while the other half is in use.
        connection.report_within(Some(usize::from(RECEIVES_BEFORE_TRUST) / 2));
        Self {
            memory,
            has_windows: !listens && has_windows(connection.domain()),
            connection,
            direct,
            origin: Instant::now(),
            receive_size: parameters.receive_size as usize,
            received: Vec::new(),
            sends: Vec::new(),
            receive_count: 1,
            send_count: 0,
            completed: Vec::new(),
            operations: Slab::new(),
            reads: VecDeque::new(),
            writes: VecDeque::new(),
            outstanding_reads: 0,
            invalidated: HashSet::new(),
            invalidations: 0,
            is_wide: false,
            is_receiving: true,
        }
    }

    /// The connection's state.
    pub fn direct(&self) -> &Connection {
        &self.direct
    }

    /// The client has authenticated: its buffers are charged to the memory of all connections only.
    pub fn trust(&mut self) {
        self.memory.trust();
    }

    /// Posts as many receives as the peer asks for from now on, up to this number.
    pub fn widen(&mut self, credits: u16) {
        if !self.is_wide {
            self.is_wide = true;
            self.connection.report_within(None);
            self.direct.set_credits(credits);
        }
    }

    /// Whether [`Transport::widen`] was called.
    pub fn is_wide(&self) -> bool {
        self.is_wide
    }

    /// Bytes of receive and send buffers, and those that wait to be sent, without data buffers.
    pub fn held(&self) -> usize {
        (self.receive_count + self.send_count) * self.receive_size + self.direct.buffered()
    }

    /// Posts receives, or lets the peer run out of credits.
    pub fn set_receiving(&mut self, is_receiving: bool) {
        self.is_receiving = is_receiving;
    }

    /// Bytes that wait to be sent as fragments.
    pub fn queued(&self) -> usize {
        self.direct.buffered()
    }

    /// Keys that a SEND with Invalidate has ended: of the peer, and of this side.
    pub fn invalidations(&self) -> u64 {
        self.invalidations
    }

    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// Handles completions; returns whether there were any.
    ///
    /// # Errors
    /// [`Ended`] when the connection has ended, or a message or a work request ends it.
    pub fn poll(&mut self, session: &mut impl Session) -> Result<bool, Ended> {
        let mut completed = std::mem::take(&mut self.completed);
        let count = self.connection.poll(&mut completed)?;
        let now = self.now();
        for Completion {
            token,
            done,
            buffer,
            invalidated,
        } in completed.drain(..)
        {
            let done = done.map_err(|status| self.failed(status))?;
            if let Some(key) = invalidated {
                self.invalidations += 1;
                self.invalidated.insert(key);
            }
            match (token & !token::LOW, done, buffer) {
                (token::RECEIVE, Done::Receive(length), Some(buffer)) => {
                    let message = buffer.get(..length).unwrap_or_default();
                    if let Some(fragment) = self.direct.receive(message, now)? {
                        session.fragment(fragment)?;
                    }
                    self.received.push(buffer);
                }
                (token::SEND, _, Some(buffer)) => self.sends.push(buffer),
                (token::TRANSFER, ..) => self.transferred((token & token::LOW) as usize, session),
                _ => {}
            }
        }
        self.completed = completed;
        Ok(count > 0)
    }

    fn transferred(&mut self, index: usize, session: &mut impl Session) {
        let Some(operation) = self.operations.get_mut(index) else {
            return;
        };
        let left = match operation {
            Operation::Fetch { left, .. } => {
                self.outstanding_reads -= 1;
                left
            }
            Operation::Place { left, .. } => left,
        };
        *left -= 1;
        if *left > 0 {
            return;
        }
        match self.operations.remove(index) {
            Operation::Fetch {
                number, landing, ..
            } => {
                if let Ok(buffer) = landing.into_buffer() {
                    session.fetched(number, buffer);
                }
            }
            Operation::Place { source, .. } => {
                if let Ok(buffer) = Arc::try_unwrap(source) {
                    self.memory.give(buffer, Access::None);
                }
            }
        }
    }

    /// Translates the status of a failed work request. When the peer disconnects, outstanding requests are
    /// flushed, possibly before the event of the disconnection arrives.
    fn failed(&mut self, status: u32) -> Ended {
        if status != FLUSHED {
            return Ended::Work(status);
        }
        let began = Instant::now();
        while began.elapsed() < REASON_TIMEOUT {
            if let Err(error) = self.connection.check_events() {
                return error.into();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ended::Work(status)
    }

    /// Posts what is to be posted.
    ///
    /// # Errors
    /// [`Ended`] when the peer is silent for too long, or the connection is broken.
    pub fn flush(&mut self) -> Result<(), Ended> {
        let now = self.now();
        self.direct.handle_timeout(now)?;
        self.post_receives()?;
        while let Some(transfer) = self.writes.front()
            && self.connection.room() > 0
        {
            self.post_transfer(transfer.operation, transfer.range.clone(), transfer.remote)?;
            self.writes.pop_front();
        }
        let depth = usize::from(self.connection.reads()).max(1);
        while self.outstanding_reads < depth
            && self.connection.room() > 0
            && let Some(Transfer {
                operation,
                range,
                remote,
            }) = self.reads.pop_front()
        {
            self.post_transfer(operation, range, remote)?;
            self.outstanding_reads += 1;
        }
        // The answer of a READ follows its data on the queue pair.
        while self.writes.is_empty() && self.connection.room() > 0 && self.send(now)? {}
        Ok(self.connection.flush()?)
    }

    fn post_receives(&mut self) -> Result<(), Ended> {
        if !self.is_receiving {
            return Ok(());
        }
        // Receives have to be posted before a message grants them.
        let mut posted = 0;
        while posted < self.direct.receives_to_post() {
            let buffer = match self.received.pop() {
                Some(buffer) => buffer,
                None => {
                    self.receive_count += 1;
                    self.connection.domain().registered(self.receive_size)?
                }
            };
            self.connection
                .receive(buffer, token::RECEIVE)
                .map_err(|(error, _)| error)?;
            posted += 1;
        }
        if posted > 0 {
            self.connection.flush()?;
            self.direct.receives_posted(posted);
        }
        Ok(())
    }

    fn post_transfer(
        &mut self,
        operation: usize,
        range: Range<usize>,
        remote: rdma::RemoteMemory,
    ) -> Result<(), Ended> {
        let token = token::TRANSFER | operation as u64;
        match self.operations.get(operation) {
            Some(Operation::Fetch { landing, .. }) => {
                self.connection.read_part(landing, range, remote, token)?;
            }
            Some(Operation::Place { source, .. }) => {
                // The buffer is of the connection's domain, and has the range.
                _ = self.connection.write_shared(source, range, remote, token)?;
            }
            None => {}
        }
        Ok(())
    }

    /// Sends one message; returns whether there was one.
    fn send(&mut self, now: Duration) -> Result<bool, Ended> {
        let mut buffer = match self.sends.pop() {
            Some(buffer) => buffer,
            // The next completion frees one.
            None if !self.is_wide && self.send_count >= usize::from(RECEIVES_BEFORE_TRUST) => {
                return Ok(false);
            }
            None => {
                self.send_count += 1;
                self.connection.domain().registered(self.receive_size)?
            }
        };
        let Some(message) = self.direct.poll_transmit(&mut buffer, now) else {
            self.sends.push(buffer);
            return Ok(false);
        };
        let posted = self
            .connection
            .send(buffer, message.length, message.invalidate, token::SEND);
        posted.map_err(|(error, _)| error)?;
        self.invalidations += u64::from(message.invalidate.is_some());
        Ok(true)
    }

    /// Has the device make progress by itself: this thread waits elsewhere next.
    ///
    /// # Errors
    /// [`Ended`] when the device was removed.
    pub fn leave(&mut self) -> Result<(), Ended> {
        Ok(self.connection.arm()?)
    }

    /// Waits for completions, for the end of the connection, and for a descriptor.
    ///
    /// # Errors
    /// [`Ended`] when the peer has disconnected.
    pub fn wait(&mut self, other: Option<Watched>, most: Option<Duration>) -> Result<Woken, Ended> {
        let woken = self.connection.wait(other, POLLS, most)?;
        if woken.state {
            self.check_events()?;
        }
        Ok(woken)
    }

    /// Finds out whether the peer has disconnected.
    ///
    /// # Errors
    /// [`Ended`] when it has.
    pub fn check_events(&mut self) -> Result<(), Ended> {
        Ok(self.connection.check_events()?)
    }

    /// How long until [`Transport::flush`] has to be called, if nothing happens before.
    pub fn time_left(&self) -> Option<Duration> {
        self.direct
            .deadline()
            .map(|deadline| deadline.saturating_sub(self.now()))
    }

    /// Returns data buffers to the device after a time without requests.
    pub fn release_idle(&mut self) {
        self.memory.release_idle();
    }

    fn operation(
        &mut self,
        operation: Operation,
        at: usize,
        pieces: &[BufferDescriptor],
        is_read: bool,
    ) {
        let operation = self.operations.insert(operation);
        let mut begin = at;
        for piece in pieces {
            let range = begin..begin + piece.length as usize;
            begin = range.end;
            let transfer = Transfer {
                operation,
                range,
                remote: rdma::RemoteMemory {
                    address: piece.offset,
                    key: piece.token,
                },
            };
            if is_read {
                self.reads.push_back(transfer)
            } else {
                self.writes.push_back(transfer)
            }
        }
    }
}

impl Peer for Transport {
    fn begin(&mut self, length: u32, invalidate: Option<u32>) -> Result<(), Ended> {
        Ok(self.direct.begin(length, invalidate)?)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), Ended> {
        Ok(self.direct.append(bytes)?)
    }

    fn buffer(&mut self, length: usize) -> Result<Option<Buffer>, Ended> {
        Ok(self.memory.take(length, Access::None)?)
    }

    fn buffer_beyond(&mut self, length: usize) -> Result<Option<Buffer>, Ended> {
        Ok(self.memory.take_beyond(length, Access::None)?)
    }

    fn recycle(&mut self, buffer: Buffer) {
        self.memory.give(buffer, Access::None);
    }

    fn fetch(
        &mut self,
        number: u64,
        buffer: Buffer,
        at: usize,
        from: &[BufferDescriptor],
        _: usize,
    ) {
        let (landing, left) = (Landing::new(buffer), from.len());
        self.operation(
            Operation::Fetch {
                number,
                landing,
                left,
            },
            at,
            from,
            true,
        );
    }

    fn write_by_rdma(&mut self, buffer: Buffer, range: Range<usize>, to: &[BufferDescriptor]) {
        let (source, left) = (Arc::new(buffer), to.len());
        self.operation(Operation::Place { source, left }, range.start, to, false);
    }

    // The key of a memory region cannot be invalidated by the peer; that of a window of type 2 can.
    fn open(&mut self, length: usize, invalidates: bool) -> Result<Option<Opened>, Ended> {
        let invalidates = invalidates && self.has_windows;
        let access = if invalidates {
            Access::Window
        } else {
            Access::Region
        };
        // A binding takes a place in the send queue.
        if invalidates && self.connection.room() == 0 {
            return Ok(None);
        }
        let Some(mut buffer) = self.memory.take(length, access)? else {
            return Ok(None);
        };
        let remote = match access {
            Access::Window => self.connection.bind(&mut buffer, length, token::BINDING)?,
            _ => self.connection.domain().remote(&buffer),
        };
        let (offset, token) = remote.ok_or(Ended::Disconnected)?;
        let descriptor = BufferDescriptor {
            offset,
            token,
            length: length as u32,
        };
        Ok(Some(Opened {
            buffer,
            descriptor,
            invalidates,
        }))
    }

    fn close(&mut self, opened: Opened) {
        if !opened.invalidates {
            self.memory.give(opened.buffer, Access::Region);
        } else if self.invalidated.remove(&opened.descriptor.token) {
            self.memory.give(opened.buffer, Access::Window);
        } else {
            // The server was asked to invalidate the key and did not.
            self.memory.discard(opened.buffer);
        }
    }

    fn read_write_size(&self) -> u32 {
        self.direct
            .agreement()
            .map_or(0, |agreement| agreement.read_write_size.min(READ_WRITE_MAX))
    }
}
