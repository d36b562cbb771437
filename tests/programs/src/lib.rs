//! Tests with real programs: machines, programs on them, and their output.
//!
//! A test creates a [`Pair`] or a [`Segment`], whose ends are [`Machine`]s: network namespaces of this host,
//! or guests that run the Linux kernel's own RoCE device. It starts a program at one end, waits until it
//! listens, runs the program of the other end, and checks the output of both. Every program ends with its
//! machine, also when the test panics.
//!
//! Reading order: [`machine`], [`namespace`], [`guest`], [`exchange`].

mod addresses;
pub mod browser;
pub mod connection;
pub mod dissector;
pub mod distribution;
pub mod error;
pub mod exchange;
pub mod forge;
pub mod guest;
pub mod impaired;
pub mod lab_hosts;
pub mod ledger;
pub mod live;
pub mod machine;
pub mod namespace;
pub mod packages;
pub mod patterns;
pub mod perftest;
pub mod ports;
pub mod probe;
pub mod rockery;
pub mod samba;
pub mod scenes;
pub mod segment;
pub mod smb_chain;
pub mod smb_place;
pub mod storage;
pub mod storage_place;
mod system;
pub mod write_log;

pub use browser::{Browser, Chromium, Firefox};
pub use distribution::Distribution;
pub use error::Error;
pub use exchange::Exchange;
pub use guest::{Guest, GuestWithRockery};
pub use impaired::{Faults, Impaired};
pub use lab_hosts::{Lab, LabHost};
pub use ledger::{Ledger, Loss};
pub use machine::{Finished, Job, Machine};
pub use namespace::Namespace;
pub use packages::Packages;
pub use rockery::Rockery;
pub use samba::Samba;
pub use segment::{Pair, Segment};
pub use smb_chain::{Setup, SmbChain};
pub use smb_place::SmbPlace;
pub use storage_place::StoragePlace;
