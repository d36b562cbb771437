//! The target, as hosts see it over TCP: no sockets, no clock.
#![allow(clippy::unwrap_used, reason = "where a test cannot go on, it fails")]

mod admin;
mod auth;
mod captures;
mod hostile;
mod io;
mod live;
mod sharing;
mod siege;
mod support;
mod tls;
