//! Memory from the allocator and the kernel. All unsafe code of this crate is here.
#![allow(unsafe_code, reason = "these modules are listed in the house rules")]

mod arena;
pub(crate) mod heap;
pub(crate) mod memory;
pub(crate) mod prefetch;
