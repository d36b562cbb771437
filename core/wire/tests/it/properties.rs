//! Random packets and random bytes.

use proptest::prelude::*;
use proptest::sample::select;

use crate::contract;
use wire::opcode::{HeaderKind, OPERATIONS, Operation};
use wire::{
    Aeth, AtomicEth, Deth, Flow, FrameHeaders, Identification, MAX_HEADERS, Message, Opcode,
    Packet, PartitionKey, Position, Psn, Qpn, Reth, Rkey, Service, Syndrome, Tail,
    explain_identification, pad_of,
};

/// Every opcode there is.
fn opcodes() -> impl Strategy<Value = Opcode> {
    let all = OPERATIONS
        .iter()
        .flat_map(|row| row.services.iter().map(|&service| (service, row.operation)));
    select(
        all.filter_map(|(service, operation)| Opcode::new(service, operation))
            .collect::<Vec<_>>(),
    )
}

fn qpns() -> impl Strategy<Value = Qpn> {
    any::<u32>().prop_map(Qpn::new)
}

fn aeths() -> impl Strategy<Value = Aeth> {
    let syndromes = any::<u8>().prop_map(Syndrome::parse);
    (syndromes, 0..1u32 << 24).prop_map(|(syndrome, msn)| Aeth { syndrome, msn })
}

fn reths() -> impl Strategy<Value = Reth> {
    any::<(u64, u32, u32)>().prop_map(|(address, rkey, length)| Reth {
        address,
        rkey: Rkey(rkey),
        length,
    })
}

fn atomics() -> impl Strategy<Value = AtomicEth> {
    any::<(u64, u32, u64, u64)>().prop_map(|(address, rkey, swap_add, compare)| AtomicEth {
        address,
        rkey: Rkey(rkey),
        swap_add,
        compare,
    })
}

fn deths() -> impl Strategy<Value = Deth> {
    (any::<u32>(), qpns()).prop_map(|(qkey, source)| Deth { qkey, source })
}

/// The extended headers of any packet: each opcode takes those that it has.
fn extensions() -> impl Strategy<Value = Extensions> {
    let fields = (
        reths(),
        aeths(),
        atomics(),
        deths(),
        any::<[u8; 4]>(),
        any::<u32>(),
        any::<u64>(),
    );
    let fields = (fields, any::<bool>());
    fields.prop_map(
        |((reth, aeth, atomic, deth, immediate, invalidate, original), response_only)| Extensions {
            reth,
            response_only,
            aeth,
            atomic,
            deth,
            immediate,
            invalidate: Rkey(invalidate),
            original,
        },
    )
}

#[derive(Clone, Copy, Debug)]
struct Extensions {
    reth: Reth,
    response_only: bool,
    aeth: Aeth,
    atomic: AtomicEth,
    deth: Deth,
    immediate: [u8; 4],
    invalidate: Rkey,
    original: u64,
}

impl Extensions {
    /// A message of an opcode, with the headers that the table gives it.
    fn message(&self, opcode: Opcode) -> Message {
        use Operation as O;
        let headers = opcode.row().headers;
        let tail = match headers.last() {
            Some(HeaderKind::Immediate) => Tail::Immediate(self.immediate),
            Some(HeaderKind::Ieth) => Tail::Invalidate(self.invalidate),
            _ => Tail::None,
        };
        let reth = headers.contains(&HeaderKind::Reth).then_some(self.reth);
        let aeth = headers.contains(&HeaderKind::Aeth).then_some(self.aeth);
        let position = position_of(opcode.operation);
        match opcode.operation {
            _ if opcode.service == Service::Ud => Message::Datagram {
                deth: self.deth,
                tail,
            },
            O::Congestion => Message::Congestion,
            O::ReadRequest => Message::ReadRequest {
                reth: self.reth,
                response_only: self.response_only,
            },
            O::AtomicWrite => Message::AtomicWrite(self.reth),
            O::Acknowledge => Message::Acknowledge(self.aeth),
            O::AtomicAcknowledge => Message::AtomicAcknowledge {
                aeth: self.aeth,
                original: self.original,
            },
            O::CompareSwap => Message::CompareSwap(self.atomic),
            O::FetchAdd => Message::FetchAdd(self.atomic),
            operation
                if (O::ReadResponseFirst as u8..=O::ReadResponseOnly as u8)
                    .contains(&(operation as u8)) =>
            {
                Message::ReadResponse { position, aeth }
            }
            operation
                if (O::WriteFirst as u8..=O::WriteOnlyImmediate as u8)
                    .contains(&(operation as u8)) =>
            {
                Message::Write {
                    position,
                    reth,
                    tail,
                }
            }
            _ => Message::Send { position, tail },
        }
    }
}

fn position_of(operation: Operation) -> Position {
    use Operation as O;
    match operation {
        O::SendFirst | O::WriteFirst | O::ReadResponseFirst => Position::First,
        O::SendMiddle | O::WriteMiddle | O::ReadResponseMiddle => Position::Middle,
        O::SendLast
        | O::SendLastImmediate
        | O::SendLastInvalidate
        | O::WriteLast
        | O::WriteLastImmediate
        | O::ReadResponseLast => Position::Last,
        _ => Position::Only,
    }
}

prop_compose! {
    fn packets()(
        opcode in opcodes(),
        flags in any::<[bool; 5]>(),
        pkey in any::<u16>(),
        dest in qpns(),
        psn in any::<u32>(),
        srq in qpns(),
        extensions in extensions(),
    ) -> (Opcode, Packet) {
        let [solicited, migreq, fecn, becn, ack_req] = flags;
        let xrc_srq = opcode.has_xrc_eth().then_some(srq);
        let (pkey, psn, message) = (PartitionKey(pkey), Psn::new(psn), extensions.message(opcode));
        let header = Packet::new(opcode.service, dest, psn, message);
        (opcode, Packet { solicited, migreq, fecn, becn, pkey, ack_req, xrc_srq, ..header })
    }
}

/// A packet as bytes, its padding included.
fn bytes_of(packet: &Packet, payload: &[u8]) -> Vec<u8> {
    let pad = pad_of(payload.len());
    let mut headers = [0; MAX_HEADERS];
    let length = packet.encode(pad, &mut headers).unwrap();
    [&headers[..length], payload, &[0; 3][..usize::from(pad)]].concat()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn parsing_what_was_encoded_gives_the_packet_back(
        (opcode, packet) in packets(),
        payload in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let payload = if opcode.has_payload() { payload } else { Vec::new() };
        let bytes = bytes_of(&packet, &payload);
        prop_assert_eq!(packet.opcode(), Some(opcode));
        prop_assert_eq!(bytes[0], opcode.byte());
        prop_assert_eq!(opcode.header_size() + payload.len().next_multiple_of(4), bytes.len());
        prop_assert_eq!(Packet::parse(&bytes), Ok((packet, payload.as_slice())));
    }

    #[test]
    fn encoding_what_was_parsed_gives_the_bytes_back(
        opcode in opcodes(),
        flags in any::<u8>(),
        mut bytes in prop::collection::vec(any::<u8>(), 12..80),
    ) {
        // Opcode and version are made right, so that more than one in a thousand of these parses.
        bytes[0] = opcode.byte();
        bytes[1] = flags & 0xf0;
        contract::transport(&bytes);
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        contract::transport(&bytes);
        contract::frame(&bytes);
        let ethernet = [&[0; 12], &[8, 0][..], &bytes].concat();
        contract::frame(&ethernet);
    }

    #[test]
    fn a_packet_cut_anywhere_within_its_headers_is_refused(
        (opcode, packet) in packets(),
        cut in any::<prop::sample::Index>(),
    ) {
        let bytes = bytes_of(&packet, &[]);
        let length = cut.index(opcode.header_size());
        prop_assert!(Packet::parse(&bytes[..length]).is_err());
    }

    #[test]
    fn one_wrong_bit_spoils_the_icrc_and_any_identification_is_found(
        (opcode, packet) in packets(),
        payload in prop::collection::vec(any::<u8>(), 0..256),
        wrong in any::<prop::sample::Index>(),
        value in any::<u16>(),
    ) {
        let payload = if opcode.has_payload() { payload } else { Vec::new() };
        let bytes = bytes_of(&packet, &payload);
        let flow = Flow::ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 0xc123, 4791);
        let sent = Identification { value, dont_fragment: true };
        let icrc = |identification, bytes: &[u8]| {
            let mut icrc = flow.seed(bytes.len() as u16, identification);
            icrc.transport(bytes);
            icrc.finish()
        };
        let right = icrc(sent, &bytes);
        let assumed = Identification::ZERO;
        let found = explain_identification(icrc(assumed, &bytes), right, assumed, bytes.len());
        prop_assert_eq!(found, Some(sent));
        let mut damaged = bytes.clone();
        let bit = wrong.index(bytes.len() * 8);
        damaged[bit / 8] ^= 1 << (bit % 8);
        let outside = bit / 8 == wire::bth::BTH_VARIANT_BYTE;
        prop_assert_eq!(icrc(sent, &damaged) == right, outside);
    }

    #[test]
    fn one_wrong_bit_in_ip_or_udp_spoils_the_icrc_unless_routers_may_change_it(
        source in any::<u32>(),
        v6 in any::<bool>(),
        wrong in any::<prop::sample::Index>(),
    ) {
        let frame = frame_of(source, v6);
        let (headers, transport) = FrameHeaders::parse(&frame).unwrap();
        let mut right = headers.icrc();
        right.transport(transport);
        let ip_and_udp = 14..frame.len() - transport.len();
        let bit = wrong.index(ip_and_udp.len() * 8);
        let mut damaged = frame.clone();
        damaged[14 + bit / 8] ^= 1 << (bit % 8);
        let changed = raw_icrc(&damaged, v6, transport);
        prop_assert_eq!(changed == right.finish(), may_change(bit, v6), "bit {}", bit);
    }
}

/// The cost of solving for the identification, as documented: one damaged packet in 2^15 is accepted.
#[test]
fn damage_is_excused_as_seldom_as_promised() {
    let mut state = 1u32;
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state
    };
    let mut excused = 0;
    for _ in 0..1 << 20 {
        let (computed, received) = (random().to_le_bytes(), random().to_le_bytes());
        let length = 12 + 4 * (random() >> 22) as usize;
        excused += usize::from(
            explain_identification(computed, received, Identification::ZERO, length).is_some(),
        );
    }
    // 32 are to be expected; the generator is fixed, so the count is the same in every run.
    assert!((10..60).contains(&excused), "{excused}");
}

/// An acknowledgement in a frame of either family.
fn frame_of(source: u32, v6: bool) -> Vec<u8> {
    use wire::udp::PROTOCOL_UDP;
    let ip = if v6 {
        wire::Ip::V6(wire::Ipv6 {
            traffic_class: wire::TrafficClass(2),
            flow_label: source & 0xf_ffff,
            payload_length: 0,
            next_header: PROTOCOL_UDP,
            hop_limit: 64,
            source: core::net::Ipv4Addr::from(source).to_ipv6_mapped(),
            destination: core::net::Ipv6Addr::LOCALHOST,
        })
    } else {
        wire::Ip::V4(wire::Ipv4 {
            traffic_class: wire::TrafficClass(2),
            total_length: 0,
            identification: Identification::ZERO,
            ttl: 64,
            protocol: PROTOCOL_UDP,
            source: source.into(),
            destination: core::net::Ipv4Addr::LOCALHOST,
        })
    };
    let ethernet = wire::Ethernet {
        destination: wire::MacAddress([2; 6]),
        source: wire::MacAddress([4; 6]),
        vlan: None,
        ethertype: wire::EtherType::IPV4,
    };
    let udp = wire::Udp {
        source_port: 0xc000,
        destination_port: 4791,
        length: 0,
        checksum: 0,
    };
    let mut headers = FrameHeaders { ethernet, ip, udp };
    let message = Message::Acknowledge(Aeth {
        syndrome: Syndrome::ACK,
        msn: 1,
    });
    let mut transport = [0; MAX_HEADERS];
    let length = Packet::new(Service::Rc, Qpn::new(1), Psn::new(2), message)
        .encode(0, &mut transport)
        .unwrap();
    headers.set_transport_length(length as u16);
    let mut out = [0; wire::frame::FRAME_HEADERS_MAX];
    let header_length = headers.encode(&mut out);
    // Four more bytes, because the lengths count the ICRC.
    [&out[..header_length], &transport[..length], &[0; 4]].concat()
}

/// The ICRC over the bytes of a frame as they are, right or wrong.
fn raw_icrc(frame: &[u8], v6: bool, transport: &[u8]) -> [u8; 4] {
    let mut icrc = match v6 {
        true => wire::Icrc::over_ipv6(
            frame[14..54].try_into().unwrap(),
            frame[54..62].try_into().unwrap(),
        ),
        false => wire::Icrc::over_ipv4(
            frame[14..34].try_into().unwrap(),
            frame[34..42].try_into().unwrap(),
        ),
    };
    icrc.transport(transport);
    icrc.finish()
}

/// Whether Annex A17.3.3 leaves this bit of IP and UDP headers out.
fn may_change(bit: usize, v6: bool) -> bool {
    let byte = bit / 8;
    match v6 {
        // Traffic class and flow label (not the version), hop limit; UDP checksum.
        true => byte == 0 && bit % 8 < 4 || matches!(byte, 1..=3 | 7 | 46 | 47),
        // Type of service, time to live, header checksum; UDP checksum.
        false => matches!(byte, 1 | 8 | 10 | 11 | 26 | 27),
    }
}
