//! All unsafe code of this crate: application memory and system calls.

pub(crate) mod book;
pub(crate) mod epoll;
pub(crate) mod eventfd;
pub(crate) mod foreign;
pub(crate) mod fork;
pub(crate) mod guarded;
pub(crate) mod memory;
pub(crate) mod process;
pub(crate) mod shares;
pub(crate) mod ticks;
pub(crate) mod unix;
pub(crate) mod views;
