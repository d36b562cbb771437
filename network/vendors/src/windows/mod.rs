//! Windows hosts: PowerShell commands and their outputs.

pub(crate) mod dialect;
pub(crate) mod shown;
