//! MikroTik RouterOS: scripts, what a switch does with them, and the outputs of its menus.
//!
//! RouterOS scripts (`/interface ethernet switch qos`; MikroTik, "Quality of Service"). The importer of
//! fabric files reads them, so that simulation and comparison use the same configuration.

mod advice;
mod config;
mod entries;
mod ethernet;
mod find;
mod menus;
mod model;
mod print;
mod properties;
pub(crate) mod read;
pub(crate) mod remedy;
mod run;
mod script;
pub(crate) mod shown;
pub(crate) mod write;

pub use write::first_lane;

pub(crate) use advice::ECN_ON;
#[cfg(test)]
pub(crate) use script::words_of;

pub use config::{
    EthernetLink, PfcProfile, QosProfile, QueueSchedule, RouterOsConfig, RouterOsPort,
    RouterOsVersion, Settings, Threshold, TrustMode, TxManager, TxQueue, WredThreshold,
};
