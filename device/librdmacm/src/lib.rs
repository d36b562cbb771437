//! `librdmacm.so.1`, for the dynamic loader: the exported names with their versions. The functions behind
//! them are in the crates `rdma_cm` (connections) and `rsocket` (sockets over RDMA).
//!
//! - [`exports`] lists the functions that the table of symbols marks as `here`, which are all of them.

mod exports;

include!(concat!(env!("OUT_DIR"), "/symbols.rs"));
#[cfg(not(test))]
include!(concat!(env!("OUT_DIR"), "/machine.rs"));
#[cfg(not(test))]
include!(concat!(env!("OUT_DIR"), "/raw_calls.rs"));
