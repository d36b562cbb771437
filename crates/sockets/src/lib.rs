//! `librspreload.so`, for `LD_PRELOAD`: a program's sockets of IPv4 and IPv6 become rsockets.
//!
//! The program's descriptor stays a socket of the kernel, which is used for nothing: it holds the number,
//! answers `fstat` and options that rsockets do not know, and takes over where a connection by RDMA fails.
//! [`table`] says which descriptors stand for an rsocket.
//!
//! - [`calls`] and [`descriptors`] have the C library's functions on sockets and descriptors, [`poll`] and
//!   [`epoll`] those that wait; [`next`] finds the C library's own, [`rsockets`] those of `librdmacm.so.1`.
//! - [`config`] is what the administrator and the environment say, [`fork`] how connections come to be where
//!   programs fork.

mod calls;
mod config;
mod descriptors;
mod epoll;
mod fork;
#[path = "../../view/src/next.rs"]
mod next;
mod poll;
mod real;
mod rsockets;
mod table;
