//! State of a stream socket, and its connection establishment.

use super::closing::End;
use super::iomap::Mappings;
use super::options::Options;
use super::protocol::{CONNECT_BYTES, Connect, Message};
use super::stream::Stream;
use super::wait::{Endpoint, Shared};
use abi::{RDMA_PS_TCP, rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_channel};
use core::ffi::{c_int, c_void};
use ffi::Errno;
use rdma_cm::{rdma_accept, rdma_connect, rdma_reject};
use rdma_cm::{
    rdma_ack_cm_event, rdma_create_event_channel, rdma_destroy_event_channel, rdma_get_cm_event,
};
use rdma_cm::{rdma_create_id, rdma_destroy_id, rdma_migrate_id};
use rdma_cm::{rdma_resolve_addr, rdma_resolve_route};
use std::collections::VecDeque;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

/// Time that closing waits for sent bytes to be acknowledged, without `SO_LINGER`.
const CLOSE_MAX: Duration = Duration::from_secs(5);
const RESOLVE_MS: c_int = 2000;
/// Retries for sequence errors and for RNR NAKs: the maximum, which for RNR means without limit.
const RETRIES: u8 = 7;
/// Requests queued for `raccept` at most; more stay queued at the connection manager.
pub(super) const BACKLOG_MAX: usize = 1024;

/// State of a stream socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Fresh,
    Bound,
    Listening,
    Connecting,
    /// A REP was sent; neither an RTU nor data has arrived.
    Accepted,
    Connected,
    Failed,
}

/// A connection request for `raccept`.
struct Request {
    id: *mut rdma_cm_id,
    peer: Connect,
}

/// State behind the socket's lock.
pub(super) struct Inner {
    pub(super) id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
    pub(super) phase: Phase,
    pub(super) options: Options,
    pub(super) nonblocking: bool,
    /// Pending error, for `SO_ERROR`.
    pub(super) error: c_int,
    pub(super) stream: Option<Stream>,
    /// Ranges that this end has mapped, and whether the peer has their table entries.
    pub(super) mappings: Mappings,
    requests: VecDeque<Request>,
    pub(super) last_used: Instant,
}

// SAFETY: the identifier and its channel belong to the socket, and calls on them are made one at a time.
unsafe impl Send for Inner {}

/// A stream socket, found by its descriptor.
pub(super) type Socket = Shared<Inner>;

/// An event of the connection manager, acknowledged already.
struct CmEvent {
    event: u32,
    status: c_int,
    id: *mut rdma_cm_id,
    peer: Option<Connect>,
}

impl Inner {
    /// Creates the state, with an identifier of its own.
    fn new() -> Result<Self, Errno> {
        // SAFETY: NULL is checked for.
        let channel = Errno::check_pointer(unsafe { rdma_create_event_channel() })?;
        let mut inner = Self {
            id: null_mut(),
            channel,
            phase: Phase::Fresh,
            options: Options::default(),
            nonblocking: false,
            error: 0,
            stream: None,
            mappings: Mappings::default(),
            requests: VecDeque::new(),
            last_used: Instant::now(),
        };
        // SAFETY: ours.
        super::set_nonblocking(unsafe { (*channel).fd })?;
        // SAFETY: the channel is ours, the place as well.
        Errno::check_code(unsafe {
            rdma_create_id(channel, &mut inner.id, null_mut(), RDMA_PS_TCP)
        })?;
        Ok(inner)
    }

    pub(super) fn channel_fd(&self) -> c_int {
        // SAFETY: ours.
        unsafe { (*self.channel).fd }
    }

    fn next_event(&mut self) -> Option<CmEvent> {
        let mut event: *mut rdma_cm_event = null_mut();
        // SAFETY: the channel is ours; the event is read before it is acknowledged.
        unsafe {
            if rdma_get_cm_event(self.channel, &mut event) != 0 {
                return None;
            }
            let raw = &*event;
            let data = raw.param.conn;
            let has_data =
                !data.private_data.is_null() && usize::from(data.private_data_len) >= CONNECT_BYTES;
            let peer = has_data.then(|| {
                let length = data.private_data_len.into();
                Connect::parse(core::slice::from_raw_parts(
                    data.private_data.cast(),
                    length,
                ))
            });
            let cm_event = CmEvent {
                event: raw.event,
                status: raw.status,
                id: raw.id,
                peer: peer.flatten(),
            };
            rdma_ack_cm_event(event);
            Some(cm_event)
        }
    }

    fn act(&mut self, cm_event: &CmEvent) -> Result<(), Errno> {
        match cm_event.event {
            abi::RDMA_CM_EVENT_ADDR_RESOLVED => {
                // SAFETY: ours.
                Errno::check_code(unsafe { rdma_resolve_route(self.id, RESOLVE_MS) })
            }
            abi::RDMA_CM_EVENT_ROUTE_RESOLVED => self.send_request(),
            abi::RDMA_CM_EVENT_ESTABLISHED => {
                let stream = self.stream.as_mut().ok_or(Errno::INVALID)?;
                if self.phase == Phase::Connecting {
                    stream.set_peer(cm_event.peer.ok_or(Errno(libc::ECONNREFUSED))?);
                }
                stream.open();
                self.phase = Phase::Connected;
                Ok(())
            }
            abi::RDMA_CM_EVENT_CONNECT_REQUEST => {
                match cm_event.peer {
                    Some(peer) => self.requests.push_back(Request {
                        id: cm_event.id,
                        peer,
                    }),
                    // Private data is missing or invalid: the peer is no rsocket, and is rejected.
                    // SAFETY: the identifier of the request belongs to this.
                    None => unsafe {
                        rdma_reject(cm_event.id, core::ptr::null(), 0);
                        rdma_destroy_id(cm_event.id);
                    },
                }
                Ok(())
            }
            abi::RDMA_CM_EVENT_ADDR_ERROR | abi::RDMA_CM_EVENT_ROUTE_ERROR => {
                Err(Errno(if cm_event.status < 0 {
                    -cm_event.status
                } else {
                    libc::ENETUNREACH
                }))
            }
            abi::RDMA_CM_EVENT_REJECTED => Err(Errno(libc::ECONNREFUSED)),
            abi::RDMA_CM_EVENT_UNREACHABLE => Err(Errno(libc::ETIMEDOUT)),
            abi::RDMA_CM_EVENT_CONNECT_ERROR => Err(Errno(libc::ECONNABORTED)),
            abi::RDMA_CM_EVENT_DEVICE_REMOVAL => Err(Errno(libc::ENODEV)),
            abi::RDMA_CM_EVENT_DISCONNECTED => {
                if let Some(stream) = &mut self.stream {
                    // Data that arrived before is still readable.
                    stream.progress();
                    stream.closing.peer_disconnected();
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn fail(&mut self, error: c_int) {
        self.error = error;
        if let Some(stream) = &mut self.stream {
            stream.closing.end(End::Broken);
        }
        if self.phase != Phase::Listening {
            self.phase = Phase::Failed;
        }
    }

    /// Starts to resolve the address of the peer, after which the connection is made.
    ///
    /// # Safety
    /// `address` is as long as its family requires.
    pub(super) unsafe fn connect(&mut self, address: *const c_void) -> Result<(), Errno> {
        // SAFETY: by this function's contract, `address` is as long as its family requires.
        let begun = unsafe { rdma_resolve_addr(self.id, core::ptr::null(), address, RESOLVE_MS) };
        Errno::check_code(begun)?;
        self.phase = Phase::Connecting;
        Ok(())
    }

    /// The route is resolved: creates the stream, and sends the REQ.
    fn send_request(&mut self) -> Result<(), Errno> {
        // SAFETY: the identifier has a device now, and lives as long as this.
        let stream = unsafe { Stream::new(self.id, &self.options.sizes) }?;
        let private_data = stream.private_data().to_bytes();
        self.stream = Some(stream);
        let param = parameters(&private_data);
        // SAFETY: both live until the call returns.
        Errno::check_code(unsafe { rdma_connect(self.id, &param) })
    }

    /// Accepts the oldest request.
    pub(super) fn accept(&mut self) -> Option<Result<Inner, Errno>> {
        let request = self.requests.pop_front()?;
        let options = self.options.clone();
        Some(Self::of_request(&request, options).inspect_err(|_| {
            // SAFETY: the identifier belongs to the request alone.
            unsafe {
                rdma_reject(request.id, core::ptr::null(), 0);
                rdma_destroy_id(request.id);
            }
        }))
    }

    fn of_request(request: &Request, options: Options) -> Result<Self, Errno> {
        // SAFETY: NULL is checked for.
        let channel = Errno::check_pointer(unsafe { rdma_create_event_channel() })?;
        // SAFETY: ours.
        super::set_nonblocking(unsafe { (*channel).fd })?;
        // SAFETY: both are ours.
        unsafe {
            if let Err(error) = Errno::check_code(rdma_migrate_id(request.id, channel)) {
                rdma_destroy_event_channel(channel);
                return Err(error);
            }
        }
        let prepared = || -> Result<Stream, Errno> {
            // SAFETY: the identifier has a device, and lives as long as the stream.
            let mut stream = unsafe { Stream::new(request.id, &options.sizes) }?;
            stream.set_peer(request.peer);
            let private_data = stream.private_data().to_bytes();
            let param = parameters(&private_data);
            // SAFETY: both live until the call returns.
            Errno::check_code(unsafe { rdma_accept(request.id, &param) })?;
            Ok(stream)
        };
        let stream = prepared()?;
        Ok(Self {
            id: request.id,
            channel,
            phase: Phase::Accepted,
            options,
            nonblocking: false,
            error: 0,
            stream: Some(stream),
            mappings: Mappings::default(),
            requests: VecDeque::new(),
            last_used: Instant::now(),
        })
    }

    /// Whether bytes may be sent before completions are taken.
    pub(super) fn sends_ahead(&mut self, bytes: usize) -> bool {
        self.phase == Phase::Connected
            && self
                .stream
                .as_mut()
                .is_some_and(|stream| stream.sends_ahead(bytes))
    }

    /// The stream, if the connection is or was established.
    pub(super) fn stream(&mut self) -> Result<&mut Stream, Errno> {
        match (self.phase, self.error) {
            (Phase::Failed, 0) => Err(Errno(libc::ENOTCONN)),
            (Phase::Failed, _) => Err(Errno(core::mem::take(&mut self.error))),
            _ => self.stream.as_mut().ok_or(Errno(libc::ENOTCONN)),
        }
    }

    /// Sends a keep-alive message if the connection was idle; a dead peer fails the queue pair.
    pub(super) fn keep_alive(&mut self) {
        if !self.options.keepalive || self.last_used.elapsed() < self.options.keepalive_idle {
            return;
        }
        self.progress();
        if let Some(stream) = &mut self.stream
            && self.phase == Phase::Connected
            && stream.can_control()
        {
            self.last_used = Instant::now();
            _ = stream.control(Message::KeepAlive);
        }
    }
}

impl Endpoint for Inner {
    fn progress(&mut self) {
        if let Some(stream) = &mut self.stream {
            stream.progress();
            if self.phase == Phase::Accepted && stream.has_received {
                stream.open();
                self.phase = Phase::Connected;
            }
        }
    }

    fn progress_with_system_calls(&mut self) {
        while self.requests.len() < BACKLOG_MAX {
            let Some(cm_event) = self.next_event() else {
                break;
            };
            if let Err(Errno(error)) = self.act(&cm_event) {
                self.fail(error);
            }
        }
    }

    fn arm(&mut self) -> Result<(), Errno> {
        self.stream
            .as_mut()
            .map_or(Ok(()), |stream| stream.queue_pair.completions.arm())
    }

    fn take_events(&mut self) {
        if let Some(stream) = &mut self.stream {
            stream.queue_pair.completions.take_events();
        }
    }

    fn descriptors(&self) -> [libc::pollfd; 2] {
        let stream = self
            .stream
            .as_ref()
            .map_or(-1, |stream| stream.queue_pair.completions.descriptor());
        [self.channel_fd(), stream].map(|fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        })
    }

    fn readiness(&self) -> i16 {
        let (read, write) = (
            libc::POLLIN | libc::POLLRDNORM,
            libc::POLLOUT | libc::POLLWRNORM,
        );
        match (self.phase, &self.stream) {
            (Phase::Listening, _) => {
                if self.requests.is_empty() {
                    0
                } else {
                    read
                }
            }
            (Phase::Failed, _) => read | write | libc::POLLERR | libc::POLLHUP,
            (Phase::Accepted | Phase::Connected, Some(stream)) => {
                let mut ready = 0;
                if stream.has_data() || !stream.closing.is_readable() {
                    ready |= read;
                }
                if self.phase == Phase::Connected
                    && (stream.can_send() || stream.closing.ended().is_some())
                {
                    ready |= write;
                }
                match stream.closing.ended() {
                    // As with TCP, the end is reported after the data that was sent before it.
                    _ if stream.has_data() => ready,
                    Some(End::Orderly) => ready | libc::POLLHUP,
                    Some(End::Broken) => ready | libc::POLLHUP | libc::POLLERR,
                    None => ready,
                }
            }
            (Phase::Fresh | Phase::Bound, _) => libc::POLLHUP,
            _ => 0,
        }
    }

    fn used(&mut self) {
        self.last_used = Instant::now();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.mappings.clear();
        self.stream = None;
        // SAFETY: created by this; pending requests are destroyed first, because they use the same channel.
        unsafe {
            for request in self.requests.drain(..) {
                rdma_reject(request.id, core::ptr::null(), 0);
                rdma_destroy_id(request.id);
            }
            if !self.id.is_null() {
                rdma_destroy_id(self.id);
            }
            rdma_destroy_event_channel(self.channel);
        }
    }
}

/// Connection parameters of rsockets.
fn parameters(private_data: &[u8; CONNECT_BYTES]) -> rdma_conn_param {
    rdma_conn_param {
        private_data: private_data.as_ptr().cast(),
        private_data_len: CONNECT_BYTES as u8,
        responder_resources: 0,
        initiator_depth: 0,
        flow_control: 1,
        retry_count: RETRIES,
        rnr_retry_count: RETRIES,
        srq: 0,
        qp_num: 0,
    }
}

impl Socket {
    pub(super) fn fresh() -> Result<Self, Errno> {
        Ok(Self::of(Inner::new()?))
    }

    /// The socket's descriptor is its event channel's.
    pub(super) fn of(inner: Inner) -> Self {
        Self::new(inner.channel_fd(), inner)
    }

    /// Disconnects. Waits for sent bytes to be acknowledged as long as `SO_LINGER` says: not at all with 0
    /// seconds.
    pub(super) fn close_connection(&self) {
        let (is_open, linger) = {
            let mut inner = self.lock();
            inner.progress();
            let is_connected = matches!(inner.phase, Phase::Accepted | Phase::Connected);
            let is_open = is_connected
                && inner
                    .stream
                    .as_ref()
                    .is_some_and(|stream| stream.closing.ended().is_none());
            (
                is_open,
                inner
                    .options
                    .linger
                    .map_or(CLOSE_MAX, |seconds| Duration::from_secs(seconds.into())),
            )
        };
        if is_open && !linger.is_zero() {
            // If the peer is gone, closing succeeds nevertheless.
            _ = self.disconnect(libc::SHUT_RDWR, linger);
        }
    }

    /// Shuts down sending, receiving or both.
    pub(super) fn shutdown(&self, how: c_int) -> Result<(), Errno> {
        self.disconnect(how, CLOSE_MAX)
    }

    fn disconnect(&self, how: c_int, timeout: Duration) -> Result<(), Errno> {
        let message = {
            let mut inner = self.lock();
            inner.progress();
            if !matches!(inner.phase, Phase::Accepted | Phase::Connected) {
                return Err(Errno(libc::ENOTCONN));
            }
            let Some(stream) = &mut inner.stream else {
                return Err(Errno(libc::ENOTCONN));
            };
            let message = match how {
                libc::SHUT_RDWR => Some(Message::Disconnect),
                libc::SHUT_WR if stream.closing.is_readable() => Some(Message::Shutdown),
                libc::SHUT_WR => Some(Message::Disconnect),
                libc::SHUT_RD => (!stream.closing.is_writable()).then_some(Message::Disconnect),
                _ => return Err(Errno::INVALID),
            };
            if how != libc::SHUT_RD {
                stream.closing.stop_writing();
            }
            if how != libc::SHUT_WR {
                stream.closing.stop_reading();
            }
            message
        };
        if let Some(message) = message {
            self.wait(false, Some(timeout), |inner| {
                let Ok(stream) = inner.stream() else {
                    return Ok(Some(()));
                };
                if stream.can_control() {
                    return stream.control(message).map(Some);
                }
                Ok(stream.closing.ended().map(drop))
            })?;
        }
        self.wait(false, Some(timeout), |inner| {
            Ok(inner
                .stream()
                .map_or(Some(()), |stream| stream.is_idle().then_some(())))
        })
    }
}
