//! Live datapaths for RoCEv2 packets: UDP sockets, and shared memory between processes of one host. This
//! crate moves datagrams and records and knows their addresses; it does not interpret their contents.

pub mod address;
pub mod attachment;
mod cached_sockopts;
pub mod cancellation;
#[cfg(test)]
mod corrupted_rings;
mod datagram;
pub mod interface;
pub mod lab;
pub mod management;
pub mod memory;
pub mod neighbour;
pub mod path_request;
pub mod port_state;
pub mod route;
/// Words that one process writes and others copy whole.
pub mod sequence_lock {
    pub use crate::sys::sequence_lock::*;
}
mod sys;
pub mod udp;
/// Unix sockets that carry messages and descriptors.
pub mod unix {
    pub use crate::sys::unix::*;
}
pub mod watch;
