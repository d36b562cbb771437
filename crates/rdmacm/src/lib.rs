//! `librdmacm.so.1`: the C ABI of the RDMA connection manager. It converts C structs and calls the connection
//! manager: the protocol is in [`rnic::cm`], its sockets, timers and threads in [`host::cm`].
//!
//! - [`exports`] lists the functions that the table of symbols marks as `here`, which are all of them.
//! - [`door`] makes every function that C calls: it catches panics and converts results to C's.
//! - [`id`] is `rdma_cm_id`, [`process`] the state of the process, [`id_table`] finds the identifiers of the
//!   protocol's events.
//! - [`events`] delivers queued events. Changes of queue pairs that an event requires are made when the
//!   program takes it, in the program's thread, by calls into [`verbs`]: the `libibverbs.so.1` that the
//!   process has loaded.
//!
//! - [`rsocket`] implements rsockets on top of these.
//!
//! The caller has to follow the manual pages of librdmacm: pointers point to what their types say, calls on
//! one identifier are serialized, and no object is used after its destruction. That is the `SAFETY` of every
//! function that C calls.

mod address;
mod addrinfo;
mod channel;
mod connect;
mod devices;
mod endpoint;
mod events;
mod exports;
mod id;
mod id_table;
mod listen;
mod multicast;
mod options;
mod process;
mod qp;
mod resolve;
mod rsocket;
mod sockaddr;
mod srq;
mod strings;
mod verbs;
mod xrc;

include!(concat!(env!("OUT_DIR"), "/symbols.rs"));
