//! Reliable connections over `libibverbs.so.1` and `librdmacm.so.1`, which are opened at run time: rockery's
//! own,
//! or the distribution's with a real adapter behind it.
//!
//! Nothing here can be called wrong. A buffer that a request works on is owned by the connection until the
//! request has completed; objects that others are made of live as long as these; only this process's own
//! requests touch its memory, except where a buffer was opened to the peer on purpose.
//!
//! A server has a [`Listener`]; a client calls [`Connection::connect`]. Both then post to a [`Connection`],
//! and
//! poll it. [`Connection::descriptors`] are for sleeping.
#![deny(unsafe_code)]

mod sys;

use std::io;
use std::net::SocketAddr;

use thiserror::Error;

pub use sys::buffer::{ALIGNMENT, Buffer};
pub use sys::connection::{BATCH, Completion, Connection, Done, Sizes};
pub use sys::domain::Domain;
pub use sys::listener::{Listener, Request};
pub use sys::shared::SharedReceives;

/// Why there is no connection.
#[derive(Debug, Error)]
pub enum Error {
    /// The libraries are not there.
    #[error("{library} cannot be opened: {reason}")]
    Library {
        /// Which.
        library: &'static str,
        /// What the dynamic linker says.
        reason: String,
    },
    /// A library is there, and lacks a function.
    #[error("{library} has no {function}")]
    Function {
        /// Which library.
        library: &'static str,
        /// Which function.
        function: &'static str,
    },
    /// A call failed.
    #[error("{call}: {source}")]
    Call {
        /// Which.
        call: &'static str,
        /// Why.
        source: io::Error,
    },
    /// No device leads there.
    #[error("no RDMA device leads to {0}")]
    NoRoute(SocketAddr),
    /// The peer refused, with its private data.
    #[error("the peer refuses the connection (reason {reason})")]
    Rejected {
        /// The CM's reason.
        reason: i32,
        /// What the peer says about it.
        private_data: Vec<u8>,
    },
    /// Nothing answered.
    #[error("no answer within {seconds} s")]
    Silence {
        /// How long was waited.
        seconds: u64,
    },
    /// Something else happened than what was waited for.
    #[error("connection manager event {event} (status {status})")]
    Event {
        /// Its number.
        event: u32,
        /// Its status.
        status: i32,
    },
    /// The connection has ended.
    #[error("the connection has ended")]
    Disconnected,
    /// More requests than the queues have room for.
    #[error("the queue has no room for another request")]
    Full,
}
