//! What storage servers share: the control socket, metrics over HTTP, and the limits of connections and of
//! memory.
#![deny(unsafe_code)]

pub mod address;
pub mod budget;
mod clock;
pub mod control;
mod counted;
pub mod deadline;
pub mod event_loop;
mod guest_memory;
mod half_open;
pub mod http;
pub mod local;
mod loopback_peer;
pub mod metrics;
mod permits;
pub mod prometheus;
pub mod settings;
mod spin;
mod stall_timer;
mod sys;
pub mod thread;
mod unauthenticated;
mod wake;

pub use clock::{Clock, nanoseconds};
pub use counted::Counted;
pub use guest_memory::{GuestCharge, GuestMemory};
pub use half_open::HalfOpen;
pub use permits::{ConnectionLimiter, ConnectionLimits, ConnectionPermit, Refusal};
pub use spin::{Spin, Spinners};
pub use stall_timer::StallTimer;
pub use unauthenticated::{UnauthenticatedBudget, UnauthenticatedShare, source};
pub use wake::Wake;
