//! Junos on QFX5000 switches: configurations in braces and as `set` commands, and outputs of `show`.
//!
//! Statements are those of Juniper's CLI reference (`class-of-service`, "congestion-notification-profile",
//! "schedulers", "PFC Watchdog", "Dynamic Load Balancing") and of the published designs in Juniper/jvd for
//! QFX5130 and QFX5240.

mod interfaces;
mod model;
pub(crate) mod read;
pub(crate) mod remedy;
mod settings;
pub(crate) mod shown;
mod tokens;
pub(crate) mod write;

pub use model::queue_classes;
