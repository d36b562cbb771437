//! Virtual time: devices in a network that exists only as a queue of packets, driven by a clock that jumps
//! from one event to the next. A run is a pure function of its seed.
#![deny(unsafe_code)]

pub mod experiment;
#[cfg(unix)]
pub mod input;
pub mod random;
pub mod report;
mod sys;
pub mod world;
