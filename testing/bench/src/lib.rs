//! Common parts of the benchmarks `make bench`, `guest-bench`, `world-bench` and `rockery bench`: medians,
//! clocks and tables. The benchmarks themselves measure.
#![forbid(unsafe_code)]

mod clock;
mod machine;
mod median;
mod noise;
mod table;

pub use clock::timed;
pub use machine::Machine;
pub use median::{Spread, median};
pub use noise::fixed_loop;
pub use table::Table;
