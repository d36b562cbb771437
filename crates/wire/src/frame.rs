//! A whole frame around a UDP datagram: Ethernet, IP and UDP at once, for captures, raw links and the lab.

use thiserror::Error;

use crate::ethernet::{ETHERNET_SIZE_MAX, EtherType, Ethernet};
use crate::icrc::{ICRC_SIZE, Icrc};
use crate::ip::{Ip, PROTOCOL_UDP};
use crate::ipv4::{IPV4_SIZE, Ipv4};
use crate::ipv6::{IPV6_SIZE, Ipv6};
use crate::udp::{UDP_SIZE, Udp};

/// The longest headers in bytes: tagged Ethernet, IPv6 and UDP.
pub const FRAME_HEADERS_MAX: usize = ETHERNET_SIZE_MAX + IPV6_SIZE + UDP_SIZE;

/// Why bytes are not a frame that rockery understands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum FrameError {
    /// The frame ends within its Ethernet header.
    #[error("frame of {length} bytes ends within its Ethernet header")]
    Ethernet {
        /// Bytes there were.
        length: usize,
    },
    /// Neither IPv4 nor IPv6.
    #[error("{ethertype:?} is not IP")]
    EtherType {
        /// What it is.
        ethertype: EtherType,
    },
    /// The packet ends within its IP header.
    #[error("packet of {length} bytes ends within its IP header")]
    Ip {
        /// Bytes there were.
        length: usize,
    },
    /// Another version than expected, or IPv4 options.
    #[error("IP: first byte {first:#04x}: expected IPv4 without options (0x45) or IPv6 (0x6.)")]
    IpVersion {
        /// Version and, in IPv4, header length in words.
        first: u8,
    },
    /// The length field does not fit.
    #[error("IP: length field says {length}, {available} bytes are there")]
    IpLength {
        /// The header's length field, in bytes.
        length: u16,
        /// Bytes there were.
        available: usize,
    },
    /// The header checksum is wrong.
    #[error("IPv4: header checksum {carried:#06x} is wrong")]
    Ipv4Checksum {
        /// The checksum that came.
        carried: u16,
    },
    /// A part of a packet.
    #[error("IPv4: flags and fragment offset {flags:#06x}: fragments are not supported")]
    Ipv4Fragment {
        /// Flags and fragment offset.
        flags: u16,
    },
    /// The protocol is not UDP.
    #[error("IP: protocol {protocol} is not UDP (17)")]
    Protocol {
        /// What it is.
        protocol: u8,
    },
    /// The datagram ends within its UDP header.
    #[error("datagram of {length} bytes ends within its UDP header")]
    Udp {
        /// Bytes there were.
        length: usize,
    },
    /// The length field does not fit.
    #[error("UDP: length field says {length}, {available} bytes are there")]
    UdpLength {
        /// The header's length field, in bytes.
        length: u16,
        /// Bytes there were.
        available: usize,
    },
    /// A MAC control frame that is neither pause nor priority flow control.
    #[error("MAC control: opcode {opcode:#06x} is neither pause (0x0001) nor PFC (0x0101)")]
    MacControl {
        /// The MAC control opcode (IEEE 802.3 annex 31A).
        opcode: u16,
    },
}

/// The headers of a frame that carries a UDP datagram.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FrameHeaders {
    /// Ethernet. On encoding its EtherType is what `ip` is.
    pub ethernet: Ethernet,
    /// The IPv4 or IPv6 header.
    pub ip: Ip,
    /// The UDP header.
    pub udp: Udp,
}

impl FrameHeaders {
    /// The headers of `frame`, and the payload of its UDP datagram.
    ///
    /// # Errors
    /// [`FrameError`] names the field that is wrong.
    pub fn parse(frame: &[u8]) -> Result<(Self, &[u8]), FrameError> {
        let (ethernet, packet) = Ethernet::parse(frame)?;
        let (ip, datagram) = match ethernet.ethertype {
            EtherType::IPV4 => Ipv4::parse(packet).map(|(header, rest)| (Ip::V4(header), rest))?,
            EtherType::IPV6 => Ipv6::parse(packet).map(|(header, rest)| (Ip::V6(header), rest))?,
            ethertype => return Err(FrameError::EtherType { ethertype }),
        };
        if ip.protocol() != PROTOCOL_UDP {
            return Err(FrameError::Protocol { protocol: ip.protocol() });
        }
        let (udp, payload) = Udp::parse(datagram)?;
        Ok((Self { ethernet, ip, udp }, payload))
    }

    /// Writes the headers to the start of `out` and returns their length.
    pub fn encode(&self, out: &mut [u8; FRAME_HEADERS_MAX]) -> usize {
        let mut length = 0;
        let mut put = |bytes: &[u8]| {
            // Fits: the array has room for the longest of each header.
            if let Some(place) = out.get_mut(length..length + bytes.len()) {
                place.copy_from_slice(bytes);
            }
            length += bytes.len();
        };
        let mut ethernet = [0; ETHERNET_SIZE_MAX];
        let tagged = Ethernet { ethertype: ethertype_of(&self.ip), ..self.ethernet };
        let ethernet_length = tagged.encode(&mut ethernet);
        put(&ethernet[..ethernet_length]);
        let mut ip = [0; IPV6_SIZE];
        let ip_length = self.ip.encode(&mut ip);
        put(&ip[..ip_length]);
        put(&self.udp.to_bytes());
        length
    }

    /// Sets the length fields for a RoCEv2 packet of `transport_length` bytes from BTH to padding, ICRC
    /// excluded, at most 65,000.
    pub const fn set_transport_length(&mut self, transport_length: u16) {
        let udp_length = transport_length.wrapping_add((UDP_SIZE + ICRC_SIZE) as u16);
        self.udp.length = udp_length;
        match &mut self.ip {
            Ip::V4(header) => header.total_length = udp_length.wrapping_add(IPV4_SIZE as u16),
            Ip::V6(header) => header.payload_length = udp_length,
        }
    }

    /// The ICRC over these headers, to be continued from the BTH on.
    pub fn icrc(&self) -> Icrc {
        match &self.ip {
            Ip::V4(header) => Icrc::over_ipv4(header.to_bytes(), self.udp.to_bytes()),
            Ip::V6(header) => Icrc::over_ipv6(header.to_bytes(), self.udp.to_bytes()),
        }
    }
}

const fn ethertype_of(ip: &Ip) -> EtherType {
    match ip {
        Ip::V4(_) => EtherType::IPV4,
        Ip::V6(_) => EtherType::IPV6,
    }
}
