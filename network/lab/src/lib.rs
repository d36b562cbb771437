//! A fabric file run live on one machine. Each host is a set of namespaces in which unmodified programs run;
//! between hosts are the switches and links of the simulator (`sim::world`), driven by the clock.
//!
//! ```text
//! host h0 (namespaces)                       lab process (one, of an ordinary user)
//!  program ─ librockery ─ rnic ── ring ──▶ ┐ port of h0 ─┐
//!  program ─ kernel TCP ─ tap eth0 ──────▶ ┘             ├─ sim::world: switches, links, events
//! host h1 …                                ◀─────────────┘  run up to the time of the clock
//! ```
//!
//! The namespaces are held by descriptors of the lab process, and the first process of their PID namespace is
//! a child that the kernel kills when the lab ends: so nothing is left of a lab, however it ends.

mod capture;
mod changes;
mod clock;
mod control;
mod device;
mod engine;
mod error;
mod frame;
mod functions;
pub mod fuzz_entry;
mod gso;
mod inspect;
mod ip_frames;
mod lateness;
mod link_changes;
mod listener;
pub mod lldp;
mod marking;
mod measurement;
mod namespaces;
mod neighbours;
mod network;
mod plan;
mod ports;
pub mod reach;
mod shape;
mod start;
mod subnet;
mod subnet_capture;
mod sys;
mod tap;
mod tap_buffers;
mod tracking;
pub mod traffic;
mod watched;

pub use clock::Clock;
pub use control::{Client, Entered, HostStatus, Status, labs};
pub use error::LabError;
pub use functions::{FunctionStatus, LiveAdapter, LiveFunction, adapters_of};
pub use lateness::LatenessSummary;
pub use measurement::Measured;
pub use network::HostCounters;
pub use plan::{LiveHost, Plan};
pub use ports::{PortCounters, Ports};
pub use shape::{Shape, ShapeEnd, ShapeKind, ShapeLink, ShapeNode};
pub use start::{Ready, enter, is_running, run, run_detached};
pub use subnet::InfinibandPort;
pub use sys::namespace::{own_network, own_user_namespace};
pub use tracking::{Numbers, Outcome};
