//! Linux hosts with NVIDIA's `mlnx_qos` (Mellanox/mlnx-tools).

pub(crate) mod read;
pub(crate) mod write;
