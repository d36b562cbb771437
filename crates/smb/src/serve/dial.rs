//! The listener of a dial: for each TCP connection it connects to an SMB Direct server.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::connection::{Driver, Tcp};
use super::limiter::Permit;
use super::{STACK_BYTES, ServeError, Shared};
use crate::ended::Ended;
use crate::relay::dial::Dial;
use crate::relay::trees::Trees;
use crate::transport::{self, Transport};

/// Pause after running out of descriptors or memory.
const PAUSE: Duration = Duration::from_millis(50);

/// Accepts TCP connections and relays each to an SMB Direct server.
#[derive(Debug)]
pub struct Dialer {
    listener: TcpListener,
    address: SocketAddr,
    server: SocketAddr,
    shared: Arc<Shared>,
    trees: Trees,
}

impl Dialer {
    /// Listens at an address, for connections to a server.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub fn new(shared: &Arc<Shared>, address: SocketAddr, server: SocketAddr) -> Result<Self, ServeError> {
        let cannot = |source| ServeError::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        Ok(Self { listener, address, server, shared: Arc::clone(shared), trees: Trees::default() })
    }

    /// The address that is listened on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts connections as long as the process lives.
    pub fn run(self) -> ! {
        loop {
            let Ok((stream, peer)) = self.listener.accept() else {
                std::thread::sleep(PAUSE);
                continue;
            };
            let Some(permit) = self.shared.limiter.admit(peer.ip()) else {
                self.shared.refused.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(%peer, "refused: too many connections without a session");
                continue;
            };
            let (shared, trees) = (Arc::clone(&self.shared), self.trees.clone());
            let (server, client) = (self.server, Client { stream, peer, permit });
            let thread = std::thread::Builder::new().name("smb-dial".to_owned()).stack_size(STACK_BYTES);
            let started = thread.spawn(move || serve(&shared, trees, client, server));
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
    permit: Permit,
}

fn serve(shared: &Arc<Shared>, trees: Trees, client: Client, server: SocketAddr) {
    let peer = client.peer;
    let ended = relay(shared, trees, client, server);
    match ended {
        Ended::TcpClosed => tracing::info!(%peer, "disconnected"),
        ended => tracing::warn!(%peer, %server, %ended, "connection ended"),
    }
}

fn relay(shared: &Arc<Shared>, trees: Trees, client: Client, server: SocketAddr) -> Ended {
    let Client { stream, peer, permit } = client;
    let connected = stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(true));
    if let Err(error) = connected {
        return error.into();
    }
    let parameters = shared.parameters;
    let prepare = |connection: &mut rdma::Connection, domain: &Arc<rdma::Domain>| {
        let buffer = transport::first_receive(domain, &parameters)?;
        connection.receive(buffer, transport::RECEIVE).map_err(|(error, _)| error)
    };
    let connection = match rdma::Connection::connect(server, transport::sizes(&parameters), &[], prepare) {
        Ok((connection, _)) => connection,
        Err(error) => return Ended::Rdma(error),
    };
    tracing::info!(%peer, %server, "connected");
    let transport = Transport::new(connection, parameters, false, &shared.memory);
    let tcp = Tcp::Open(stream);
    let listed = shared.list(peer.to_string());
    Driver { shared, permit, listed, transport, session: Dial::new(trees), tcp }.run()
}
