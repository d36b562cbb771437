//! The fabric file: hosts, switches, links, routing and workloads in TOML.
//!
//! Reading is sans-IO: the caller has the text, calls [`Document::read`] with it
//! and with a function that reads the files that it names, applies the settings of the command line, and
//! calls [`Document::fields`]. [`Network::build`] makes the configurations of switches from the fields.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod chance;
mod check;
mod collective;
pub mod congestion;
mod document;
mod error;
pub mod functions;
pub mod hosts;
mod imported_subnet;
mod links;
mod model;
mod names;
mod network;
mod profile;
mod reference;
pub mod schema;
mod source;
mod subnet_manager;
mod sweep;
mod trimming;
pub mod uet;
mod unused;
mod workload;

pub use check::json_schema;
pub use document::{Document, INCLUDES_MAX, Origin, PATH_LEVELS_MAX, ReadFile};
pub use error::{FileError, Mistake, Problem};
pub use imported_subnet::ImportedSubnet;
pub use names::{is_pattern, matches};
pub use network::{
    ChannelAdapter, LaneBuffers, Manager, NamedFunction, NamedHost, NamedSwitch, Network,
    SharedAdapter, Subnet, SubnetLink, SubnetSwitch, TablesInUse,
};
pub use profile::automatic_headroom;
pub use reference::reference;
pub use schema::FabricFile;
pub use source::SourceLine;
pub use sweep::{Point, RUNS_MAX};
pub use unused::{Effect, Unused, unused};
