//! A listening TCP port, which starts a thread for each connection.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use mio::net::TcpListener;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use server::thread::{PAUSE, STACK_BYTES};
use socket2::{Domain, Protocol, Socket, Type};

use super::rdma_listener::Accepting as AcceptingRdma;
use super::{ServeError, Shared, connection};
use crate::limits::RDMA_BACKLOG;
use crate::tls::Acceptor;

/// The backlog of the listening socket.
const BACKLOG: i32 = 1024;

const LISTENER: Token = Token(0);
const STOP: Token = Token(1);

/// A port that listens until it is dropped. Existing connections stay.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Listens for NVMe/TCP, with or without TLS. `port` is the port identifier.
    ///
    /// # Errors
    /// When the address cannot be bound, or no thread can be started.
    pub fn tcp(
        shared: &Arc<Shared>,
        address: SocketAddr,
        port: u16,
        tls: bool,
    ) -> Result<Self, ServeError> {
        let cannot = |source| ServeError::Listen { address, source };
        let acceptor = tls.then(Acceptor::new).transpose().map_err(cannot)?;
        let mut listener = listen(address, shared).map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        let poll = Poll::new().map_err(cannot)?;
        poll.registry()
            .register(&mut listener, LISTENER, Interest::READABLE)
            .map_err(cannot)?;
        let waker = Arc::new(Waker::new(poll.registry(), STOP).map_err(cannot)?);
        let stop = Arc::new(AtomicBool::new(false));
        let (shared, stopped) = (Arc::clone(shared), Arc::clone(&stop));
        let accepting = Accepting {
            listener,
            poll,
            port,
            acceptor,
            shared,
            stopped,
        };
        let thread = std::thread::Builder::new().name("nvme-listen".to_owned());
        let thread = thread
            .stack_size(STACK_BYTES)
            .spawn(move || accepting.run());
        let thread = Some(thread.map_err(ServeError::Thread)?);
        Ok(Self {
            address,
            stop,
            waker,
            thread,
        })
    }

    /// Listens for NVMe/RDMA. `port` is the port identifier. With `receives`, the connections of a device
    /// share a receive queue of this length; otherwise each has one receive for each command.
    ///
    /// # Errors
    /// When the verbs libraries are missing, no device has the address, or no thread can be started.
    pub fn rdma(
        shared: &Arc<Shared>,
        address: SocketAddr,
        port: u16,
        receives: Option<u32>,
    ) -> Result<Self, ServeError> {
        let cannot = |source| ServeError::Listen { address, source };
        let listener = ::rdma::Listener::new(address, RDMA_BACKLOG);
        let listener = listener.map_err(|source| ServeError::Rdma { address, source })?;
        let poll = Poll::new().map_err(cannot)?;
        let descriptor = listener.descriptor();
        let registered =
            poll.registry()
                .register(&mut SourceFd(&descriptor), LISTENER, Interest::READABLE);
        registered.map_err(cannot)?;
        let waker = Arc::new(Waker::new(poll.registry(), STOP).map_err(cannot)?);
        let stop = Arc::new(AtomicBool::new(false));
        let (shared, stopped) = (Arc::clone(shared), Arc::clone(&stop));
        let accepting = AcceptingRdma {
            listener,
            port: (port, address),
            receives,
            shared,
            stopped,
        };
        let thread = std::thread::Builder::new().name("nvme-listen".to_owned());
        let thread = thread
            .stack_size(STACK_BYTES)
            .spawn(move || accepting.run(poll));
        let thread = Some(thread.map_err(ServeError::Thread)?);
        Ok(Self {
            address,
            stop,
            waker,
            thread,
        })
    }

    /// The address that the port listens on.
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
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
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
                    let started = thread
                        .stack_size(STACK_BYTES)
                        .spawn(move || connection::serve(&shared, stream, port, acceptor.as_ref()));
                    // The connection is closed then, and the host retries.
                    if let Err(error) = started {
                        tracing::warn!(
                            "a connection is closed, because no thread can be started: {error}"
                        );
                    }
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

fn is_about_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionReset | Interrupted
    )
}
