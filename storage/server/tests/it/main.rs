//! Tests of the server crate over sockets.
#![allow(clippy::unwrap_used, reason = "where a test cannot go on, it fails")]

mod http;
