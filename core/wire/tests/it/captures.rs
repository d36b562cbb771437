//! Every RoCEv2 packet of the golden captures is parsed, encoded again to the same bytes, and has the ICRC
//! that we compute; its fields are those of the captures' index.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

use crate::support::{captures, read_pcap};
use wire::frame::FRAME_HEADERS_MAX;
use wire::icrc::ICRC_SIZE;
use wire::opcode::Operation;
use wire::{
    Aeth, Flow, FrameError, FrameHeaders, Icrc, Identification, Ip, MAX_HEADERS, Message, Packet,
    ROCE_PORT, Service, Syndrome, explain_identification, pad_of, split_icrc,
};

/// The number of RoCEv2 packets in the captures, from their README.
const PACKETS: usize = 1830;

/// A frame taken apart.
pub(crate) struct Dissected<'a> {
    headers: FrameHeaders,
    transport: &'a [u8],
    pub(crate) packet: Packet,
    pub(crate) payload: &'a [u8],
    icrc: [u8; ICRC_SIZE],
}

/// `None` for frames that are not RoCEv2: the captures hold ARP, neighbour discovery, and TCP as well.
fn dissect(frame: &[u8]) -> Option<Dissected<'_>> {
    let (headers, datagram) = match FrameHeaders::parse(frame) {
        Ok((headers, datagram)) if headers.udp.destination_port == ROCE_PORT => (headers, datagram),
        Ok(_) | Err(FrameError::EtherType { .. } | FrameError::Protocol { .. }) => return None,
        Err(error) => panic!("{error}"),
    };
    let (transport, icrc) = split_icrc(datagram).unwrap();
    let (packet, payload) = Packet::parse(transport).unwrap();
    Some(Dissected {
        headers,
        transport,
        packet,
        payload,
        icrc,
    })
}

/// Calls `check` with the name of the capture and each of its packets; sees to it that none is missed.
pub(crate) fn for_each_packet(mut check: impl FnMut(&str, &[u8], Dissected<'_>)) {
    let mut count = 0;
    for path in files() {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        for frame in read_pcap(&path) {
            if let Some(dissected) = dissect(&frame) {
                check(&name, &frame, dissected);
                count += 1;
            }
        }
    }
    assert_eq!(count, PACKETS);
}

fn files() -> Vec<std::path::PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(captures())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "pcap")
    });
    paths.sort();
    paths
}

fn flow_of(headers: &FrameHeaders) -> Flow {
    let (source, destination) = (headers.udp.source_port, headers.udp.destination_port);
    match headers.ip {
        Ip::V4(ip) => Flow::ipv4(ip.source, ip.destination, source, destination),
        Ip::V6(ip) => Flow::ipv6(ip.source, ip.destination, source, destination),
    }
}

fn identification_of(headers: &FrameHeaders) -> Identification {
    match headers.ip {
        Ip::V4(ip) => ip.identification,
        Ip::V6(_) => Identification::ZERO,
    }
}

fn finish(mut icrc: Icrc, transport: &[u8]) -> [u8; ICRC_SIZE] {
    icrc.transport(transport);
    icrc.finish()
}

#[test]
fn every_packet_is_encoded_to_the_bytes_that_linux_sent() {
    for_each_packet(|name, frame, dissected| {
        let Dissected {
            headers,
            packet,
            payload,
            ..
        } = dissected;
        let pad = pad_of(payload.len());
        let mut transport_headers = [0; MAX_HEADERS];
        let length = packet.encode(pad, &mut transport_headers).unwrap();
        let transport = [
            &transport_headers[..length],
            payload,
            &[0; 3][..usize::from(pad)],
        ]
        .concat();
        let seed = flow_of(&headers).seed(transport.len() as u16, identification_of(&headers));
        let icrc = finish(seed, &transport);

        let mut lengths_again = headers;
        lengths_again.set_transport_length(transport.len() as u16);
        assert_eq!(lengths_again, headers, "{name}");
        let mut frame_headers = [0; FRAME_HEADERS_MAX];
        let length = headers.encode(&mut frame_headers);
        let encoded = [&frame_headers[..length], &transport, &icrc].concat();
        assert_eq!(encoded, frame, "{name}: {packet:?}");
    });
}

#[test]
fn every_icrc_is_right() {
    for_each_packet(|name, _, dissected| {
        let Dissected {
            headers,
            transport,
            packet,
            icrc,
            ..
        } = dissected;
        assert_eq!(
            finish(headers.icrc(), transport),
            icrc,
            "{name}: {packet:?}"
        );
    });
}

#[test]
fn identifications_are_found_without_the_ip_header() {
    let mut counting: HashMap<(String, Flow4), Vec<u16>> = HashMap::new();
    for_each_packet(|name, _, dissected| {
        let Dissected {
            headers,
            transport,
            icrc,
            ..
        } = dissected;
        let Ip::V4(ip) = headers.ip else { return };
        let length = transport.len() as u16;
        let computed = finish(
            flow_of(&headers).seed(length, Identification::ZERO),
            transport,
        );
        let found = explain_identification(computed, icrc, Identification::ZERO, transport.len());
        assert_eq!(found, Some(ip.identification), "{name}");
        let flow = (
            ip.source.octets(),
            ip.destination.octets(),
            headers.udp.source_port,
        );
        counting
            .entry((name.to_owned(), flow))
            .or_default()
            .push(ip.identification.value);
    });
    let gaps = counting
        .values()
        .flat_map(|values| values.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])));
    let (up, other): (Vec<u16>, Vec<u16>) = gaps.partition(|gap| (1..0x8000).contains(gap));
    assert!(
        other.is_empty(),
        "identifications of a flow count up, {} times of {} not",
        other.len(),
        up.len()
    );
}

type Flow4 = ([u8; 4], [u8; 4], u16);

#[test]
fn damage_is_not_taken_for_an_identification() {
    let mut seen = 0;
    for_each_packet(|name, _, dissected| {
        let Dissected {
            headers,
            transport,
            icrc,
            ..
        } = dissected;
        if !matches!(headers.ip, Ip::V4(_)) {
            return;
        }
        let seed = flow_of(&headers).seed(transport.len() as u16, Identification::ZERO);
        for byte in 0..transport.len().min(64) {
            let mut damaged = transport.to_vec();
            damaged[byte] ^= 0x10;
            let computed = finish(seed, &damaged);
            let found = explain_identification(computed, icrc, Identification::ZERO, damaged.len());
            assert_eq!(
                found.is_some(),
                byte == wire::bth::BTH_VARIANT_BYTE,
                "{name}: byte {byte}"
            );
            seen += 1;
        }
    });
    assert!(seen > 50_000, "{seen}");
}

#[test]
fn flows_are_what_the_index_says() {
    let index = fs::read_to_string(captures().join("index.tsv")).unwrap();
    let mut expected: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in index.lines().skip(1) {
        expected
            .entry(line.split('\t').next().unwrap())
            .or_default()
            .push(line);
    }
    let mut packets = 0;
    for path in files() {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let lines = index_of(&path);
        assert_eq!(lines, expected.remove(name).unwrap_or_default(), "{name}");
        packets += lines
            .iter()
            .map(|line| line.split('\t').nth(2).unwrap().parse::<usize>().unwrap())
            .sum::<usize>();
    }
    assert!(expected.is_empty(), "no capture for {expected:?}");
    assert_eq!(packets, PACKETS);
}

/// The lines of the index for one capture, in the order in which its flows begin.
fn index_of(path: &Path) -> Vec<String> {
    let mut flows: Vec<(String, Vec<(Packet, usize)>)> = Vec::new();
    let frames = read_pcap(path);
    for dissected in frames.iter().filter_map(|frame| dissect(frame)) {
        let flow = format!(
            "{} > {:#08x}",
            source_of(&dissected.headers),
            dissected.packet.dest.value()
        );
        let row = (dissected.packet, dissected.payload.len());
        match flows.iter_mut().find(|(name, _)| *name == flow) {
            Some((_, rows)) => rows.push(row),
            None => flows.push((flow, vec![row])),
        }
    }
    let file = path.file_stem().unwrap().to_str().unwrap();
    flows
        .iter()
        .map(|(flow, rows)| line_of(file, flow, rows))
        .collect()
}

fn line_of(file: &str, flow: &str, rows: &[(Packet, usize)]) -> String {
    let first = rows[0].0.psn.value();
    let last = rows[rows.len() - 1].0.psn.value();
    let longest = rows.iter().map(|(_, length)| length).max().unwrap();
    let opcodes = runs(rows.iter().map(|(packet, _)| name_of(packet)));
    let naks = runs(rows.iter().filter_map(|(packet, _)| nak_of(packet)));
    let naks = if naks.is_empty() {
        "-".to_owned()
    } else {
        naks
    };
    format!(
        "{file}\t{flow}\t{}\t{first:#08x}\t{last:#08x}\t{longest}\t{opcodes}\t{naks}",
        rows.len()
    )
}

fn source_of(headers: &FrameHeaders) -> String {
    match headers.ip {
        Ip::V4(ip) => ip.source.to_string(),
        Ip::V6(ip) => ip
            .source
            .segments()
            .map(|segment| format!("{segment:04x}"))
            .join(":"),
    }
}

/// Equal neighbours counted.
fn runs(names: impl Iterator<Item = String>) -> String {
    let mut runs: Vec<(String, usize)> = Vec::new();
    for name in names {
        match runs.last_mut() {
            Some((last, count)) if *last == name => *count += 1,
            _ => runs.push((name, 1)),
        }
    }
    let text = |(name, count): &(String, usize)| match count {
        1 => name.clone(),
        _ => format!("{name}*{count}"),
    };
    runs.iter().map(text).collect::<Vec<_>>().join(" ")
}

fn nak_of(packet: &Packet) -> Option<String> {
    let aeth: Option<Aeth> = match packet.message {
        Message::Acknowledge(aeth) | Message::AtomicAcknowledge { aeth, .. } => Some(aeth),
        Message::ReadResponse { aeth, .. } => aeth,
        _ => None,
    };
    let syndrome = aeth?.syndrome;
    (!matches!(syndrome, Syndrome::Ack(_))).then(|| format!("{:#04x}", syndrome.to_byte()))
}

fn name_of(packet: &Packet) -> String {
    use Operation as O;
    let service = match packet.service {
        Service::Rc => "RC",
        Service::Uc => "UC",
        Service::Ud => "UD",
        Service::Xrc => "XRC",
    };
    let operation = match packet.opcode().unwrap().operation {
        O::SendFirst => "SEND_FIRST",
        O::SendMiddle => "SEND_MIDDLE",
        O::SendLast => "SEND_LAST",
        O::SendLastImmediate => "SEND_LAST_IMM",
        O::SendOnly => "SEND_ONLY",
        O::SendOnlyImmediate => "SEND_ONLY_IMM",
        O::WriteFirst => "WRITE_FIRST",
        O::WriteMiddle => "WRITE_MIDDLE",
        O::WriteLast => "WRITE_LAST",
        O::WriteLastImmediate => "WRITE_LAST_IMM",
        O::WriteOnly => "WRITE_ONLY",
        O::WriteOnlyImmediate => "WRITE_ONLY_IMM",
        O::ReadRequest => "READ_REQUEST",
        O::ReadResponseFirst => "READ_FIRST",
        O::ReadResponseMiddle => "READ_MIDDLE",
        O::ReadResponseLast => "READ_LAST",
        O::ReadResponseOnly => "READ_ONLY",
        O::Acknowledge => "ACK",
        O::AtomicAcknowledge => "ATOMIC_ACK",
        O::CompareSwap => "CMP_SWAP",
        O::FetchAdd => "FETCH_ADD",
        O::SendLastInvalidate => "SEND_LAST_INV",
        O::SendOnlyInvalidate => "SEND_ONLY_INV",
        O::AtomicWrite => "ATOMIC_WRITE",
        O::Congestion => "CNP",
    };
    format!("{service}_{operation}")
}
