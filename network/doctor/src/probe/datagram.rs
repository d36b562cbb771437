//! The RoCEv2 packets of a probe: connection management to queue pair 1, and messages to a queue pair that
//! adapters do not give out, so that a RoCE stack without a listener drops them.

use std::net::IpAddr;

use wire::cm::{CmMad, CmMessage, CommId, Rej, RejectReason, Req, RequestPath, ServiceId, Subject};
use wire::icrc::ICRC_SIZE;
use wire::mad::GSI_QKEY;
use wire::{
    Deth, Flow, Identification, MAX_HEADERS, Message, Packet, PartitionKey, Psn, Qpn, Service,
    Tail, explain_identification, split_icrc,
};

use super::message::ProbeMessage;

const GSI: Qpn = Qpn::new(1);
/// The last queue pair number before that of multicast.
const PROBE: Qpn = Qpn::new(0x00ff_fffe);
const PROBE_QKEY: u32 = 0x726b_7062;

/// BTH, DETH and ICRC around a message.
const AROUND: usize = 12 + 8 + ICRC_SIZE;

/// A service of the space for local operating systems (IBTA A3.2.3.3, first byte 2) on which no program
/// listens, so that a REQ is answered by a REJ and leaves nothing behind.
const SERVICE: ServiceId = ServiceId(0x0200_726b_7072_6f62);

/// 4.096 µs times 2 to this power: 4 s.
const RESPONSE_TIMEOUT: u8 = 20;

/// Addresses and ports of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ends {
    /// The address that it comes from.
    pub source: IpAddr,
    /// The address that it goes to, of the same family.
    pub destination: IpAddr,
    /// The UDP port that it comes from.
    pub source_port: u16,
    /// The UDP port that it goes to.
    pub destination_port: u16,
}

/// The content of a packet of a probe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Heard {
    /// A datagram of connection management.
    Management(Box<CmMad>),
    /// A message of a probe.
    Probe(ProbeMessage),
}

impl Ends {
    /// A REQ to queue pair 1. A repeated one has the same number.
    pub fn request(&self, number: u32) -> Vec<u8> {
        let path = RequestPath {
            local_lid: 0xffff,
            remote_lid: 0xffff,
            local_gid: gid(self.source),
            remote_gid: gid(self.destination),
            hop_limit: super::HOP_LIMIT,
            local_ack_timeout: 14,
            ..RequestPath::default()
        };
        let req = Req {
            local_comm_id: CommId(number),
            service_id: SERVICE,
            local_qpn: Qpn::new(number & 0x00ff_ffff | 0x0080_0000),
            responder_resources: 1,
            initiator_depth: 1,
            remote_response_timeout: RESPONSE_TIMEOUT,
            local_response_timeout: RESPONSE_TIMEOUT,
            retry_count: 7,
            rnr_retry_count: 7,
            max_cm_retries: 15,
            partition_key: PartitionKey::DEFAULT,
            path_mtu: 3,
            primary_path: path,
            ..Req::default()
        };
        self.management(&CmMad {
            transaction: u64::from(number),
            modifier: 0,
            message: req.into(),
        })
    }

    /// The answer of a listener to a REQ: no program listens on the service.
    pub fn rejection(&self, mad: &CmMad) -> Option<Vec<u8>> {
        let CmMessage::Req(req) = &mad.message else {
            return None;
        };
        let rej = Rej {
            remote_comm_id: req.local_comm_id,
            subject: Subject::Request,
            reason: RejectReason::INVALID_SERVICE_ID,
            ..Rej::default()
        };
        Some(self.management(&CmMad {
            transaction: mad.transaction,
            modifier: 0,
            message: rej.into(),
        }))
    }

    fn management(&self, mad: &CmMad) -> Vec<u8> {
        self.datagram(
            GSI,
            Deth {
                qkey: GSI_QKEY,
                source: GSI,
            },
            &mad.to_bytes(),
        )
    }

    /// A message, padded to an IP packet of so many bytes if that is more than the message needs.
    pub fn message(&self, message: ProbeMessage, packet_bytes: usize) -> Vec<u8> {
        let around = AROUND + udp_overhead(self.destination);
        let payload = message.to_bytes(packet_bytes.saturating_sub(around));
        self.datagram(
            PROBE,
            Deth {
                qkey: PROBE_QKEY,
                source: PROBE,
            },
            &payload,
        )
    }

    /// The payload of a UDP datagram. `payload` is a multiple of four bytes long.
    fn datagram(&self, queue_pair: Qpn, deth: Deth, payload: &[u8]) -> Vec<u8> {
        let message = Message::Datagram {
            deth,
            tail: Tail::None,
        };
        let packet = Packet::new(Service::Ud, queue_pair, Psn::new(0), message);
        let mut headers = [0; MAX_HEADERS];
        let length = packet.encode(0, &mut headers).unwrap_or(0);
        let mut bytes = [&headers[..length], payload].concat();
        let icrc = self.icrc(&bytes);
        bytes.extend_from_slice(&icrc);
        bytes
    }

    fn icrc(&self, transport: &[u8]) -> [u8; ICRC_SIZE] {
        let (from, to) = (self.source_port, self.destination_port);
        let flow = match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                Flow::ipv4(source, destination, from, to)
            }
            _ => Flow::ipv6(v6(self.source), v6(self.destination), from, to),
        };
        let mut icrc = flow.seed(transport.len() as u16, Identification::ZERO);
        icrc.transport(transport);
        icrc.finish()
    }

    /// Parses a UDP payload with these addresses and ports; `None` where it is damaged or anything else.
    pub fn parse(&self, datagram: &[u8]) -> Option<Heard> {
        let (transport, received) = split_icrc(datagram)?;
        let computed = self.icrc(transport);
        explain_identification(computed, received, Identification::ZERO, transport.len())?;
        let (packet, payload) = Packet::parse(transport).ok()?;
        let Message::Datagram { deth, .. } = packet.message else {
            return None;
        };
        match (packet.dest, deth.qkey) {
            (GSI, GSI_QKEY) => Some(Heard::Management(Box::new(CmMad::parse(payload).ok()?))),
            (PROBE, PROBE_QKEY) => ProbeMessage::parse(payload).map(Heard::Probe),
            _ => None,
        }
    }
}

/// Bytes of IP and UDP headers.
pub(super) const fn udp_overhead(address: IpAddr) -> usize {
    match address {
        IpAddr::V4(_) => 20 + 8,
        IpAddr::V6(_) => 40 + 8,
    }
}

const fn v6(address: IpAddr) -> std::net::Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

const fn gid(address: IpAddr) -> [u8; 16] {
    v6(address).octets()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(source: &str, destination: &str) -> Ends {
        Ends {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            source_port: 0xc123,
            destination_port: 4791,
        }
    }

    #[test]
    fn a_request_is_rejected_and_damage_is_noticed() {
        for ends in [ends("10.0.0.1", "10.0.0.2"), ends("fd00::1", "fd00::2")] {
            let mut request = ends.request(0x77);
            let Some(Heard::Management(mad)) = ends.parse(&request) else {
                panic!("no REQ")
            };
            let rejection = ends.rejection(&mad).unwrap();
            let Some(Heard::Management(answer)) = ends.parse(&rejection) else {
                panic!("no REJ")
            };
            assert!(
                matches!(&answer.message, CmMessage::Rej(rej) if rej.remote_comm_id == CommId(0x77))
            );
            assert_eq!(ends.rejection(&answer), None);
            request[40] ^= 3;
            assert_eq!(ends.parse(&request), None);
        }
    }

    #[test]
    fn a_message_fills_the_packet_that_is_asked_for() {
        for ends in [ends("10.0.0.1", "10.0.0.2"), ends("fd00::1", "fd00::2")] {
            let message = ProbeMessage::Look {
                question: 1,
                traffic_class: 2,
            };
            for bytes in [320, 1088, 4160] {
                let datagram = ends.message(message, bytes);
                assert_eq!(datagram.len() + udp_overhead(ends.destination), bytes);
                assert_eq!(ends.parse(&datagram), Some(Heard::Probe(message)));
            }
        }
    }
}
