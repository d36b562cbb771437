//! `librdmacm.so.1`: the C ABI of the RDMA connection manager. It converts C structs and calls the connection
//! manager: the protocol is in [`rnic::cm`], its sockets, timers and threads in [`host::cm`].
//!
//! - [`exports`] lists the functions that the table of symbols marks as `here`, which are all of them.
//! - [`ffi`] makes every function that C calls: it catches panics and converts results to C's.
//! - [`id`] is `rdma_cm_id`. Its [`state`] is shared with [`id_table`], which finds it for an event of the
//!   protocol; [`process`] is the state of the process, with that table. [`lifetime`] creates and destroys
//!   identifiers.
//! - An event is [`pending`] in the queue of its [`channel`], until [`events`] delivers it to the program,
//!   which acknowledges it ([`delivered`]). Changes of queue pairs that an event requires are made when the
//!   program takes it, in the program's thread, by calls into [`verbs`]: the `libibverbs.so.1` that the
//!   process has loaded. [`requested`] and [`establish`] are what connection requests and replies require.
//! - The program's calls are in [`address`], [`listen`], [`connect`], [`multicast`], [`qp`], [`endpoint`] and
//!   so on. On an identifier without a channel they wait for their event: [`synchronous`].
//! - [`rsocket`] implements rsockets on top of these.
//!
//! A module imports from lines below its own:
//!
//! ```text
//!   rsocket
//!   listen
//!   endpoint
//!   address, connect, multicast, resolve
//!   synchronous
//!   events
//!   requested, establish
//!   lifetime
//!   delivered
//!   qp, path_record
//!   id
//!   process
//!   id_table
//!   state
//!   channel, device, groups, qp_attr
//!   pending, negotiated, verbs, sockaddr
//! ```
//!
//! The caller has to follow the manual pages of librdmacm: pointers point to what their types say, calls on
//! one identifier are serialized, and no object is used after its destruction. That is the `SAFETY` of every
//! function that C calls.

mod address;
mod addrinfo;
mod channel;
mod connect;
mod delivered;
mod device;
mod devices;
mod endpoint;
mod establish;
mod events;
mod exports;
mod groups;
mod id;
mod id_table;
mod lifetime;
mod listen;
mod multicast;
mod negotiated;
mod options;
mod path_record;
mod pending;
mod process;
mod qp;
mod qp_attr;
mod requested;
mod resolve;
mod rsocket;
mod sockaddr;
mod srq;
mod state;
mod strings;
mod synchronous;
mod verbs;
mod xrc;

include!(concat!(env!("OUT_DIR"), "/symbols.rs"));
#[cfg(not(test))]
include!(concat!(env!("OUT_DIR"), "/machine.rs"));
