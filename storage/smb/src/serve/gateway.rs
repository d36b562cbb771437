//! The listener of a gateway: it accepts SMB Direct connections (CM REQ) if the SMB server takes
//! connections, and starts a thread for each that its peer has confirmed (RTU). Until then a request costs a
//! queue pair and one receive.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use rdma::{HalfOpen as Accepted, ListenerEvent, Request};
use server::thread::{PAUSE, STACK_BYTES};
use server::{ConnectionPermit, HalfOpen, nanoseconds};

use super::backend::Backend;
use super::connection::{Driver, Tcp};
use super::{ServeError, Shared};
use crate::close_reason::Ended;
use crate::limits::{BACKLOG, CONFIRM_TIMEOUT, CONNECTION_BYTES, HALF_OPEN_MAX};
use crate::relay::gateway::Gateway;
use crate::transport::{self, Transport};

/// How often half-open connections are checked for their time limit.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// An accepted connection that its peer has not confirmed.
struct Waiting {
    connection: Accepted,
    peer: IpAddr,
    permit: ConnectionPermit,
}

/// Accepts SMB Direct connections and relays each to an SMB server over TCP.
#[derive(Debug)]
pub struct Listener {
    listener: rdma::Listener,
    poll: Poll,
    waker: Arc<Waker>,
    backend: Arc<Backend>,
    /// Requests that wait until it is known whether the server takes connections.
    asking: VecDeque<Request>,
    shared: Arc<Shared>,
}

impl Listener {
    /// Listens at an address, for connections to a server.
    ///
    /// # Errors
    /// When the verbs libraries are missing, or no device has the address.
    pub fn new(
        shared: &Arc<Shared>,
        address: SocketAddr,
        server: SocketAddr,
    ) -> Result<Self, ServeError> {
        let listener = rdma::Listener::new(address, BACKLOG);
        let listener = listener.map_err(|source| ServeError::Rdma { address, source })?;
        let cannot = |source| ServeError::Listen { address, source };
        let poll = Poll::new().map_err(cannot)?;
        let descriptor = listener.descriptor();
        let registered =
            poll.registry()
                .register(&mut SourceFd(&descriptor), Token(0), Interest::READABLE);
        registered.map_err(cannot)?;
        let waker = Arc::new(Waker::new(poll.registry(), Token(1)).map_err(cannot)?);
        let (backend, shared) = (shared.backend(server), Arc::clone(shared));
        Ok(Self {
            listener,
            poll,
            waker,
            backend,
            asking: VecDeque::new(),
            shared,
        })
    }

    /// Accepts connections as long as the process lives.
    pub fn run(mut self) -> ! {
        let mut events = Events::with_capacity(4);
        let shared = Arc::clone(&self.shared);
        let mut waiting = HalfOpen::new(&shared.half_open, HALF_OPEN_MAX);
        loop {
            let oldest_ns = shared
                .clock
                .now_ns()
                .saturating_sub(nanoseconds(CONFIRM_TIMEOUT));
            while waiting.begun_before(oldest_ns).is_some() {}
            match self.listener.next_event() {
                Ok(Some(ListenerEvent::Request(request))) if self.asking.len() < HALF_OPEN_MAX => {
                    self.asking.push_back(request);
                    self.decide(&mut waiting);
                }
                Ok(Some(ListenerEvent::Request(request))) => request.reject(&[]),
                Ok(Some(ListenerEvent::Established(key))) => {
                    if let Some((_, confirmed)) = waiting.take(key) {
                        self.start(confirmed);
                    }
                }
                Ok(Some(ListenerEvent::Failed(key))) => drop(waiting.take(key)),
                Ok(None) => {
                    let most = (!waiting.is_empty()).then_some(CHECK_INTERVAL);
                    if self.poll.poll(&mut events, most).is_err() {
                        std::thread::sleep(PAUSE);
                    }
                    self.decide(&mut waiting);
                }
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }

    /// Accepts or rejects requests as soon as it is known whether the server takes connections.
    fn decide(&mut self, waiting: &mut HalfOpen<'_, Waiting>) {
        while let Some(request) = self.asking.pop_front() {
            match self.backend.is_reachable() {
                Some(true) => {
                    drop(waiting.make_room());
                    if let Some(accepted) = self.accept(request) {
                        let now_ns = self.shared.clock.now_ns();
                        waiting.insert(accepted.connection.key(), accepted.peer, now_ns, accepted);
                    }
                }
                Some(false) => request.reject(&[]),
                None => {
                    self.asking.push_front(request);
                    let waker = Arc::clone(&self.waker);
                    self.backend.ask(move || _ = waker.wake());
                    return;
                }
            }
        }
    }

    fn accept(&self, request: Request) -> Option<Waiting> {
        let peer = request.peer();
        let Ok(permit) = self.shared.limiter.admit(peer) else {
            self.shared.refused.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(%peer, "refused: too many connections without a session");
            request.reject(&[]);
            return None;
        };
        match self.prepare(request) {
            Ok(connection) => Some(Waiting {
                connection,
                peer,
                permit,
            }),
            Err(error) => {
                tracing::warn!(%peer, %error, "a connection cannot be accepted");
                None
            }
        }
    }

    fn prepare(&self, request: Request) -> Result<Accepted, rdma::Error> {
        let parameters = &self.shared.parameters;
        let domain = request.domain()?;
        let mut connection = request.prepare(&domain, transport::sizes(parameters))?;
        let buffer = transport::first_receive(&domain, parameters)?;
        connection
            .receive(buffer, transport::RECEIVE)
            .map_err(|(error, _)| error)?;
        connection.accept(&[])?;
        Ok(connection)
    }

    fn start(&self, waiting: Waiting) {
        let Waiting {
            connection,
            peer,
            mut permit,
            ..
        } = waiting;
        if permit.charge(CONNECTION_BYTES, Duration::ZERO).is_err() {
            self.shared.refused.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(%peer, "refused: the memory of unauthenticated clients is used up");
            return;
        }
        let (shared, backend) = (Arc::clone(&self.shared), Arc::clone(&self.backend));
        let client = Client { peer, permit };
        let serve = move || match connection.establish() {
            Ok(connection) => serve(&shared, connection, client, backend),
            Err(error) => tracing::warn!(%peer, %error, "a connection cannot be served"),
        };
        let thread = std::thread::Builder::new()
            .name("smb-gateway".to_owned())
            .stack_size(STACK_BYTES);
        if let Err(error) = thread.spawn(serve) {
            tracing::warn!(%peer, %error, "no thread for a connection");
        }
    }
}

/// A client that was admitted.
struct Client {
    peer: IpAddr,
    permit: ConnectionPermit,
}

fn serve(
    shared: &Arc<Shared>,
    connection: rdma::Connection,
    client: Client,
    backend: Arc<Backend>,
) {
    let Client { peer, permit } = client;
    let server = backend.address();
    tracing::info!(%peer, %server, reads = connection.reads(), "connected");
    let pool = shared.pool(&connection, peer, &permit);
    let transport = Transport::new(connection, shared.parameters, true, pool);
    let (session, tcp) = (Gateway::default(), Tcp::Later(Arc::clone(&backend)));
    let listed = shared.list(peer.to_string());
    let ended = Driver::new(shared, permit, listed, transport, session, tcp).run();
    match ended {
        Ended::Disconnected => tracing::info!(%peer, "disconnected"),
        // The log has a line for the state of the server.
        Ended::Unreachable(_) => tracing::debug!(%peer, %ended, "connection ended"),
        ended => {
            if matches!(ended, Ended::TcpClosed | Ended::Tcp(_)) {
                backend.doubt();
            }
            tracing::warn!(%peer, %ended, "connection ended");
        }
    }
}
