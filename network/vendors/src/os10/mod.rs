//! Dell SmartFabric OS10: running configurations.
//!
//! Dell SmartFabric OS10 (Dell's user guide 10.5, "Configure RoCE on the switch", and Azure Local
//! configurations that Microsoft publishes).

mod policies;
pub(crate) mod read;
pub(crate) mod remedy;
pub(crate) mod write;
