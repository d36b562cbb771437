//! Routes of this host, as the kernel finds them.

use crate::sys;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

/// The port of RoCEv2 (IANA), in case routes differ by port.
const ROCE_PORT: u16 = 4791;

/// The hop limit of packets from one address to another: that of the route, or the host's default. `ifindex`
/// is the interface of link-local addresses. None where it cannot be found out, because a sandbox refuses
/// sockets or the source is no address of this host any more.
///
/// # Errors
/// `ENETUNREACH` or `EHOSTUNREACH` without a route, `EINVAL` when the addresses are not of one family, and
/// others of `connect(2)`.
pub fn hop_limit(source: IpAddr, destination: IpAddr, ifindex: u32) -> io::Result<Option<u8>> {
    if source.is_ipv4() != destination.is_ipv4() || destination.is_unspecified() {
        return Err(sys::route::no_route());
    }
    let Ok(socket) = sys::route::bound_socket(&socket_address(source, 0, ifindex)) else {
        return Ok(None);
    };
    socket.connect(socket_address(destination, ROCE_PORT, ifindex))?;
    sys::route::hop_limit(&socket, source.is_ipv6()).map(Some)
}

/// Only link-local addresses have a scope.
pub(crate) fn socket_address(address: IpAddr, port: u16, ifindex: u32) -> SocketAddr {
    match address {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => {
            SocketAddr::V6(SocketAddrV6::new(v6, port, 0, ifindex))
        }
        _ => SocketAddr::new(address, port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn error(source: IpAddr, destination: IpAddr) -> Option<i32> {
        hop_limit(source, destination, 1)
            .expect_err("there is no route")
            .raw_os_error()
    }

    #[test]
    fn a_route_has_the_hosts_default_hop_limit() {
        let default = std::fs::read_to_string("/proc/sys/net/ipv4/ip_default_ttl").unwrap();
        let found = hop_limit(HERE, HERE, 1).expect("the loopback address has a route");
        assert_eq!(found, default.trim().parse().ok());
    }

    #[test]
    fn addresses_that_cannot_reach_each_other_are_refused() {
        let v6 = IpAddr::V6(Ipv6Addr::LOCALHOST);
        let none = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        assert_eq!(error(HERE, v6), Some(libc::EINVAL));
        assert_eq!(error(v6, HERE), Some(libc::EINVAL));
        assert_eq!(error(v6, none), Some(libc::EINVAL));
        // A source of 127.0.0.0/8 leaves the host by no route.
        let far = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 9));
        assert!(matches!(
            error(HERE, far),
            Some(libc::EINVAL | libc::ENETUNREACH)
        ));
    }

    #[test]
    fn nothing_is_known_of_a_source_that_is_not_of_this_host() {
        let other = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 9));
        assert_eq!(hop_limit(other, HERE, 1).unwrap(), None);
    }
}
