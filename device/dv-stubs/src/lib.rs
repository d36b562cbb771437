//! The direct-verbs libraries of hardware providers (`libmlx5.so.1`, `libefa.so.1`, `libmlx4.so.1`,
//! `libhns.so.1`, `libmana.so.1`, `libionic.so.1`), in one file that exports all of their names.
//!
//! perftest, UCX, libfabric, NCCL and DPDK link these libraries or load them at run time. The distribution's
//! own import private functions of libibverbs, which change between releases of rdma-core. This one imports
//! nothing of libibverbs, so programs start whatever release they were built with.
//!
//! Every function refuses the device, as the original does for a device of another vendor: creating functions
//! return NULL, queries `EOPNOTSUPP`, and `mlx5dv_is_supported` is false. Programs then use the standard
//! verbs.

mod absent;

include!(concat!(env!("OUT_DIR"), "/symbols.rs"));
