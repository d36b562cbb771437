//! Captured packets as a file that tshark reads: classic pcap with nanoseconds.

use super::erf::{SubnetAddress, credit_record, packet_record};
use crate::experiment::{Experiment, Station};
use crate::world::{Captured, CapturedFrame};
use fabric::{PauseFrame, Time};
use std::io::{self, Write};
use std::net::Ipv4Addr;
use wire::frame::FRAME_HEADERS_MAX;
use wire::icrc::ICRC_SIZE;
use wire::ipv4::IPV4_SIZE;
use wire::opcode::MAX_HEADERS;
use wire::udp::{PROTOCOL_UDP, UDP_SIZE};
use wire::{
    EtherType, Ethernet, FrameHeaders, Icrc, Identification, Ip, Ipv4, LocalRoute, MacAddress,
    Packet, Pause, ROCE_PORT, TrafficClass, Udp, VlanTag,
};

const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const LINKTYPE_ETHERNET: u32 = 1;
/// Records of ERF, one of whose types is a packet of InfiniBand.
const LINKTYPE_ERF: u32 = 197;
const SNAP_BYTES: u32 = 65_535;
/// Bits below the service level where the DSCP of Ethernet is.
const TOS_LEVEL_SHIFT: u8 = 2;

/// Writes the captured packets of one link of an experiment, in both directions.
///
/// # Errors
/// An error that `out` returns.
pub fn write_pcap(
    out: &mut impl Write,
    experiment: &Experiment,
    link: u32,
    captured: &[Captured],
) -> io::Result<()> {
    out.write_all(&pcap_header(experiment.network.infiniband.is_some()))?;
    for packet in captured.iter().filter(|packet| packet.link == link) {
        let frame = captured_bytes(experiment, packet);
        out.write_all(&pcap_record(packet.at, &frame))?;
    }
    Ok(())
}

/// The header of a capture file, of links of InfiniBand or of Ethernet.
pub fn pcap_header(is_infiniband: bool) -> Vec<u8> {
    let mut header = Vec::with_capacity(24);
    header.extend(MAGIC_NANOSECONDS.to_le_bytes());
    header.extend([2, 0, 4, 0]);
    header.extend([0; 8]);
    header.extend(SNAP_BYTES.to_le_bytes());
    let link_type = if is_infiniband {
        LINKTYPE_ERF
    } else {
        LINKTYPE_ETHERNET
    };
    header.extend(link_type.to_le_bytes());
    header
}

/// A frame with its time, as a record of a capture file.
pub fn pcap_record(at: Time, frame: &[u8]) -> Vec<u8> {
    let ns = at.ns();
    let mut record = Vec::with_capacity(16 + frame.len());
    for field in [
        ns / 1_000_000_000,
        ns % 1_000_000_000,
        frame.len() as u64,
        frame.len() as u64,
    ] {
        record.extend((field as u32).to_le_bytes());
    }
    record.extend_from_slice(frame);
    record
}

/// The frame of a pause, of credits, or of a simulated host's packet.
pub fn captured_bytes(experiment: &Experiment, captured: &Captured) -> Vec<u8> {
    match &captured.frame {
        CapturedFrame::Pause(frame) => pause(*frame, captured.direction),
        CapturedFrame::Credits(update) => credit_record(captured.at, captured.direction, *update),
        CapturedFrame::Packet {
            from,
            flow,
            source_port,
            tos,
            pcp,
            hop_limit,
            headers,
            payload,
        } => {
            let (tos, pcp, hop_limit, source_port) = (*tos, *pcp, *hop_limit, *source_port);
            let marks = Marks {
                tos,
                pcp,
                hop_limit,
                source_port,
            };
            let stations = experiment.stations(*flow, *from);
            match local_route(experiment, stations, &marks) {
                Some(local) => {
                    let packet = local_packet(local, headers, *payload);
                    packet_record(captured.at, captured.direction, &packet)
                }
                None => roce(stations, &marks, headers, *payload),
            }
        }
    }
}

/// The local route of a packet between hosts of a subnet; `None` on Ethernet. The service level of its
/// packets is in the place of the DSCP, and the virtual lane in that of the priority.
fn local_route(
    experiment: &Experiment,
    stations: [Station; 2],
    marks: &Marks,
) -> Option<LocalRoute> {
    let tables = &experiment.subnet.as_ref()?.tables;
    let [source, destination] = stations.map(|station| tables.lids[station.host as usize]);
    Some(LocalRoute {
        virtual_lane: marks.pcp.unwrap_or_default(),
        service_level: marks.tos >> TOS_LEVEL_SHIFT,
        is_global: false,
        destination,
        source,
    })
}

fn local_packet(local: LocalRoute, headers: &Packet, payload: u32) -> Vec<u8> {
    let mut transport = [0; MAX_HEADERS];
    // The device's packets encode: their headers never contradict each other.
    let length = headers.encode(0, &mut transport).unwrap_or(0);
    let address = SubnetAddress {
        local,
        global: None,
    };
    address.packet(&transport[..length], &vec![0; payload as usize])
}

/// The address of a host: 10.0.0.0/8 by number.
fn address(host: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0a00_0001_u32.wrapping_add(host & 0x00ff_ffff))
}

fn pause(frame: PauseFrame, direction: u8) -> Vec<u8> {
    let quanta = |priority: u8| {
        let (spoken, stopped) = (
            frame.priorities >> priority & 1 == 1,
            frame.stopped >> priority & 1 == 1,
        );
        spoken.then_some(if stopped { frame.quanta } else { 0 })
    };
    let priorities = [0, 1, 2, 3, 4, 5, 6, 7].map(quanta);
    let port = MacAddress([0x02, 1, 0, 0, 0, direction]);
    Pause::Priorities(priorities).to_frame(port).to_vec()
}

struct Marks {
    tos: u8,
    pcp: Option<u8>,
    hop_limit: u8,
    source_port: u16,
}

/// The whole frame without its check sequence. A simulation has no payload: it is zeros, under an ICRC that
/// is right for them.
fn roce([from, to]: [Station; 2], marks: &Marks, packet: &Packet, payload: u32) -> Vec<u8> {
    let mut transport = [0; MAX_HEADERS];
    let pad = wire::pad_of(payload as usize);
    // The device's packets encode: their headers never contradict each other.
    let transport_bytes = packet.encode(pad, &mut transport).unwrap_or(0);
    let body = transport_bytes + payload as usize + usize::from(pad);
    let datagram = UDP_SIZE + body + ICRC_SIZE;
    let ip = Ipv4 {
        traffic_class: TrafficClass(marks.tos),
        total_length: (IPV4_SIZE + datagram) as u16,
        identification: Identification::ZERO,
        ttl: marks.hop_limit,
        protocol: PROTOCOL_UDP,
        source: address(from.host),
        destination: address(to.host),
    };
    let udp = Udp {
        source_port: marks.source_port,
        destination_port: ROCE_PORT,
        length: datagram as u16,
        checksum: 0,
    };
    let ethernet = Ethernet {
        destination: MacAddress(to.mac),
        source: MacAddress(from.mac),
        vlan: marks.pcp.map(|pcp| VlanTag {
            pcp,
            dei: false,
            vid: from.vlan,
        }),
        ethertype: EtherType::IPV4,
    };
    let mut bytes = [0; FRAME_HEADERS_MAX];
    let length = FrameHeaders {
        ethernet,
        ip: Ip::V4(ip),
        udp,
    }
    .encode(&mut bytes);
    let mut frame = bytes[..length].to_vec();
    frame.extend_from_slice(&transport[..transport_bytes]);
    frame.resize(length + body, 0);
    let mut icrc = Icrc::over_ipv4(ip.to_bytes(), udp.to_bytes());
    icrc.transport(&frame[length..]);
    frame.extend_from_slice(&icrc.finish());
    frame
}
