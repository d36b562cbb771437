//! The network interfaces of this host.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

/// An address of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Address {
    /// An IPv4 address.
    V4(Ipv4Addr),
    /// An IPv6 address.
    V6(Ipv6Addr),
}

/// A network interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Name of the interface.
    pub name: String,
    /// Index of the interface in its network namespace.
    pub index: u32,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// Its MAC address; zeros where it has none.
    pub mac: [u8; 6],
    /// Whether it is the loopback interface.
    pub is_loopback: bool,
    /// Whether it is up and running.
    pub is_up: bool,
    /// Its addresses, in the kernel's order.
    pub addresses: Vec<Address>,
}

/// All interfaces of this network namespace.
///
/// # Errors
/// Those of `getifaddrs(3)` and `socket(2)`: the kernel has no memory or no descriptors left.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    crate::sys::interface::interfaces()
}
