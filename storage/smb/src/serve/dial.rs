//! The listener of a dial: for each TCP connection it connects to an SMB Direct server.
//!
//! TCP has no way to ask the server first: the kernel accepts a client before the dial hears of it. Once the
//! server has taken no connection, the dial therefore stops listening, so that the kernel refuses clients,
//! until the server takes connections again.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use server::thread::{PAUSE, STACK_BYTES};
use server::{ConnectionPermit, Refusal};
use socket2::SockRef;

use super::connection::{Driver, Tcp};
use super::{ServeError, Shared};
use crate::close_reason::Ended;
use crate::direct::Parameters;
use crate::limits::CONNECTION_BYTES;
use crate::relay::dial::Dial;
use crate::relay::trees::Trees;
use crate::transport::{self, Transport};

/// How long the dial waits before it asks again whether an unreachable server takes connections.
const ASK_INTERVAL: Duration = Duration::from_millis(500);
/// Connections that the kernel has accepted and the dial has not taken.
const TCP_BACKLOG: i32 = 128;

/// Accepts TCP connections and relays each to an SMB Direct server.
#[derive(Debug)]
pub struct Dialer {
    door: Arc<Door>,
    address: SocketAddr,
    shared: Arc<Shared>,
    trees: Trees,
}

/// The listening socket, which is closed to clients while the server takes no connections.
#[derive(Debug)]
struct Door {
    listener: TcpListener,
    server: SocketAddr,
    parameters: Parameters,
    is_closed: Mutex<bool>,
    opened: Condvar,
}

impl Door {
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_closed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects to the server. The receive for its negotiate message is posted.
    fn connect(&self) -> Result<rdma::Connection, rdma::Error> {
        let parameters = &self.parameters;
        let prepare = |connection: &mut rdma::Connection, domain: &Arc<rdma::Domain>| {
            let buffer = transport::first_receive(domain, parameters)?;
            connection
                .receive(buffer, transport::RECEIVE)
                .map_err(|(error, _)| error)
        };
        let connected =
            rdma::Connection::connect(self.server, transport::sizes(parameters), &[], prepare);
        connected.map(|(connection, _)| connection)
    }

    /// Stops listening until the server takes connections.
    fn close(self: &Arc<Self>, error: &rdma::Error) {
        let mut is_closed = self.lock();
        if std::mem::replace(&mut *is_closed, true) {
            return;
        }
        // The socket keeps its port. Clients that wait in its queue are reset, and further ones refused.
        if let Err(error) = SockRef::from(&self.listener).shutdown(std::net::Shutdown::Both) {
            tracing::warn!(%error, "the dial goes on listening");
            *is_closed = false;
            return;
        }
        let server = self.server;
        tracing::warn!(%server, %error, "the server takes no connections: clients are refused until it does");
        let this = Arc::clone(self);
        let thread = std::thread::Builder::new()
            .name("smb-server".to_owned())
            .stack_size(STACK_BYTES);
        if thread.spawn(move || this.await_server()).is_err() {
            self.open(&mut is_closed);
        }
    }

    fn await_server(&self) {
        loop {
            std::thread::sleep(ASK_INTERVAL);
            if self.connect().is_ok() {
                self.open(&mut self.lock());
                return;
            }
        }
    }

    fn open(&self, is_closed: &mut bool) {
        let server = self.server;
        match SockRef::from(&self.listener).listen(TCP_BACKLOG) {
            Ok(()) => tracing::warn!(%server, "clients are accepted again"),
            Err(error) => tracing::error!(%error, "the dial cannot listen again: restart it"),
        }
        *is_closed = false;
        self.opened.notify_all();
    }

    /// Waits until clients may connect.
    fn wait(&self) {
        let mut is_closed = self.lock();
        while *is_closed {
            is_closed = self
                .opened
                .wait(is_closed)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Dialer {
    /// Listens at an address, for connections to a server.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub fn new(
        shared: &Arc<Shared>,
        address: SocketAddr,
        server: SocketAddr,
    ) -> Result<Self, ServeError> {
        let cannot = |source| ServeError::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        let (parameters, opened) = (shared.parameters, Condvar::new());
        let door = Arc::new(Door {
            listener,
            server,
            parameters,
            is_closed: Mutex::new(false),
            opened,
        });
        Ok(Self {
            door,
            address,
            shared: Arc::clone(shared),
            trees: Trees::default(),
        })
    }

    /// The address that is listened on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts connections as long as the process lives.
    pub fn run(self) -> ! {
        loop {
            self.door.wait();
            let Ok((stream, peer)) = self.door.listener.accept() else {
                std::thread::sleep(PAUSE);
                continue;
            };
            let admitted = self.shared.limiter.admit(peer.ip());
            let admitted = admitted.and_then(|mut permit| {
                permit.charge(CONNECTION_BYTES, Duration::ZERO)?;
                Ok::<_, Refusal>(permit)
            });
            let Ok(permit) = admitted else {
                self.shared.refused.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(%peer, "refused: too many connections without a session");
                continue;
            };
            let (shared, trees) = (Arc::clone(&self.shared), self.trees.clone());
            let (door, client) = (
                Arc::clone(&self.door),
                Client {
                    stream,
                    peer,
                    permit,
                },
            );
            let thread = std::thread::Builder::new()
                .name("smb-dial".to_owned())
                .stack_size(STACK_BYTES);
            let started = thread.spawn(move || serve(&shared, trees, client, &door));
            if let Err(error) = started {
                tracing::warn!(%peer, %error, "no thread for a connection");
            }
        }
    }
}

/// A client that was admitted.
struct Client {
    stream: TcpStream,
    peer: SocketAddr,
    permit: ConnectionPermit,
}

fn serve(shared: &Arc<Shared>, trees: Trees, client: Client, door: &Arc<Door>) {
    let (peer, server) = (client.peer, door.server);
    let connection = match door.connect() {
        Ok(connection) => connection,
        // The log has a line for the state of the server.
        Err(error) => {
            tracing::debug!(%peer, %server, %error, "a client was accepted in vain");
            // The kernel refuses clients before this one learns of its end: it might come back at once.
            door.close(&error);
            return;
        }
    };
    let ended = relay(shared, trees, client, connection, server);
    match ended {
        Ended::TcpClosed => tracing::info!(%peer, "disconnected"),
        ended => tracing::warn!(%peer, %server, %ended, "connection ended"),
    }
}

fn relay(
    shared: &Arc<Shared>,
    trees: Trees,
    client: Client,
    connection: rdma::Connection,
    server: SocketAddr,
) -> Ended {
    let Client {
        stream,
        peer,
        permit,
    } = client;
    let connected = stream
        .set_nodelay(true)
        .and_then(|()| stream.set_nonblocking(true));
    if let Err(error) = connected {
        return error.into();
    }
    tracing::info!(%peer, %server, "connected");
    let pool = shared.pool(&connection, peer.ip(), &permit);
    let transport = Transport::new(connection, shared.parameters, false, pool);
    let tcp = Tcp::Open(stream);
    let listed = shared.list(peer.to_string());
    Driver::new(shared, permit, listed, transport, Dial::new(trees), tcp).run()
}
