//! The device alone: packets in, packets and completions out, as traces.

// A test that meets an error where none belongs has found what it looks for; and this one reads captures.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod bench;
mod capacity;
mod captures;
mod cm;
mod datagrams;
mod direct;
mod domains;
mod hostile;
mod requester;
mod responder;
mod sharing;
