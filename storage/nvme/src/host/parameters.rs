//! How a host connects: the options of a connection, and the parameters of its queues.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use wire::nvme::tcp::Digests;

use crate::auth::Secrets;
use crate::nqn::Nqn;
use crate::tls::{Derivation, TlsKey, Version};

/// How long the host waits for a message of the target.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// The keep alive timeout (KATO) unless it is configured: the target closes the controller after this time
/// without Keep Alive.
pub const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(120);

/// The transport of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Transport {
    /// NVMe/TCP (TCP transport 1.0), with TLS 1.3 if configured.
    #[default]
    Tcp,
    /// NVMe/RDMA (RDMA transport 1.0) over libibverbs and librdmacm.
    Rdma,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Rdma => "rdma",
        })
    }
}

impl FromStr for Transport {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "tcp" => Ok(Self::Tcp),
            "rdma" => Ok(Self::Rdma),
            _ => Err("tcp or rdma"),
        }
    }
}

/// The parameters of a queue that is being connected.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueParameters {
    /// The queue identifier (QID); 0 is the admin queue.
    pub(super) id: u16,
    /// The controller identifier (CNTLID), or 0xffff before the first Connect.
    pub(super) controller: u16,
    /// The number of outstanding commands.
    pub(super) depth: u16,
    /// Entries of the queue: one more than outstanding commands, except for the admin queue.
    pub(super) entries: u16,
    /// In-capsule data in bytes.
    pub(super) in_capsule: usize,
}

/// Options of a connection.
#[derive(Clone, Debug)]
pub struct Options {
    /// The transport of all queues: TCP or RDMA.
    pub transport: Transport,
    /// The NQN of the host (HOSTNQN).
    pub host: Nqn,
    /// The Host Identifier (HOSTID), a UUID.
    pub host_id: [u8; 16],
    /// The keep alive timeout (KATO), rounded to milliseconds; [`Duration::ZERO`] without a timer. The host
    /// sends Keep Alive at half of it. Discovery controllers get none.
    pub keep_alive_timeout: Duration,
    /// PDU digests that the host requests.
    pub digests: Digests,
    /// The congestion control of TCP; the default of the system when `None`.
    pub congestion: Option<String>,
    /// DH-HMAC-CHAP secrets for a target that requires authentication. With a controller secret, the host
    /// authenticates the target too, and ends the connection if that fails.
    pub secrets: Option<Secrets>,
    /// TLS for TCP; `None` without.
    pub tls: Option<Tls>,
}

/// TLS parameters of a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tls {
    /// The configured PSK.
    pub key: TlsKey,
    /// The version of the PSK identity.
    pub version: Version,
    /// How the PSK is derived from the configured one.
    pub derivation: Derivation,
}
