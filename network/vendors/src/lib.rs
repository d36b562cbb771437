//! Configurations of real switches, adapters and hosts. An [`Intent`] describes how a network treats its
//! traffic classes; each [`Dialect`] writes an intent as one system's configuration and reads it back. Each
//! system has a folder: what it writes and reads, and what the outputs of its commands show. This crate never
//! applies a configuration to a device.
#![forbid(unsafe_code)]

mod advice;
mod blocks;
mod card_names;
mod class_map;
mod counted;
mod counted_faults;
pub mod dialect;
mod diff;
mod eos;
mod esxi;
pub mod facts;
mod firmware;
mod freebsd;
mod highest_rate;
mod host;
mod host_remedy;
mod import_error;
mod imported;
pub mod infiniband;
pub mod intent;
mod interface;
mod irrelevant;
mod json;
mod junos;
mod limits;
mod linux;
mod mlnx;
mod names;
mod nvue;
mod nxos;
mod os10;
mod outcome;
pub mod outputs;
mod own_names;
mod path_spread;
mod port_drop;
pub mod profile;
mod remedy;
pub mod routeros;
mod sections;
pub mod shell;
pub mod sonic;
pub mod switch_facts;
mod table;
pub mod text;
mod version;
mod watchdog;
mod windows;

pub use advice::{Advice, LossyClass, class_list};
pub use counted::{CountedPort, CountedSwitch};
pub use counted_faults::CountedFault;
pub use dialect::{Configuration, Dialect, GroupsDiffer, UnknownVersion, Written};
pub use diff::{Change, changes, changes_by_port};
pub use highest_rate::HighestRate;
pub use host::read_host;
pub use host_remedy::HostRemedy;
pub use import_error::ImportError;
pub use imported::{Imported, PortPlace};
pub use intent::Intent;
pub use junos::queue_classes as junos_queue_classes;
pub use nvue::queue_of_priority as nvue_queue_of_priority;
pub use outcome::{Area, NotUnderstood, Outcome, Outcomes};
pub use own_names::OwnNames;
pub use path_spread::PathSpread;
pub use remedy::Remedy;
pub use text::ReadError;
pub use watchdog::PauseWatchdog;
pub use windows::remedy::traffic_class as windows_traffic_class;
