//! The network interfaces of this host.

pub use crate::sys::interface::{Address, Interface, interfaces};
