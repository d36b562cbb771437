//! A question of a program on an InfiniBand host to its lab: the path to an IP address or to a GID.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// What the path is asked to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathTarget {
    /// The interface with an IP address.
    Ip(IpAddr),
    /// The port with a GID.
    Gid([u8; 16]),
}

/// A question for a path, as the lab gets it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathRequest {
    /// What the path is asked to.
    pub target: PathTarget,
    /// How long an answer may take, in whole milliseconds.
    pub timeout: Duration,
}

const IPV4: u8 = 4;
const IPV6: u8 = 6;
const GID: u8 = 0;
/// The longest time that is waited for.
const TIMEOUT_MAX: Duration = Duration::from_secs(3600);

impl PathRequest {
    /// Encodes the request.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let milliseconds = self.timeout.min(TIMEOUT_MAX).as_millis() as u32;
        let mut bytes = milliseconds.to_le_bytes().to_vec();
        match self.target {
            PathTarget::Ip(IpAddr::V4(address)) => {
                bytes.push(IPV4);
                bytes.extend(address.octets());
            }
            PathTarget::Ip(IpAddr::V6(address)) => {
                bytes.push(IPV6);
                bytes.extend(address.octets());
            }
            PathTarget::Gid(gid) => {
                bytes.push(GID);
                bytes.extend(gid);
            }
        }
        bytes
    }

    /// Decodes a request; `None` for what is none.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let (milliseconds, rest) = bytes.split_first_chunk()?;
        let milliseconds = u32::from_le_bytes(*milliseconds);
        let (kind, address) = rest.split_first()?;
        let target = match *kind {
            IPV4 => PathTarget::Ip(IpAddr::V4(Ipv4Addr::from(
                <[u8; 4]>::try_from(address).ok()?,
            ))),
            IPV6 => PathTarget::Ip(IpAddr::V6(Ipv6Addr::from(
                <[u8; 16]>::try_from(address).ok()?,
            ))),
            GID => PathTarget::Gid(address.try_into().ok()?),
            _ => return None,
        };
        let timeout = Duration::from_millis(u64::from(milliseconds));
        (timeout <= TIMEOUT_MAX).then_some(Self { target, timeout })
    }
}

/// The path to a port. Codes are those of a PathRecord (IBTA 15.2.5.16).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ResolvedPath {
    /// The GID of the port.
    pub gid: [u8; 16],
    /// The own GID.
    pub source_gid: [u8; 16],
    /// The LID to which packets are sent.
    pub lid: u16,
    /// The LID from which packets are sent.
    pub source_lid: u16,
    /// The key of the partition.
    pub p_key: u16,
    /// The flow label of a global route header.
    pub flow_label: u32,
    /// The hop limit; more than 1 where packets need a global route header.
    pub hop_limit: u8,
    /// The traffic class of a global route header.
    pub traffic_class: u8,
    /// The service level.
    pub service_level: u8,
    /// The code of the largest payload.
    pub mtu: u8,
    /// The code of the rate.
    pub rate: u8,
    /// How long a packet may be on its way, as a power of two of 4.096 us.
    pub life_time: u8,
}

impl ResolvedPath {
    const BYTES: usize = 2 * 16 + 3 * 2 + 4 + 6;

    /// Encodes the path.
    pub fn to_bytes(self) -> Vec<u8> {
        let mut bytes = [self.gid, self.source_gid].concat();
        let words = [self.lid, self.source_lid, self.p_key];
        bytes.extend(words.into_iter().flat_map(u16::to_le_bytes));
        bytes.extend(self.flow_label.to_le_bytes());
        bytes.extend([
            self.hop_limit,
            self.traffic_class,
            self.service_level,
            self.mtu,
            self.rate,
            self.life_time,
        ]);
        bytes
    }

    /// Decodes a path; `None` for what is none.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let gid = |at: usize| std::array::from_fn(|byte| bytes[at + byte]);
        let word = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        Some(Self {
            gid: gid(0),
            source_gid: gid(16),
            lid: word(32),
            source_lid: word(34),
            p_key: word(36),
            flow_label: u32::from_le_bytes(std::array::from_fn(|byte| bytes[38 + byte])),
            hop_limit: bytes[42],
            traffic_class: bytes[43],
            service_level: bytes[44],
            mtu: bytes[45],
            rate: bytes[46],
            life_time: bytes[47],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_paths_are_read_as_they_were_written() {
        let timeout = Duration::from_millis(2_500);
        for target in [
            PathTarget::Ip(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2))),
            PathTarget::Ip(IpAddr::V6(Ipv6Addr::LOCALHOST)),
            PathTarget::Gid([7; 16]),
        ] {
            let request = PathRequest { target, timeout };
            let bytes = request.to_bytes();
            assert_eq!(PathRequest::parse(&bytes), Some(request));
            assert_eq!(PathRequest::parse(&bytes[..bytes.len() - 1]), None);
        }
        let path = ResolvedPath {
            gid: [1; 16],
            source_gid: [2; 16],
            lid: 0x1234,
            source_lid: 5,
            p_key: 0xffff,
            flow_label: 0xabcde,
            hop_limit: 6,
            traffic_class: 7,
            service_level: 8,
            mtu: 9,
            rate: 10,
            life_time: 11,
        };
        assert_eq!(ResolvedPath::parse(&path.to_bytes()), Some(path));
        assert_eq!(ResolvedPath::parse(&[0; 4]), None);
    }
}
