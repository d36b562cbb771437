//! All unsafe code of this crate: application memory and system calls.

pub(crate) mod eventfd;
pub(crate) mod memory;
