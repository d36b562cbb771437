//! The target, as hosts see it over TCP: no sockets, no clock.
#![allow(clippy::unwrap_used, reason = "where a test cannot go on, it fails")]

mod accounting;
mod admin;
mod auth;
mod backing;
mod barrier;
mod captures;
mod connect;
mod controller_limits;
mod data_lengths;
mod features;
mod fused;
mod host;
mod hostile;
mod identify;
mod identity;
mod in_place;
mod io;
mod live;
mod nbd;
mod overload;
mod peer;
mod reservation;
mod support;
mod tls;
mod unauthenticated;
