//! The device alone: sequences of packets and completions.

// `unwrap` is right in tests, where an unexpected error is a failure; this test also reads captures.
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
mod subnet;
