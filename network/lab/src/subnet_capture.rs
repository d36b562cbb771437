//! Packets of an InfiniBand subnet as they are on its links, for captures: those of devices, of IP over
//! InfiniBand, and of management.

use crate::ip_frames::{BEFORE_PACKET, QPN, ether_type};
use infiniband::ipoib::AddressHandle;
use infiniband::subnet::{Crossed, GlobalRoute, Packet};
use link::lab::Header;
use rnic::{Gid, LidAddress};
use sim::report::{GlobalAddress, SubnetAddress, packet_record};
use wire::{Deth, LocalRoute, MAX_HEADERS, Message, PartitionKey, Psn, Qpn, Service, Tail};

/// The virtual lane of subnet management.
const MANAGEMENT_LANE: u8 = 15;
/// Virtual lanes of data.
const DATA_LANES: u8 = 8;
/// Bytes of the header before a packet of IP over InfiniBand (RFC 4391, 6).
const ENCAPSULATION_BYTES: usize = 4;

/// A packet of a device, transport headers and payload: the prefix is that of the subnet's GIDs.
pub(crate) fn device_packet(
    header: &Header,
    prefix: u64,
    transport: &[u8],
    payload: &[u8],
) -> Option<Vec<u8>> {
    let source = LidAddress::from_gid(Gid(header.source))?;
    let destination = LidAddress::from_gid(Gid(header.destination));
    let gid_of = |guid: u64| (u128::from(prefix) << 64 | u128::from(guid)).to_be_bytes();
    let global = source.guid.map(|guid| GlobalAddress {
        traffic_class: header.traffic_class,
        flow_label: 0,
        hop_limit: header.hop_limit,
        source: gid_of(guid.get()),
        destination: match destination {
            Some(peer) => gid_of(peer.guid.map_or(0, |guid| guid.get())),
            // A multicast group has its GID.
            None => header.destination,
        },
    });
    let address = SubnetAddress {
        local: LocalRoute {
            virtual_lane: header.service_level % DATA_LANES,
            service_level: header.service_level,
            is_global: global.is_some(),
            destination: header.source_port,
            source: source.lid,
        },
        global,
    };
    Some(address.packet(transport, payload))
}

/// A packet of IP over InfiniBand in its frame, from a port with this LID.
pub(crate) fn ip_packet(to: &AddressHandle, source_lid: u16, frame: &[u8]) -> Option<Vec<u8>> {
    let packet = frame.get(BEFORE_PACKET..)?;
    let mut payload = ether_type(frame).to_be_bytes().to_vec();
    payload.resize(ENCAPSULATION_BYTES, 0);
    payload.extend_from_slice(packet);
    let datagram = Datagram {
        local: LocalRoute {
            virtual_lane: to.service_level % DATA_LANES,
            service_level: to.service_level,
            is_global: to.global.is_some(),
            destination: to.lid,
            source: source_lid,
        },
        global: to.global,
        p_key: to.p_key,
        q_key: to.q_key,
        source_qp: QPN,
        destination_qp: to.qpn,
    };
    Some(datagram.packet(&payload))
}

/// The record of a packet of management.
pub(crate) fn management_record(crossed: &Crossed) -> Vec<u8> {
    let packet = management_packet(&crossed.packet);
    packet_record(crossed.at, crossed.side, &packet)
}

fn management_packet(packet: &Packet) -> Vec<u8> {
    let virtual_lane = if packet.is_smp() {
        MANAGEMENT_LANE
    } else {
        packet.service_level % DATA_LANES
    };
    let datagram = Datagram {
        local: LocalRoute {
            virtual_lane,
            service_level: packet.service_level,
            is_global: packet.global.is_some(),
            destination: packet.destination_lid,
            source: packet.source_lid,
        },
        global: packet.global,
        p_key: packet.p_key,
        q_key: packet.q_key,
        source_qp: packet.source_qp,
        destination_qp: packet.destination_qp,
    };
    datagram.packet(packet.mad.bytes())
}

/// What the headers of an unreliable datagram say.
struct Datagram {
    local: LocalRoute,
    global: Option<GlobalRoute>,
    p_key: u16,
    q_key: u32,
    source_qp: u32,
    destination_qp: u32,
}

impl Datagram {
    fn packet(&self, payload: &[u8]) -> Vec<u8> {
        let message = Message::Datagram {
            deth: Deth {
                qkey: self.q_key,
                source: Qpn::new(self.source_qp),
            },
            tail: Tail::None,
        };
        // The sequence numbers of datagrams of management and of IP are not those of any queue: 0.
        let (to, psn) = (Qpn::new(self.destination_qp), Psn::new(0));
        let mut headers = wire::Packet::new(Service::Ud, to, psn, message);
        headers.pkey = PartitionKey(self.p_key);
        let mut transport = [0; MAX_HEADERS];
        let length = headers.encode(0, &mut transport).unwrap_or(0);
        let global = self.global.map(|global| GlobalAddress {
            traffic_class: global.traffic_class,
            flow_label: global.flow_label,
            hop_limit: global.hop_limit,
            source: global.source,
            destination: global.destination,
        });
        let address = SubnetAddress {
            local: self.local,
            global,
        };
        address.packet(&transport[..length], payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infiniband::mad::{Mad, class, method};
    use std::num::NonZeroU64;

    /// The parts of a packet: virtual lane, service level and next header, LIDs, and what follows.
    fn parts(packet: &[u8]) -> (u8, u8, [u16; 2], &[u8]) {
        let lid = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
        let words = usize::from(lid(4) & 0x7ff);
        assert_eq!(words * 4 + 2, packet.len(), "all but the variant CRC");
        (packet[0] >> 4, packet[1], [lid(6), lid(2)], &packet[8..])
    }

    #[test]
    fn a_packet_of_management_has_the_last_lane() {
        let mad = Mad::new(class::SUBNET_LID, 1, method::GET, 0x11, 0);
        let packet = management_packet(&Packet::between(1, 2, mad.clone()));
        let (lane, level, lids, rest) = parts(&packet);
        assert_eq!((lane, level, lids), (15, 2, [1, 2]));
        assert_eq!((rest[0], &rest[20..276]), (0x64, &mad.bytes()[..]));
    }

    #[test]
    fn a_packet_of_a_device_has_a_global_route_where_it_asked_for_one() {
        let address = |lid, guid| {
            let guid = NonZeroU64::new(guid);
            Gid::from(LidAddress { lid, guid }).0
        };
        let header = |guid| Header {
            stamp: 0,
            source: address(5, guid),
            destination: address(8, guid + 1),
            traffic_class: 0,
            hop_limit: 64,
            source_port: 8,
            service_level: 3,
        };
        let transport = [4, 0, 0xff, 0xff, 0, 0, 0, 9, 0, 0, 0, 1];
        let prefix = 0xfe80 << 48;
        let packet = device_packet(&header(7), prefix, &transport, b"four").expect("LIDs");
        let (lane, level, lids, rest) = parts(&packet);
        assert_eq!((lane, level, lids), (3, 0x33, [5, 8]));
        let gid = |guid: u64| (0xfe80_u128 << 112 | u128::from(guid)).to_be_bytes();
        assert_eq!(rest[8..24], gid(7));
        assert_eq!(rest[24..40], gid(8));
        assert_eq!(rest[40..56], *[&transport[..], b"four"].concat());
        let alone = Header {
            source: address(5, 0),
            ..header(7)
        };
        let packet = device_packet(&alone, prefix, &transport, b"").expect("LIDs");
        assert_eq!((packet[1], packet.len()), (0x32, 8 + 12 + 6));
    }

    #[test]
    fn a_packet_of_ip_is_behind_its_encapsulation_header() {
        let to = AddressHandle {
            lid: 8,
            service_level: 0,
            p_key: 0xffff,
            q_key: 0xb1b,
            qpn: 2,
            global: None,
        };
        let mut frame = vec![0; BEFORE_PACKET];
        frame[BEFORE_PACKET - 2..].copy_from_slice(&[8, 0]);
        frame.extend([0x45; 20]);
        let packet = ip_packet(&to, 5, &frame).expect("a whole frame");
        let (_, _, lids, rest) = parts(&packet);
        assert_eq!(lids, [5, 8]);
        assert_eq!(
            rest[12..20],
            [0, 0, 0x0b, 0x1b, 0, 0, 0, 2],
            "Q_Key, queue pair"
        );
        assert_eq!(rest[20..24], [8, 0, 0, 0]);
        assert_eq!(rest[24..44], [0x45; 20]);
    }
}
