//! Networks in virtual time, held against published experiments, another simulator, and themselves.
#![allow(clippy::unwrap_used, reason = "where a test cannot go on, it fails")]

mod fixed_point;
mod hops;
mod lossless;
mod reference;
mod repeat;
mod slots;
mod spraying;
