//! `librockery-view.so`, for `LD_PRELOAD`: shows the program a `/sys/class/infiniband` and a
//! `/dev/infiniband` as a kernel with RDMA devices has them.
//!
//! `rockery run` writes these files to a folder and names it in `ROCKERY_VIEW`. This library replaces the C
//! library's functions that take a path: a path to one of those places is looked up in the folder, and any
//! other is passed on unchanged. It also answers requests on `NETLINK_RDMA` sockets.
//!
//! - [`translate`] recognizes and translates those paths.
//! - [`functions`] replaces the functions that take a path, [`functions_on_sockets`] those that create a
//!   socket or send on it, [`functions_on_files`] those on files of the umad device.
//! - [`counters`] reads the values of counters when their files are opened.
//! - [`netlink`] and [`nldev`] answer requests of the kernel's RDMA netlink interface.
//! - [`subnet`] has the InfiniBand device of a host in a lab.
//! - [`next`] finds the C library's own functions.
//!
//! Functions that every call passes through do not allocate, because allocators open files while they start.

mod counters;
mod devices;
mod functions;
mod functions_on_files;
mod functions_on_sockets;
mod netlink;
mod next;
mod next_on_files;
mod next_on_sockets;
mod nldev;
mod subnet;
mod translate;
