//! What the kernel is told of datagrams that are sent, and tells of those that arrive.

use std::net::Ipv6Addr;

/// Source and destination of a send. IPv4 addresses are IPv4-mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// Source address, one of this host.
    pub source: Ipv6Addr,
    /// Destination address, unicast or multicast.
    pub destination: Ipv6Addr,
    /// Interface index: the scope of link-local addresses.
    pub interface: u32,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Hop limit (IPv4: TTL).
    pub hop_limit: u8,
}

impl Route {
    /// Whether the source is an IPv4 address.
    #[inline]
    pub(crate) fn is_v4(&self) -> bool {
        self.source.to_bits() >> 32 == MAPPED
    }

    /// Whether the destination is a multicast group.
    #[inline]
    pub fn is_to_group(&self) -> bool {
        let bits = self.destination.to_bits();
        if bits >> 32 == MAPPED {
            (bits as u32) >> 28 == 0b1110
        } else {
            bits >> 120 == 0xff
        }
    }
}

/// An address with its scope. IPv4 addresses are IPv4-mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScopedAddress {
    /// Unicast or multicast, of this host or of a group.
    pub ip: Ipv6Addr,
    /// Interface index: the scope of link-local addresses and multicast groups.
    pub scope: u32,
}

impl ScopedAddress {
    /// All addresses of the host.
    pub(crate) const ANY: Self = Self {
        ip: Ipv6Addr::UNSPECIFIED,
        scope: 0,
    };
}

/// The bits before an IPv4 address that is mapped to IPv6.
const MAPPED: u128 = 0xffff;

/// The datagrams of one receive call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagrams {
    /// Bytes in the buffer.
    pub length: usize,
    /// Bytes of each datagram but the last, which may be shorter.
    pub segment: usize,
    /// Source address of the datagrams.
    pub source: Ipv6Addr,
    /// UDP source port.
    pub source_port: u16,
    /// Destination address: one of this host, or a multicast group.
    pub destination: Ipv6Addr,
    /// DSCP and ECN of all of them: the kernel does not coalesce datagrams that differ in it.
    pub traffic_class: u8,
    /// Hop limit (IPv4: TTL) as it arrived.
    pub hop_limit: u8,
    /// The interface on which they arrived.
    pub interface: u32,
}

/// Address family of a socket. An IPv6 socket serves both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Family {
    /// IPv4 alone, where the kernel has no IPv6.
    V4,
    /// IPv6 and, by IPv4-mapped addresses, IPv4.
    Dual,
}

/// The parameters that a send has to name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Named {
    pub(crate) source: bool,
    /// Bytes of a segment; 0 for one datagram.
    pub(crate) segment: Option<u16>,
    pub(crate) traffic_class: bool,
    pub(crate) hop_limit: bool,
}

impl Named {
    pub(crate) const NOTHING: Self = Self {
        source: false,
        segment: None,
        traffic_class: false,
        hop_limit: false,
    };
}
