//! Networks in virtual time, held against published experiments, another simulator, and themselves.
#![allow(clippy::unwrap_used, reason = "where a test cannot go on, it fails")]

mod fixed_point;
mod hops;
mod life;
mod lossless;
mod pcie;
mod reference;
mod repeat;
mod spraying;
mod steady;
mod three_to_one;
