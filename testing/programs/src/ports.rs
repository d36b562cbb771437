//! Ports of the loopback for programs that cannot choose one themselves and report it.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// Ports below those that the kernel assigns itself (32768 to 60999 by default): between the choice and its
/// use, no other socket gets the port by requesting any free one.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// A free TCP port of the loopback. Processes begin at different ports, and each call returns another one.
///
/// # Panics
/// When all are in use.
pub fn free_port() -> u16 {
    static CALLS: AtomicU16 = AtomicU16::new(0);
    let begin = std::process::id().wrapping_mul(61);
    let port = |call: u16| FIRST + ((begin + u32::from(call)) % u32::from(COUNT)) as u16;
    let mut ports = (0..COUNT).map(|_| port(CALLS.fetch_add(1, Ordering::Relaxed) % COUNT));
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    ports.find(is_free).expect("one of many ports is free")
}
