//! What the standard library does not have: io_uring, calls on files, and keys for TLS. All unsafe
//! code of this crate is here, behind functions that cannot be called wrong.
#![allow(unsafe_code, reason = "these modules are listed in the house rules")]

pub mod file;
pub mod ring;
pub mod tls;
pub mod wait;
