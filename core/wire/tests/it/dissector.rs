//! Wireshark reads our encoded frames: each opcode, each header around it, and the frames that pause a link.

use std::collections::HashMap;
use std::process::Command;

use crate::support::TemporaryPcap;
use wire::frame::FRAME_HEADERS_MAX;
use wire::opcode::{OPERATIONS, Operation};
use wire::{
    Aeth, AtomicEth, Deth, Ecn, EtherType, Ethernet, FrameHeaders, Identification, Ip, Ipv4, Ipv6,
    MAX_HEADERS, MacAddress, Message, Opcode, Packet, PartitionKey, Pause, Position, Psn, Qpn,
    ROCE_PORT, Reth, Rkey, Service, Syndrome, Tail, TrafficClass, Udp, VlanTag, pad_of,
};

/// The fields that are compared, by Wireshark's names.
const FIELDS: &[&str] = &[
    "_ws.malformed",
    "frame.protocols",
    "vlan.priority",
    "vlan.dei",
    "vlan.id",
    "ip.dsfield",
    "ip.id",
    "ip.flags.df",
    "ip.ttl",
    "ip.checksum.status",
    "ipv6.tclass",
    "ipv6.flow",
    "ipv6.hlim",
    "udp.srcport",
    "udp.dstport",
    "udp.length",
    "infiniband.bth.opcode",
    "infiniband.bth.se",
    "infiniband.bth.m",
    "infiniband.bth.padcnt",
    "infiniband.bth.tver",
    "infiniband.bth.p_key",
    "infiniband.bth.destqp",
    "infiniband.bth.a",
    "infiniband.bth.psn",
    "infiniband.deth.q_key",
    "infiniband.deth.srcqp",
    "infiniband.reth.va",
    "infiniband.reth.r_key",
    "infiniband.reth.dmalen",
    "infiniband.atomiceth.swapdt",
    "infiniband.atomiceth.cmpdt",
    "infiniband.aeth.syndrome",
    "infiniband.aeth.msn",
    "infiniband.atomicacketh.origremdt",
    "infiniband.immdt",
    "infiniband.ieth",
    "infiniband.invariant.crc",
    "macc.opcode",
    "macc.pause_time",
    "macc.cbfc.enbv",
    "macc.cbfc.pause_time.c0",
    "macc.cbfc.pause_time.c3",
    "macc.cbfc.pause_time.c7",
];

/// The expected values of fields.
type Expected = HashMap<&'static str, u64>;

/// Wireshark's fields of each frame: a map from field to value, absent fields left out.
fn dissect(name: &str, frames: &[Vec<u8>]) -> Vec<HashMap<&'static str, String>> {
    dissect_fields(name, frames, FIELDS)
}

/// The same for other fields.
pub(crate) fn dissect_fields(
    name: &str,
    frames: &[Vec<u8>],
    fields: &[&'static str],
) -> Vec<HashMap<&'static str, String>> {
    let capture = TemporaryPcap::write(name, frames);
    let mut tshark = Command::new("tshark");
    // Random payload must not be taken for that of a protocol above.
    for guess in [
        "smc",
        "smb_direct",
        "rpcordma",
        "nvme-rdma",
        "lnet",
        "iser",
        "infiniband_sdp",
        "fcoib",
        "drbd",
    ] {
        tshark.args(["--disable-protocol", guess]);
    }
    tshark.arg("-n").arg("-r").arg(&capture.0).args([
        "-o",
        "ip.check_checksum:TRUE",
        "-T",
        "fields",
        "-E",
        "occurrence=f",
    ]);
    fields
        .iter()
        .for_each(|field| _ = tshark.args(["-e", field]));
    let output = tshark
        .output()
        .expect("`tshark` runs: install the package tshark");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "tshark: {errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    let row = |line: &str| {
        let values = fields
            .iter()
            .copied()
            .zip(line.split('\t').map(str::to_owned));
        values.filter(|(_, value)| !value.is_empty()).collect()
    };
    let rows: Vec<_> = text.lines().map(row).collect();
    assert_eq!(rows.len(), frames.len(), "{text}{errors}");
    rows
}

/// Wireshark writes numbers as it likes, and differently from version to version.
pub(crate) fn number(text: &str) -> u64 {
    let (digits, radix) = match text {
        "True" => return 1,
        "False" => return 0,
        _ => text
            .strip_prefix("0x")
            .map_or((text, 10), |digits| (digits, 16)),
    };
    u64::from_str_radix(digits, radix).unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

fn compare_fields(what: &str, read: &HashMap<&'static str, String>, expected: &Expected) {
    assert!(
        !read.contains_key("_ws.malformed"),
        "{what}: malformed: {read:?}"
    );
    for (field, value) in expected {
        let text = read
            .get(field)
            .unwrap_or_else(|| panic!("{what}: no {field} in {read:?}"));
        // Bytes rather than a number: hexadecimal without a prefix.
        let found = match *field {
            "infiniband.immdt" | "infiniband.ieth" => number(&format!("0x{text}")),
            _ => number(text),
        };
        assert_eq!(
            found, *value,
            "{what}: {field} is {text}, should be {value:#x}"
        );
    }
    // No other extended headers than expected.
    for field in read.keys().filter(|field| is_extension(field)) {
        assert!(
            expected.contains_key(field),
            "{what}: {field} should not be there: {read:?}"
        );
    }
}

fn is_extension(field: &str) -> bool {
    field.starts_with("infiniband.") && !field.contains(".bth.") && !field.contains(".invariant.")
}

const RETH: Reth = Reth {
    address: 0x7f01_0203_0405_0600,
    rkey: Rkey(0xcafe_0001),
    length: 0x1_0005,
};
const ATOMIC_ETH: AtomicEth = AtomicEth {
    address: 0x7f01_0203_0405_0608,
    rkey: Rkey(0xcafe_0002),
    swap_add: 0x8877_6655_4433_2211,
    compare: 0x1122_3344_5566_7788,
};
const ACK: Aeth = Aeth {
    syndrome: Syndrome::ACK,
    msn: 0xab_cdef,
};
const NAK: Aeth = Aeth {
    syndrome: Syndrome::NAK_REMOTE_ACCESS,
    msn: 1,
};
const DETH: Deth = Deth {
    qkey: 0x8001_0000,
    source: Qpn::new(0x65_4321),
};
const IMMEDIATE: Tail = Tail::Immediate([0xde, 0xad, 0xbe, 0xef]);
const INVALIDATE: Tail = Tail::Invalidate(Rkey(0xcafe_0003));

/// A message with every header of the opcode, whose fields differ from each other.
fn message_of(opcode: Opcode) -> Message {
    use Operation as O;
    use Position::{First, Last, Middle, Only};
    let send = |position, tail| Message::Send { position, tail };
    let write = |position, reth, tail| Message::Write {
        position,
        reth,
        tail,
    };
    let response = |position, aeth| Message::ReadResponse { position, aeth };
    match opcode.operation {
        O::SendOnly if opcode.service == Service::Ud => Message::Datagram {
            deth: DETH,
            tail: Tail::None,
        },
        O::SendOnlyImmediate if opcode.service == Service::Ud => Message::Datagram {
            deth: DETH,
            tail: IMMEDIATE,
        },
        O::SendFirst => send(First, Tail::None),
        O::SendMiddle => send(Middle, Tail::None),
        O::SendLast => send(Last, Tail::None),
        O::SendLastImmediate => send(Last, IMMEDIATE),
        O::SendLastInvalidate => send(Last, INVALIDATE),
        O::SendOnly => send(Only, Tail::None),
        O::SendOnlyImmediate => send(Only, IMMEDIATE),
        O::SendOnlyInvalidate => send(Only, INVALIDATE),
        O::WriteFirst => write(First, Some(RETH), Tail::None),
        O::WriteMiddle => write(Middle, None, Tail::None),
        O::WriteLast => write(Last, None, Tail::None),
        O::WriteLastImmediate => write(Last, None, IMMEDIATE),
        O::WriteOnly => write(Only, Some(RETH), Tail::None),
        O::WriteOnlyImmediate => write(Only, Some(RETH), IMMEDIATE),
        O::ReadRequest => Message::read(RETH),
        O::ReadResponseFirst => response(First, Some(ACK)),
        O::ReadResponseMiddle => response(Middle, None),
        O::ReadResponseLast => response(Last, Some(ACK)),
        O::ReadResponseOnly => response(Only, Some(ACK)),
        O::Acknowledge => Message::Acknowledge(NAK),
        O::AtomicAcknowledge => Message::AtomicAcknowledge {
            aeth: ACK,
            original: 0x0102_0304_0506_0708,
        },
        O::CompareSwap => Message::CompareSwap(ATOMIC_ETH),
        O::FetchAdd => Message::FetchAdd(ATOMIC_ETH),
        O::AtomicWrite => Message::AtomicWrite(RETH),
        O::Congestion => Message::Congestion,
    }
}

fn packet_of(opcode: Opcode) -> Packet {
    let mut packet = Packet::new(
        opcode.service,
        Qpn::new(0x12_3456),
        Psn::new(0xfe_dcba),
        message_of(opcode),
    );
    packet.solicited = true;
    packet.migreq = true;
    packet.ack_req = true;
    packet.pkey = PartitionKey(0x8005);
    packet.xrc_srq = opcode.has_xrc_eth().then_some(Qpn::new(0x77));
    assert_eq!(packet.opcode(), Some(opcode));
    packet
}

/// The fields of a packet, from the decoded form alone.
fn expected_of(packet: &Packet, pad: u8) -> Expected {
    let mut expected = Expected::from([
        (
            "infiniband.bth.opcode",
            u64::from(packet.opcode().unwrap().byte()),
        ),
        ("infiniband.bth.se", u64::from(packet.solicited)),
        ("infiniband.bth.m", u64::from(packet.migreq)),
        ("infiniband.bth.padcnt", u64::from(pad)),
        ("infiniband.bth.tver", 0),
        ("infiniband.bth.p_key", u64::from(packet.pkey.0)),
        ("infiniband.bth.destqp", u64::from(packet.dest.value())),
        ("infiniband.bth.a", u64::from(packet.ack_req)),
        ("infiniband.bth.psn", u64::from(packet.psn.value())),
    ]);
    match packet.message {
        Message::Send { tail, .. } => expect_tail(&mut expected, tail),
        Message::Write { reth, tail, .. } => {
            reth.iter()
                .for_each(|reth| expect_reth(&mut expected, reth));
            expect_tail(&mut expected, tail);
        }
        Message::ReadRequest { reth, .. } | Message::AtomicWrite(reth) => {
            expect_reth(&mut expected, &reth)
        }
        Message::ReadResponse { aeth, .. } => aeth
            .iter()
            .for_each(|aeth| expect_aeth(&mut expected, aeth)),
        Message::Acknowledge(aeth) => expect_aeth(&mut expected, &aeth),
        Message::AtomicAcknowledge { aeth, original } => {
            expect_aeth(&mut expected, &aeth);
            expected.insert("infiniband.atomicacketh.origremdt", original);
        }
        Message::CompareSwap(atomic) | Message::FetchAdd(atomic) => expected.extend([
            ("infiniband.reth.va", atomic.address),
            ("infiniband.reth.r_key", u64::from(atomic.rkey.0)),
            ("infiniband.atomiceth.swapdt", atomic.swap_add),
            ("infiniband.atomiceth.cmpdt", atomic.compare),
        ]),
        Message::Datagram { deth, tail } => {
            expected.insert("infiniband.deth.q_key", u64::from(deth.qkey));
            expected.insert("infiniband.deth.srcqp", u64::from(deth.source.value()));
            expect_tail(&mut expected, tail);
        }
        Message::Congestion => {}
    }
    expected
}

fn expect_reth(expected: &mut Expected, reth: &Reth) {
    expected.insert("infiniband.reth.va", reth.address);
    expected.insert("infiniband.reth.r_key", u64::from(reth.rkey.0));
    expected.insert("infiniband.reth.dmalen", u64::from(reth.length));
}

fn expect_aeth(expected: &mut Expected, aeth: &Aeth) {
    expected.insert(
        "infiniband.aeth.syndrome",
        u64::from(aeth.syndrome.to_byte()),
    );
    expected.insert("infiniband.aeth.msn", u64::from(aeth.msn));
}

fn expect_tail(expected: &mut Expected, tail: Tail) {
    match tail {
        Tail::None => None,
        Tail::Immediate(bytes) => {
            expected.insert("infiniband.immdt", u64::from(u32::from_be_bytes(bytes)))
        }
        Tail::Invalidate(rkey) => expected.insert("infiniband.ieth", u64::from(rkey.0)),
    };
}

pub(crate) fn headers_of(v6: bool) -> FrameHeaders {
    let traffic_class = TrafficClass::new(26, Ecn::Capable0);
    let ip = match v6 {
        true => Ip::V6(Ipv6 {
            traffic_class,
            flow_label: 0xa_bcde,
            payload_length: 0,
            next_header: 17,
            hop_limit: 63,
            source: "fd77::1".parse().unwrap(),
            destination: "fd77::2".parse().unwrap(),
        }),
        false => Ip::V4(Ipv4 {
            traffic_class,
            total_length: 0,
            identification: Identification {
                value: 0x1234,
                dont_fragment: true,
            },
            ttl: 63,
            protocol: 17,
            source: [10, 77, 0, 1].into(),
            destination: [10, 77, 0, 2].into(),
        }),
    };
    FrameHeaders {
        ethernet: Ethernet {
            destination: MacAddress([2, 0, 0, 0, 0, 2]),
            source: MacAddress([2, 0, 0, 0, 0, 1]),
            vlan: v6.then_some(VlanTag {
                pcp: 3,
                dei: true,
                vid: 100,
            }),
            ethertype: EtherType::IPV4,
        },
        ip,
        udp: Udp {
            source_port: 0xc123,
            destination_port: ROCE_PORT,
            length: 0,
            checksum: 0,
        },
    }
}

/// The frame for a packet, and its ICRC.
pub(crate) fn frame_of(
    mut headers: FrameHeaders,
    packet: &Packet,
    payload: &[u8],
) -> (Vec<u8>, [u8; 4]) {
    let pad = pad_of(payload.len());
    let mut transport = [0; MAX_HEADERS];
    let length = packet.encode(pad, &mut transport).unwrap();
    let transport = [&transport[..length], payload, &[0; 3][..usize::from(pad)]].concat();
    headers.set_transport_length(transport.len() as u16);
    let mut icrc = headers.icrc();
    icrc.transport(&transport);
    let icrc = icrc.finish();
    let mut out = [0; FRAME_HEADERS_MAX];
    let length = headers.encode(&mut out);
    ([&out[..length], &transport, &icrc].concat(), icrc)
}

/// Whether Wireshark 4 dissects the headers behind this BTH: of XRC, ATOMIC WRITE and the CNP it reads the
/// BTH alone.
fn extensions_are_known(opcode: Opcode) -> bool {
    opcode.service != Service::Xrc
        && !matches!(
            opcode.operation,
            Operation::AtomicWrite | Operation::Congestion
        )
}

#[test]
fn wireshark_reads_each_opcode_as_we_mean_it() {
    let mut frames = Vec::new();
    let mut expectations = Vec::new();
    for opcode in (0..=u8::MAX).filter_map(Opcode::parse) {
        for v6 in [false, true] {
            let packet = packet_of(opcode);
            let payload: &[u8] = if opcode.has_payload() {
                &[0xa5; 5]
            } else {
                &[]
            };
            let (frame, icrc) = frame_of(headers_of(v6), &packet, payload);
            let mut expected = expected_of(&packet, pad_of(payload.len()));
            if extensions_are_known(opcode) {
                expected.insert(
                    "infiniband.invariant.crc",
                    u64::from(u32::from_be_bytes(icrc)),
                );
            } else {
                expected.retain(|field, _| !is_extension(field));
            }
            expected.insert("udp.length", frame.len() as u64 - if v6 { 58 } else { 34 });
            expected.extend(network_of(v6));
            frames.push(frame);
            expectations.push((format!("{opcode:?}, v6 {v6}"), expected));
        }
    }
    let lines: usize = OPERATIONS.iter().map(|row| row.services.len()).sum();
    assert_eq!(frames.len(), 2 * lines);
    for (read, (what, expected)) in dissect("opcodes", &frames).iter().zip(&expectations) {
        compare_fields(what, read, expected);
        assert!(
            read["frame.protocols"].contains("udp:infiniband"),
            "{what}: {read:?}"
        );
    }
}

fn network_of(v6: bool) -> Expected {
    let mut expected = Expected::from([("udp.srcport", 0xc123), ("udp.dstport", 4791)]);
    match v6 {
        true => expected.extend([
            ("vlan.priority", 3),
            ("vlan.dei", 1),
            ("vlan.id", 100),
            ("ipv6.tclass", 106),
            ("ipv6.flow", 0xa_bcde),
            ("ipv6.hlim", 63),
        ]),
        false => expected.extend([
            ("ip.dsfield", 106),
            ("ip.id", 0x1234),
            ("ip.flags.df", 1),
            ("ip.ttl", 63),
            ("ip.checksum.status", 1),
        ]),
    }
    expected
}

#[test]
fn wireshark_reads_pause_and_priority_flow_control() {
    let source = MacAddress([2, 0, 0, 0, 0, 1]);
    let mut priorities = [None; 8];
    priorities[0] = Some(1);
    priorities[3] = Some(0xffff);
    priorities[7] = Some(0);
    let frames = [
        Pause::Link(0x1234).to_frame(source).to_vec(),
        Pause::Priorities(priorities).to_frame(source).to_vec(),
    ];
    let read = dissect("pause", &frames);
    let pause = Expected::from([("macc.opcode", 0x0001), ("macc.pause_time", 0x1234)]);
    compare_fields("pause", &read[0], &pause);
    let pfc = Expected::from([
        ("macc.opcode", 0x0101),
        ("macc.cbfc.enbv", 0x0089),
        ("macc.cbfc.pause_time.c0", 1),
        ("macc.cbfc.pause_time.c3", 0xffff),
        ("macc.cbfc.pause_time.c7", 0),
    ]);
    compare_fields("priority flow control", &read[1], &pfc);
}
