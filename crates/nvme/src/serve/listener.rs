//! A port that listens, and starts a thread for each connection.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use ::rdma::SharedReceives;
use mio::net::TcpListener;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use socket2::{Domain, Protocol, Socket, Type};

use super::{ServeError, Shared, connection, rdma};
use crate::target::Origin;
use crate::tls::Acceptor;

/// Connections that the kernel keeps until they are accepted.
const BACKLOG: i32 = 1024;
/// How long nothing is accepted when descriptors or memory have run out.
const PAUSE: Duration = Duration::from_millis(50);
/// What a connection's thread needs: it recurses nowhere and keeps data on the heap.
const STACK_BYTES: usize = 512 << 10;

const LISTENER: Token = Token(0);
const STOP: Token = Token(1);

/// A port that listens until it is dropped. Connections that were made stay.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Listens for NVMe/TCP, in TLS or not. `port` is the target's number for it.
    ///
    /// # Errors
    /// When the address cannot be had, or no thread.
    pub fn tcp(shared: &Arc<Shared>, address: SocketAddr, port: u16, tls: bool) -> Result<Self, ServeError> {
        let cannot = |source| ServeError::Listen { address, source };
        let acceptor = tls.then(Acceptor::new).transpose().map_err(cannot)?;
        let mut listener = listen(address, shared).map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        let poll = Poll::new().map_err(cannot)?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE).map_err(cannot)?;
        let waker = Arc::new(Waker::new(poll.registry(), STOP).map_err(cannot)?);
        let stop = Arc::new(AtomicBool::new(false));
        let (shared, stopped) = (Arc::clone(shared), Arc::clone(&stop));
        let accepting = Accepting { listener, poll, port, acceptor, shared, stopped };
        let thread = std::thread::Builder::new().name("nvme-listen".to_owned());
        let thread = thread.stack_size(STACK_BYTES).spawn(move || accepting.run());
        let thread = Some(thread.map_err(ServeError::Thread)?);
        Ok(Self { address, stop, waker, thread })
    }

    /// Listens for NVMe/RDMA. `port` is the target's number for it. Connections of a device share so many
    /// receives, if that is said; else each has as many as commands.
    ///
    /// # Errors
    /// When the verbs libraries are not there, no device has the address, or there is no thread.
    pub fn rdma(
        shared: &Arc<Shared>,
        address: SocketAddr,
        port: u16,
        receives: Option<u32>,
    ) -> Result<Self, ServeError> {
        let cannot = |source| ServeError::Listen { address, source };
        let listener = ::rdma::Listener::new(address, BACKLOG);
        let listener = listener.map_err(|source| ServeError::Rdma { address, source })?;
        let poll = Poll::new().map_err(cannot)?;
        let descriptor = listener.descriptor();
        let registered = poll.registry().register(&mut SourceFd(&descriptor), LISTENER, Interest::READABLE);
        registered.map_err(cannot)?;
        let waker = Arc::new(Waker::new(poll.registry(), STOP).map_err(cannot)?);
        let stop = Arc::new(AtomicBool::new(false));
        let (shared, stopped) = (Arc::clone(shared), Arc::clone(&stop));
        let origin = Origin { port, local: address };
        let receives = Receives { size: receives, queues: BTreeMap::new() };
        let accepting = AcceptingRdma { listener, poll, origin, receives, shared, stopped };
        let thread = std::thread::Builder::new().name("nvme-listen".to_owned());
        let thread = thread.stack_size(STACK_BYTES).spawn(move || accepting.run());
        let thread = Some(thread.map_err(ServeError::Thread)?);
        Ok(Self { address, stop, waker, thread })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if self.waker.wake().is_ok()
            && let Some(thread) = self.thread.take()
        {
            _ = thread.join();
        }
    }
}

fn listen(address: SocketAddr, shared: &Shared) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() && !address.ip().is_unspecified() {
        socket.set_only_v6(true)?;
    }
    connection::tune(&socket, &shared.tuning);
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(TcpListener::from_std(socket.into()))
}

struct Accepting {
    listener: TcpListener,
    poll: Poll,
    port: u16,
    acceptor: Option<Acceptor>,
    shared: Arc<Shared>,
    stopped: Arc<AtomicBool>,
}

impl Accepting {
    fn run(mut self) {
        let mut events = Events::with_capacity(4);
        while !self.stopped.load(Ordering::Acquire) {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    let (shared, port, acceptor) =
                        (Arc::clone(&self.shared), self.port, self.acceptor.clone());
                    let thread = std::thread::Builder::new().name("nvme-host".to_owned());
                    // Without a thread the connection is closed, and the host tries again.
                    _ = thread
                        .stack_size(STACK_BYTES)
                        .spawn(move || connection::serve(&shared, stream, port, acceptor.as_ref()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.poll.poll(&mut events, None).is_err() {
                        std::thread::sleep(PAUSE);
                    }
                }
                Err(error) if is_about_one_connection(&error) => {}
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }
}

/// Shared receive queues by device.
struct Receives {
    size: Option<u32>,
    queues: BTreeMap<usize, Arc<SharedReceives>>,
}

impl Receives {
    fn of(&mut self, request: &::rdma::Request) -> Result<Option<Arc<SharedReceives>>, ::rdma::Error> {
        let Some(size) = self.size else { return Ok(None) };
        if let Some(queue) = self.queues.get(&request.device()) {
            return Ok(Some(Arc::clone(queue)));
        }
        let queue = SharedReceives::new(request, size)?;
        self.queues.insert(request.device(), Arc::clone(&queue));
        Ok(Some(queue))
    }
}

struct AcceptingRdma {
    listener: ::rdma::Listener,
    poll: Poll,
    origin: Origin,
    receives: Receives,
    shared: Arc<Shared>,
    stopped: Arc<AtomicBool>,
}

impl AcceptingRdma {
    fn run(mut self) {
        let mut events = Events::with_capacity(4);
        while !self.stopped.load(Ordering::Acquire) {
            match self.listener.request() {
                Ok(Some(request)) => {
                    let (shared, origin) = (Arc::clone(&self.shared), self.origin);
                    let thread = std::thread::Builder::new().name("nvme-host".to_owned());
                    // Without room on the device the host hears nothing, and tries again.
                    let Ok(receives) = self.receives.of(&request) else { continue };
                    let serve = move || rdma::serve(&shared, request, origin, receives);
                    _ = thread.stack_size(STACK_BYTES).spawn(serve);
                }
                Ok(None) => {
                    if self.poll.poll(&mut events, None).is_err() {
                        std::thread::sleep(PAUSE);
                    }
                }
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }
}

fn is_about_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}
