//! Calls into the two libraries. All unsafe code of this crate is here.
#![allow(unsafe_code, reason = "these modules are listed in the house rules")]

mod address;
mod channel;
pub(crate) mod connection;
pub(crate) mod domain;
pub(crate) mod landing;
pub(crate) mod library;
pub(crate) mod listener;
pub(crate) mod outbox;
mod registration;
pub(crate) mod shared;
pub(crate) mod wait;
