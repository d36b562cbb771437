//! Linux hosts: `dcb` and the outputs of the system's tools.
//!
//! Linux hosts with iproute2's `dcb`, and the parts that `mlnx` shares: marking, MTU, pause, firmware and
//! SR-IOV (manual pages of iproute2; rdma-core's and NVIDIA's tools).

mod adapter;
pub(crate) mod counters;
mod dcb;
mod firewall;
mod logs;
mod pci;
pub(crate) mod read;
pub(crate) mod remedy;
pub(crate) mod shown;
pub(crate) mod write;
