//! Packets of InfiniBand in captures: with the header of a record of ERF (Extensible Record Format), from
//! which Wireshark takes their time and direction, before the bytes from local route header to variant CRC.

use fabric::Time;
use fabric::lanes::CreditUpdate;
use std::net::Ipv6Addr;
use wire::icrc::ICRC_SIZE;
use wire::local_route::{TRANSPORT, variant_crc};
use wire::{FlowControl, Icrc, Ipv6, LocalRoute, TrafficClass};

/// Types of records: packets, and packets of the link itself.
const PACKET: u8 = 21;
const LINK_PACKET: u8 = 25;
/// Bytes of the header of a record.
const HEADER_BYTES: usize = 16;
/// The flag of records whose length varies.
const VARIES: u8 = 4;

/// How a packet of a subnet is addressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubnetAddress {
    /// The local route.
    pub local: LocalRoute,
    /// The global route, if the packet has one.
    pub global: Option<GlobalAddress>,
}

/// The global route of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GlobalAddress {
    /// The traffic class.
    pub traffic_class: u8,
    /// The flow label, 20 bits.
    pub flow_label: u32,
    /// Routers that the packet may pass.
    pub hop_limit: u8,
    /// The sender's GID.
    pub source: [u8; 16],
    /// The receiver's GID.
    pub destination: [u8; 16],
}

impl SubnetAddress {
    /// The bytes of a packet with these transport headers and this payload, which is padded.
    pub fn packet(&self, transport: &[u8], payload: &[u8]) -> Vec<u8> {
        let pad = wire::pad_of(payload.len());
        let mut body = [transport, payload].concat();
        body.resize(body.len() + usize::from(pad), 0);
        wire::set_pad(&mut body, pad);
        let global = self.global.map(|global| {
            Ipv6 {
                traffic_class: TrafficClass(global.traffic_class),
                flow_label: global.flow_label,
                payload_length: (body.len() + ICRC_SIZE) as u16,
                next_header: TRANSPORT,
                hop_limit: global.hop_limit,
                source: Ipv6Addr::from(global.source),
                destination: Ipv6Addr::from(global.destination),
            }
            .to_bytes()
        });
        let headers = global.as_ref().map_or(&[][..], |global| global);
        let local = LocalRoute {
            is_global: global.is_some(),
            ..self.local
        };
        let local = local.to_bytes(headers.len() + body.len());
        let mut icrc = Icrc::over_local(local, global);
        icrc.transport(&body);
        let mut packet = [&local[..], headers, &body, &icrc.finish()].concat();
        let check = variant_crc(&packet);
        packet.extend_from_slice(&check);
        packet
    }
}

/// A packet as a record.
pub fn packet_record(at: Time, direction: u8, packet: &[u8]) -> Vec<u8> {
    record(at, direction, PACKET, packet)
}

/// A flow control packet as a record.
pub(super) fn credit_record(at: Time, direction: u8, update: CreditUpdate) -> Vec<u8> {
    let packet = FlowControl {
        virtual_lane: update.lane,
        sent: update.sent,
        limit: update.limit,
    };
    record(at, direction, LINK_PACKET, &packet.to_bytes())
}

/// The direction is in the place of the interface: 0 from the link's first end, 1 from its second.
fn record(at: Time, direction: u8, kind: u8, packet: &[u8]) -> Vec<u8> {
    let (seconds, ns) = (at.ns() / 1_000_000_000, at.ns() % 1_000_000_000);
    // Seconds, and their fraction in 32 bits.
    let fraction = (ns << 32) / 1_000_000_000;
    let stamp = seconds << 32 | fraction;
    let length = (HEADER_BYTES + packet.len()) as u16;
    let mut record = stamp.to_le_bytes().to_vec();
    record.extend([kind, VARIES | direction & 1]);
    record.extend(length.to_be_bytes());
    record.extend([0, 0]);
    record.extend((packet.len() as u16).to_be_bytes());
    record.extend_from_slice(packet);
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_the_time_and_the_direction_of_its_packet() {
        let at = Time(2_500_000_000_000);
        let record = packet_record(at, 1, &[7; 20]);
        assert_eq!(record[..8], [0, 0, 0, 0x80, 2, 0, 0, 0]);
        assert_eq!(record[8..16], [21, 5, 0, 36, 0, 0, 0, 20]);
        assert_eq!(record[16..], [7; 20]);
    }

    #[test]
    fn a_packet_is_padded_and_says_so() {
        let local = LocalRoute {
            virtual_lane: 1,
            service_level: 1,
            is_global: false,
            destination: 2,
            source: 3,
        };
        let mut address = SubnetAddress {
            local,
            global: None,
        };
        let transport = [4, 0, 0xff, 0xff, 0, 0, 0, 9, 0, 0, 0, 1];
        let packet = address.packet(&transport, b"hello");
        assert_eq!(packet.len(), 8 + 12 + 8 + 4 + 2);
        assert_eq!((packet[1] & 3, packet[9] >> 4 & 3), (2, 3));
        assert_eq!(usize::from(packet[5]) * 4, packet.len() - 2);
        address.global = Some(GlobalAddress {
            traffic_class: 0,
            flow_label: 0,
            hop_limit: 1,
            source: [1; 16],
            destination: [2; 16],
        });
        let packet = address.packet(&transport, b"hello");
        assert_eq!((packet[1] & 3, packet[14]), (3, TRANSPORT));
        assert_eq!(u16::from_be_bytes([packet[12], packet[13]]), 12 + 8 + 4);
    }
}
