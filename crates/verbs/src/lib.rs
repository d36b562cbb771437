//! `libibverbs.so.1`: the C ABI of verbs over rockery's device. C struct in, call out, nothing else.
//!
//! - [`exports`] has what the table of symbols calls `here`; [`absent`] answers for the other names.
//! - [`context`] has the tables through which `static inline` verbs call.
//! - [`door`] is the one way in: it stops panics and turns results into what C expects.
//! - Each object that C sees is the first field of a struct of ours, in the file named after it.
//!
//! The caller owes what the manual pages of verbs ask: pointers that lead where their types say, and no
//! use of an object after its destruction. That is the `SAFETY` of everything behind the door.

mod absent;
mod address;
mod channel;
mod context;
mod cq;
mod cq_ex;
mod device;
mod dm;
mod dmabuf;
mod events;
mod exports;
mod import;
mod memory;
mod pd;
mod post;
mod qp;
mod qp_attr;
mod qp_ex;
mod query;
mod rates;
mod srq;
mod strings;
mod sysfs;

include!(concat!(env!("OUT_DIR"), "/symbols.rs"));
