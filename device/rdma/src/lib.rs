//! Reliable connections over `libibverbs.so.1` and `librdmacm.so.1`, which are loaded at run time: rockery's,
//! or the distribution's with a hardware adapter.
//!
//! The interface is safe: a buffer that a request works on is owned by the connection until the request has
//! completed; an object lives as long as the objects created from it; and memory is accessed only by this
//! process's own requests, except buffers that were opened to the peer explicitly.
//!
//! A server has a [`Listener`]; a client calls [`Connection::connect`]. Both then post requests to a
//! [`Connection`] and poll it. [`Connection::descriptors`] are for sleeping.
#![deny(unsafe_code)]

mod sys;

use std::io;
use std::net::SocketAddr;

use thiserror::Error;

pub use sys::connection::{BATCH, Completion, Connection, Done, Sizes};
pub use sys::domain::Domain;
pub use sys::landing::Landing;
pub use sys::listener::{HalfOpen, Listener, ListenerEvent, Request};
pub use sys::outbox::RemoteMemory;
pub use sys::shared::SharedReceives;
pub use sys::wait::{Watched, Woken};

/// Reasons why a call has failed.
#[derive(Debug, Error)]
pub enum Error {
    /// A library cannot be loaded.
    #[error("{library} cannot be opened: {reason}")]
    Library {
        /// File name of the library.
        library: &'static str,
        /// Message of the dynamic loader (`dlerror(3)`).
        reason: String,
    },
    /// A library was loaded and lacks a function, so it is too old.
    #[error("{library} has no {function}")]
    Function {
        /// File name of the library.
        library: &'static str,
        /// Name of the function.
        function: &'static str,
    },
    /// A call into one of the libraries failed.
    #[error("{call}: {source}")]
    Call {
        /// Name of the function.
        call: &'static str,
        /// The error, from `errno`.
        source: io::Error,
    },
    /// Address resolution found no RDMA device with a route to the peer.
    #[error("no RDMA device leads to {0}")]
    NoRoute(SocketAddr),
    /// The peer, or the router to it, does not answer ARP or neighbour discovery.
    #[error("no host answers for {0} on the link: neither to ARP nor to neighbour discovery")]
    NoNeighbour(SocketAddr),
    /// The peer has rejected the connection (REJ).
    #[error("the peer refuses the connection (reason {reason})")]
    Rejected {
        /// Reason of the REJ (IBTA table 107).
        reason: i32,
        /// Private data of the REJ.
        private_data: Vec<u8>,
    },
    /// The peer did not answer in time.
    #[error("the peer did not answer within {seconds} s")]
    Silence {
        /// Time-out in seconds.
        seconds: u64,
    },
    /// The connection manager reported a failure.
    #[error(
        "the connection manager reports event {event} (enum rdma_cm_event_type), status {status}"
    )]
    Event {
        /// Type of the event (`enum rdma_cm_event_type`).
        event: u32,
        /// Status of the event: 0, a negative error number, or a reason of the CM.
        status: i32,
    },
    /// The connection has ended.
    #[error("the connection has ended: the peer disconnected, or does not answer")]
    Disconnected,
    /// The queue has no room for another request.
    #[error("the queue has no room for another request")]
    Full,
}
