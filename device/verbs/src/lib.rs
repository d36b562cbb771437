//! `libibverbs.so.1`: the C ABI of verbs over rockery's device. It converts C structs and calls the device;
//! it has no protocol.
//!
//! - [`exports`] lists the functions that the table of symbols marks as `here`; [`absent`] has those that are
//!   not supported.
//! - [`operations`] has the function tables through which `static inline` verbs call.
//! - [`ffi`] makes every function that C calls: it catches panics and converts results to C's.
//! - Each object that C sees is the first field of a struct, in the file named after the object.
//!
//! The caller has to follow the manual pages of verbs: pointers point to what their types say, and no object
//! is used after its destruction. That is the `SAFETY` of every function that C calls.

mod absent;
mod address;
mod batch;
mod buffer;
mod channel;
mod completion_events;
mod context;
mod cq;
mod cq_create;
mod cq_ex;
mod device;
mod device_memory;
mod dm;
mod dmabuf;
mod event_counts;
mod events;
mod exports;
mod faulty;
mod held;
mod import;
mod limits;
mod mapping;
mod memory;
mod multicast;
mod open;
mod operations;
mod packed;
mod pd;
mod post;
mod qp;
mod qp_attr;
mod qp_create;
mod qp_ex;
mod query;
mod rates;
mod record;
mod srq;
mod strings;
mod sysfs;
mod traced;
mod window;

include!(concat!(env!("OUT_DIR"), "/symbols.rs"));
#[cfg(not(test))]
include!(concat!(env!("OUT_DIR"), "/machine.rs"));
#[cfg(not(test))]
include!(concat!(env!("OUT_DIR"), "/raw_calls.rs"));
