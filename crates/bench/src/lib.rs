//! What the benchmarks share: `make bench`, `guest-bench`, `world-bench` and `rockery bench`. A benchmark
//! measures; this crate takes medians, compares a figure with its limit, reads clocks, and writes tables.
#![forbid(unsafe_code)]

mod beside;
mod clock;
mod machine;
mod median;
pub mod process;
mod table;

pub use beside::{Beside, beside};
pub use clock::timed;
pub use machine::Machine;
pub use median::{Spread, median};
pub use table::Table;
