//! Messages between a client and the agent after the lease: requests about ports and their answers, and
//! datagrams for queue pair 1. Each is one message of a SEQPACKET socket, in the machine's byte order.

use link::udp::Datagrams;
use rnic::cm::ListenAddress;
use rnic::{DomainName, Gid};
use std::io;
use std::net::IpAddr;
use wire::cm::PortSpace;

/// The kind of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ask {
    /// Requests that the agent pass on datagrams for queue pair 1 from now on.
    Attend,
    /// Binds `count` consecutive ports; port 0 requests any that are free.
    Bind,
    /// Releases a range of bound ports.
    Unbind,
    /// Starts to take connection requests for a bound port.
    Listen,
    /// Stops taking connection requests. As long as no other client listens, requests are still passed on:
    /// one that was answered before may be repeated.
    Unlisten,
    /// Lists listeners. `count` is the number of those known already; the answer is a request with the next
    /// one, or `ENOENT` after the last.
    List,
}

/// A request of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    pub(crate) ask: Ask,
    pub(crate) space: PortSpace,
    pub(crate) port: u16,
    pub(crate) count: u16,
    pub(crate) address: ListenAddress,
    /// Whether the port may be shared with clients that set this too (`RDMA_OPTION_ID_REUSEADDR`).
    pub(crate) shared: bool,
}

pub(crate) const REQUEST_BYTES: usize = 28;

impl Request {
    pub(crate) fn to_bytes(self) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        bytes[0] = self.ask as u8;
        bytes[1] = u8::from(self.shared);
        bytes[2..4].copy_from_slice(&self.space.value().to_ne_bytes());
        bytes[4..6].copy_from_slice(&self.port.to_ne_bytes());
        bytes[6..8].copy_from_slice(&self.count.to_ne_bytes());
        let (kind, address) = match self.address {
            ListenAddress::Any => (0, Gid::default()),
            ListenAddress::AnyV4 => (1, Gid::default()),
            ListenAddress::AnyV6 => (2, Gid::default()),
            ListenAddress::One(address) => (3, gid_of(address)),
        };
        bytes[8] = kind;
        bytes[12..].copy_from_slice(&address.0);
        bytes
    }

    /// `None` for a message that no client of this version sends.
    pub(crate) fn parse(bytes: &[u8; REQUEST_BYTES]) -> Option<Self> {
        let asks = [
            Ask::Attend,
            Ask::Bind,
            Ask::Unbind,
            Ask::Listen,
            Ask::Unlisten,
            Ask::List,
        ];
        let short = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        let mut address = [0; 16];
        address.copy_from_slice(&bytes[12..]);
        Some(Self {
            ask: *asks.get(usize::from(bytes[0]))?,
            shared: bytes[1] != 0,
            space: PortSpace::of(short(2))?,
            port: short(4),
            count: short(6),
            address: match bytes[8] {
                0 => ListenAddress::Any,
                1 => ListenAddress::AnyV4,
                2 => ListenAddress::AnyV6,
                _ => ListenAddress::One(ip_of(Gid(address))),
            },
        })
    }
}

/// A request about an XRC domain. It is as long as a [`Request`], and has another first byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DomainRequest {
    /// Opens a domain: `make` permits its creation, `anew` requires it.
    Open {
        name: DomainName,
        make: bool,
        anew: bool,
    },
    /// Closes a domain.
    Close(DomainName),
}

impl DomainRequest {
    const OPEN: u8 = 0x80;
    const CLOSE: u8 = 0x81;

    pub(crate) fn to_bytes(self) -> [u8; REQUEST_BYTES] {
        let (kind, name, flags) = match self {
            Self::Open { name, make, anew } => {
                (Self::OPEN, name, u8::from(make) | u8::from(anew) << 1)
            }
            Self::Close(name) => (Self::CLOSE, name, 0),
        };
        let mut bytes = [0; REQUEST_BYTES];
        (bytes[0], bytes[1]) = (kind, flags);
        bytes[4..8].copy_from_slice(&name.interface.to_ne_bytes());
        bytes[8..16].copy_from_slice(&name.file.0.to_ne_bytes());
        bytes[16..24].copy_from_slice(&name.file.1.to_ne_bytes());
        bytes
    }

    /// Parses a request; `None` for one that is not about a domain.
    pub(crate) fn parse(bytes: &[u8; REQUEST_BYTES]) -> Option<Self> {
        let long = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let interface = u32::from_ne_bytes(std::array::from_fn(|byte| bytes[4 + byte]));
        let name = DomainName {
            file: (long(8), long(16)),
            interface,
        };
        match bytes[0] {
            Self::OPEN => Some(Self::Open {
                name,
                make: bytes[1] & 1 != 0,
                anew: bytes[1] & 2 != 0,
            }),
            Self::CLOSE => Some(Self::Close(name)),
            _ => None,
        }
    }
}

/// Answer of the agent: the first port, or an error number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Answer(pub(crate) Result<u16, i32>);

pub(crate) const ANSWER_BYTES: usize = 8;

impl Answer {
    pub(crate) fn to_bytes(self) -> [u8; ANSWER_BYTES] {
        let mut bytes = [0; ANSWER_BYTES];
        bytes[..4].copy_from_slice(&self.0.err().unwrap_or(0).to_ne_bytes());
        bytes[4..6].copy_from_slice(&self.0.unwrap_or(0).to_ne_bytes());
        bytes
    }

    pub(crate) fn parse(bytes: [u8; ANSWER_BYTES]) -> io::Result<u16> {
        match i32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) {
            0 => Ok(u16::from_ne_bytes([bytes[4], bytes[5]])),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

/// Bytes before the datagram.
pub(crate) const ENVELOPE_BYTES: usize = 40;
/// A datagram to queue pair 1: BTH, DETH, the MAD, ICRC.
pub(crate) const DATAGRAM_BYTES: usize = 12 + 8 + wire::mad::MAD_SIZE + 4;
/// The longest message. No answer is as long as a datagram with its envelope, so the length distinguishes
/// them.
pub(crate) const MESSAGE_BYTES_MAX: usize = ENVELOPE_BYTES + DATAGRAM_BYTES;

/// Puts a received datagram and its origin into one message; `None` when it is longer than any that queue
/// pair 1 accepts.
pub(crate) fn wrap<'a>(
    from: &Datagrams,
    datagram: &[u8],
    message: &'a mut [u8; MESSAGE_BYTES_MAX],
) -> Option<&'a [u8]> {
    let length = ENVELOPE_BYTES + datagram.len();
    message
        .get_mut(ENVELOPE_BYTES..length)?
        .copy_from_slice(datagram);
    message[..16].copy_from_slice(&from.source.octets());
    message[16..32].copy_from_slice(&from.destination.octets());
    message[32..34].copy_from_slice(&from.source_port.to_ne_bytes());
    message[34] = from.traffic_class;
    message[35] = from.hop_limit;
    message[36..40].copy_from_slice(&from.interface.to_ne_bytes());
    message.get(..length)
}

/// Splits such a message into the datagram and its origin.
pub(crate) fn unwrap(message: &[u8]) -> Option<(Datagrams, &[u8])> {
    let (envelope, datagram) = message.split_first_chunk::<ENVELOPE_BYTES>()?;
    let address = |at: usize| {
        let mut octets = [0; 16];
        octets.copy_from_slice(&envelope[at..at + 16]);
        octets.into()
    };
    let from = Datagrams {
        length: datagram.len(),
        segment: datagram.len(),
        source: address(0),
        source_port: u16::from_ne_bytes([envelope[32], envelope[33]]),
        destination: address(16),
        traffic_class: envelope[34],
        hop_limit: envelope[35],
        interface: u32::from_ne_bytes([envelope[36], envelope[37], envelope[38], envelope[39]]),
    };
    Some((from, datagram))
}

/// The GID of an address.
pub(crate) fn gid_of(address: IpAddr) -> Gid {
    match address {
        IpAddr::V4(address) => Gid::from_ipv4(address.octets()),
        IpAddr::V6(address) => Gid(address.octets()),
    }
}

/// The IP address of a GID.
pub(crate) fn ip_of(gid: Gid) -> IpAddr {
    match gid.ipv4() {
        Some(address) => IpAddr::V4(address.into()),
        None => IpAddr::V6(gid.0.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_come_back_as_they_were_sent() {
        let one = ListenAddress::One("10.0.0.1".parse().unwrap());
        for (ask, address) in [
            (Ask::Attend, ListenAddress::Any),
            (Ask::Unlisten, ListenAddress::AnyV6),
            (Ask::Bind, one),
        ] {
            let request = Request {
                ask,
                space: PortSpace::Udp,
                port: 7,
                count: 9,
                address,
                shared: true,
            };
            assert_eq!(Request::parse(&request.to_bytes()), Some(request));
        }
        assert_eq!(Request::parse(&[9; REQUEST_BYTES]), None);
    }

    #[test]
    fn what_is_said_of_domains_comes_back_and_is_nothing_else() {
        let name = DomainName {
            file: (u64::MAX, 7),
            interface: 2,
        };
        for request in [
            DomainRequest::Open {
                name,
                make: true,
                anew: false,
            },
            DomainRequest::Close(name),
        ] {
            assert_eq!(DomainRequest::parse(&request.to_bytes()), Some(request));
            assert_eq!(Request::parse(&request.to_bytes()), None);
        }
        let any = ListenAddress::Any;
        let other = Request {
            ask: Ask::List,
            space: PortSpace::Tcp,
            port: 0,
            count: 0,
            address: any,
            shared: false,
        };
        assert_eq!(DomainRequest::parse(&other.to_bytes()), None);
    }

    #[test]
    fn answers_come_back_as_they_were_sent() {
        assert_eq!(Answer::parse(Answer(Ok(7471)).to_bytes()).unwrap(), 7471);
        let refused = Answer::parse(Answer(Err(libc::EADDRINUSE)).to_bytes()).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EADDRINUSE));
    }

    #[test]
    fn datagrams_come_back_as_they_were_sent() {
        let from = Datagrams {
            length: 5,
            segment: 5,
            source: "::ffff:10.0.0.1".parse().unwrap(),
            source_port: 0xc000,
            destination: "fe80::1".parse().unwrap(),
            traffic_class: 8,
            hop_limit: 63,
            interface: 2,
        };
        let mut message = [0; MESSAGE_BYTES_MAX];
        assert_eq!(
            unwrap(wrap(&from, b"hello", &mut message).unwrap()),
            Some((from, &b"hello"[..]))
        );
        assert_eq!(wrap(&from, &[0; DATAGRAM_BYTES + 1], &mut message), None);
        assert_eq!(unwrap(&[0; 8]), None);
    }
}
