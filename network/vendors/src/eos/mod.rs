//! Arista EOS: running configurations and outputs of its commands.

pub(crate) mod dialect;
pub(crate) mod shown;
