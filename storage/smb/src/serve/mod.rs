//! Running gateways and dials: listeners, a thread for each connection, limits and counters.

mod backend;
mod config;
mod connection;
mod dial;
mod gateway;
mod metrics;
mod report;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use server::budget::Budget;
use server::{
    Clock, ConnectionLimiter, ConnectionLimits, ConnectionPermit, Spinners, UnauthenticatedBudget,
};
use thiserror::Error;

pub use config::{ConfigError, DialConfig, GatewayConfig};
pub use dial::Dialer;
pub use gateway::Listener;
pub use metrics::serve_metrics;
pub use report::{ConnectionReport, Report, TransferReport};

use crate::direct::Parameters;
use crate::limits::{
    ADDRESS_UNAUTHENTICATED_MAX, CONNECTION_BYTES, CONNECTIONS_MAX, DATA_BYTES, HALF_OPEN_MAX,
    UNAUTHENTICATED_BYTES,
};
use crate::memory::Pool;
use backend::Backend;
use report::{Counters, Entry};

/// Errors at the start.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The server cannot listen on an address.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address and port.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The server cannot listen with RDMA-CM on an address.
    #[error("cannot serve SMB Direct at {address}: {source}")]
    Rdma {
        /// The address and port.
        address: SocketAddr,
        /// The error of the verbs library.
        source: rdma::Error,
    },
    /// The configuration file cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A thread cannot be started.
    #[error("no thread can be started: {0}")]
    Thread(io::Error),
}

/// The limits of connections.
const CONNECTION_LIMITS: ConnectionLimits = ConnectionLimits {
    connections: CONNECTIONS_MAX,
    // A dial has the clients of its own machine, which have one address.
    of_address: CONNECTIONS_MAX,
    unauthenticated_of_address: ADDRESS_UNAUTHENTICATED_MAX,
};

/// State that all connections share.
#[derive(Debug)]
pub struct Shared {
    /// The data buffers of all connections.
    memory: Arc<Budget>,
    limiter: Arc<ConnectionLimiter>,
    unauthenticated: Arc<UnauthenticatedBudget>,
    /// Connections that their peers have not confirmed.
    half_open: AtomicUsize,
    clock: Clock,
    spinners: Spinners,
    parameters: Parameters,
    /// The server of a gateway, for all its listeners.
    backend: OnceLock<Arc<Backend>>,
    /// Connections that are open.
    entries: Mutex<Vec<Arc<Entry>>>,
    /// The number of the next connection.
    numbers: AtomicU64,
    /// Counters of connections that have ended.
    moved: Counters,
    ended: AtomicU64,
    refused: AtomicU64,
}

impl Shared {
    /// The state without connections.
    pub fn new() -> Arc<Self> {
        // Half-open connections have no address that is known to be true: they have a part of their own.
        let bytes = UNAUTHENTICATED_BYTES - HALF_OPEN_MAX * CONNECTION_BYTES;
        let unauthenticated = UnauthenticatedBudget::new(bytes);
        Arc::new(Self {
            memory: Budget::new(DATA_BYTES),
            limiter: ConnectionLimiter::new(CONNECTION_LIMITS, Arc::clone(&unauthenticated)),
            unauthenticated,
            half_open: AtomicUsize::new(0),
            clock: Clock::default(),
            spinners: Spinners::default(),
            parameters: Parameters::default(),
            backend: OnceLock::new(),
            entries: Mutex::default(),
            numbers: AtomicU64::new(0),
            moved: Counters::default(),
            ended: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        })
    }

    fn backend(&self, server: SocketAddr) -> Arc<Backend> {
        Arc::clone(self.backend.get_or_init(|| Backend::new(server)))
    }

    /// The data buffers of a connection with a client at `host`.
    fn pool(&self, connection: &rdma::Connection, host: IpAddr, permit: &ConnectionPermit) -> Pool {
        let domain = Arc::clone(connection.domain());
        Pool::new(&self.memory, host, domain, permit.memory().cloned())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Entry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
