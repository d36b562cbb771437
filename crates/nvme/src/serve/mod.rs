//! A target that lives: listeners, a thread for each connection, the clock.
//!
//! A thread per connection has nothing between its socket and its disk, and what one host does cannot hold up
//! another: the kernel shares the processors among them.

mod config;
mod connection;
mod control;
mod doorman;
mod end;
mod idle;
mod listener;
mod metrics;
mod rdma;
mod report;
mod state;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use thiserror::Error;

pub use config::{
    BackendConfig, BlockSize, Bytes, Config, ConfigError, HostsConfig, NamespaceConfig, PortConfig, Receives,
    ReferralConfig, SubsystemConfig, TransportConfig,
};
pub use control::{Access, Command, Control, ControlError, ask};
pub use end::End;
pub use listener::Listener;
pub use metrics::serve_metrics;
pub use report::{LatencyReport, NamespaceReport, QueueReport, Report};
pub use state::Server;

use crate::limits::CONNECT_TIMEOUT;
use crate::target::{ChangeError, Target};

/// How connections behave.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// How long a connection's thread looks at its socket before it sleeps. A wake-up costs some 20 us.
    pub poll: Duration,
    /// The congestion control of TCP connections; the system's own when `None`.
    pub congestion: Option<String>,
    /// How long a connection may take to say who it is, and to prove it.
    pub patience: Duration,
}

impl Default for Tuning {
    fn default() -> Self {
        let (poll, congestion) = (Duration::ZERO, Some("cubic".to_owned()));
        Self { poll, congestion, patience: CONNECT_TIMEOUT }
    }
}

/// Why a server cannot do what it should.
#[derive(Debug, Error)]
pub enum ServeError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// RDMA cannot be served there.
    #[error("cannot serve RDMA at {address}: {source}")]
    Rdma {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: ::rdma::Error,
    },
    /// TLS goes with TCP only.
    #[error("{0} is served over RDMA, where there is no TLS: leave tls out, or serve TCP")]
    Tls(SocketAddr),
    /// A namespace's file cannot be used.
    #[error("{path}: {source}")]
    Backend {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A namespace without a single block.
    #[error("{path} has {bytes} bytes, not even one block: say a size")]
    Empty {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// What was said contradicts what is.
    #[error(transparent)]
    Change(#[from] ChangeError),
    /// The file of the configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Threads cannot be started.
    #[error("no thread can be started: {0}")]
    Thread(io::Error),
}

/// What all connections share.
#[derive(Debug)]
pub struct Shared {
    /// What is served.
    pub target: Arc<Target>,
    tuning: Tuning,
    connections: AtomicUsize,
    doorman: doorman::Doorman,
    ended: [AtomicU64; End::ALL.len()],
    lookers: AtomicUsize,
    lookers_max: usize,
    began: Instant,
}

impl Shared {
    /// For a target that nobody is connected to.
    pub fn new(target: Arc<Target>, tuning: Tuning) -> Arc<Self> {
        Arc::new(Self {
            target,
            tuning,
            connections: AtomicUsize::new(0),
            doorman: doorman::Doorman::default(),
            ended: Default::default(),
            lookers: AtomicUsize::new(0),
            lookers_max: std::thread::available_parallelism().map_or(1, |count| (count.get() / 2).max(1)),
            began: Instant::now(),
        })
    }

    /// Nanoseconds since the beginning.
    fn now_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn patience_ns(&self) -> u64 {
        u64::try_from(self.tuning.patience.as_nanos()).unwrap_or(u64::MAX)
    }

    /// A connection has ended, or was not let in.
    fn count_end(&self, end: End) {
        self.ended[end as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Connections that have ended so.
    pub fn ended_so_far(&self, end: End) -> u64 {
        self.ended[end as usize].load(Ordering::Relaxed)
    }

    /// Connections that are open.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

/// One more, until it is dropped.
#[derive(Debug)]
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    /// `None` when there are `limit` already.
    fn one_more(count: &'a AtomicUsize, limit: usize) -> Option<Self> {
        let before = count.fetch_add(1, Ordering::Relaxed);
        let counted = Self(count);
        (before < limit).then_some(counted)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
