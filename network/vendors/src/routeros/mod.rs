//! MikroTik RouterOS: scripts, what a switch does with them, and the outputs of its menus.

mod advice;
mod config;
pub(crate) mod dialect;
mod model;
mod print;
mod run;
mod script;
pub(crate) mod shown;

pub(crate) use advice::ECN_ON;
pub use config::{
    PfcProfile, QosProfile, QueueSchedule, RouterOsConfig, RouterOsPort, Settings, TrustMode,
    TxManager, TxQueue, WredThreshold,
};
