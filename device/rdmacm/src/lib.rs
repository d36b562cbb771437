//! The calls of the RDMA connection manager (rdma_cm(7)), as `librdmacm.so.1` exports them. They convert C
//! structs and call the connection manager: the protocol is in [`rnic::cm`], its sockets, timers and threads
//! in [`host::cm`]. Sockets over RDMA, which the same library exports, are built on these calls in a crate of
//! their own, `rsocket`.
//!
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
//!
//! A module imports from lines below its own:
//!
//! ```text
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
//!   neighbours
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
mod groups;
mod id;
mod id_table;
mod lifetime;
mod listen;
mod multicast;
mod negotiated;
mod neighbours;
mod options;
mod path_record;
mod pending;
mod process;
mod qp;
mod qp_attr;
mod requested;
mod resolve;
pub mod sockaddr;
mod sockaddr_ib;
mod srq;
mod state;
mod strings;
mod subnet_path;
mod synchronous;
pub mod verbs;
mod xrc;

pub use address::{
    HOP_LIMIT, attach_device, rdma_bind_addr, rdma_get_dst_port, rdma_get_src_port,
    rdma_resolve_addr, rdma_resolve_route,
};
pub use addrinfo::{rdma_freeaddrinfo, rdma_getaddrinfo};
pub use connect::{
    rdma_accept, rdma_connect, rdma_disconnect, rdma_establish, rdma_notify, rdma_reject,
    rdma_reject_ece,
};
pub use device::OpenDevice;
pub use devices::{rdma_free_devices, rdma_get_devices};
pub use endpoint::{rdma_create_ep, rdma_destroy_ep};
pub use events::{
    rdma_ack_cm_event, rdma_create_event_channel, rdma_destroy_event_channel, rdma_get_cm_event,
};
pub use id::{Id, id};
pub use lifetime::{rdma_create_id, rdma_destroy_id, rdma_migrate_id};
pub use listen::{rdma_get_request, rdma_listen};
pub use multicast::{rdma_join_multicast, rdma_join_multicast_ex, rdma_leave_multicast};
pub use options::{rdma_get_remote_ece, rdma_set_local_ece, rdma_set_option};
pub use qp::{
    address_vector, rdma_create_qp, rdma_create_qp_ex, rdma_destroy_qp, rdma_init_qp_attr,
};
pub use resolve::{rdma_query_addrinfo, rdma_resolve_addrinfo, rdma_write_cm_event};
pub use srq::{rdma_create_srq, rdma_create_srq_ex, rdma_destroy_srq};
pub use strings::rdma_event_str;
