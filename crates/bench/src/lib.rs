//! What the benchmarks share: `make bench`, `guest-bench`, `world-bench` and `rockery bench`. A benchmark
//! measures; this crate takes medians, reads clocks, and writes tables.
#![forbid(unsafe_code)]

mod clock;
mod machine;
mod median;
mod noise;
pub mod process;
mod table;

pub use clock::timed;
pub use machine::Machine;
pub use median::{Spread, median};
pub use noise::fixed_loop;
pub use table::Table;
