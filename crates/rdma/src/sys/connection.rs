//! A connection: a queue pair, its completions, and the buffers that the device works on.

use std::ffi::{c_int, c_void};
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::{Duration, Instant};

use abi::{
    IBV_QPT_RC, IBV_SEND_SIGNALED, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_SEND, IBV_WR_SEND_WITH_INV,
    ibv_comp_channel, ibv_cq, ibv_qp_cap, ibv_qp_init_attr, ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_wc,
    rdma_conn_param,
};
use slab::Slab;

use super::buffer::Buffer;
use super::domain::Domain;
use super::library::{Library, check, failed, set_nonblocking};
use super::listener::{Channel, Event, Id, Link, sockaddr};
use super::shared::SharedReceives;
use crate::Error;

/// Completions that one call of [`Connection::poll`] takes.
pub const BATCH: usize = 32;
/// How long each step of connecting may take.
const STEP_SECONDS: u64 = 10;
/// READs that a connection serves and issues at once, in each direction.
const READS: u8 = 16;

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

struct InFlight {
    token: u64,
    buffer: Option<Buffer>,
    is_receive: bool,
}

/// A connection.
pub struct Connection {
    // Dropped from top to bottom by `drop`, which destroys queue pair and queues first.
    queues: Queues,
    link: Link,
    domain: Arc<Domain>,
    shared: Option<Arc<SharedReceives>>,
    in_flight: Slab<InFlight>,
    receives: usize,
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
        let in_flight = Slab::new();
        let (established, ended, receives) = (false, false, 0);
        let found = Box::new([ibv_wc::default(); BATCH]);
        let mut it =
            Self { queues, link, domain, shared, in_flight, receives, sizes, established, ended, found };
        // SAFETY: a channel that was just made.
        set_nonblocking(unsafe { wakeups.as_ref() }.fd)?;
        it.make_queue_pair()?;
        it.arm()?;
        Ok(it)
    }

    fn make_queue_pair(&mut self) -> Result<(), Error> {
        let cq = self.queues.completions.as_ptr();
        let shared = self.shared.as_ref().map(|shared| shared.raw());
        let cap = ibv_qp_cap {
            max_send_wr: self.sizes.send,
            max_recv_wr: if shared.is_some() { 0 } else { self.sizes.receive },
            max_send_sge: 1,
            max_recv_sge: u32::from(shared.is_none()),
            max_inline_data: 0,
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
        if self.receives >= self.sizes.receive as usize {
            return Err((Error::Full, buffer));
        }
        let Some(mut sge) = self.element(&buffer, buffer.len()) else {
            return Err((Error::Disconnected, buffer));
        };
        let slot = self.in_flight.insert(InFlight { token, buffer: Some(buffer), is_receive: true });
        let mut request =
            ibv_recv_wr { wr_id: slot as u64, next: ptr::null_mut(), sg_list: &mut sge, num_sge: 1 };
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair's own table of functions; the buffer is kept in its slot until completion.
        let code = unsafe {
            let qp = self.link.id.raw.as_ref().qp;
            (*(*qp).context).ops.post_recv.map_or(-1, |post| post(qp, &mut request, &mut bad))
        };
        self.receives += 1;
        self.posted("ibv_post_recv", code, slot)
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

    /// SENDs, WRITEs and READs that there is room for.
    pub fn room(&self) -> usize {
        (self.sizes.send as usize).saturating_sub(self.in_flight.len() - self.receives)
    }

    fn post(
        &mut self,
        opcode: u32,
        buffer: Buffer,
        length: usize,
        remote: (u64, u32),
        invalidate: u32,
        token: u64,
    ) -> Result<(), (Error, Buffer)> {
        if self.room() == 0 {
            return Err((Error::Full, buffer));
        }
        let Some(mut sge) = self.element(&buffer, length) else {
            return Err((Error::Disconnected, buffer));
        };
        let slot = self.in_flight.insert(InFlight { token, buffer: Some(buffer), is_receive: false });
        // SAFETY: a request of zeros is a request: numbers, null pointers, a union of numbers.
        let mut request: ibv_send_wr = unsafe { std::mem::zeroed() };
        request.wr_id = slot as u64;
        request.sg_list = &mut sge;
        request.num_sge = 1;
        request.opcode = opcode;
        request.send_flags = IBV_SEND_SIGNALED;
        request.imm_data = invalidate;
        request.wr.rdma = abi::ibv_wr_rdma { remote_addr: remote.0, rkey: remote.1 };
        let mut bad = ptr::null_mut();
        // SAFETY: as in `receive`; a peer's key and address are checked by the peer.
        let code = unsafe {
            let qp = self.link.id.raw.as_ref().qp;
            (*(*qp).context).ops.post_send.map_or(-1, |post| post(qp, &mut request, &mut bad))
        };
        self.posted("ibv_post_send", code, slot)
    }

    /// Where a buffer lies, for the device; `None` when it is of another domain.
    fn element(&self, buffer: &Buffer, length: usize) -> Option<ibv_sge> {
        let lkey = buffer.key(&self.domain)?;
        let length = length.min(buffer.len()) as u32;
        Some(ibv_sge { addr: buffer.as_ptr() as u64, length, lkey })
    }

    fn posted(&mut self, call: &'static str, code: c_int, slot: usize) -> Result<(), (Error, Buffer)> {
        if code == 0 {
            return Ok(());
        }
        let source = std::io::Error::from_raw_os_error(code);
        let taken = self.take(slot).and_then(|in_flight| in_flight.buffer);
        Err((Error::Call { call, source }, taken.unwrap_or_else(|| Buffer::zeroed(0))))
    }

    fn take(&mut self, slot: usize) -> Option<InFlight> {
        let taken = self.in_flight.try_remove(slot)?;
        self.receives -= usize::from(taken.is_receive);
        Some(taken)
    }

    /// Appends what has completed; returns how many.
    ///
    /// # Errors
    /// When the completion queue is broken.
    pub fn poll(&mut self, out: &mut Vec<Completion>) -> Result<usize, Error> {
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
            let Some(InFlight { token, buffer, is_receive }) = self.take(wc.wr_id as usize) else { continue };
            let done = match (wc.status, is_receive) {
                (0, true) => Ok(Done::Receive(wc.byte_len as usize)),
                (0, false) => Ok(Done::Sent),
                (status, _) => Err(status),
            };
            out.push(Completion { token, done, buffer });
        }
        Ok(count)
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
        f.debug_struct("Connection").field("in_flight", &self.in_flight.len()).finish_non_exhaustive()
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
