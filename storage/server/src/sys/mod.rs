//! System interfaces that the standard library does not have: peers of Unix sockets. All unsafe code of this
//! crate is here, behind safe functions.
#![allow(unsafe_code, reason = "these modules are listed in the house rules")]

pub(crate) mod peer;
