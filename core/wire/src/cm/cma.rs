//! The addresses that RDMA-CM puts before a program's private data in a REQ or SIDR_REQ, because service IDs
//! have room for a port only (IBTA A11.6).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use thiserror::Error;

/// Size of a [`CmaHeader`] in bytes.
pub const CMA_HEADER_SIZE: usize = 36;

/// IP addresses and port of both ends of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CmaHeader {
    /// The port that the active side is bound to. The destination's is in the service ID.
    pub source_port: u16,
    /// Both addresses, of one family.
    pub addresses: CmaAddresses,
}

/// Source and destination.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CmaAddresses {
    /// Two IPv4 addresses.
    V4 {
        /// The address of the active side.
        source: Ipv4Addr,
        /// The address of the passive side.
        destination: Ipv4Addr,
    },
    /// Two IPv6 addresses.
    V6 {
        /// The address of the active side.
        source: Ipv6Addr,
        /// The address of the passive side.
        destination: Ipv6Addr,
    },
}

/// The reason why private data does not begin with a [`CmaHeader`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum CmaError {
    /// Another version than 0.
    #[error("RDMA-CM header: version {version}, only 0 is defined")]
    Version {
        /// The version byte of the header.
        version: u8,
    },
    /// Neither 4 nor 6.
    #[error("RDMA-CM header: IP version {version}, only 4 and 6 are")]
    IpVersion {
        /// The four bits.
        version: u8,
    },
}

impl CmaHeader {
    /// The header for two addresses; `None` when they are of different families.
    pub const fn new(source: IpAddr, source_port: u16, destination: IpAddr) -> Option<Self> {
        let addresses = match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => CmaAddresses::V4 {
                source,
                destination,
            },
            (IpAddr::V6(source), IpAddr::V6(destination)) => CmaAddresses::V6 {
                source,
                destination,
            },
            _ => return None,
        };
        Some(Self {
            source_port,
            addresses,
        })
    }

    /// The address of the active side.
    pub const fn source(&self) -> IpAddr {
        match self.addresses {
            CmaAddresses::V4 { source, .. } => IpAddr::V4(source),
            CmaAddresses::V6 { source, .. } => IpAddr::V6(source),
        }
    }

    /// The address of the passive side.
    pub const fn destination(&self) -> IpAddr {
        match self.addresses {
            CmaAddresses::V4 { destination, .. } => IpAddr::V4(destination),
            CmaAddresses::V6 { destination, .. } => IpAddr::V6(destination),
        }
    }

    /// Parses the header at the start of private data: version 0, IP version in the upper half of byte 1,
    /// port 2, source 4..20, destination 20..36, with IPv4 addresses in the last four bytes of their room.
    ///
    /// # Errors
    /// [`CmaError`] names the version that is not supported.
    pub fn parse(b: &[u8; CMA_HEADER_SIZE]) -> Result<Self, CmaError> {
        if b[0] != 0 {
            return Err(CmaError::Version { version: b[0] });
        }
        let long = |at: usize| core::array::from_fn::<u8, 16, _>(|index| b[at + index]);
        let short = |at: usize| core::array::from_fn::<u8, 4, _>(|index| b[at + 12 + index]);
        let addresses = match b[1] >> 4 {
            4 => CmaAddresses::V4 {
                source: short(4).into(),
                destination: short(20).into(),
            },
            6 => CmaAddresses::V6 {
                source: long(4).into(),
                destination: long(20).into(),
            },
            version => return Err(CmaError::IpVersion { version }),
        };
        Ok(Self {
            source_port: u16::from_be_bytes([b[2], b[3]]),
            addresses,
        })
    }

    /// The header's bytes.
    pub fn to_bytes(&self) -> [u8; CMA_HEADER_SIZE] {
        let mut bytes = [0; CMA_HEADER_SIZE];
        bytes[2..4].copy_from_slice(&self.source_port.to_be_bytes());
        match self.addresses {
            CmaAddresses::V4 {
                source,
                destination,
            } => {
                bytes[1] = 4 << 4;
                bytes[16..20].copy_from_slice(&source.octets());
                bytes[32..].copy_from_slice(&destination.octets());
            }
            CmaAddresses::V6 {
                source,
                destination,
            } => {
                bytes[1] = 6 << 4;
                bytes[4..20].copy_from_slice(&source.octets());
                bytes[20..].copy_from_slice(&destination.octets());
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_survive() {
        let v4 = CmaHeader::new([10, 77, 0, 12].into(), 0xde5d, [10, 77, 0, 11].into()).unwrap();
        let bytes = v4.to_bytes();
        assert_eq!(bytes[..4], [0, 0x40, 0xde, 0x5d]);
        assert_eq!(
            (&bytes[16..20], &bytes[32..]),
            (&[10, 77, 0, 12][..], &[10, 77, 0, 11][..])
        );
        assert_eq!(CmaHeader::parse(&bytes), Ok(v4));
        let v6 =
            CmaHeader::new(Ipv6Addr::LOCALHOST.into(), 1, Ipv6Addr::UNSPECIFIED.into()).unwrap();
        assert_eq!(v6.to_bytes()[19], 1);
        assert_eq!(CmaHeader::parse(&v6.to_bytes()), Ok(v6));
        assert_eq!(CmaHeader::new(v4.source(), 1, v6.source()), None);
    }

    #[test]
    fn unknown_versions_are_refused() {
        let mut bytes = [0; CMA_HEADER_SIZE];
        assert_eq!(
            CmaHeader::parse(&bytes),
            Err(CmaError::IpVersion { version: 0 })
        );
        bytes[0] = 1;
        assert_eq!(
            CmaHeader::parse(&bytes),
            Err(CmaError::Version { version: 1 })
        );
    }
}
