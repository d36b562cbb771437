//! Live datapaths for RoCEv2 packets. This crate moves datagrams and knows their addresses; what is in them
//! is for others.
pub mod interface;
pub mod memory;
#[cfg(test)]
mod scribbles;
mod sys;
pub mod udp;
pub mod watch;
