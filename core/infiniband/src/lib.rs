//! Management of an InfiniBand subnet, without input and output of its own.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate alloc;

mod speed;

pub use speed::{LinkSpeed, Speed, Width};
