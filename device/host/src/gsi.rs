//! Datagrams of the general services interface (queue pair 1) in their wire format.

use crate::agent::protocol::DATAGRAM_BYTES;
use crate::flow::{flow_between, identification};
use link::udp::{Datagrams, Route};
use rnic::{Arrival, Gid, Path};
use wire::icrc::ICRC_SIZE;
use wire::mad::{GSI_QKEY, MAD_SIZE};
use wire::{Deth, Identification, Message, Packet, Psn, Qpn, ROCE_PORT, Service, Tail, split_icrc};

/// Queue pair 1.
const GSI: Qpn = Qpn::new(1);
/// Length of BTH and DETH.
const HEADERS: usize = DATAGRAM_BYTES - MAD_SIZE - ICRC_SIZE;

/// Encodes a management datagram, sent from port 4791. All have the same packet sequence number, which
/// receivers of datagrams ignore.
pub(crate) fn encode(path: &Path, mad: &[u8; MAD_SIZE]) -> [u8; DATAGRAM_BYTES] {
    let message = Message::Datagram {
        deth: Deth {
            qkey: GSI_QKEY,
            source: GSI,
        },
        tail: Tail::None,
    };
    let packet = Packet::new(Service::Ud, GSI, Psn::new(0), message);
    let mut headers = [0; wire::opcode::MAX_HEADERS];
    let length = packet.encode(0, &mut headers).unwrap_or(0);
    debug_assert_eq!(length, HEADERS);
    let mut datagram = [0; DATAGRAM_BYTES];
    let (transport, icrc_place) = datagram.split_at_mut(DATAGRAM_BYTES - ICRC_SIZE);
    transport[..HEADERS].copy_from_slice(&headers[..HEADERS]);
    transport[HEADERS..].copy_from_slice(mad);
    let flow = flow_between(path.source.into(), path.destination.into(), ROCE_PORT);
    let mut icrc = flow.seed(transport.len() as u16, Identification::ZERO);
    icrc.transport(transport);
    icrc_place.copy_from_slice(&icrc.finish());
    datagram
}

/// The route of a [`rnic::cm::Datagram`].
pub(crate) fn route(path: &Path, interface: u32) -> Route {
    Route {
        source: path.source.into(),
        destination: path.destination.into(),
        interface,
        traffic_class: path.traffic_class,
        hop_limit: path.hop_limit,
    }
}

/// The management datagram in a received one; `None` when it is damaged or not for queue pair 1.
pub(crate) fn decode<'a>(from: &Datagrams, datagram: &'a [u8]) -> Option<(Arrival, &'a [u8])> {
    let flow = flow_between(from.source, from.destination, from.source_port);
    identification(&flow, datagram, Identification::ZERO)?;
    let (transport, _) = split_icrc(datagram)?;
    let (packet, payload) = Packet::parse(transport).ok()?;
    let is_ours = matches!(packet.message, Message::Datagram { deth, .. } if deth.qkey == GSI_QKEY);
    let arrival = Arrival {
        source: Gid(from.source.octets()),
        destination: Gid(from.destination.octets()),
        traffic_class: from.traffic_class,
        hop_limit: from.hop_limit,
        service_level: 0,
    };
    (is_ours && packet.dest == GSI).then_some((arrival, payload))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv6Addr;

    fn path(source: &str, destination: &str) -> Path {
        let gid = |text: &str| Gid(text.parse::<Ipv6Addr>().unwrap().octets());
        Path {
            source: gid(source),
            destination: gid(destination),
            hop_limit: 64,
            ..Path::default()
        }
    }

    #[test]
    fn what_is_sent_is_understood_and_what_is_damaged_is_not() {
        for path in [
            path("::ffff:10.0.0.1", "::ffff:10.0.0.2"),
            path("fe80::1", "fe80::2"),
        ] {
            let mad: [u8; MAD_SIZE] = std::array::from_fn(|index| index as u8);
            let mut datagram = encode(&path, &mad);
            let from = Datagrams {
                length: datagram.len(),
                segment: datagram.len(),
                source: path.source.into(),
                source_port: ROCE_PORT,
                destination: path.destination.into(),
                traffic_class: 0,
                hop_limit: 64,
                interface: 1,
            };
            let (arrival, payload) = decode(&from, &datagram).unwrap();
            assert_eq!(
                (arrival.source, arrival.destination),
                (path.source, path.destination)
            );
            assert_eq!(payload, mad);
            let other_port = Datagrams {
                source_port: 0xc000,
                ..from
            };
            assert!(decode(&other_port, &datagram).is_none());
            datagram[100] ^= 1;
            datagram[140] ^= 1;
            assert!(decode(&from, &datagram).is_none());
            assert!(decode(&from, &datagram[..20]).is_none());
        }
    }
}
