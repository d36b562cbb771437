//! A running target: listeners, a thread for each connection, and the clock.
//!
//! With a thread per connection no queue lies between its socket and its disk, and one host cannot delay
//! another: the kernel shares the processors among the threads.

mod backing;
mod close_reason;
mod config;
mod connection;
mod control;
mod guest;
mod listener;
mod metrics;
mod rdma;
mod rdma_listener;
mod receives;
mod report;
mod server;
mod state;
mod wakeups;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use thiserror::Error;

pub use backing::default_nqn;
pub use close_reason::End;
pub use config::{
    BackendConfig, BlockSize, Bytes, Config, ConfigError, HostsConfig, NamespaceConfig, PortConfig,
    Receives, ReferralConfig, SubsystemConfig, TransportConfig,
};
pub use control::{Access, Command};
pub use listener::Listener;
pub use metrics::serve_metrics;
pub use report::{LatencyReport, NamespaceReport, QueueReport, Report};
pub use server::Server;

use ::server::budget::Budget;
use ::server::{
    Clock, ConnectionLimiter, ConnectionLimits, Spinners, UnauthenticatedBudget, nanoseconds,
};

use crate::controller::{ChangeError, Target};
use crate::limits::{
    ADDRESS_CONNECTIONS_MAX, BARRIER_TIMEOUT, CONNECT_TIMEOUT, CONNECTIONS_MAX, RECEIVE_BYTES,
    SERVER_DATA_BYTES, STALL_TIMEOUT, UNAUTHENTICATED_BYTES, UNAUTHENTICATED_MAX,
};

use crate::nqn::Nqn;

/// Parameters of connections.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// How long the thread of a connection polls its socket before it sleeps. A wake-up costs about 20 us.
    pub poll: Duration,
    /// The congestion control of TCP connections; the default of the system when `None`.
    pub congestion: Option<String>,
    /// The time limit for Connect and authentication.
    pub connect_timeout: Duration,
    /// The time limit for a host that does not read its responses or does not send requested data.
    pub stall_timeout: Duration,
    /// The limit for the data buffers of all connections, in bytes.
    pub data_bytes: usize,
    /// The limit for the memory of all unauthenticated hosts, in bytes.
    pub unauthenticated_bytes: usize,
}

impl Default for Tuning {
    fn default() -> Self {
        let (poll, congestion) = (Duration::ZERO, None);
        let (stall_timeout, data_bytes) = (STALL_TIMEOUT, SERVER_DATA_BYTES);
        let (connect_timeout, unauthenticated_bytes) = (CONNECT_TIMEOUT, UNAUTHENTICATED_BYTES);
        Self {
            poll,
            congestion,
            connect_timeout,
            stall_timeout,
            data_bytes,
            unauthenticated_bytes,
        }
    }
}

/// Errors of a server.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The server cannot listen on an address.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address and port from the configuration.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The server cannot listen with RDMA-CM on an address.
    #[error("cannot serve RDMA at {address}: {source}")]
    Rdma {
        /// The address and port from the configuration.
        address: SocketAddr,
        /// The error of the verbs library.
        source: ::rdma::Error,
    },
    /// TLS is configured for an RDMA port.
    #[error("{0} is served over RDMA, where there is no TLS: leave tls out, or serve TCP")]
    Tls(SocketAddr),
    /// The file of a namespace does not exist, and has no size with which it would be created.
    #[error(
        "{path}: no such file; with a size it is created: --size 10GiB, or size = \"10GiB\" in a \
         configuration"
    )]
    NoFile {
        /// The path of the file.
        path: PathBuf,
    },
    /// The file of a namespace cannot be used.
    #[error("{path}: {source}")]
    Backend {
        /// The path of the file or block device.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The namespace would have no block.
    #[error("{path} has {bytes} bytes, less than one block: give a size")]
    Empty {
        /// The path of the file or block device.
        path: PathBuf,
        /// The size of the file in bytes.
        bytes: u64,
    },
    /// Another namespace has the same file or device.
    #[error(
        "{path} is namespace {nsid} of {subsystem} already, and two namespaces of one file overwrite each \
         other: let its hosts share that namespace, or serve it read-only in both"
    )]
    Shared {
        /// The path of the file or block device.
        path: PathBuf,
        /// The NQN of the subsystem that has the other namespace.
        subsystem: Nqn,
        /// The identifier (NSID) of the other namespace.
        nsid: u32,
    },
    /// Another namespace has the same UUID or NGUID.
    #[error(
        "namespace {nsid} of {subsystem} has the same UUID or NGUID, and hosts would take both for one disk: \
         give this one another uuid"
    )]
    Identifiers {
        /// The NQN of the subsystem that has the other namespace.
        subsystem: Nqn,
        /// The identifier (NSID) of the other namespace.
        nsid: u32,
    },
    /// The system gives no random numbers.
    #[error("no random numbers for identifiers: {0}")]
    Random(io::Error),
    /// The change contradicts the state of the target.
    #[error(transparent)]
    Change(#[from] ChangeError),
    /// The configuration file cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Commands of a namespace that was removed are still executed.
    #[error(
        "namespace {nsid} was removed, and its disk still executes commands of before: it can be added when \
         they have ended"
    )]
    Leaving {
        /// The identifier (NSID) of the namespace that was removed.
        nsid: u32,
    },
    /// Commands that began before a change have not ended.
    #[error(
        "the change is made, but a disk has not executed commands that began before it within {} s: it does \
         not answer, and may execute them later",
        BARRIER_TIMEOUT.as_secs()
    )]
    Unfinished,
    /// A thread cannot be started.
    #[error("no thread can be started: {0}")]
    Thread(io::Error),
}

/// The limits of connections.
const CONNECTION_LIMITS: ConnectionLimits = ConnectionLimits {
    connections: CONNECTIONS_MAX,
    of_address: ADDRESS_CONNECTIONS_MAX,
    unauthenticated_of_address: UNAUTHENTICATED_MAX,
};

/// State that all connections share.
#[derive(Debug)]
pub struct Shared {
    /// The target: its subsystems, ports and controllers.
    pub target: Arc<Target>,
    tuning: Tuning,
    connections: AtomicUsize,
    /// RDMA connections that their peers have not confirmed.
    half_open: AtomicUsize,
    connection_limiter: Arc<ConnectionLimiter>,
    budget: Arc<Budget>,
    /// The receives of RDMA connections of authenticated hosts.
    receive_budget: Arc<Budget>,
    unauthenticated: Arc<UnauthenticatedBudget>,
    ended: [AtomicU64; End::ALL.len()],
    spinners: Spinners,
    clock: Clock,
}

impl Shared {
    /// The state for a target without connections.
    pub fn new(target: Arc<Target>, tuning: Tuning) -> Arc<Self> {
        let budget = Budget::new(tuning.data_bytes);
        let unauthenticated = UnauthenticatedBudget::new(tuning.unauthenticated_bytes);
        Arc::new(Self {
            target,
            budget,
            tuning,
            connections: AtomicUsize::new(0),
            half_open: AtomicUsize::new(0),
            connection_limiter: ConnectionLimiter::new(
                CONNECTION_LIMITS,
                Arc::clone(&unauthenticated),
            ),
            receive_budget: Budget::new(RECEIVE_BYTES),
            unauthenticated,
            ended: Default::default(),
            spinners: Spinners::default(),
            clock: Clock::default(),
        })
    }

    /// Nanoseconds since the start of the server.
    fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    fn connect_timeout_ns(&self) -> u64 {
        nanoseconds(self.tuning.connect_timeout)
    }

    /// Counts a connection that ended, or that was not admitted.
    fn count_end(&self, end: End) {
        self.ended[end as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How many connections have ended for this reason.
    pub fn ended_so_far(&self, end: End) -> u64 {
        self.ended[end as usize].load(Ordering::Relaxed)
    }

    /// Bytes of data buffers of all connections, in use and free.
    pub fn data_bytes(&self) -> usize {
        self.budget.used()
    }

    /// Bytes that connections of unauthenticated hosts hold.
    pub fn unauthenticated_bytes(&self) -> usize {
        self.unauthenticated.used()
    }

    /// Bytes of receives of the RDMA connections of authenticated hosts.
    pub fn receive_bytes(&self) -> usize {
        self.receive_budget.used()
    }

    /// RDMA connections that were accepted and that their peers have not confirmed yet.
    pub fn half_open(&self) -> usize {
        self.half_open.load(Ordering::Relaxed)
    }

    /// Connections that are open.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}
