//! Real programs as tests: what runs them, where, and what they said.
//!
//! A test makes a place ([`Pair`], [`Segment`]), whose ends are [`Machine`]s: network namespaces of this
//! host, or guests that run the Linux kernel's own RoCE device. It starts a program at one end, waits until
//! that listens, runs the other end's, and looks at what both printed. Everything that was started ends with
//! the place it runs in, in whatever way the test ends.
//!
//! Reading order: [`machine`], [`namespace`], [`guest`], [`exchange`].

pub mod connection;
pub mod dissector;
pub mod error;
pub mod exchange;
pub mod guest;
pub mod impaired;
pub mod ledger;
pub mod machine;
pub mod namespace;
pub mod patterns;
pub mod perftest;
pub mod probe;
pub mod rockery;
pub mod scenes;
pub mod segment;
pub mod storage;
pub mod storage_place;
mod system;
pub mod write_log;

pub use error::Error;
pub use exchange::Exchange;
pub use guest::{Guest, GuestWithRockery};
pub use impaired::{Faults, Impaired};
pub use ledger::{Ledger, Loss};
pub use machine::{Finished, Job, Machine};
pub use namespace::Namespace;
pub use rockery::Rockery;
pub use segment::{Pair, Segment};
pub use storage_place::StoragePlace;
