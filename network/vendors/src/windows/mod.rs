//! Windows hosts: PowerShell commands and their outputs.
//!
//! Windows Server: NetQos, NetAdapterQos, SMB Direct, multichannel and SR-IOV (Microsoft's PowerShell
//! documentation and its Converged NIC guide).

pub(crate) mod read;
mod records;
pub(crate) mod remedy;
pub(crate) mod shown;
pub(crate) mod write;
