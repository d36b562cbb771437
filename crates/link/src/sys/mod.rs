//! All unsafe code of this crate: system calls.

pub(crate) mod interface;
