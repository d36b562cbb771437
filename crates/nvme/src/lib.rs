//! NVMe over Fabrics: storage that the Linux kernel, SPDK and rockery's own host reach over TCP and RDMA.
//!
//! The protocol knows neither sockets nor clocks: [`target`] holds subsystems, controllers and what commands
//! mean, [`tcp`] turns bytes into commands and back. [`serve`] drives both with sockets and threads, and
//! [`engine`] brings data to and from [`store`].
//!
//! ```text
//! bytes ──tcp::Connection──▶ target::Queue::accept ──▶ data come ──▶ execute ──▶ Reply
//!                                                                      └─▶ Task ──engine──▶ finish
//! ```
//!
//! Driving a [`tcp::Connection`]: give it bytes, hand every [`engine::Task`] that it has to an engine, give
//! it
//! what the engine has finished, and send what it has to send, in any order, until none of these is left.
//! What
//! a host can make the target hold is bounded by [`limits`].
#![deny(unsafe_code)]

pub mod auth;
mod base64;
pub mod engine;
pub mod host;
pub mod latency;
pub mod limits;
pub mod nbd;
pub mod nqn;
mod pool;
pub mod serve;
pub mod store;
mod stream;
pub mod sys;
pub mod target;
pub mod tcp;
pub mod tls;

pub use nqn::Nqn;
