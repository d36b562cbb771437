//! Captured packets as a file that tshark reads: classic pcap with nanoseconds.

use crate::experiment::Station;
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
    EtherType, Ethernet, FrameHeaders, Icrc, Identification, Ip, Ipv4, MacAddress, Packet, Pause,
    ROCE_PORT, TrafficClass, Udp, VlanTag,
};

const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const LINKTYPE_ETHERNET: u32 = 1;
const SNAP_BYTES: u32 = 65_535;

/// Writes the captured packets of one link, in both directions. `stations` gives source and destination of a
/// flow's packets, by flow and sender: [`crate::experiment::Experiment::stations`].
///
/// # Errors
/// An error that `out` returns.
pub fn write_pcap(
    out: &mut impl Write,
    link: u32,
    captured: &[Captured],
    stations: impl Fn(u32, u32) -> [Station; 2],
) -> io::Result<()> {
    out.write_all(&pcap_header())?;
    for packet in captured.iter().filter(|packet| packet.link == link) {
        out.write_all(&pcap_record(packet.at, &captured_bytes(packet, &stations)))?;
    }
    Ok(())
}

/// The header of a capture file.
pub fn pcap_header() -> Vec<u8> {
    let mut header = Vec::with_capacity(24);
    header.extend(MAGIC_NANOSECONDS.to_le_bytes());
    header.extend([2, 0, 4, 0]);
    header.extend([0; 8]);
    header.extend(SNAP_BYTES.to_le_bytes());
    header.extend(LINKTYPE_ETHERNET.to_le_bytes());
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

/// The frame of a pause, or of a simulated host's packet.
pub fn captured_bytes(captured: &Captured, stations: impl Fn(u32, u32) -> [Station; 2]) -> Vec<u8> {
    match &captured.frame {
        CapturedFrame::Pause(frame) => pause(*frame, captured.direction),
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
            roce(
                stations(*flow, *from),
                &Marks {
                    tos,
                    pcp,
                    hop_limit,
                    source_port,
                },
                headers,
                *payload,
            )
        }
    }
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
