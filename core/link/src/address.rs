//! IP addresses as users type them: with the zone of an IPv6 address by the name or the index of an interface
//! (RFC 4007, 11), as in `fe80::1%eth0` and `[fe80::1%2]:4420`.
//!
//! The standard library's parser takes indices only, and resolves no name in brackets.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs};

use thiserror::Error;

/// The interfaces that have an IPv6 address, with their indices: proc(5).
const INTERFACES: &str = "/proc/net/if_inet6";

/// Why a text is not an address.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum AddressError {
    /// The text has not the form of an address with a port.
    #[error(
        "\"{0}\" is no address with a port: write 192.0.2.1:4420, [2001:db8::1]:4420 or [fe80::1%eth0]:4420"
    )]
    Socket(String),
    /// The text has not the form of an address.
    #[error("\"{0}\" is no IP address: write 192.0.2.1, 2001:db8::1 or fe80::1%eth0")]
    Ip(String),
    /// No interface has the name or the index.
    #[error(
        "\"{0}\" is no interface of this machine with IPv6: write its name or its index behind the %"
    )]
    Zone(String),
    /// The address needs no zone.
    #[error("{0} is no link-local address, and has no zone: leave out the % and what follows")]
    NotScoped(Ipv6Addr),
    /// A name has no address.
    #[error("{name}: {error}")]
    Unresolved {
        /// The name that was looked up.
        name: String,
        /// The answer of the resolver.
        error: String,
    },
}

/// Parses an IP address with a port.
///
/// # Errors
/// [`AddressError`] names the part that is wrong.
pub fn socket(text: &str) -> Result<SocketAddr, AddressError> {
    let wrong = || AddressError::Socket(text.to_owned());
    let Some(rest) = text.strip_prefix('[') else {
        // Without brackets only IPv4 has a port.
        return text.parse::<SocketAddr>().map_err(|_| wrong());
    };
    let (inner, port) = rest.split_once("]:").ok_or_else(wrong)?;
    let port = port.parse().map_err(|_| wrong())?;
    match ip(inner) {
        Err(AddressError::Ip(_)) => Err(wrong()),
        Ok(address) if address.is_ipv4() => Err(wrong()),
        found => Ok(with_port(found?, port)),
    }
}

/// Parses an IP address without a port; the port of the result is 0.
///
/// # Errors
/// [`AddressError`] names the part that is wrong.
pub fn ip(text: &str) -> Result<SocketAddr, AddressError> {
    let wrong = || AddressError::Ip(text.to_owned());
    let Some((address, zone)) = text.split_once('%') else {
        return text
            .parse::<IpAddr>()
            .map(|ip| SocketAddr::new(ip, 0))
            .map_err(|_| wrong());
    };
    let address: Ipv6Addr = address.parse().map_err(|_| wrong())?;
    if !is_scoped(address) {
        return Err(AddressError::NotScoped(address));
    }
    // getaddrinfo(3) reads names and indices of interfaces, and looks up no host for a numeric address.
    let found = (text, 0)
        .to_socket_addrs()
        .ok()
        .and_then(|mut all| all.next());
    let missing = || AddressError::Zone(zone.to_owned());
    found
        .filter(|found| scope(found) != 0 && exists(scope(found), zone))
        .ok_or_else(missing)
}

/// Parses an IP address or looks up a name, with a port or with `default_port`; an IPv6 address with a port
/// is in brackets.
///
/// # Errors
/// [`AddressError`] names the part that is wrong, or the name that was not found.
pub fn host(text: &str, default_port: Option<u16>) -> Result<SocketAddr, AddressError> {
    let wrong = || AddressError::Socket(text.to_owned());
    if let Some(rest) = text.strip_prefix('[') {
        return match (rest.strip_suffix(']'), default_port) {
            (Some(inner), Some(port)) => ip(inner).map(|found| with_port(found, port)),
            _ => socket(text),
        };
    }
    let is_v6 = text
        .split('%')
        .next()
        .is_some_and(|address| address.parse::<Ipv6Addr>().is_ok());
    let (name, port) = match (is_v6, text.rsplit_once(':')) {
        (true, _) => {
            let port = default_port.ok_or_else(wrong)?;
            return ip(text).map(|found| with_port(found, port));
        }
        (false, Some((name, port))) => (name, port.parse().map_err(|_| wrong())?),
        (false, None) => (text, default_port.ok_or_else(wrong)?),
    };
    if name.is_empty() {
        return Err(wrong());
    }
    let unresolved = |error: String| AddressError::Unresolved {
        name: name.to_owned(),
        error,
    };
    let mut found = (name, port)
        .to_socket_addrs()
        .map_err(|error| unresolved(error.to_string()))?;
    found
        .next()
        .ok_or_else(|| unresolved("the name has no address".to_owned()))
}

/// The same address with a port.
pub fn with_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

/// An address with the name of its zone, which means the same after a restart of the machine; indices of
/// interfaces may change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Zoned(pub SocketAddr);

impl fmt::Display for Zoned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            SocketAddr::V6(address) if address.scope_id() != 0 => match name(address.scope_id()) {
                Some(zone) => write!(f, "[{}%{zone}]:{}", address.ip(), address.port()),
                None => write!(f, "{address}"),
            },
            address => write!(f, "{address}"),
        }
    }
}

/// The index of the interface of an address; 0 without one.
pub fn scope(address: &SocketAddr) -> u32 {
    match address {
        SocketAddr::V6(v6) => SocketAddrV6::scope_id(v6),
        SocketAddr::V4(_) => 0,
    }
}

/// Whether an address has a meaning only on one link: unicast and multicast.
fn is_scoped(address: Ipv6Addr) -> bool {
    address.is_unicast_link_local() || address.is_multicast()
}

/// The interfaces with an IPv6 address: index and name.
fn interfaces() -> Vec<(u32, String)> {
    let text = std::fs::read_to_string(INTERFACES).unwrap_or_default();
    let of = |line: &str| {
        let mut parts = line.split_whitespace().skip(1);
        let index = u32::from_str_radix(parts.next()?, 16).ok()?;
        Some((index, parts.last()?.to_owned()))
    };
    text.lines().filter_map(of).collect()
}

fn name(index: u32) -> Option<String> {
    interfaces()
        .into_iter()
        .find_map(|(found, name)| (found == index).then_some(name))
}

/// Whether a zone that was typed as an index is that of an interface: the resolver takes any number. A zone
/// that was typed as a name was found by the kernel.
fn exists(index: u32, zone: &str) -> bool {
    !zone.bytes().all(|byte| byte.is_ascii_digit()) || name(index).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An interface of this machine with an IPv6 address.
    fn interface() -> (u32, String) {
        interfaces()
            .into_iter()
            .next()
            .expect("the loopback interface has ::1")
    }

    #[test]
    fn zones_are_names_or_indices_of_interfaces() {
        let (index, name) = interface();
        let expected = SocketAddr::from(SocketAddrV6::new(
            "fe80::1".parse().unwrap(),
            4420,
            0,
            index,
        ));
        for zone in [name.clone(), index.to_string()] {
            let bare = format!("fe80::1%{zone}");
            let full = format!("[{bare}]:4420");
            assert_eq!(socket(&full), Ok(expected));
            assert_eq!(host(&full, None), Ok(expected));
            assert_eq!(host(&full, Some(1)), Ok(expected));
            assert_eq!(host(&format!("[{bare}]"), Some(4420)), Ok(expected));
            assert_eq!(host(&bare, Some(4420)), Ok(expected));
            assert_eq!(ip(&bare), Ok(with_port(expected, 0)));
        }
        assert_eq!(
            Zoned(expected).to_string(),
            format!("[fe80::1%{name}]:4420")
        );
        assert_eq!(socket(&Zoned(expected).to_string()), Ok(expected));
        assert_eq!(scope(&expected), index);
    }

    #[test]
    fn addresses_without_zones_are_parsed_as_before() {
        for text in [
            "192.0.2.1:4420",
            "[2001:db8::1]:4420",
            "[::]:0",
            "[fe80::1]:9",
        ] {
            let expected: SocketAddr = text.parse().unwrap();
            assert_eq!(socket(text), Ok(expected));
            assert_eq!(host(text, None), Ok(expected));
            assert_eq!(Zoned(expected).to_string(), text);
        }
        assert_eq!(host("localhost:80", None).map(|it| it.port()), Ok(80));
        assert_eq!(host("localhost", Some(445)).map(|it| it.port()), Ok(445));
    }

    #[test]
    fn errors_name_what_is_wrong() {
        let zone = |text: &str| AddressError::Zone(text.to_owned());
        assert_eq!(socket("[fe80::1%nosuch0]:1"), Err(zone("nosuch0")));
        assert_eq!(socket("[fe80::1%999999]:1"), Err(zone("999999")));
        assert_eq!(ip("fe80::1%"), Err(zone("")));
        assert_eq!(
            ip("2001:db8::1%lo"),
            Err(AddressError::NotScoped("2001:db8::1".parse().unwrap()))
        );
        for text in [
            "",
            "4420",
            "fe80::1%lo:4420",
            "[fe80::1%lo]",
            "[fe80::1%lo]4420",
            "[192.0.2.1]:1",
        ] {
            assert_eq!(socket(text), Err(AddressError::Socket(text.to_owned())));
        }
        assert_eq!(
            socket("[::1]:65536"),
            Err(AddressError::Socket("[::1]:65536".to_owned()))
        );
        for text in ["", "disk", "192.0.2.1%lo", "[::1]"] {
            assert_eq!(ip(text), Err(AddressError::Ip(text.to_owned())));
        }
        for text in [
            "name",
            "name:port",
            ":1",
            "name:65536",
            "2001:db8::1",
            "fe80::1%lo",
        ] {
            assert_eq!(
                host(text, None),
                Err(AddressError::Socket(text.to_owned())),
                "{text}"
            );
        }
    }
}
