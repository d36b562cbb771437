//! A whole frame around a UDP datagram: Ethernet, IP and UDP at once, for captures, raw links and the lab.

use crate::ethernet::{ETHERNET_SIZE_MAX, Ethernet};
use crate::ethertype::EtherType;
use crate::frame_error::FrameError;
use crate::icrc::{ICRC_SIZE, Icrc};
use crate::ip::Ip;
use crate::ipv4::{IPV4_SIZE, Ipv4};
use crate::ipv6::{IPV6_SIZE, Ipv6};
use crate::udp::{PROTOCOL_UDP, UDP_SIZE, Udp};

/// The longest headers in bytes: tagged Ethernet, IPv6 and UDP.
pub const FRAME_HEADERS_MAX: usize = ETHERNET_SIZE_MAX + IPV6_SIZE + UDP_SIZE;

/// The headers of a frame that carries a UDP datagram.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FrameHeaders {
    /// Ethernet. On encoding its EtherType is that of `ip`.
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
            return Err(FrameError::Protocol {
                protocol: ip.protocol(),
            });
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
        let tagged = Ethernet {
            ethertype: ethertype_of(&self.ip),
            ..self.ethernet
        };
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
