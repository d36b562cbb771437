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
pub mod emulated;
pub mod error;
pub mod exchange;
pub mod forge;
pub mod forge_control;
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
pub mod qperf;
pub mod rdma_queue;
pub mod rockery;
pub mod samba;
pub mod scenes;
pub mod segment;
pub mod smb_chain;
pub mod smb_place;
pub mod storage;
pub mod storage_place;
pub mod symbols;
mod system;
pub mod write_log;
pub mod yaml;

pub use browser::{Browser, Chromium, Firefox};
pub use distribution::Distribution;
pub use error::Error;
pub use exchange::Exchange;
pub use guest::{Arm, ArmWithRockery, Guest, GuestWithRockery};
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
// For benchmarks: their crate has a shipped program, which does not depend on `tempfile`.
pub use tempfile::TempDir;

use std::path::{Path, PathBuf};

/// The folder of the workspace, which holds `examples`, `packaging` and `scripts`.
///
/// # Panics
/// When it is not where these tests were built.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the folder of the workspace")
}

/// A number of an environment variable, with which a longer or another run of a test is chosen.
///
/// # Panics
/// When the variable is set to something else.
pub fn number(variable: &str, otherwise: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{variable}={text} is no number")),
        Err(_) => otherwise,
    }
}
