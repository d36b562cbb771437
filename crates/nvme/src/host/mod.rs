//! The host's side: connects to a controller, and reads and writes its namespaces.
//!
//! A [`Client`] has the admin queue, and makes [`Queue`]s for I/O. What a queue is given it works on while
//! [`Queue::poll`] or [`Queue::wait`] is called; nothing happens behind its back.
//!
//! Over TCP, [`Machine`] says what is sent and understands what comes, without a socket. Over RDMA there is
//! little to say: a message is a capsule, and the target fetches and places data by itself.

mod authentication;
mod bench;
mod client;
mod commands;
mod machine;
mod queue;
mod rdma;
mod tcp;

use std::io;

use thiserror::Error;
use wire::nvme::Status;
use wire::nvme::rdma::RejectReason;
use wire::nvme::tcp::Fatal;

pub use bench::{
    Figures, Histogram, Job, MOMENTS, fill, fill_local, run as bench, run_local as bench_local,
    run_local_threads as bench_local_threads, run_threads as bench_threads,
};
pub use client::{Client, Controller, DISCOVERY, Discovered, Namespace, Options, Tls, discover, transfer};
pub use commands::{Done, Payload};
pub use machine::Machine;
pub use queue::{Queue, Transport};

/// Why something did not work.
#[derive(Debug, Error)]
pub enum HostError {
    /// The connection failed.
    #[error("the connection to the target failed: {0}")]
    Io(#[from] io::Error),
    /// The RDMA connection failed.
    #[error("the RDMA connection to the target failed: {0}")]
    Rdma(#[from] ::rdma::Error),
    /// The target refuses the RDMA connection, and says why.
    #[error("the target refuses the RDMA connection: {0:?}")]
    Refused(RejectReason),
    /// A request of the RDMA connection failed.
    #[error("a request of the RDMA connection failed with verbs status {0}")]
    Request(u32),
    /// A buffer that the queue's device does not know.
    #[error("the buffer belongs to another connection: ask the queue for buffers")]
    Buffer,
    /// TLS did not come about.
    #[error("TLS with the target failed: {0}; it has to know this host's key for this subsystem")]
    Tls(io::Error),
    /// There is no TLS there.
    #[error("TLS goes with TCP only")]
    NoTls,
    /// No key can be derived from names that long.
    #[error("the names of host and subsystem are too long for an identity of version 0")]
    Names,
    /// The target wants to know who this is.
    #[error("the target wants authentication, and there is no secret: give --secret")]
    NoSecret,
    /// One of both does not have the secret that the other knows.
    #[error("authentication failed: target and host do not have the same secrets")]
    NotBelieved,
    /// The target ended the connection.
    #[error("the target ended the connection ({0:?})")]
    Terminated(Option<Fatal>),
    /// The target broke the protocol.
    #[error("the target broke the protocol: {0}")]
    Protocol(&'static str),
    /// A command failed.
    #[error("{what}: {status}")]
    Status {
        /// Which.
        what: &'static str,
        /// How.
        status: Status,
    },
    /// The queue has as many commands as it can.
    #[error("the queue is full")]
    Full,
}
