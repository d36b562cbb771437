//! Ethernet frames and packets of InfiniBand: their sizes, checksums and addresses.

use link::lab::Header;
use rnic::{Gid, LidAddress};
use sim::world::Marking;
use std::net::Ipv6Addr;

/// Bytes of `struct virtio_net_hdr`.
pub(crate) const VNET_BYTES: usize = 10;
/// Bytes of an Ethernet header.
pub(crate) const ETHERNET_BYTES: usize = 14;

/// The class of a DSCP that a program chose: that of the file if the file names it, else its upper three bits
/// (RFC 2474, 4.2.2), which is also what adapters take by default.
pub(crate) fn class_of(marks: &[Marking; 3], dscp: u8) -> u8 {
    marks
        .iter()
        .find(|marking| marking.dscp == dscp)
        .map_or(dscp >> 3, |marking| marking.class)
}

/// A MAC address as `ip` writes it.
pub(crate) fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// Puts an 802.1Q tag into a frame.
pub(crate) fn add_tag(frame: &mut Vec<u8>, pcp: u8, vlan: u16) {
    const ADDRESSES_BYTES: usize = 12;
    let [high, low] = (u16::from(pcp & 7) << 13 | vlan & 0xfff).to_be_bytes();
    if frame.len() >= ADDRESSES_BYTES {
        frame.splice(ADDRESSES_BYTES..ADDRESSES_BYTES, [0x81, 0, high, low]);
    }
}

/// The link-local address of a MAC address (RFC 4291 appendix A).
pub(crate) fn link_local([a, b, c, d, e, f]: [u8; 6]) -> Ipv6Addr {
    let pair = |high: u8, low: u8| u16::from_be_bytes([high, low]);
    Ipv6Addr::new(
        0xfe80,
        0,
        0,
        0,
        pair(a ^ 2, b),
        pair(c, 0xff),
        pair(0xfe, d),
        pair(e, f),
    )
}

/// Bytes of a local route header.
const LOCAL_ROUTE_BYTES: usize = 8;
/// Bytes of a global route header.
const GLOBAL_ROUTE_BYTES: usize = 40;
/// Bytes of the invariant and the variant check.
const CHECK_BYTES: usize = 6;

/// Bytes of a packet of InfiniBand on a link without transport headers and payload.
fn outer_bytes(header: &Header) -> usize {
    let source = LidAddress::from_gid(Gid(header.source));
    let is_global = source.is_some_and(|source| source.guid.is_some());
    LOCAL_ROUTE_BYTES + CHECK_BYTES + if is_global { GLOBAL_ROUTE_BYTES } else { 0 }
}

/// The length of a packet of InfiniBand on a link.
pub(crate) fn infiniband_bytes(header: &Header, transport: usize, payload: usize) -> usize {
    outer_bytes(header) + transport + payload.next_multiple_of(4)
}

/// The Internet checksum (RFC 1071).
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Checksum(u64);

impl Checksum {
    /// Adds bytes, of which there is an even number except the last time.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        let word = |pair: &[u8]| {
            u64::from(u16::from_be_bytes([
                pair[0],
                pair.get(1).copied().unwrap_or(0),
            ]))
        };
        self.0 += bytes.chunks(2).map(word).sum::<u64>();
    }

    pub(crate) fn folded(self) -> u16 {
        let mut sum = self.0;
        while sum >> 16 != 0 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    pub(crate) fn finish(self) -> [u8; 2] {
        (!self.folded()).to_be_bytes()
    }
}
