//! Addresses: GIDs, address vectors, and the path that packets of a queue pair take.

use wire::Qpn;

/// Global identifier: an IPv6 address, or an IPv4 address mapped into one (`::ffff:a.b.c.d`, IBTA A17.4.1.1).
/// In paths and arrivals of InfiniBand subnets it is a [`crate::LidAddress`], or that of a multicast group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The GID of an IPv4 address.
    pub const fn from_ipv4([a, b, c, d]: [u8; 4]) -> Self {
        Self((0xffff << 32 | u32::from_be_bytes([a, b, c, d]) as u128).to_be_bytes())
    }

    /// Whether both are the same address. Compares two 64-bit halves: a GID that was assembled a moment ago
    /// is not yet in memory as one piece, and a 128-bit load of it would stall.
    #[inline(always)]
    pub(crate) fn is(&self, other: &Self) -> bool {
        let halves = |gid: &Self| {
            let [a, b, c, d, e, f, g, h, rest @ ..] = gid.0;
            (
                u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
                u64::from_ne_bytes(rest),
            )
        };
        let ((high, low), (other_high, other_low)) = (halves(self), halves(other));
        (high ^ other_high) | (low ^ other_low) == 0
    }

    /// Whether it is an IPv6 address of this link alone (RFC 4291, 2.5.6).
    pub fn is_link_local(&self) -> bool {
        self.0[0] == 0xfe && self.0[1] & 0xc0 == 0x80
    }

    /// The IPv4 address inside, if this GID is a mapped one.
    pub fn ipv4(&self) -> Option<[u8; 4]> {
        let (prefix, address) = self.0.split_at(12);
        (prefix == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff])
            .then(|| [address[0], address[1], address[2], address[3]])
    }

    /// Whether this is the address of a multicast group: `ff00::/8`, or a mapped `224.0.0.0/4`.
    pub fn is_multicast(&self) -> bool {
        self.ipv4()
            .map_or(self.0[0] == 0xff, |address| address[0] >> 4 == 0xe)
    }

    /// Whether all bytes are zero: an empty slot of the GID table.
    pub fn is_unspecified(&self) -> bool {
        self.0 == [0; 16]
    }
}

impl From<Gid> for core::net::Ipv6Addr {
    fn from(gid: Gid) -> Self {
        Self::from(gid.0)
    }
}

impl core::fmt::Display for Gid {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.ipv4() {
            Some(address) => core::net::Ipv4Addr::from(address).fmt(f),
            None => core::net::Ipv6Addr::from(self.0).fmt(f),
        }
    }
}

impl core::fmt::Debug for Gid {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::net::Ipv6Addr::from(self.0).fmt(f)
    }
}

/// Route within an InfiniBand subnet, as `ibv_ah_attr` gives it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LocalRoute {
    /// The LID of the peer, or of a multicast group.
    pub lid: u16,
    /// Low bits of the own LID: which of the port's paths packets take.
    pub path_bits: u8,
    /// Packets have a global route header.
    pub is_global: bool,
    /// The code of the static rate; stored and reported.
    pub static_rate: u8,
}

/// Route to a peer, as `ibv_ah_attr` gives it. RoCEv2 uses only the global route (GRH).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct AddressVector {
    /// Address of the peer.
    pub destination: Gid,
    /// Index of the source address in the GID table.
    pub source_index: u8,
    /// DSCP in the upper six bits, ECN in the lower two.
    pub traffic_class: u8,
    /// Hop limit (IPv4: TTL).
    pub hop_limit: u8,
    /// IPv6 flow label; entropy for the UDP source port.
    pub flow_label: u32,
    /// Service level: the 802.1Q priority.
    pub service_level: u8,
    /// The route in an InfiniBand subnet; `None` for RoCE.
    pub local: Option<LocalRoute>,
}

/// Path of a packet: the input of the network layers, looked up once per queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Path {
    /// Source address of the packets.
    pub source: Gid,
    /// Destination address: that of the peer, or of a multicast group.
    pub destination: Gid,
    /// UDP source port, 0xc000 and above: entropy for ECMP and receive-side scaling (IBTA A17.3.2.1). In an
    /// InfiniBand subnet, which has no such ports: the LID that packets are routed by.
    pub source_port: u16,
    /// DSCP and ECN. The device sets ECN-capable transport (ECT(0)) only where the program or DCQCN requests
    /// it.
    pub traffic_class: u8,
    /// Hop limit (IPv4: TTL).
    pub hop_limit: u8,
    /// Service level: the 802.1Q priority.
    pub service_level: u8,
    /// IPv6 flow label.
    pub flow_label: u32,
    /// Number of the shared-memory channel; 0 is the network. The driver has such channels between devices of
    /// one host, and assigns one to the queue pair ([`crate::SharedMemory::set_channel`]).
    pub channel: u16,
}

/// The queue pair numbers of the process at the other end of a shared-memory channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Senders {
    /// The first of the queue pair numbers.
    pub first: Qpn,
    /// How many numbers there are.
    pub count: u32,
}

impl Senders {
    /// Whether a queue pair number is in the range.
    pub fn have(&self, qpn: Qpn) -> bool {
        qpn.value()
            .checked_sub(self.first.value())
            .is_some_and(|distance| distance < self.count)
    }
}

/// The shared-memory channel on which a packet arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Channel {
    /// Number of the channel, as in [`Path::channel`].
    pub number: u16,
    /// The queue pairs at the other end of the channel.
    pub senders: Senders,
}

/// Fields of the IP header of an arriving packet.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Arrival {
    /// Source address of the IP header.
    pub source: Gid,
    /// Destination address of the IP header: one of the device's, or a multicast group.
    pub destination: Gid,
    /// IPv4 TOS or IPv6 traffic class; the lower two bits 3 mean congestion experienced.
    pub traffic_class: u8,
    /// TTL as it arrived.
    pub hop_limit: u8,
    /// The service level of InfiniBand.
    pub service_level: u8,
}

impl Arrival {
    /// Whether a switch marked the packet (RFC 3168: both ECN bits set).
    pub const fn congestion_experienced(&self) -> bool {
        self.traffic_class & 3 == 3
    }
}

/// UDP source port from a flow label, or from the two queue pair numbers (IBTA A17.3.2.1; Linux does the
/// same): 14 bits of entropy above 0xc000.
pub fn source_port(flow_label: u32, local: u32, remote: u32) -> u16 {
    let label = if flow_label == 0 {
        let product = u64::from(local) * u64::from(remote);
        (product ^ product >> 20 ^ product >> 40) as u32 & 0xf_ffff
    } else {
        flow_label
    };
    ((label & 0x3fff) ^ (label >> 14 & 0x3f)) as u16 | 0xc000
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn addresses_are_the_same_when_all_their_bytes_are() {
        let gid = Gid::from_ipv4([10, 1, 2, 3]);
        assert_eq!(
            (gid.ipv4(), gid.to_string().as_str()),
            (Some([10, 1, 2, 3]), "10.1.2.3")
        );
        for byte in 0..16 {
            let mut other = gid;
            assert!(gid.is(&other));
            other.0[byte] ^= 0x10;
            assert!(!gid.is(&other) && !other.is(&gid), "byte {byte}");
        }
    }
}
