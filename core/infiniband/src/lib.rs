//! Management of an InfiniBand subnet, without input and output of its own: nodes and their agents, directed
//! routes, ports and links, what a kernel does for programs that send management datagrams, and routing.
//!
//! Sections of the specification (IBTA) are those of volume 1, release 1.3.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod agents;
pub mod ipoib;
pub mod lid;
pub mod mad;
pub mod node;
pub mod pma;
pub mod routing;
pub mod sa;
pub mod sma;
mod smi;
mod speed;
pub mod subnet;

pub use speed::{LinkSpeed, Speed, Width};
