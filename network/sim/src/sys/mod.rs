//! Instructions that Rust has no safe function for. All unsafe code of this crate is here.
#![allow(unsafe_code, reason = "these modules are listed in the house rules")]

pub(crate) mod prefetch;
