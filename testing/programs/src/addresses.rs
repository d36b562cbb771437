//! Addresses of the machines on a segment.

use std::net::IpAddr;

/// The addresses of the machine with this number: 10.88.0.N and fd88::N.
pub(crate) fn addresses(number: u8) -> (IpAddr, IpAddr) {
    (
        IpAddr::from([10, 88, 0, number]),
        IpAddr::from([0xfd88, 0, 0, 0, 0, 0, 0, u16::from(number)]),
    )
}
