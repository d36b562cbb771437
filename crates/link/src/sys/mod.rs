//! All unsafe code of this crate: system calls.

mod control;
pub(crate) mod interface;
#[cfg(test)]
mod races;
pub(crate) mod ring;
pub(crate) mod shared;
pub(crate) mod udp;
pub(crate) mod watch;
