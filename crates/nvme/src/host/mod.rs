//! The host side of NVMe-oF: connects to a controller, and reads and writes its namespaces.
//!
//! A [`Client`] owns the admin queue, and creates [`Queue`]s for I/O. A queue makes progress only while
//! [`Queue::poll`] or [`Queue::wait`] is called; there is no background thread.
//!
//! Over TCP, [`Machine`] is the protocol without a socket. Over RDMA a capsule is one message, and the target
//! reads and writes the data itself.

mod authentication;
mod bench;
mod client;
mod commands;
mod machine;
mod parameters;
mod queue;
mod rdma;
mod tcp;

use std::io;

use thiserror::Error;
use wire::nvme::Status;
use wire::nvme::rdma::RejectStatus;
use wire::nvme::tcp::Fatal;

pub use bench::{
    Figures, Histogram, Job, MOMENTS, fill, fill_local, run as bench, run_local as bench_local,
    run_local_threads as bench_local_threads, run_threads as bench_threads,
};
pub use client::{Client, Controller, DISCOVERY, Discovered, Namespace, discover, transfer};
pub use commands::{Done, Payload};
pub use machine::Machine;
pub use parameters::{Options, Tls, Transport};
pub use queue::Queue;

/// Errors of the host.
#[derive(Debug, Error)]
pub enum HostError {
    /// The TCP connection failed.
    #[error("the connection to the target failed: {0}")]
    Io(#[from] io::Error),
    /// The RDMA connection failed.
    #[error("the RDMA connection to the target failed: {0}")]
    Rdma(#[from] ::rdma::Error),
    /// The target rejected the RDMA connection, with the status of its private data.
    #[error("the target refuses the RDMA connection: {0:?}")]
    Refused(RejectStatus),
    /// A work request failed.
    #[error("a request of the RDMA connection failed with verbs status {0}")]
    Request(u32),
    /// The buffer is not registered with the device of this queue.
    #[error("the buffer belongs to another connection: ask the queue for buffers")]
    Buffer,
    /// The TLS handshake failed.
    #[error("TLS with the target failed: {0}; the target needs the key of this host for this subsystem")]
    Tls(io::Error),
    /// TLS was requested for RDMA.
    #[error("TLS is supported over TCP only")]
    NoTls,
    /// The names are too long for a PSK identity of version 0.
    #[error("the names of host and subsystem are too long for an identity of version 0")]
    Names,
    /// The target requires authentication, and no secret is configured.
    #[error("the target requires authentication: give --secret")]
    NoSecret,
    /// Host and target do not have the same secrets.
    #[error("authentication failed: target and host do not have the same secrets")]
    NotBelieved,
    /// The target ended the connection.
    #[error("the target ended the connection ({0:?})")]
    Terminated(Option<Fatal>),
    /// The target violated the protocol.
    #[error("the target violated the protocol: {0}")]
    Protocol(&'static str),
    /// A command failed.
    #[error("{what}: {status}")]
    Status {
        /// The name of the command, as the NVMe specifications have it.
        what: &'static str,
        /// The status field of its completion.
        status: Status,
    },
    /// All entries of the queue are in use.
    #[error("the queue is full")]
    Full,
}
