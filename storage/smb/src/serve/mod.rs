//! Running gateways and dials: listeners, a thread for each connection, limits and counters.

mod address;
mod backend;
mod config;
mod connection;
mod dial;
mod gateway;
mod limiter;
mod report;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use thiserror::Error;

pub use config::{ConfigError, DialConfig, GatewayConfig};
pub use dial::Dialer;
pub use gateway::Listener;
pub use report::{ConnectionReport, Report, TransferReport};

use crate::direct::Parameters;
use crate::limits::DATA_BYTES;
use crate::memory::Memory;
use backend::Backend;
use limiter::Limiter;
use report::{Counters, Entry};

/// Stack of a thread of a connection: it does not recurse, and its data are on the heap.
const STACK_BYTES: usize = 512 << 10;

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

/// State that all connections share.
#[derive(Debug)]
pub struct Shared {
    memory: Arc<Memory>,
    limiter: Arc<Limiter>,
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
        Arc::new(Self {
            memory: Memory::new(DATA_BYTES),
            limiter: Arc::default(),
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

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Entry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
