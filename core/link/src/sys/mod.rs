//! All unsafe code of this crate: system calls.

pub(crate) mod cancellation;
pub(crate) mod clock;
mod control;
mod flags;
pub(crate) mod interface;
#[cfg(all(test, not(miri)))]
mod model;
pub(crate) mod netlink;
#[cfg(test)]
mod races;
pub(crate) mod ring;
pub(crate) mod route;
pub(crate) mod sequence_lock;
pub(crate) mod shared;
pub(crate) mod udp;
pub(crate) mod unix;
pub(crate) mod watch;
