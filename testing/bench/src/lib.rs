//! Common parts of the benchmarks: medians, clocks and tables. The programs of this crate measure:
//! `rockery-bench` repeats published comparisons, `limits-bench` (`make bench`) compares rockery with the
//! limits of the machine, `guest-bench` with the kernel's rxe, and `world-bench` times the simulator.
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
