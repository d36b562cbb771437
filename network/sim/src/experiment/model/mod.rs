//! Models that are trained: from their sizes, by formulas, to what each rank computes and exchanges.

mod builder;
mod check;
mod explain;
mod layout;
mod stage;
mod training;
mod transformer;

pub use builder::{Exchange, Written};
pub(super) use check::plan;
pub use explain::explanation;
pub use layout::{PairEnd, ParallelLayout, Within};
pub use training::{ComputeSpeed, TrainingPlan};
pub use transformer::{Parameters, Transformer};
