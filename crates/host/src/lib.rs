//! A live host: devices that unmodified programs open, over the network interfaces that are there.
//!
//! ```text
//! list() ─▶ DeviceInfo ─▶ Device::open ─▶ with(…) for control verbs, post/poll_cq for the data path
//!                              │
//!                        progress thread: serves the network when the program is away
//! ```
//!
//! Progress is made by the program's own calls while it calls, and by one thread per device when it does not.
//! Nothing depends on the program calling in: a peer's RDMA WRITE arrives while the target sits in a TCP
//! read.
mod agent;
mod attend;
mod bell;
pub mod capture;
mod channel;
mod clock;
pub mod cm;
mod counters;
mod device;
mod error;
mod follow;
mod gsi;
mod interface;
mod lane;
mod presence;
mod progress;
mod pump;
mod receive;
pub mod report;
pub mod settings;
mod source_ports;
mod sys;
mod transmit;
mod wait;

pub use channel::{AsyncEvents, CompletionChannel, EventQueue};
pub use counters::LinkCounters;
pub use device::{Device, OpenDomain, Poster};
pub use error::{DomainError, OpenError};
pub use interface::{DeviceInfo, all, list};
pub use sys::fork::generation;
pub use sys::memory::{PinError, pin};
