//! Cisco NX-OS: running configurations and outputs of its commands.
//!
//! Cisco NX-OS on Nexus 9000 with eight queues (published RoCE guides for NX-OS 10.3, and Microsoft's Azure
//! Local switch reference).

mod dlb;
mod policies;
pub(crate) mod read;
pub(crate) mod remedy;
pub(crate) mod shown;
pub(crate) mod system;
mod timers;
pub(crate) mod write;
