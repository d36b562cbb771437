//! The host's side: connects to a controller, and reads and writes its namespaces.
//!
//! A [`Client`] has the admin queue, and makes [`Queue`]s for I/O. What a queue is given it works on while
//! [`Queue::poll`] or [`Queue::wait`] is called; nothing happens behind its back.

mod bench;
mod client;
mod queue;

use std::io;

use thiserror::Error;
use wire::nvme::Status;
use wire::nvme::tcp::Fatal;

pub use bench::{Figures, Histogram, Job, run as bench};
pub use client::{Client, Controller, DISCOVERY, Discovered, Namespace, Options, discover, transfer};
pub use queue::{Done, Payload, Queue};

/// Why something did not work.
#[derive(Debug, Error)]
pub enum HostError {
    /// The connection failed.
    #[error("the connection to the target failed: {0}")]
    Io(#[from] io::Error),
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
