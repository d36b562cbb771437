//! Calls into the two libraries. All unsafe code of this crate is here.
#![allow(unsafe_code, reason = "these modules are listed in the house rules")]

mod arena;
pub(crate) mod buffer;
pub(crate) mod connection;
pub(crate) mod domain;
pub(crate) mod library;
pub(crate) mod listener;
mod outbox;
pub(crate) mod shared;
