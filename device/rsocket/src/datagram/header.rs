//! Headers of datagrams, in rdma-core's layout (`docs/rsocket` in its sources), so that both interoperate.
//!
//! Between UD queue pairs the header has the sender's address. Between UDP sockets, which are used until the
//! queue pair numbers are known, it has the sender's queue pair number.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Longest header between queue pairs.
pub(super) const SOURCE_BYTES_MAX: usize = SOURCE_V6_BYTES;
/// Longest header between UDP sockets.
pub(super) const SERVICE_BYTES_MAX: usize = SERVICE_V6_BYTES;

const SOURCE_V4_BYTES: usize = 8;
const SOURCE_V6_BYTES: usize = 24;
const SERVICE_V4_BYTES: usize = 16;
const SERVICE_V6_BYTES: usize = 28;
const TAG: u32 = 0x5555_5555;
const OP_DATA: u8 = 0;
const OP_CONTROL: u8 = 7;
/// Offset of the source address in the 40 bytes before a received UD payload, for IPv4 and IPv6.
const GRH_V4_SOURCE: core::ops::Range<usize> = 32..36;
const GRH_V6_SOURCE: core::ops::Range<usize> = 8..24;

/// A header, on the stack.
#[derive(Clone, Copy)]
pub(super) struct Header {
    bytes: [u8; SERVICE_BYTES_MAX],
    length: usize,
}

impl Header {
    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// The header with the sender's address, for queue pairs.
pub(super) fn of_source(source: SocketAddr) -> Header {
    let mut bytes = [0; SERVICE_BYTES_MAX];
    bytes[2..4].copy_from_slice(&source.port().to_be_bytes());
    let length = match source {
        SocketAddr::V4(v4) => {
            bytes[4..8].copy_from_slice(&v4.ip().octets());
            SOURCE_V4_BYTES
        }
        SocketAddr::V6(v6) => {
            bytes[4..8].copy_from_slice(&v6.flowinfo().to_ne_bytes());
            bytes[8..24].copy_from_slice(&v6.ip().octets());
            SOURCE_V6_BYTES
        }
    };
    bytes[0] = version(source.ip());
    bytes[1] = length as u8;
    Header { bytes, length }
}

/// Reads the sender and the length of the header; `None` for an invalid header. The sender's address has to
/// equal the source of the packet, which is in the global route header `route`.
pub(super) fn source(bytes: &[u8], route: &[u8]) -> Option<(SocketAddr, usize)> {
    let [version, length, high, low, ..] = *bytes else {
        return None;
    };
    let port = u16::from_be_bytes([high, low]);
    match (version, usize::from(length)) {
        (4, SOURCE_V4_BYTES) => {
            let address: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
            let is_true = route.get(GRH_V4_SOURCE)? == address;
            is_true.then_some((SocketAddr::new(address.into(), port), SOURCE_V4_BYTES))
        }
        (6, SOURCE_V6_BYTES) => {
            let address: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            let flow: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
            let is_true = route.get(GRH_V6_SOURCE)? == address;
            let address =
                SocketAddrV6::new(Ipv6Addr::from(address), port, u32::from_ne_bytes(flow), 0);
            is_true.then_some((address.into(), SOURCE_V6_BYTES))
        }
        _ => None,
    }
}

/// Kinds of datagrams between UDP sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// Data; requests the receiver's queue pair number.
    Data,
    /// The answer, with the sender's queue pair number.
    Answer,
}

/// The header for UDP sockets. `local` is the address of the sender's queue pair.
pub(super) fn of_service(purpose: Purpose, local: IpAddr, qpn: u32) -> Header {
    let mut bytes = [0; SERVICE_BYTES_MAX];
    bytes[..4].copy_from_slice(&TAG.to_be_bytes());
    bytes[5] = if purpose == Purpose::Data {
        OP_DATA
    } else {
        OP_CONTROL
    };
    bytes[8..12].copy_from_slice(&(qpn & 0xff_ffff).to_be_bytes());
    let length = match local {
        IpAddr::V4(v4) => {
            bytes[12..16].copy_from_slice(&v4.octets());
            SERVICE_V4_BYTES
        }
        IpAddr::V6(v6) => {
            bytes[12..28].copy_from_slice(&v6.octets());
            SERVICE_V6_BYTES
        }
    };
    bytes[4] = version(local);
    bytes[6] = length as u8;
    Header { bytes, length }
}

/// A header of a datagram between UDP sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Service {
    pub(super) purpose: Purpose,
    pub(super) qpn: u32,
    /// Length of the header in bytes.
    pub(super) length: usize,
}

/// Reads a header; `None` for an invalid one. `from` has to be of the address family that the header names.
pub(super) fn service(bytes: &[u8], from: IpAddr) -> Option<Service> {
    let head: &[u8; SERVICE_V4_BYTES] = bytes.first_chunk()?;
    let [t0, t1, t2, t3, says, op, length, _, q0, q1, q2, q3, ..] = *head;
    let expected = if from.is_ipv4() {
        SERVICE_V4_BYTES
    } else {
        SERVICE_V6_BYTES
    };
    let length = usize::from(length);
    let is_ours = u32::from_be_bytes([t0, t1, t2, t3]) == TAG
        && says == version(from)
        && length == expected
        && bytes.len() >= length;
    let purpose = match op {
        OP_DATA => Purpose::Data,
        OP_CONTROL => Purpose::Answer,
        _ => return None,
    };
    let qpn = u32::from_be_bytes([q0, q1, q2, q3]) & 0xff_ffff;
    is_ours.then_some(Service {
        purpose,
        qpn,
        length,
    })
}

const fn version(address: IpAddr) -> u8 {
    if address.is_ipv4() { 4 } else { 6 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(address: IpAddr) -> [u8; 40] {
        let mut route = [0; 40];
        match address {
            IpAddr::V4(v4) => route[GRH_V4_SOURCE].copy_from_slice(&v4.octets()),
            IpAddr::V6(v6) => route[GRH_V6_SOURCE].copy_from_slice(&v6.octets()),
        }
        route
    }

    #[test]
    fn source_headers_have_the_layout_of_rdma_core() {
        let v4 = of_source("10.0.0.1:7174".parse().unwrap());
        assert_eq!(v4.as_slice(), [4, 8, 0x1c, 0x06, 10, 0, 0, 1]);
        let v6 = of_source("[fd88::2]:9".parse().unwrap());
        assert_eq!(v6.as_slice()[..4], [6, 24, 0, 9]);
        assert_eq!(
            (v6.as_slice()[8], v6.as_slice()[23], v6.as_slice().len()),
            (0xfd, 2, SOURCE_BYTES_MAX)
        );
        for text in ["10.0.0.1:7174", "[fd88::2]:9"] {
            let address: SocketAddr = text.parse().unwrap();
            let header = of_source(address);
            let read = source(header.as_slice(), &route(address.ip()));
            assert_eq!(read, Some((address, header.as_slice().len())));
        }
    }

    #[test]
    fn source_differing_from_the_packet_is_rejected() {
        let header = of_source("10.0.0.1:7174".parse().unwrap());
        assert_eq!(
            source(header.as_slice(), &route("10.0.0.2".parse().unwrap())),
            None
        );
        assert_eq!(
            source(&header.as_slice()[..7], &route("10.0.0.1".parse().unwrap())),
            None
        );
        assert_eq!(source(&[4, 24, 0, 0, 10, 0, 0, 1], &[0; 40]), None);
    }

    #[test]
    fn udp_headers_have_the_layout_of_rdma_core() {
        let from: IpAddr = "10.0.0.1".parse().unwrap();
        let header = of_service(Purpose::Answer, from, 0x123456);
        let wanted = [
            0x55, 0x55, 0x55, 0x55, 4, 7, 16, 0, 0, 0x12, 0x34, 0x56, 10, 0, 0, 1,
        ];
        assert_eq!(header.as_slice(), wanted);
        let expected = Service {
            purpose: Purpose::Answer,
            qpn: 0x123456,
            length: 16,
        };
        assert_eq!(service(header.as_slice(), from), Some(expected));
        let v6 = of_service(Purpose::Data, "fd88::1".parse().unwrap(), 7);
        assert_eq!(
            service(v6.as_slice(), "fd88::1".parse().unwrap()).map(|it| it.length),
            Some(28)
        );
    }

    #[test]
    fn invalid_udp_headers_are_rejected() {
        let from: IpAddr = "10.0.0.1".parse().unwrap();
        let good = of_service(Purpose::Data, from, 7).as_slice().to_vec();
        assert_eq!(service(&good, "fd88::1".parse().unwrap()), None);
        assert_eq!(service(&good[..15], from), None);
        for (at, value) in [(0, 0), (4, 6), (5, 4), (6, 28)] {
            let mut bad = good.clone();
            bad[at] = value;
            assert_eq!(service(&bad, from), None, "byte {at}");
        }
    }
}
