//! A live host: devices that unmodified programs open, on the network interfaces of the host.
//!
//! ```text
//! list() ─▶ DeviceInfo ─▶ Device::open ─▶ with(…) for control verbs, post/poll_cq for the data path
//! ```
//!
//! Progress is made by the program's own calls while it calls, and by one thread per device when it does not.
//! Nothing depends on the program calling in: a peer's RDMA WRITE arrives while the target sits in a TCP
//! read.
mod agent;
pub mod capture;
mod channel;
pub mod cm;
pub mod counter_files;
mod counters;
mod device;
mod egress;
mod error;
pub mod faults;
mod flow;
mod gsi;
mod interface;
mod lab;
pub mod log;
mod log_filter;
mod multicast;
pub mod parameters;
mod port_holder;
mod progress;
mod raised;
mod random;
pub mod report;
pub mod settings;
mod shm;
mod source_ports;
mod subnet;
mod sys;
pub mod traced;
mod transmit;
pub mod watch;

pub use channel::{AsyncEvents, CompletionChannel, EventQueue};
pub use counters::LinkCounters;
pub use device::{Device, OpenDomain, Poster};
pub use device::{end_panicked, take_arrived};
pub use error::{DomainError, OpenError};
pub use interface::{DeviceInfo, all, list, try_list};
pub use link::cancellation;
pub use link::port_state::PortState;
pub use port_holder::PortHolder;
pub use progress::completion_wait::WaitEnd;
pub use sys::address_space::has_memory;
pub use sys::fork::{Inside, enter, generation};
pub use sys::memory::{PinError, pin};
pub use sys::process::spawn_quiet;
pub use sys::standard_error::note;
