//! Dell SmartFabric OS10: running configurations.

pub(crate) mod dialect;
