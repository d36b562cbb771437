//! `librockery-view.so`, for `LD_PRELOAD`: where a program looks at `/sys/class/infiniband` and at
//! `/dev/infiniband`, it sees what a kernel with RDMA devices has there.
//!
//! `rockery run` writes these files to a folder and names it in `ROCKERY_VIEW`. This library defines the
//! functions of the C library that take a path. A path to one of those places is answered from the folder,
//! and any other goes on to the C library as it is.
//!
//! - [`translate`] says which paths those are.
//! - [`functions`] lists the functions.
//! - [`next`] finds the C library's own.
//!
//! Nothing here allocates: allocators open files while they start.

mod functions;
mod next;
mod translate;
