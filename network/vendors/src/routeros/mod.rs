//! MikroTik RouterOS: scripts, what a switch does with them, and the outputs of its menus.
//!
//! RouterOS scripts (`/interface ethernet switch qos`; MikroTik, "Quality of Service"). The importer of
//! fabric files reads them, so that simulation and comparison use the same configuration.

mod advice;
mod config;
mod model;
mod print;
pub(crate) mod read;
pub(crate) mod remedy;
mod run;
mod script;
pub(crate) mod shown;
pub(crate) mod write;

pub(crate) use advice::ECN_ON;
pub use config::{
    PfcProfile, QosProfile, QueueSchedule, RouterOsConfig, RouterOsPort, Settings, TrustMode,
    TxManager, TxQueue, WredThreshold,
};
