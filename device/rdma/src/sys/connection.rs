//! A connection: a queue pair, its completion queue, and the buffers that its requests use.

mod completions;
mod establish;

pub use completions::{BATCH, Completion, Done};

use std::ffi::c_int;
use std::fmt;
use std::ops::Range;
use std::os::fd::RawFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use abi::{
    IBV_QPT_RC, IBV_WR_BIND_MW, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_SEND,
    IBV_WR_SEND_WITH_INV, ibv_comp_channel, ibv_cq, ibv_qp_cap, ibv_qp_init_attr, ibv_sge, ibv_wc,
};
use buffer::Buffer;
use slab::Slab;

use super::channel::Link;
use super::domain::Domain;
use super::landing::Landing;
use super::library::{Library, WaitCq, check_call, failed, set_nonblocking};
use super::outbox::{INLINE, Inbox, LocalData, Outbox, Remote, RemoteMemory};
use super::shared::SharedReceives;
use crate::Error;

/// Marks work request IDs of the send queue; those of receives are indices of a table.
const SENT: u64 = 1 << 62;
/// Token of short messages, which the caller gets no completion for.
const SMALL: u64 = u64::MAX;

/// Queue sizes and connection parameters.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Outstanding SENDs, WRITEs and READs.
    pub send: u32,
    /// Receives that may be posted at once.
    pub receive: u32,
    /// Initiator depth: outstanding READs of this side at most. 0 if it issues none. The peer's responder
    /// resources can lower it: [`Connection::reads`].
    pub reads: u8,
    /// How often a SEND is repeated while the peer has no receive posted (RNR retry count): 7 means without
    /// limit.
    pub rnr_retry: u8,
}

/// A connection. Requests are posted in lists, at the latest by [`Connection::flush`].
pub struct Connection {
    // Fields are dropped in this order after `drop` has run, which destroys the queue pair first.
    queues: Queues,
    link: Link,
    domain: Arc<Domain>,
    shared: Option<Arc<SharedReceives>>,
    /// Posted receives, each with its token.
    receives: Slab<(u64, Buffer)>,
    inbox: Inbox,
    outbox: Outbox,
    /// Buffers for short messages, if the device has no inline data; otherwise `None`.
    small: Option<Vec<Buffer>>,
    sizes: Sizes,
    established: bool,
    ended: bool,
    /// A notification was requested by [`Connection::wait`], and has not come.
    pub(super) is_armed: bool,
    /// The event that ended the connection, if it was a failure.
    failure: Option<(u32, c_int)>,
    /// Array that completions are polled into.
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
    pub(super) fn new(
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
        // A peer that ignores flow control can complete all receives before its messages are processed, so
        // each receive has an entry.
        let receives = shared
            .as_ref()
            .map_or(sizes.receive, |shared| shared.size());
        let entries = c_int::try_from(sizes.send + receives + 1).unwrap_or(c_int::MAX);
        // SAFETY: a device that is open, and a channel of it.
        let cq = unsafe {
            (library.ibv_create_cq)(context, entries, ptr::null_mut(), wakeups.as_ptr(), 0)
        };
        let Some(completions) = NonNull::new(cq) else {
            let error = failed("ibv_create_cq");
            // SAFETY: a channel that nothing uses.
            unsafe { (library.ibv_destroy_comp_channel)(wakeups.as_ptr()) };
            return Err(error);
        };
        let queues = Queues {
            library,
            completions,
            wakeups,
            has_queue_pair: false,
        };
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
            is_armed: false,
            failure: None,
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
            max_recv_wr: if shared.is_some() {
                0
            } else {
                self.sizes.receive
            },
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
            (library.rdma_create_qp)(
                self.link.id.raw.as_ptr(),
                self.domain.raw.as_ptr(),
                &mut attr,
            )
        };
        check_call("rdma_create_qp", code)?;
        self.queues.has_queue_pair = true;
        Ok(())
    }

    /// The number of the queue pair.
    pub fn number(&self) -> u32 {
        // SAFETY: the identifier's queue pair, which lives as long as this.
        unsafe { (*self.link.id.raw.as_ref().qp).qp_num }
    }

    /// The protection domain of the connection's buffers.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Descriptors that are readable when a request has completed, and when the connection's state has
    /// changed.
    pub fn descriptors(&self) -> [RawFd; 2] {
        // SAFETY: a channel that lives as long as this.
        [
            unsafe { self.queues.wakeups.as_ref() }.fd,
            self.link.channel.descriptor(),
        ]
    }

    /// The function of the library that waits for a queue and descriptors at once.
    pub(super) fn wait_function(&self) -> Option<WaitCq> {
        self.queues.library.wait_cq
    }

    /// The queue of all completions.
    pub(super) fn completion_queue(&self) -> *mut ibv_cq {
        self.queues.completions.as_ptr()
    }

    /// Takes completion events, and requests one for the next completion. The caller has to poll afterwards,
    /// for requests that completed before.
    ///
    /// # Errors
    /// When the device was removed.
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
        check_call("ibv_req_notify_cq", code)
    }

    /// Posts a receive.
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

    /// Sends the first `length` bytes of a buffer; with `invalidate` it is a SEND with Invalidate of that
    /// remote key.
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
        let opcode = if invalidate.is_some() {
            IBV_WR_SEND_WITH_INV
        } else {
            IBV_WR_SEND
        };
        let remote = Remote {
            opcode,
            invalidate: invalidate.unwrap_or(0),
            ..Remote::default()
        };
        self.post(remote, buffer, length, token)
    }

    /// Writes the first `length` bytes of a buffer to the peer's memory by RDMA WRITE.
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub fn write(
        &mut self,
        buffer: Buffer,
        length: usize,
        remote: RemoteMemory,
        token: u64,
    ) -> Result<(), (Error, Buffer)> {
        self.post(remote.accessed_by(IBV_WR_RDMA_WRITE), buffer, length, token)
    }

    /// Writes a range of a shared buffer to the peer's memory by RDMA WRITE. Returns `false`, and does
    /// nothing, when the device has not registered the buffer or the range exceeds it.
    ///
    /// # Errors
    /// As [`Connection::send_short`].
    pub fn write_shared(
        &mut self,
        buffer: &Arc<Buffer>,
        range: Range<usize>,
        remote: RemoteMemory,
        token: u64,
    ) -> Result<bool, Error> {
        let Some(bytes) = buffer.get(range) else {
            return Ok(false);
        };
        let Some(lkey) = self.domain.read_key(buffer) else {
            return Ok(false);
        };
        let element = ibv_sge {
            addr: bytes.as_ptr() as u64,
            length: bytes.len() as u32,
            lkey,
        };
        let remote = remote.accessed_by(IBV_WR_RDMA_WRITE);
        self.push(
            remote,
            LocalData::Shared(Arc::clone(buffer), element),
            token,
        )?;
        Ok(true)
    }

    /// Reads `length` bytes of the peer's memory into a buffer by RDMA READ.
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub fn read(
        &mut self,
        buffer: Buffer,
        length: usize,
        remote: RemoteMemory,
        token: u64,
    ) -> Result<(), (Error, Buffer)> {
        self.post(remote.accessed_by(IBV_WR_RDMA_READ), buffer, length, token)
    }

    /// Reads the peer's memory into a range of a buffer that several READs may fill.
    ///
    /// # Errors
    /// As [`Connection::send_short`], and [`Error::Disconnected`] when the range exceeds the buffer or the
    /// buffer is of another domain.
    pub fn read_part(
        &mut self,
        landing: &Arc<Landing>,
        range: Range<usize>,
        remote: RemoteMemory,
        token: u64,
    ) -> Result<(), Error> {
        let (addr, length, lkey) = landing
            .element_of(&self.domain, range)
            .ok_or(Error::Disconnected)?;
        let remote = remote.accessed_by(IBV_WR_RDMA_READ);
        let element = ibv_sge { addr, length, lkey };
        self.push(
            remote,
            LocalData::Landing(Arc::clone(landing), element),
            token,
        )
    }

    /// Binds the window of a buffer ([`Domain::windowed`]) to its first `length` bytes. Returns the address
    /// and the key by which the peer may access them from the next message on; `None` when the buffer has no
    /// window of this connection's domain, or is shorter.
    ///
    /// The binding of a window that is bound fails, and ends the connection.
    ///
    /// # Errors
    /// As [`Connection::send_short`].
    pub fn bind(
        &mut self,
        buffer: &mut Buffer,
        length: usize,
        token: u64,
    ) -> Result<Option<(u64, u32)>, Error> {
        let Some(binding) = self.domain.next_binding(buffer, length) else {
            return Ok(None);
        };
        let place = (binding.bind_info.addr, binding.rkey);
        let remote = Remote {
            opcode: IBV_WR_BIND_MW,
            ..Remote::default()
        };
        self.push(remote, LocalData::Binding(binding), token)?;
        // Posted at once: the request names the window and its region, which live as long as the buffer.
        self.flush()?;
        Ok(Some(place))
    }

    /// The negotiated initiator depth: READs of this side that may be outstanding at once.
    pub fn reads(&self) -> u8 {
        self.sizes.reads
    }

    /// Sends a message of at most 64 bytes; with `invalidate` it is a SEND with Invalidate of that remote
    /// key. [`Connection::poll`] returns no completion for it.
    ///
    /// # Errors
    /// When the queue is full, the connection broken, or the message too long.
    pub fn send_short(&mut self, bytes: &[u8], invalidate: Option<u32>) -> Result<(), Error> {
        let opcode = if invalidate.is_some() {
            IBV_WR_SEND_WITH_INV
        } else {
            IBV_WR_SEND
        };
        let remote = Remote {
            opcode,
            invalidate: invalidate.unwrap_or(0),
            ..Remote::default()
        };
        let mut inline = [0; INLINE];
        inline
            .get_mut(..bytes.len())
            .ok_or(Error::Full)?
            .copy_from_slice(bytes);
        let Some(small) = &mut self.small else {
            return self.push(remote, LocalData::Inline(inline, bytes.len()), SMALL);
        };
        let mut buffer = match small.pop() {
            Some(buffer) => buffer,
            None => self.domain.registered(INLINE)?,
        };
        buffer[..bytes.len()].copy_from_slice(bytes);
        let element = self
            .element(&buffer, bytes.len())
            .ok_or(Error::Disconnected)?;
        self.push(remote, LocalData::Buffer(buffer, element), SMALL)
    }

    /// Identifies the connection in the events of its listener.
    pub(super) fn key(&self) -> usize {
        self.link.id.key()
    }

    /// From now on each SEND, WRITE and READ has a completion of its own, at the moment at which it is done.
    pub fn report_each(&mut self) {
        self.outbox.reports_each = true;
    }

    /// From now on a completion reports at most this many requests, `None` for the usual number. An owner of
    /// few buffers would otherwise wait for a completion that only a further request brings.
    pub fn report_within(&mut self, requests: Option<usize>) {
        self.outbox.unsignaled_max = requests;
    }

    /// Outstanding SENDs, WRITEs and READs that a completion will report. Requests after the last signaled
    /// one complete with a later one, and are not counted.
    pub fn in_flight(&self) -> usize {
        self.outbox.in_flight()
    }

    /// SENDs, WRITEs and READs for which the send queue has room.
    pub fn room(&self) -> usize {
        (self.sizes.send as usize).saturating_sub(self.outbox.len())
    }

    fn post(
        &mut self,
        remote: Remote,
        buffer: Buffer,
        length: usize,
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
        self.outbox
            .push(SENT, remote, LocalData::Buffer(buffer, element), token);
        Ok(())
    }

    fn push(&mut self, remote: Remote, work: LocalData, token: u64) -> Result<(), Error> {
        if self.room() == 0 {
            return Err(Error::Full);
        }
        if self.outbox.is_full() {
            self.flush()?;
        }
        self.outbox.push(SENT, remote, work, token);
        Ok(())
    }

    /// Posts the lists: the send requests first, because peers wait for them, then the receives.
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn flush(&mut self) -> Result<(), Error> {
        let of = |call, code: Result<(), c_int>| {
            let error = |code| Error::Call {
                call,
                source: std::io::Error::from_raw_os_error(code),
            };
            code.map_err(error)
        };
        // SAFETY: the identifier's queue pair, which is destroyed before the buffers go.
        unsafe {
            let qp = self.link.id.raw.as_ref().qp;
            of("ibv_post_send", self.outbox.post(qp))?;
            of("ibv_post_recv", self.inbox.post(qp))
        }
    }

    /// The scatter/gather element of a buffer; `None` when the buffer is of another domain.
    fn element(&self, buffer: &Buffer, length: usize) -> Option<ibv_sge> {
        let lkey = self.domain.key(buffer)?;
        let length = length.min(buffer.len()) as u32;
        Some(ibv_sge {
            addr: buffer.as_ptr() as u64,
            length,
            lkey,
        })
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("in_flight", &self.outbox.len())
            .finish_non_exhaustive()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.disconnect();
        if self.shared.is_some() {
            self.repost_unread();
        }
        if self.queues.has_queue_pair {
            // SAFETY: the identifier has a queue pair. Once it is destroyed the device does not access the
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
