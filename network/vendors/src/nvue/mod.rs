//! NVIDIA Cumulus Linux: NVUE's commands and outputs.

pub(crate) mod dialect;
pub(crate) mod shown;
