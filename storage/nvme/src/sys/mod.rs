//! System interfaces that the standard library does not have: io_uring, calls on files, pipes, and PSKs
//! for TLS. All unsafe code of this crate is here, behind safe functions.
#![allow(unsafe_code, reason = "these modules are listed in the house rules")]

pub mod file;
pub(crate) mod page_pipe;
pub mod ring;
pub mod tls;
