//! Why bytes are not a frame: errors of Ethernet, IP and UDP headers.

use thiserror::Error;

use crate::ethertype::EtherType;

/// The reason why bytes are not a frame that rockery supports.
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
        /// The frame's EtherType.
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
        /// The packet's IP protocol number.
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
