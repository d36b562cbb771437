//! Cisco NX-OS: running configurations and outputs of its commands.

pub(crate) mod dialect;
pub(crate) mod shown;
