//! `librspreload.so`, for `LD_PRELOAD`: turns a program's sockets of IPv4 and IPv6 into rsockets.
//!
//! The program's descriptor stays a kernel socket. It reserves the number, answers `fstat` and options that
//! rsockets do not have, and carries the data when an RDMA connection cannot be established. [`table`] has
//! the rsocket of each descriptor.
//!
//! - [`calls`] and [`descriptors`] replace the C library's functions on sockets and descriptors, [`poll`] and
//!   [`epoll`] those that wait; [`next`] finds the C library's own, [`rsockets`] those of `librdmacm.so.1`.
//! - [`config`] has the settings of the administrator and the environment, [`fork`] the connections of
//!   programs that fork.

mod calls;
mod config;
mod descriptors;
mod epoll;
mod fork;
mod make;
#[path = "../../sysfs/src/next.rs"]
mod next;
mod poll;
mod real;
mod rsockets;
mod table;
