//! NVMe against Linux' packets over TCP and RDMA, and random bytes.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::captures::for_each_packet;
use crate::contract;
use crate::support::{captures, read_pcap};
use wire::cm::CmMad;
use wire::nvme::tcp::{CommonHeader, Digests, ENCODED_MAX, Frame, Header, Kind};
use wire::nvme::{
    Admin, Command, Completion, Fabrics, Io, Sgl, discovery, dsm, fabrics, identify, log, opcode,
    rdma, reservation, text,
};
use wire::{Message, Qpn};

/// Data of one direction of one connection: ports of sender and receiver, and the bytes in order.
fn tcp_streams(name: &str) -> BTreeMap<(u16, u16), Vec<u8>> {
    let mut segments = BTreeMap::<(u16, u16), BTreeMap<u32, Vec<u8>>>::new();
    for frame in read_pcap(&captures().join(name)) {
        let (ip, is_tcp) = (&frame[14..], frame[12..14] == [8, 0] && frame[23] == 6);
        if !is_tcp {
            continue;
        }
        let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
        let tcp = &ip[usize::from(ip[0] & 15) * 4..total];
        let port = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
        let sequence = u32::from_be_bytes(tcp[4..8].try_into().unwrap());
        let data = tcp[usize::from(tcp[12] >> 4) * 4..].to_vec();
        let flow = segments.entry((port(0), port(2))).or_default();
        let is_first = tcp[13] & 2 != 0;
        let sequence = if is_first {
            sequence.wrapping_add(1)
        } else {
            sequence
        };
        let kept = flow.entry(sequence).or_default();
        if kept.len() < data.len() {
            *kept = data;
        }
    }
    let join = |flow: BTreeMap<u32, Vec<u8>>| {
        let mut next = *flow.keys().next().unwrap();
        let mut bytes = Vec::new();
        for (sequence, data) in flow {
            let known = next.wrapping_sub(sequence) as usize;
            if known < data.len() {
                bytes.extend(&data[known..]);
                next = next.wrapping_add((data.len() - known) as u32);
            }
        }
        bytes
    };
    segments
        .into_iter()
        .map(|(ports, flow)| (ports, join(flow)))
        .collect()
}

/// The PDUs of a stream: each one's header, data and bytes.
fn pdus(mut stream: &[u8]) -> Vec<(Header, Frame, &[u8])> {
    let mut found = Vec::new();
    while let Some((common, behind)) = CommonHeader::split(stream) {
        let frame = Frame::parse(&common, Digests::default(), 1 << 20).unwrap();
        let header = Header::parse(frame.kind, behind).unwrap();
        let (pdu, rest) = stream.split_at(common.length as usize);
        found.push((header, frame, pdu));
        stream = rest;
    }
    found
}

#[test]
fn every_tcp_pdu_is_encoded_to_the_bytes_that_linux_sent() {
    let mut kinds = BTreeMap::new();
    for name in ["nvmeof_tcp_discover.pcap", "nvmeof_tcp_io.pcap"] {
        for (_, stream) in tcp_streams(name) {
            for (header, frame, pdu) in pdus(&stream) {
                let mut again = [0; ENCODED_MAX];
                let end = header.encode(frame.flags, Digests::default(), frame.data, 4, &mut again);
                // Linux sets the offset of data even where there are none.
                if frame.data == 0 {
                    again[3] = pdu[3];
                }
                assert_eq!(again[..end], pdu[..end], "{name}: {header:?}");
                *kinds.entry(frame.kind as u8).or_insert(0) += 1;
            }
        }
    }
    let all = [
        Kind::InitializeRequest,
        Kind::InitializeResponse,
        Kind::Command,
        Kind::Response,
        Kind::HostData,
        Kind::ControllerData,
        Kind::ReadyToTransfer,
    ];
    assert_eq!(
        kinds.keys().copied().collect::<Vec<_>>(),
        all.map(|kind| kind as u8)
    );
}

#[test]
fn the_kernels_pdus_over_tcp_are_parsed() {
    let streams = tcp_streams("nvmeof_tcp_io.pcap");
    let from_host = |ports: &&(u16, u16)| ports.1 == 4420;
    let mut connects = Vec::new();
    for ports in streams.keys().filter(from_host) {
        for (header, frame, pdu) in pdus(&streams[ports]) {
            let Header::Command(command) = header else {
                continue;
            };
            let is_connect = command.opcode == opcode::FABRICS && command.fabrics_type() == 1;
            if is_connect {
                let data = &pdu[frame.before_data..];
                let (data, _) = fabrics::ConnectData::split(data).unwrap();
                connects.push((fabrics::Connect::parse(&command), data));
            }
        }
    }
    connects.sort_by_key(|(connect, _)| connect.queue_id);
    let [(admin, admin_data), (io, io_data)] = connects.as_slice() else {
        panic!("two queues")
    };
    assert_eq!(
        (admin.queue_id, admin.size, admin.keep_alive_ms),
        (0, 31, 5000)
    );
    assert_eq!((io.queue_id, io.size), (1, 15));
    assert_eq!(
        text::text_of(&admin_data.subsystem),
        Some("nqn.2024-01.org.example:lab")
    );
    assert_eq!(
        (admin_data.controller_id, io_data.controller_id),
        (0xffff, 1)
    );
    assert_eq!(admin_data.host_id, io_data.host_id);
}

#[test]
fn identify_data_of_nvmet_is_parsed() {
    let streams = tcp_streams("nvmeof_tcp_io.pcap");
    let mut identified = Vec::new();
    for stream in streams
        .iter()
        .filter(|(ports, _)| ports.0 == 4420)
        .map(|(_, stream)| stream)
    {
        for (header, frame, pdu) in pdus(stream) {
            if matches!(header, Header::ControllerData(_)) && frame.data == 4096 {
                identified.push(pdu[frame.before_data..][..4096].to_vec());
            }
        }
    }
    let (controller, _) = identify::Controller::split(&identified[0]).unwrap();
    assert_eq!(
        text::text_of(&controller.subsystem),
        Some("nqn.2024-01.org.example:lab")
    );
    assert_eq!(text::text_of(&controller.model), Some("Linux"));
    assert_eq!(
        (
            controller.version,
            controller.controller_id,
            controller.kind
        ),
        (0x1_0300, 1, 1)
    );
    assert_eq!(
        (controller.command_capsule, controller.commands_max),
        ((64 + 16384) / 16, 1024)
    );
    let namespace = identified
        .iter()
        .map(|bytes| identify::Namespace::split(bytes).unwrap().0);
    let sizes = namespace.filter(|it| it.size == 16 << 11 && it.format0 == [0, 0, 9, 0]);
    assert!(sizes.count() >= 1);
}

#[test]
fn the_kernels_capsules_over_rdma_are_parsed() {
    let (mut commands, mut requests, mut accepts) = (0, Vec::new(), Vec::new());
    let mut keyed = 0;
    for_each_packet(|name, _, dissected| {
        if name != "nvmeof_rdma_io" {
            return;
        }
        if dissected.packet.dest == Qpn::GSI {
            let mad = CmMad::parse(dissected.payload).unwrap();
            match mad.message {
                wire::cm::CmMessage::Req(req) => {
                    let data = &req.private_data[wire::cm::CMA_HEADER_SIZE..];
                    requests.push(rdma::Request::split(data).unwrap().0);
                }
                wire::cm::CmMessage::Rep(rep) => {
                    accepts.push(rdma::Accept::split(&rep.private_data).unwrap().0);
                }
                _ => {}
            }
        }
        let is_send = matches!(dissected.packet.message, Message::Send { .. });
        if is_send && dissected.payload.len() >= 64 {
            let (command, _) = Command::split(dissected.payload).unwrap();
            assert_eq!(command.to_bytes(), dissected.payload[..64], "{command:?}");
            commands += 1;
            keyed += usize::from(matches!(command.sgl(), Ok(Sgl::Keyed { length: 1.., .. })));
        }
    });
    assert_eq!(
        requests.iter().map(|it| it.queue_id).collect::<Vec<_>>(),
        [0, 1]
    );
    assert_eq!((requests[0].receive_size, requests[0].send_size), (32, 31));
    assert!(
        accepts
            .iter()
            .all(|it| it.format == 0 && it.receive_size > 0)
    );
    assert!(
        commands > 20 && keyed > 5,
        "{commands} commands, {keyed} with keys"
    );
}

/// A function that parses a structure's first bytes and writes them again.
type Again = fn(&[u8]) -> Option<(Vec<u8>, &'static [core::ops::Range<usize>])>;

macro_rules! structures {
    ($($path:path),+ $(,)?) => {
        &[$((stringify!($path), {
            fn again(bytes: &[u8]) -> Option<(Vec<u8>, &'static [core::ops::Range<usize>])> {
                let (it, _) = <$path>::split(bytes)?;
                Some((it.to_bytes().to_vec(), <$path>::FIELDS))
            }
            again as Again
        })),+]
    };
}

const STRUCTURES: &[(&str, Again)] = structures![
    Command,
    Completion,
    fabrics::ConnectData,
    rdma::Request,
    rdma::Accept,
    rdma::Reject,
    dsm::Range,
    dsm::CopyRange,
    reservation::RegisterData,
    reservation::AcquireData,
    reservation::ReleaseData,
    reservation::ReportHead,
    reservation::Registrant,
    reservation::RegistrantExtended,
    discovery::Head,
    discovery::Entry,
    log::Error,
    log::Health,
    log::Firmware,
    log::AnaHead,
    log::AnaGroup,
    log::Reservation,
    identify::Controller,
    identify::Namespace,
    identify::NvmController,
    identify::IndependentNamespace,
];

proptest! {
    #[test]
    fn structures_keep_their_fields_and_clear_the_rest(bytes in prop::collection::vec(any::<u8>(), 4096)) {
        for (name, again) in STRUCTURES {
            let (written, fields) = again(&bytes).unwrap();
            for (at, byte) in written.iter().enumerate() {
                let is_field = fields.iter().any(|field| field.contains(&at));
                let expected = if is_field { bytes[at] } else { 0 };
                prop_assert_eq!(*byte, expected, "{}: byte {}", name, at);
            }
            prop_assert!(again(&bytes[..written.len() - 1]).is_none());
        }
    }

    #[test]
    fn random_pdus_keep_the_contract(
        kind in 0..12u8, flags in 0..16u8, header in 0..130u8, offset in any::<u8>(), length in 0..9000u32,
        rest in prop::collection::vec(any::<u8>(), 0..160),
    ) {
        let [a, b, c, d] = length.to_le_bytes();
        let right = Kind::parse(kind).map_or(header, Kind::header_length);
        for header in [header, right] {
            contract::nvme(&[&[kind, flags, header, offset, a, b, c, d], rest.as_slice()].concat());
        }
    }

    #[test]
    fn fields_of_commands_survive(
        a in any::<u32>(), b in any::<u32>(), c in any::<u64>(), wide in any::<bool>(),
    ) {
        let connect = fabrics::Connect {
            format: a as u16,
            queue_id: (a >> 16) as u16,
            size: b as u16,
            attributes: (b >> 16) as u8,
            keep_alive_ms: c as u32,
        };
        prop_assert_eq!(fabrics::Connect::parse(&connect.to_command(1)), connect);
        let property = fabrics::Property { wide, offset: a, value: c };
        prop_assert_eq!(
            fabrics::Property::parse(&property.to_command(Fabrics::PropertySet, 1)), Some(property)
        );
        let page = log::Request {
            page: a as u8,
            specific: b as u8 & 0x7f,
            retain: wide,
            length: u64::from(a) / 4 * 4 + 4,
            offset: c,
        };
        prop_assert_eq!(log::Request::parse(&page.to_command(1, 2)), page);
    }
}

#[test]
fn directions_are_what_the_opcodes_say() {
    use opcode::Direction::{FromHost, None, ToHost};
    let of = |byte: u8| opcode::Direction::of(byte);
    assert_eq!(
        [Io::Write, Io::Read, Io::Flush, Io::Compare].map(|it| of(it as u8)),
        [FromHost, ToHost, None, FromHost]
    );
    assert_eq!(
        [Io::DatasetManagement, Io::Copy].map(|it| of(it as u8)),
        [FromHost; 2]
    );
    assert_eq!(
        [Admin::Identify, Admin::GetLogPage].map(|it| of(it as u8)),
        [ToHost; 2]
    );
    assert!(
        Io::ALL
            .iter()
            .all(|it| Io::parse(*it as u8) == Some(*it) && !it.name().is_empty())
    );
    assert!(
        Admin::ALL
            .iter()
            .all(|it| Admin::parse(*it as u8) == Some(*it))
    );
    assert!(
        Fabrics::ALL
            .iter()
            .all(|it| Fabrics::parse(*it as u8) == Some(*it))
    );
}
