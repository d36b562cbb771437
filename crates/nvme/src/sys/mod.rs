//! What the standard library does not have: memory that begins at page boundaries, and io_uring. All unsafe
//! code of this crate is here, behind functions that cannot be called wrong.
#![allow(unsafe_code, reason = "these modules are listed in the house rules")]

pub mod buffer;
pub mod file;
pub mod ring;
