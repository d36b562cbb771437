//! Captures of a running lab: packets of a port in both directions, pause frames included, as `rockery sim`
//! writes them.

use fabric::Time;
use link::lab::Header;
use sim::experiment::Experiment;
use sim::report::{captured_bytes, packet_record, pcap_header, pcap_record};
use sim::world::{Captured, CapturedFrame};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::Ipv6Addr;
use std::os::unix::fs::OpenOptionsExt;
use wire::frame::FRAME_HEADERS_MAX;
use wire::udp::PROTOCOL_UDP;
use wire::{
    EtherType, Ethernet, FrameHeaders, Ip, Ipv4, Ipv6, MacAddress, ROCE_PORT, Udp, VlanTag,
};
use wire::{Identification, TrafficClass};

/// Packets that are kept between two writes at most.
pub(crate) const CAPTURED_MAX: usize = 1 << 16;

/// A capture that runs.
#[derive(Debug)]
pub(crate) struct Capture {
    pub(crate) port: String,
    pub(crate) link: u32,
    file: File,
}

impl Capture {
    /// Begins a file. It is opened without waiting, so that a pipe without a reader does not stop the lab.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn new(port: &str, link: u32, path: &str, is_infiniband: bool) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options
            .write(true)
            .create(true)
            .truncate(true)
            .custom_flags(libc::O_NONBLOCK);
        let mut file = options.open(path)?;
        file.write_all(&pcap_header(is_infiniband))?;
        Ok(Self {
            port: port.to_owned(),
            link,
            file,
        })
    }

    /// Appends packets of the link; false when the file cannot be written any more.
    pub(crate) fn write(&mut self, frames: &[(u32, Time, Vec<u8>)]) -> bool {
        let own = frames.iter().filter(|(link, _, _)| *link == self.link);
        let records: Vec<u8> = own
            .flat_map(|(_, at, frame)| pcap_record(*at, frame))
            .collect();
        records.is_empty() || self.file.write_all(&records).is_ok()
    }
}

/// The bytes of a captured packet; `content` gives those of a live host's, by its token.
pub(crate) fn frame_of(
    experiment: &Experiment,
    captured: &Captured,
    content: impl Fn(u32, &CapturedFrame) -> Option<Vec<u8>>,
) -> Option<Vec<u8>> {
    let is_infiniband = experiment.network.infiniband.is_some();
    match captured.frame.live_token() {
        Some(token) => {
            let frame = content(token, &captured.frame)?;
            Some(if is_infiniband {
                packet_record(captured.at, captured.direction, &frame)
            } else {
                frame
            })
        }
        // The lanes of labs are paused where they have no credits: such frames are not on a link of a subnet.
        None if is_infiniband => None,
        None => Some(captured_bytes(experiment, captured)),
    }
}

/// How a packet is marked on the link where it is captured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkMarks {
    pub(crate) tos: u8,
    pub(crate) pcp: Option<u8>,
    /// The VLAN of the tag that a `pcp` is in.
    pub(crate) vlan: u16,
    pub(crate) hop_limit: u8,
}

/// The frame of a device's packet: the headers that the rings leave out, padding and ICRC.
pub(crate) fn rdma_frame(
    header: &Header,
    marks: LinkMarks,
    macs: [[u8; 6]; 2],
    transport: &[u8],
    payload: &[u8],
) -> Vec<u8> {
    let pad = usize::from(wire::pad_of(payload.len()));
    let LinkMarks {
        tos,
        pcp,
        vlan,
        hop_limit,
    } = marks;
    let [from, to] = [header.source, header.destination].map(Ipv6Addr::from);
    let ip = match (from.to_ipv4_mapped(), to.to_ipv4_mapped()) {
        (Some(source), Some(destination)) => Ip::V4(Ipv4 {
            traffic_class: TrafficClass(tos),
            total_length: 0,
            identification: Identification::ZERO,
            ttl: hop_limit,
            protocol: PROTOCOL_UDP,
            source,
            destination,
        }),
        _ => Ip::V6(Ipv6 {
            traffic_class: TrafficClass(tos),
            flow_label: 0,
            payload_length: 0,
            next_header: PROTOCOL_UDP,
            hop_limit,
            source: from,
            destination: to,
        }),
    };
    let ethernet = Ethernet {
        destination: MacAddress(macs[1]),
        source: MacAddress(macs[0]),
        vlan: pcp.map(|pcp| VlanTag {
            pcp,
            dei: false,
            vid: vlan,
        }),
        ethertype: EtherType::IPV4,
    };
    let udp = Udp {
        source_port: header.source_port,
        destination_port: ROCE_PORT,
        length: 0,
        checksum: 0,
    };
    let mut headers = FrameHeaders { ethernet, ip, udp };
    headers.set_transport_length((transport.len() + payload.len() + pad) as u16);
    let mut bytes = [0; FRAME_HEADERS_MAX];
    let length = headers.encode(&mut bytes);
    let mut body = [transport, payload].concat();
    body.resize(body.len() + pad, 0);
    wire::set_pad(&mut body, pad as u8);
    let mut icrc = headers.icrc();
    icrc.transport(&body);
    let mut frame = [&bytes[..length], &body].concat();
    frame.extend_from_slice(&icrc.finish());
    frame
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn a_captured_packet_is_a_frame_with_the_icrc_that_it_wants() {
        let address = |last| Ipv4Addr::new(10, 0, 0, last).to_ipv6_mapped().octets();
        let v6 = |last| Ipv6Addr::new(0xfd6c, 0x6162, 0, 0, 0, 0, 0, last).octets();
        let transport = [
            0x0a, 0, 0xff, 0xff, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
            0, 5,
        ];
        for [source, destination] in [[address(1), address(2)], [v6(1), v6(2)]] {
            let header = Header {
                stamp: 0,
                source,
                destination,
                traffic_class: 0,
                hop_limit: 64,
                source_port: 50_000,
                service_level: 0,
            };
            let marks = LinkMarks {
                tos: 0x6b,
                pcp: None,
                vlan: 0,
                hop_limit: 63,
            };
            let frame = rdma_frame(
                &header,
                marks,
                [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]],
                &transport,
                b"hello",
            );
            let (headers, body) = FrameHeaders::parse(&frame).expect("a whole frame");
            let (body, icrc) = body.split_last_chunk::<4>().expect("an ICRC");
            let mut wanted = headers.icrc();
            wanted.transport(body);
            assert_eq!(wanted.finish(), *icrc);
            assert_eq!(body.len(), transport.len() + 8);
            assert_eq!(body[1] >> 4 & 3, 3, "three bytes of padding");
        }
    }
}
