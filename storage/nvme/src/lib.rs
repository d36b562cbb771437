//! NVMe over Fabrics: storage that the Linux kernel, SPDK and rockery's own host reach over TCP and RDMA.
//!
//! The protocol is independent of sockets and clocks: [`controller`] has subsystems and controllers, and
//! executes commands; [`tcp`] turns bytes into commands and back. [`serve`] drives both with sockets and
//! threads, and [`engine`] transfers data to and from [`store`].
//!
//! ```text
//! bytes ──tcp::Connection──▶ controller::Queue::accept ──▶ data come ──▶ execute ──▶ Reply
//!                                                                      └─▶ Task ──engine──▶ finish
//! ```
//!
//! A driver of a [`tcp::Connection`] passes received bytes to it, its [`engine::Task`]s to an engine, the
//! results of the engine back to it, and sends its output, in any order, until nothing is left. The memory
//! that a host can make the target use is bounded by [`limits`].
#![deny(unsafe_code)]

pub mod auth;
mod base64;
pub mod congestion;
pub mod controller;
pub mod engine;
pub mod host;
pub mod identifier;
pub mod latency;
pub mod limits;
pub mod machine;
pub mod nbd;
pub mod nqn;
mod pool;
pub mod serve;
pub mod store;
mod stream;
pub mod sys;
pub mod tcp;
pub mod tls;
mod zero_copy;

pub use nqn::Nqn;
