//! What storage servers share: Unix sockets for one user, and budgets of memory.
#![deny(unsafe_code)]

pub mod budget;
pub mod deadline;
mod guest_memory;
pub mod local;
mod sys;
mod unauthenticated;
mod wake;

pub use guest_memory::{GuestCharge, GuestMemory};
pub use unauthenticated::{UnauthenticatedBudget, UnauthenticatedShare, source};
pub use wake::Wake;
