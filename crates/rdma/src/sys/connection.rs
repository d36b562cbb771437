//! A connection: a queue pair, its completions, and the buffers that the device works on.

use std::ffi::{c_int, c_void};
use std::fmt;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::RawFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::{Duration, Instant};

use abi::{
    IBV_QPT_RC, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_SEND, IBV_WR_SEND_WITH_INV, ibv_comp_channel,
    ibv_cq, ibv_qp_cap, ibv_qp_init_attr, ibv_sge, ibv_wc, rdma_conn_param,
};
use slab::Slab;

use super::buffer::Buffer;
use super::domain::Domain;
use super::library::{Library, check, failed, set_nonblocking};
use super::listener::{Channel, Event, Id, Link, sockaddr};
use super::outbox::{INLINE, Inbox, Outbox, Remote, Work};
use super::shared::SharedReceives;
use crate::Error;

/// Completions that one call of [`Connection::poll`] takes.
pub const BATCH: usize = 32;
/// How long each step of connecting may take.
const STEP_SECONDS: u64 = 10;
/// READs that a connection serves and issues at once, in each direction.
const READS: u8 = 16;
/// Marks the number of a request of the send queue; those of receives are places in a table.
const SENT: u64 = 1 << 62;
/// The token of short messages, of which nobody is told.
const SMALL: u64 = u64::MAX;

/// Events of the connection manager (rdma_get_cm_event(3)).
mod event {
    pub(super) const ADDR_RESOLVED: u32 = 0;
    pub(super) const ROUTE_RESOLVED: u32 = 2;
    pub(super) const REJECTED: u32 = 8;
    pub(super) const ESTABLISHED: u32 = 9;
    pub(super) const DISCONNECTED: u32 = 10;
    pub(super) const TIMEWAIT_EXIT: u32 = 15;
}

/// How many requests a connection has at once.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// SENDs, WRITEs and READs.
    pub send: u32,
    /// Receives.
    pub receive: u32,
}

/// What has completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Done {
    /// A message came, of so many bytes.
    Receive(usize),
    /// A SEND, WRITE or READ.
    Sent,
}

/// A request that has completed, and its buffer.
#[derive(Debug)]
pub struct Completion {
    /// The caller's name for it.
    pub token: u64,
    /// What it was. `Err` has the verbs status: the connection is broken.
    pub done: Result<Done, u32>,
    /// What it worked on.
    pub buffer: Option<Buffer>,
}

/// A connection. What is posted goes out in lists, with [`Connection::flush`] at the latest.
pub struct Connection {
    // Dropped from top to bottom by `drop`, which destroys queue pair and queues first.
    queues: Queues,
    link: Link,
    domain: Arc<Domain>,
    shared: Option<Arc<SharedReceives>>,
    /// Receives that the device has, each with its caller's name.
    receives: Slab<(u64, Buffer)>,
    inbox: Inbox,
    outbox: Outbox,
    /// For messages that a request cannot carry itself on this device; none where it can.
    small: Option<Vec<Buffer>>,
    sizes: Sizes,
    established: bool,
    ended: bool,
    /// Where completions are taken to.
    found: Box<[ibv_wc; BATCH]>,
}

struct Queues {
    library: &'static Library,
    completions: NonNull<ibv_cq>,
    wakeups: NonNull<ibv_comp_channel>,
    has_queue_pair: bool,
}

// SAFETY: verbs and librdmacm may be called from any thread.
unsafe impl Send for Connection {}

impl Connection {
    pub(crate) fn new(
        link: Link,
        domain: &Arc<Domain>,
        sizes: Sizes,
        shared: Option<Arc<SharedReceives>>,
    ) -> Result<Self, Error> {
        let library = link.id.library;
        // SAFETY: an identifier that has a device.
        let context = unsafe { link.id.raw.as_ref() }.verbs;
        // SAFETY: a device that is open.
        let wakeups = unsafe { (library.ibv_create_comp_channel)(context) };
        let wakeups = NonNull::new(wakeups).ok_or_else(|| failed("ibv_create_comp_channel"))?;
        // A peer that sends more than it may can use up all receives before that is seen.
        let receives = shared.as_ref().map_or(sizes.receive, |shared| shared.size());
        let entries = c_int::try_from(sizes.send + receives + 1).unwrap_or(c_int::MAX);
        // SAFETY: a device that is open, and a channel of it.
        let cq = unsafe { (library.ibv_create_cq)(context, entries, ptr::null_mut(), wakeups.as_ptr(), 0) };
        let Some(completions) = NonNull::new(cq) else {
            let error = failed("ibv_create_cq");
            // SAFETY: a channel that nothing uses.
            unsafe { (library.ibv_destroy_comp_channel)(wakeups.as_ptr()) };
            return Err(error);
        };
        let queues = Queues { library, completions, wakeups, has_queue_pair: false };
        let domain = Arc::clone(domain);
        let mut it = Self {
            queues,
            link,
            domain,
            shared,
            receives: Slab::new(),
            inbox: Inbox::default(),
            outbox: Outbox::default(),
            small: None,
            sizes,
            established: false,
            ended: false,
            found: Box::new([ibv_wc::default(); BATCH]),
        };
        // SAFETY: a channel that was just made.
        set_nonblocking(unsafe { wakeups.as_ref() }.fd)?;
        if it.make_queue_pair(INLINE as u32).is_err() {
            it.make_queue_pair(0)?;
            it.small = Some(Vec::new());
        }
        it.arm()?;
        Ok(it)
    }

    fn make_queue_pair(&mut self, max_inline_data: u32) -> Result<(), Error> {
        let cq = self.queues.completions.as_ptr();
        let shared = self.shared.as_ref().map(|shared| shared.raw());
        let cap = ibv_qp_cap {
            max_send_wr: self.sizes.send,
            max_recv_wr: if shared.is_some() { 0 } else { self.sizes.receive },
            max_send_sge: 1,
            max_recv_sge: u32::from(shared.is_none()),
            max_inline_data,
        };
        let mut attr = ibv_qp_init_attr {
            qp_context: ptr::null_mut(),
            send_cq: cq,
            recv_cq: cq,
            srq: shared.unwrap_or(ptr::null_mut()),
            cap,
            qp_type: IBV_QPT_RC,
            sq_sig_all: 0,
        };
        let library = self.link.id.library;
        // SAFETY: identifier, domain and completion queue are of one device and live as long as this.
        let code = unsafe {
            (library.rdma_create_qp)(self.link.id.raw.as_ptr(), self.domain.raw.as_ptr(), &mut attr)
        };
        check("rdma_create_qp", code)?;
        self.queues.has_queue_pair = true;
        Ok(())
    }

    /// Connects to a peer, and returns what it said. Receives have to be posted before: `prepare` is called
    /// when that can be done.
    ///
    /// # Errors
    /// When no device leads there, or the peer refuses or does not answer.
    pub fn connect(
        to: SocketAddr,
        sizes: Sizes,
        private_data: &[u8],
        prepare: impl FnOnce(&mut Self, &Arc<Domain>) -> Result<(), Error>,
    ) -> Result<(Self, Vec<u8>), Error> {
        let channel = Channel::new()?;
        let id = Id::new(&channel)?;
        let library = id.library;
        let address = sockaddr(to);
        let timeout_ms = (STEP_SECONDS * 1000) as c_int;
        let place = address.as_ptr().cast::<c_void>();
        // SAFETY: an identifier of the library, and an address of the family that it names.
        let code = unsafe { (library.rdma_resolve_addr)(id.raw.as_ptr(), ptr::null(), place, timeout_ms) };
        check("rdma_resolve_addr", code)?;
        wait_for(&channel, event::ADDR_RESOLVED).map_err(|error| match error {
            Error::Event { .. } => Error::NoRoute(to),
            error => error,
        })?;
        // SAFETY: an identifier whose address is resolved.
        check("rdma_resolve_route", unsafe { (library.rdma_resolve_route)(id.raw.as_ptr(), timeout_ms) })?;
        wait_for(&channel, event::ROUTE_RESOLVED)?;
        // SAFETY: an identifier whose address is resolved has a device, which librdmacm keeps open.
        let domain = unsafe { Domain::new(id.raw.as_ref().verbs) }?;
        let mut connection = Self::new(Link { id, channel }, &domain, sizes, None)?;
        prepare(&mut connection, &domain)?;
        connection.flush()?;
        let param = parameters(private_data);
        // SAFETY: an identifier with a route and a queue pair; the private data live until the call returns.
        let code = unsafe { (library.rdma_connect)(connection.link.id.raw.as_ptr(), &param) };
        check("rdma_connect", code)?;
        let answer = wait_for(&connection.link.channel, event::ESTABLISHED)?;
        connection.established = true;
        Ok((connection, answer.private_data))
    }

    /// Says yes to the peer.
    ///
    /// # Errors
    /// When it is gone.
    pub fn accept(&mut self, private_data: &[u8]) -> Result<(), Error> {
        self.flush()?;
        let param = parameters(private_data);
        // SAFETY: an identifier with a request and a queue pair; the private data live until the call
        // returns.
        check("rdma_accept", unsafe { (self.link.id.library.rdma_accept)(self.link.id.raw.as_ptr(), &param) })
    }

    /// The domain of its buffers.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Can be read when something has completed, and when the connection's state has changed.
    pub fn descriptors(&self) -> [RawFd; 2] {
        // SAFETY: a channel that lives as long as this.
        [unsafe { self.queues.wakeups.as_ref() }.fd, self.link.channel.descriptor()]
    }

    /// Looks whether the peer has gone.
    ///
    /// # Errors
    /// [`Error::Disconnected`] when it has.
    pub fn look(&mut self) -> Result<(), Error> {
        while let Some(event) = self.link.channel.event()? {
            match event.kind {
                event::ESTABLISHED => self.established = true,
                event::DISCONNECTED | event::TIMEWAIT_EXIT => self.ended = true,
                _ if event.status != 0 => self.ended = true,
                _ => {}
            }
        }
        if self.ended { Err(Error::Disconnected) } else { Ok(()) }
    }

    /// Asks for a wake-up at the next completion, and takes those that came. What completed before has to be
    /// polled for after this.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn arm(&mut self) -> Result<(), Error> {
        self.flush()?;
        let (library, cq) = (self.queues.library, self.queues.completions.as_ptr());
        let (mut which, mut context) = (ptr::null_mut(), ptr::null_mut());
        let wakeups = self.queues.wakeups.as_ptr();
        // SAFETY: a channel of the library, and places for what it returns.
        while unsafe { (library.ibv_get_cq_event)(wakeups, &mut which, &mut context) } == 0 {
            // SAFETY: an event of this queue, the only one on the channel.
            unsafe { (library.ibv_ack_cq_events)(cq, 1) };
        }
        // SAFETY: the queue's own table of functions.
        let code = unsafe {
            match (*(*cq).context).ops.req_notify_cq {
                Some(notify) => notify(cq, 0),
                None => -1,
            }
        };
        check("ibv_req_notify_cq", code)
    }

    /// Receives a message into a buffer.
    ///
    /// # Errors
    /// The buffer with the reason, when the queue is full or the connection broken.
    pub fn receive(&mut self, buffer: Buffer, token: u64) -> Result<(), (Error, Buffer)> {
        if self.receives.len() >= self.sizes.receive as usize {
            return Err((Error::Full, buffer));
        }
        let Some(element) = self.element(&buffer, buffer.len()) else {
            return Err((Error::Disconnected, buffer));
        };
        if self.inbox.is_full()
            && let Err(error) = self.flush()
        {
            return Err((error, buffer));
        }
        let slot = self.receives.insert((token, buffer));
        self.inbox.push(slot as u64, element);
        Ok(())
    }

    /// Sends the first `length` bytes of a buffer; takes a key of the peer back on the way, if one is named.
    ///
    /// # Errors
    /// The buffer with the reason, when the queue is full or the connection broken.
    pub fn send(
        &mut self,
        buffer: Buffer,
        length: usize,
        invalidate: Option<u32>,
        token: u64,
    ) -> Result<(), (Error, Buffer)> {
        let opcode = if invalidate.is_some() { IBV_WR_SEND_WITH_INV } else { IBV_WR_SEND };
        self.post(opcode, buffer, length, (0, 0), invalidate.unwrap_or(0), token)
    }

    /// Writes the first `length` bytes of a buffer to the peer's memory.
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub fn write(
        &mut self,
        buffer: Buffer,
        length: usize,
        remote: (u64, u32),
        token: u64,
    ) -> Result<(), (Error, Buffer)> {
        self.post(IBV_WR_RDMA_WRITE, buffer, length, remote, 0, token)
    }

    /// Writes part of a buffer that others have as well to the peer's memory. `false` where this device does
    /// not know the buffer, or it ends before the range does, and nothing was done.
    ///
    /// # Errors
    /// As [`Connection::send_short`].
    pub fn write_lent(
        &mut self,
        buffer: &Arc<Buffer>,
        range: Range<usize>,
        (address, key): (u64, u32),
        token: u64,
    ) -> Result<bool, Error> {
        let Some(bytes) = buffer.get(range) else { return Ok(false) };
        let Some(lkey) = buffer.key_to_read(&self.domain) else { return Ok(false) };
        let element = ibv_sge { addr: bytes.as_ptr() as u64, length: bytes.len() as u32, lkey };
        let remote = Remote { opcode: IBV_WR_RDMA_WRITE, address, key, invalidate: 0 };
        self.push(remote, Work::Lent(Arc::clone(buffer), element), token)?;
        Ok(true)
    }

    /// Reads `length` bytes of the peer's memory into a buffer.
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub fn read(
        &mut self,
        buffer: Buffer,
        length: usize,
        remote: (u64, u32),
        token: u64,
    ) -> Result<(), (Error, Buffer)> {
        self.post(IBV_WR_RDMA_READ, buffer, length, remote, 0, token)
    }

    /// Sends a short message, of at most 64 bytes; takes a key of the peer back on the way, if one is named.
    /// Nothing is said when it is done.
    ///
    /// # Errors
    /// When the queue is full or the connection broken, or the message is not short.
    pub fn send_short(&mut self, bytes: &[u8], invalidate: Option<u32>) -> Result<(), Error> {
        let opcode = if invalidate.is_some() { IBV_WR_SEND_WITH_INV } else { IBV_WR_SEND };
        let remote = Remote { opcode, invalidate: invalidate.unwrap_or(0), ..Remote::default() };
        let mut inline = [0; INLINE];
        inline.get_mut(..bytes.len()).ok_or(Error::Full)?.copy_from_slice(bytes);
        let Some(small) = &mut self.small else {
            return self.push(remote, Work::Inline(inline, bytes.len()), SMALL);
        };
        let mut buffer = match small.pop() {
            Some(buffer) => buffer,
            None => Buffer::registered(&self.domain, INLINE)?,
        };
        buffer[..bytes.len()].copy_from_slice(bytes);
        let element = self.element(&buffer, bytes.len()).ok_or(Error::Disconnected)?;
        self.push(remote, Work::Buffer(buffer, element), SMALL)
    }

    /// SENDs, WRITEs and READs that there is room for.
    pub fn room(&self) -> usize {
        (self.sizes.send as usize).saturating_sub(self.outbox.len())
    }

    fn post(
        &mut self,
        opcode: u32,
        buffer: Buffer,
        length: usize,
        (address, key): (u64, u32),
        invalidate: u32,
        token: u64,
    ) -> Result<(), (Error, Buffer)> {
        if self.room() == 0 {
            return Err((Error::Full, buffer));
        }
        let Some(element) = self.element(&buffer, length) else {
            return Err((Error::Disconnected, buffer));
        };
        if self.outbox.is_full()
            && let Err(error) = self.flush()
        {
            return Err((error, buffer));
        }
        let remote = Remote { opcode, address, key, invalidate };
        self.outbox.push(SENT, remote, Work::Buffer(buffer, element), token);
        Ok(())
    }

    fn push(&mut self, remote: Remote, work: Work, token: u64) -> Result<(), Error> {
        if self.room() == 0 {
            return Err(Error::Full);
        }
        if self.outbox.is_full() {
            self.flush()?;
        }
        self.outbox.push(SENT, remote, work, token);
        Ok(())
    }

    /// Hands what was posted to the device: messages first, which somebody waits for, then receives.
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn flush(&mut self) -> Result<(), Error> {
        let of = |call, code: Result<(), c_int>| {
            let error = |code| Error::Call { call, source: std::io::Error::from_raw_os_error(code) };
            code.map_err(error)
        };
        // SAFETY: the identifier's queue pair, which is destroyed before the buffers go.
        unsafe {
            let qp = self.link.id.raw.as_ref().qp;
            of("ibv_post_send", self.outbox.post(qp))?;
            of("ibv_post_recv", self.inbox.post(qp))
        }
    }

    /// Where a buffer lies, for the device; `None` when it is of another domain.
    fn element(&self, buffer: &Buffer, length: usize) -> Option<ibv_sge> {
        let lkey = buffer.key(&self.domain)?;
        let length = length.min(buffer.len()) as u32;
        Some(ibv_sge { addr: buffer.as_ptr() as u64, length, lkey })
    }

    /// Hands what was posted to the device, and appends what has completed: a request that others follow may
    /// be told of with one of those. Returns how many completions there were.
    ///
    /// # Errors
    /// When the completion queue is broken.
    pub fn poll(&mut self, out: &mut Vec<Completion>) -> Result<usize, Error> {
        self.flush()?;
        let cq = self.queues.completions.as_ptr();
        // SAFETY: the queue's own table of functions, and room for as many as are asked for.
        let count = unsafe {
            let poll = (*(*cq).context).ops.poll_cq;
            poll.map_or(-1, |poll| poll(cq, BATCH as c_int, self.found.as_mut_ptr()))
        };
        let Ok(count) = usize::try_from(count) else { return Err(failed("ibv_poll_cq")) };
        for index in 0..count.min(BATCH) {
            let wc = self.found[index];
            if let Some(shared) = &self.shared
                && let Some((token, buffer)) = shared.take(wc.wr_id)
            {
                out.push(match wc.status {
                    0 => {
                        let done = Ok(Done::Receive(wc.byte_len as usize));
                        Completion { token, done, buffer: Some(buffer) }
                    }
                    status => {
                        // Others can use it. If they cannot, the device is gone.
                        _ = shared.receive(buffer, token);
                        Completion { token, done: Err(status), buffer: None }
                    }
                });
                continue;
            }
            if wc.wr_id & SENT != 0 {
                self.retire(wc.wr_id & !SENT, wc.status, out);
                continue;
            }
            let Some((token, buffer)) = self.receives.try_remove(wc.wr_id as usize) else { continue };
            let done = if wc.status == 0 { Ok(Done::Receive(wc.byte_len as usize)) } else { Err(wc.status) };
            out.push(Completion { token, done, buffer: Some(buffer) });
        }
        Ok(count)
    }

    fn retire(&mut self, number: u64, status: u32, out: &mut Vec<Completion>) {
        self.outbox.retire(number, |token, buffer, is_it| {
            if is_it && status != 0 {
                out.push(Completion { token, done: Err(status), buffer });
            } else if token == SMALL {
                if let Some((small, buffer)) = self.small.as_mut().zip(buffer) {
                    small.push(buffer);
                }
            } else {
                out.push(Completion { token, done: Ok(Done::Sent), buffer });
            }
        });
    }

    /// What came into receives that others have as well, and was not taken, is theirs again.
    fn give_back(&mut self) {
        let mut left = Vec::new();
        while self.poll(&mut left).is_ok_and(|count| count > 0) {
            let Some(shared) = &self.shared else { return };
            for Completion { token, done, buffer } in left.drain(..) {
                if let (Some(buffer), Ok(Done::Receive(_))) = (buffer, done) {
                    _ = shared.receive(buffer, token);
                }
            }
        }
    }

    /// Ends it: requests that wait complete with an error.
    pub fn disconnect(&mut self) {
        if !self.ended {
            // SAFETY: an identifier with a queue pair; one that is not connected returns an error.
            unsafe { (self.link.id.library.rdma_disconnect)(self.link.id.raw.as_ptr()) };
        }
    }
}

/// What both sides say of themselves.
fn parameters(private_data: &[u8]) -> rdma_conn_param {
    rdma_conn_param {
        private_data: private_data.as_ptr().cast(),
        private_data_len: private_data.len().min(56) as u8,
        responder_resources: READS,
        initiator_depth: READS,
        flow_control: 1,
        retry_count: 7,
        rnr_retry_count: 7,
        srq: 0,
        qp_num: 0,
    }
}

fn wait_for(channel: &Channel, wanted: u32) -> Result<Event, Error> {
    let deadline = Instant::now() + Duration::from_secs(STEP_SECONDS);
    loop {
        if let Some(found) = channel.event()? {
            return match found.kind {
                kind if kind == wanted && found.status == 0 => Ok(found),
                event::REJECTED => {
                    Err(Error::Rejected { reason: found.status, private_data: found.private_data })
                }
                event => Err(Error::Event { event, status: found.status }),
            };
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Error::Silence { seconds: STEP_SECONDS });
        }
        let mut poll = libc::pollfd { fd: channel.descriptor(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor that is open.
        unsafe { libc::poll(&mut poll, 1, left.as_millis() as c_int + 1) };
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("in_flight", &self.outbox.len()).finish_non_exhaustive()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.disconnect();
        if self.shared.is_some() {
            self.give_back();
        }
        if self.queues.has_queue_pair {
            // SAFETY: the identifier has a queue pair. When it is destroyed the device lets go of all
            // buffers.
            unsafe { (self.link.id.library.rdma_destroy_qp)(self.link.id.raw.as_ptr()) };
        }
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        // SAFETY: the queue pair that used them is destroyed, and every event is acknowledged.
        unsafe {
            (self.library.ibv_destroy_cq)(self.completions.as_ptr());
            (self.library.ibv_destroy_comp_channel)(self.wakeups.as_ptr());
        }
    }
}
