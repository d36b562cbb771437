//! Windows hosts: PowerShell commands and their outputs.
//!
//! Windows Server and clients: NetQos, NetAdapterQos, NetworkDirect, SMB Direct, multichannel and SR-IOV
//! (Microsoft's PowerShell documentation and its Converged NIC guide).

mod dcb;
mod endpoints;
mod events;
mod powershell;
pub(crate) mod read;
mod records;
pub(crate) mod remedy;
pub(crate) mod shown;
mod values;
pub(crate) mod write;
