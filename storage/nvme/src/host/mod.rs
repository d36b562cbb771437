//! The host side of NVMe-oF: connects to a controller, and reads and writes its namespaces.
//!
//! A [`Client`] owns the admin queue, and creates [`Queue`]s for I/O. A queue makes progress only while
//! [`Queue::poll`] or [`Queue::wait`] is called. A thread of the client sends Keep Alive on the admin queue.
//!
//! Over TCP, [`Machine`] is the protocol without a socket. Over RDMA a capsule is one message, and the target
//! reads and writes the data itself.

mod authentication;
mod bench;
mod client;
mod commands;
mod enable;
mod identify;
mod keep_alive;
mod liveness;
mod machine;
mod namespace;
mod parameters;
mod queue;
mod rdma;
mod retry;
mod shutdown;
mod submission;
mod tcp;

use std::io;
use std::time::Duration;

use thiserror::Error;
use wire::nvme::Status;
use wire::nvme::rdma::RejectStatus;
use wire::nvme::tcp::Fatal;

use crate::nqn::{Nqn, NqnError};

pub use bench::{
    Figures, Histogram, Job, MOMENTS, fill, fill_local, job, run as bench,
    run_local as bench_local, run_local_threads as bench_local_threads,
    run_threads as bench_threads,
};
pub use client::{Client, Controller, DISCOVERY, Discovered, discover, transfer};
pub use commands::{Done, Payload};
pub use liveness::Lost;
pub use machine::Machine;
pub use namespace::{Identifiers, Namespace};
pub use parameters::{KEEP_ALIVE_TIMEOUT, Options, Tls, Transport};
pub use queue::Queue;
pub use shutdown::Shutdown;

impl HostError {
    /// Whether the error is of one namespace, and others may be usable.
    pub const fn is_of_namespace(&self) -> bool {
        matches!(
            self,
            Self::Inactive(_) | Self::BlockSize { .. } | Self::Metadata { .. }
        )
    }
}

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
    #[error(
        "TLS with the target failed: {0}; the target needs the key of this host for this subsystem"
    )]
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
    /// The operating system gave no random bytes for a challenge.
    #[error("no random bytes for the challenge of the authentication: {0}")]
    Random(getrandom::Error),
    /// The target ended the connection.
    #[error("the target ended the connection{}", reason(*.0))]
    Terminated(Option<Fatal>),
    /// The target violated the protocol.
    #[error("the target violated the protocol: {0}")]
    Protocol(&'static str),
    /// ICResp has a field that the host cannot follow.
    #[error("the target sent ICResp with {field} {value}; right is {right}")]
    Initialize {
        /// The field, as TCP transport 3.6.2.3 names it.
        field: &'static str,
        /// The value that the target sent.
        value: u32,
        /// The values that are right.
        right: &'static str,
    },
    /// The target does not answer Keep Alive.
    #[error("{0}: the host ended the connection")]
    KeepAlive(Lost),
    /// The controller has failed (CSTS.CFS); the value of CSTS.
    #[error("the controller reports a fatal error (CSTS.CFS; CSTS is {0:#x}): reset it")]
    Fatal(u32),
    /// The controller is not ready after the time that it reports.
    #[error("the controller was not ready within the {} s that it reports (CAP.TO, CRTO)", .0.as_secs_f64())]
    NotReady(Duration),
    /// The target has not completed the shutdown of the controller.
    #[error(
        "the target did not complete the shutdown of the controller (CSTS.SHST) within {} s: it may still \
         execute commands of before",
        .0.as_secs_f64()
    )]
    NotShutDown(Duration),
    /// The target grants fewer I/O queues.
    #[error("{wanted} I/O queues were requested, and the target grants {granted}")]
    Queues {
        /// How many the host requested.
        wanted: u32,
        /// How many the target grants.
        granted: u32,
    },
    /// The namespace does not exist.
    #[error("namespace {0} does not exist, or is not attached to this controller")]
    Inactive(u32),
    /// The block size of a namespace is not supported.
    #[error(
        "namespace {nsid} has blocks of 2^{shift} bytes: supported are 512 bytes to 64 KiB, and no more than \
         the target transfers at once ({transfer_max} bytes)"
    )]
    BlockSize {
        /// The namespace identifier (NSID).
        nsid: u32,
        /// The block size as a power of two (LBADS).
        shift: u8,
        /// The longest transfer of the controller, in bytes.
        transfer_max: usize,
    },
    /// The namespace has metadata.
    #[error(
        "namespace {nsid} is formatted with {bytes} bytes of metadata for each block, which is not supported"
    )]
    Metadata {
        /// The namespace identifier (NSID).
        nsid: u32,
        /// Bytes of metadata of each block.
        bytes: u16,
    },
    /// The target refused Connect, and a name has not the form of an NQN.
    #[error(
        "Connect: {status}; the name of the {whose} \"{name}\" was sent as it is, but {}: give its NQN with \
         --{whose}",
        NqnError::Form
    )]
    Name {
        /// The status field of Connect.
        status: Status,
        /// `host` or `subsystem`.
        whose: &'static str,
        /// The name of subsystem or host.
        name: Nqn,
    },
    /// A command failed.
    #[error("{what}: {status}")]
    Status {
        /// The name of the command, as the NVMe specifications have it.
        what: &'static str,
        /// The status field of its completion.
        status: Status,
    },
    /// All entries of the queue are in use.
    #[error("the queue is full: wait for a completion before the next command")]
    Full,
}

/// The fatal error status of a target that ended the connection, as TCP transport 3.6.2.5 names it.
const fn reason(fatal: Option<Fatal>) -> &'static str {
    match fatal {
        None => "",
        Some(Fatal::HeaderField) => ": invalid PDU header field",
        Some(Fatal::Sequence) => ": PDU sequence error",
        Some(Fatal::HeaderDigest) => ": header digest error",
        Some(Fatal::DataRange) => ": data transfer out of range",
        Some(Fatal::Limit) => ": data transfer limit exceeded",
        Some(Fatal::Unsupported) => ": unsupported parameter",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ended_connection_is_reported_with_the_reason_of_the_target() {
        let text = |fatal| HostError::Terminated(fatal).to_string();
        assert_eq!(text(None), "the target ended the connection");
        let named = "the target ended the connection: header digest error";
        assert_eq!(text(Some(Fatal::HeaderDigest)), named);
    }
}
