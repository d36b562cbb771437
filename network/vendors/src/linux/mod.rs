//! Linux hosts: `dcb`, `mlnx_qos` and the outputs of the system's tools.

pub(crate) mod dcb;
pub(crate) mod dialect;
pub(crate) mod mlnx;
pub(crate) mod shown;
