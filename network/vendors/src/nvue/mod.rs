//! NVIDIA Cumulus Linux: NVUE's commands and outputs.
//!
//! Commands of NVIDIA's NVUE (Cumulus Linux, "Quality of Service" and the NVUE command reference). Settings
//! are written one by one instead of by `nv set qos roce`, whose meaning depends on the chip.

mod commands;
mod names;
pub(crate) mod read;
pub(crate) mod remedy;
pub(crate) mod shown;
pub(crate) mod write;
mod yaml;

pub use read::queue_of_priority;
