//! Configurations of real switches, adapters and hosts. An [`Intent`] describes how a network treats its
//! traffic classes; each [`Dialect`] writes an intent as one system's configuration and reads it back. This
//! crate never applies a configuration to a device.
#![forbid(unsafe_code)]

mod attach;
pub mod consequence;
pub mod dialect;
mod diff;
pub mod doctor;
mod from_fabric;
pub mod intent;
pub mod probe;
mod profile;
pub mod text;

pub use attach::{attach_host, plan_switch};
pub use dialect::{Dialect, UnknownVersion, Written};
pub use diff::{Change, changes};
pub use from_fabric::{SourceError, class_weights, host_intent, switch_intent};
pub use intent::Intent;
pub use text::ReadError;
