//! Ports of InfiniBand subnets: local identifiers, optional global routes, partitions. A RoCE port has none
//! of them.

use crate::address::{AddressVector, Gid, LocalRoute, Path};
use core::num::NonZeroU64;
use wire::PartitionKey;

/// LIDs from here on are those of multicast groups (IBTA 4.1.1).
const FIRST_MULTICAST_LID: u16 = 0xc000;
/// The bit of full membership in a partition key (IBTA 10.9.1).
const FULL_MEMBER: u16 = 0x8000;
/// Entries of a partition table.
pub const PARTITIONS: usize = 32;
/// The first bytes of a [`Gid`] that is a [`LidAddress`]. They are those of 100::/64 (RFC 6666), in which no
/// interface has an address.
const LID_PREFIX: [u8; 6] = [1, 0, 0, 0, 0, 0];

/// Address of a port in its subnet: the LID by which packets reach it, and its GUID where packets have a
/// global route header. The prefix of its GID is that of the subnet.
///
/// Connections and datagrams have it in the place of a [`Gid`], so a peer is the same peer only with the same
/// LID and with or without the header, as adapters check it (IBTA 9.6.1.5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LidAddress {
    /// The local identifier, path bits included.
    pub lid: u16,
    /// The second half of the GID, if packets have a global route header.
    pub guid: Option<NonZeroU64>,
}

impl From<LidAddress> for Gid {
    fn from(LidAddress { lid, guid }: LidAddress) -> Self {
        let mut bytes = [0; 16];
        bytes[..6].copy_from_slice(&LID_PREFIX);
        bytes[6..8].copy_from_slice(&lid.to_be_bytes());
        bytes[8..].copy_from_slice(&guid.map_or(0, NonZeroU64::get).to_be_bytes());
        Self(bytes)
    }
}

impl LidAddress {
    /// The address that a [`Gid`] stands for; `None` for a GID of RoCE and for a multicast group.
    pub fn from_gid(gid: Gid) -> Option<Self> {
        let (prefix, rest) = gid.0.split_at(LID_PREFIX.len());
        let (lid, guid) = rest.split_first_chunk()?;
        (prefix == LID_PREFIX).then(|| Self {
            lid: u16::from_be_bytes(*lid),
            guid: guid
                .first_chunk()
                .and_then(|guid| NonZeroU64::new(u64::from_be_bytes(*guid))),
        })
    }
}

/// What a device knows of its port in a subnet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SubnetPort {
    /// The base LID; 0 before a manager has assigned one.
    pub lid: u16,
    /// How many low bits of a LID are for paths.
    pub lmc: u8,
    /// The first half of the GIDs.
    pub prefix: u64,
    /// The second half of the first GID.
    pub guid: u64,
    /// The keys of the partitions that the port is in; 0 is an empty entry.
    pub partitions: [u16; PARTITIONS],
}

/// The first half of the GIDs of a subnet that has no other (IBTA 4.1.3). Every port accepts it.
const DEFAULT_PREFIX: u64 = 0xfe80_0000_0000_0000;

impl SubnetPort {
    /// The first GID of the port.
    pub fn gid(&self) -> Gid {
        self.gid_of(self.guid)
    }

    /// The GID of a GUID in the subnet.
    pub fn gid_of(&self, guid: u64) -> Gid {
        Gid((u128::from(self.prefix) << 64 | u128::from(guid)).to_be_bytes())
    }

    /// The key at an index of the table; `None` for an empty entry.
    pub fn partition(&self, index: u16) -> Option<PartitionKey> {
        let key = self.partitions.get(usize::from(index)).copied()?;
        (key & !FULL_MEMBER != 0).then_some(PartitionKey(key))
    }

    /// Whether a packet's key matches one of the port's.
    pub fn takes(&self, key: PartitionKey) -> bool {
        (0..PARTITIONS as u16).any(|index| self.has_partition(index, key))
    }

    /// Whether a packet's key matches the one at an index: the same partition, and one of both is a full
    /// member (IBTA 10.9.3).
    pub fn has_partition(&self, index: u16, key: PartitionKey) -> bool {
        self.partition(index).is_some_and(|PartitionKey(own)| {
            (own ^ key.0) & !FULL_MEMBER == 0 && (own | key.0) & FULL_MEMBER != 0
        })
    }

    /// The path of an address vector; `None` where its path bits are not the port's, or a group's packets
    /// would have no global route header.
    pub(crate) fn path(
        &self,
        vector: &AddressVector,
        route: LocalRoute,
        hop_limit: u8,
    ) -> Option<Path> {
        let is_group = route.lid >= FIRST_MULTICAST_LID && route.lid != u16::MAX;
        if u32::from(route.path_bits) >= 1 << self.lmc || is_group && !route.is_global {
            return None;
        }
        let guid = |guid: u64| NonZeroU64::new(guid).filter(|_| route.is_global);
        let own = LidAddress {
            lid: self.lid | u16::from(route.path_bits),
            guid: guid(self.guid),
        };
        let destination = if is_group {
            vector.destination
        } else {
            let peer = self.guid_in(vector.destination);
            LidAddress {
                lid: route.lid,
                guid: guid(peer),
            }
            .into()
        };
        Some(Path {
            source: own.into(),
            destination,
            source_port: route.lid,
            traffic_class: 0,
            hop_limit,
            service_level: vector.service_level,
            flow_label: vector.flow_label,
            channel: 0,
        })
    }

    /// The GUID in a GID of this subnet. That of another subnet is none of a port here: packets with it reach
    /// a port by their LID, and are not taken.
    fn guid_in(&self, gid: Gid) -> u64 {
        let gid = u128::from_be_bytes(gid.0);
        let prefix = (gid >> 64) as u64;
        if prefix == self.prefix || prefix == DEFAULT_PREFIX {
            gid as u64
        } else {
            u64::MAX
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port() -> SubnetPort {
        let mut partitions = [0; PARTITIONS];
        partitions[0] = 0x7fff;
        partitions[3] = 0x8012;
        SubnetPort {
            lid: 8,
            lmc: 2,
            prefix: 0xfec0 << 48,
            guid: 0x2c9,
            partitions,
        }
    }

    #[test]
    fn addresses_of_a_subnet_are_read_as_they_were_written() {
        for (lid, guid) in [(1, 0), (0xbfff, u64::MAX)] {
            let address = LidAddress {
                lid,
                guid: NonZeroU64::new(guid),
            };
            assert_eq!(LidAddress::from_gid(address.into()), Some(address));
        }
        assert_eq!(LidAddress::from_gid(Gid::from_ipv4([10, 0, 0, 1])), None);
        assert_eq!(LidAddress::from_gid(Gid::default()), None);
        assert_eq!(LidAddress::from_gid(port().gid()), None);
    }

    #[test]
    fn a_limited_member_takes_packets_of_full_ones_alone() {
        let port = port();
        assert!(port.takes(PartitionKey(0xffff)) && !port.takes(PartitionKey(0x7fff)));
        assert!(port.takes(PartitionKey(0x12)) && port.has_partition(3, PartitionKey(0x8012)));
        assert!(!port.has_partition(0, PartitionKey(0x8012)));
        assert!(!port.takes(PartitionKey(0)) && !port.has_partition(1, PartitionKey(0x8000)));
        assert_eq!(port.partition(1), None);
        assert_eq!(port.partition(400), None);
    }

    #[test]
    fn paths_have_path_bits_and_a_global_route_only_where_it_is_asked_for() {
        let (port, route) = (
            port(),
            LocalRoute {
                lid: 5,
                path_bits: 3,
                ..LocalRoute::default()
            },
        );
        let vector = AddressVector {
            destination: port.gid_of(7),
            ..AddressVector::default()
        };
        let path = port.path(&vector, route, 64).unwrap();
        let address = |lid, guid| {
            Gid::from(LidAddress {
                lid,
                guid: NonZeroU64::new(guid),
            })
        };
        assert_eq!(
            (path.source, path.destination),
            (address(11, 0), address(5, 0))
        );
        let global = LocalRoute {
            is_global: true,
            ..route
        };
        let path = port.path(&vector, global, 64).unwrap();
        assert_eq!(
            (path.source, path.destination),
            (address(11, 0x2c9), address(5, 7))
        );
        let elsewhere = AddressVector {
            destination: Gid::from_ipv4([10, 0, 0, 7]),
            ..vector
        };
        let path = port.path(&elsewhere, global, 64).unwrap();
        assert_eq!(path.destination, address(5, u64::MAX));
        assert_eq!(
            port.path(
                &vector,
                LocalRoute {
                    path_bits: 4,
                    ..route
                },
                64
            ),
            None
        );
        let group = LocalRoute {
            lid: 0xc001,
            ..route
        };
        assert_eq!(port.path(&vector, group, 64), None);
        let path = port
            .path(
                &vector,
                LocalRoute {
                    is_global: true,
                    ..group
                },
                64,
            )
            .unwrap();
        assert_eq!(
            (path.destination, path.source_port),
            (vector.destination, 0xc001)
        );
    }
}
