//! Socket addresses in the form that librdmacm has them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use abi::sockaddr_storage;

/// An IP address as C's bytes.
pub(crate) fn sockaddr(address: SocketAddr) -> [u8; 28] {
    let mut bytes = [0; 28];
    let family = if address.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    } as u16;
    bytes[..2].copy_from_slice(&family.to_ne_bytes());
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    match address {
        SocketAddr::V4(v4) => bytes[4..8].copy_from_slice(&v4.ip().octets()),
        SocketAddr::V6(v6) => {
            bytes[8..24].copy_from_slice(&v6.ip().octets());
            bytes[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
        }
    }
    bytes
}

/// The IP address in C's bytes; the unspecified address for another family.
pub(crate) fn ip_of(storage: &sockaddr_storage) -> IpAddr {
    let mut bytes = [0; 28];
    for (place, word) in bytes.chunks_mut(8).zip(storage) {
        place.copy_from_slice(&word.to_ne_bytes()[..place.len()]);
    }
    let [family0, family1, _, _, a, b, c, d, v6 @ ..] = bytes;
    match i32::from(u16::from_ne_bytes([family0, family1])) {
        libc::AF_INET => Ipv4Addr::new(a, b, c, d).into(),
        libc::AF_INET6 => v6
            .first_chunk::<16>()
            .map_or(Ipv6Addr::UNSPECIFIED, |it| (*it).into())
            .into(),
        _ => Ipv6Addr::UNSPECIFIED.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_addresses_round_trip() {
        assert_eq!(ip_of(&[0; 16]), IpAddr::from(Ipv6Addr::UNSPECIFIED));
        for address in ["192.0.2.7:4420", "[2001:db8::7]:4420", "[fe80::1]:1"] {
            let address: SocketAddr = address.parse().unwrap();
            let mut storage = [0; 16];
            for (word, bytes) in storage.iter_mut().zip(sockaddr(address).chunks(8)) {
                let mut whole = [0; 8];
                whole[..bytes.len()].copy_from_slice(bytes);
                *word = u64::from_ne_bytes(whole);
            }
            assert_eq!(ip_of(&storage), address.ip());
        }
    }
}
