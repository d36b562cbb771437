//! All unsafe code of this crate: system calls.

pub(crate) mod interface;
pub(crate) mod namespace;
pub(crate) mod process;
