//! Subnets as a manager sees them: directed routes, tables, states of links, traps, keys, and programs on
//! hosts.

#![allow(clippy::unwrap_used, reason = "where a test cannot go on, it fails")]

mod agents;
mod any;
mod captured;
mod contract;
mod ipoib;
mod ipoib_contract;
mod ipoib_net;
mod management;
mod net;
mod traps;
mod ways;
