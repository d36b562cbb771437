//! `librdmacm.so.1`: connections, as RDMA programs make them. C struct in, call out, nothing else: the
//! protocol is [`rnic::cm`], what makes it live is [`host::cm`].
//!
//! - [`exports`] has what the table of symbols calls `here`, which is all of it.
//! - [`door`] is the one way in: it stops panics and turns results into what C expects.
//! - [`id`] has what C calls `rdma_cm_id`, [`world`] what the process has, [`owner`] passes on what peers do.
//! - [`events`]: what waits in a channel becomes what C reads when the program takes it. What it makes happen
//!   to queue pairs happens then, in the program's thread, by calls into [`verbs`]: `libibverbs.so.1` as the
//!   process has it.
//!
//! - [`rsocket`]: sockets, upon all of this.
//!
//! The caller owes what the manual pages of librdmacm ask: pointers that lead where their types say, calls on
//! one identifier one at a time, and no use of an object after its destruction. That is the `SAFETY` of
//! everything behind the door.

mod address;
mod addrinfo;
mod channel;
mod connect;
mod devices;
mod endpoint;
mod events;
mod exports;
mod id;
mod listen;
mod multicast;
mod options;
mod owner;
mod qp;
mod rsocket;
mod sockaddr;
mod srq;
mod strings;
mod verbs;
mod world;
mod xrc;

include!(concat!(env!("OUT_DIR"), "/symbols.rs"));
