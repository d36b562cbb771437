//! Requests that the Linux kernel sent, answered by this device as the kernel answered them.
//!
//! The kernel's keys in the captures are replaced by the device's; invalid ones are altered in the same way.

use crate::bench::*;
use rnic::*;
use std::fs;
use std::path::Path as FilePath;
use wire::{AtomicEth, FrameHeaders, Ip, Message, Packet, Psn, Reth, Rkey, Syndrome, split_icrc};

/// A packet of a capture.
#[derive(Clone, Debug)]
pub(crate) struct Captured {
    pub(crate) packet: Packet,
    pub(crate) payload: Vec<u8>,
    pub(crate) from_requester: bool,
}

/// The compared properties of an answer: PSN, message, and payload length.
type Answer = (Psn, Message, usize);

/// Parameters of the kernel's responder, where they differ from the usual ones.
#[derive(Clone, Copy)]
struct SetUp {
    mtu: Mtu,
    access: Access,
    receive_length: u32,
    /// Offset of the first request in the region, whose length is [`REGION`].
    offset: u64,
}

/// Bytes of the region that the requests go to.
const REGION: u64 = 1 << 20;

const USUAL: SetUp = SetUp {
    mtu: Mtu::B1024,
    access: ALL,
    receive_length: 60_000,
    offset: REGION / 2,
};

pub(crate) fn capture(name: &str) -> Vec<Captured> {
    let folder = FilePath::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/data/captures");
    let bytes = fs::read(folder.join(format!("{name}.pcap"))).unwrap();
    let length = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let mut packets = Vec::new();
    let mut at = 24;
    while at < bytes.len() {
        let frame = &bytes[at + 16..at + 16 + length(at + 8)];
        at += 16 + frame.len();
        let Ok((headers, datagram)) = FrameHeaders::parse(frame) else {
            continue;
        };
        let (packet, payload) = Packet::parse(split_icrc(datagram).unwrap().0).unwrap();
        let Ip::V4(ip) = headers.ip else {
            panic!("IPv4 expected")
        };
        let from_requester = ip.source.octets()[3] == 12;
        packets.push(Captured {
            packet,
            payload: payload.to_vec(),
            from_requester,
        });
    }
    packets
}

/// The device in place of the kernel's responder.
struct Responder {
    bench: Bench,
    set_up: SetUp,
    keys: Option<(Rkey, Rkey)>,
    captured: Vec<Captured>,
}

impl Responder {
    fn new(name: &str, set_up: SetUp) -> Self {
        let captured = capture(name);
        let first = captured
            .iter()
            .find(|captured| captured.from_requester)
            .unwrap()
            .packet
            .psn;
        let mut bench = Bench::new(QpType::Rc);
        bench.memory.0.resize(REGION as usize, 0);
        let qpn = bench.device.create_qp(&bench.init(QpType::Rc)).unwrap();
        connect_from(&mut bench.device, QpType::Rc, qpn, first, set_up.mtu);
        bench.qpn = qpn;
        Self {
            bench,
            set_up,
            keys: None,
            captured,
        }
    }

    /// Registers memory at the address of the first request, and replaces its key.
    fn exchange(&mut self, address: u64, rkey: Rkey) -> Rkey {
        let SetUp { access, offset, .. } = self.set_up;
        let bench = &mut self.bench;
        let (theirs, ours) = *self.keys.get_or_insert_with(|| {
            let iova = address - offset;
            let init = RegionInit {
                address: BASE,
                length: REGION,
                iova,
                access,
            };
            (
                rkey,
                bench.device.memory().register(bench.pd, init).unwrap().rkey,
            )
        });
        Rkey(rkey.0 ^ theirs.0 ^ ours.0)
    }

    fn ours(&mut self, message: Message) -> Message {
        let mut reth = |reth: Reth| match reth.length {
            0 => reth,
            _ => Reth {
                rkey: self.exchange(reth.address, reth.rkey),
                ..reth
            },
        };
        match message {
            Message::Write {
                position,
                reth: header,
                tail,
            } => Message::Write {
                position,
                reth: header.map(reth),
                tail,
            },
            Message::ReadRequest { reth: header, .. } => Message::read(reth(header)),
            Message::CompareSwap(eth) => Message::CompareSwap(self.atomic(eth)),
            Message::FetchAdd(eth) => Message::FetchAdd(self.atomic(eth)),
            other => other,
        }
    }

    fn atomic(&mut self, eth: AtomicEth) -> AtomicEth {
        AtomicEth {
            rkey: self.exchange(eth.address, eth.rkey),
            ..eth
        }
    }

    /// Stores the old value that the kernel reported for an atomic at its address, before the request.
    fn prepare(&mut self, psn: Psn, message: &Message, seen: &mut Vec<u64>) {
        let (Message::CompareSwap(eth) | Message::FetchAdd(eth)) = message else {
            return;
        };
        if seen.contains(&eth.address) {
            return;
        }
        seen.push(eth.address);
        let answer = self
            .captured
            .iter()
            .find(|other| !other.from_requester && other.packet.psn == psn);
        let Some(Message::AtomicAcknowledge { original, .. }) =
            answer.map(|found| found.packet.message)
        else {
            return;
        };
        let first = seen[0];
        let offset = (self.set_up.offset + eth.address - first) as usize;
        self.bench.memory.0[offset..offset + 8].copy_from_slice(&original.to_ne_bytes());
    }

    /// Feeds the requests; returns what the device answers and what the kernel answered.
    fn replay(
        mut self,
        ready: impl Fn(usize) -> bool,
    ) -> (Vec<Answer>, Vec<Answer>, Vec<(u64, Status)>) {
        let requests: Vec<_> = self
            .captured
            .iter()
            .filter(|other| other.from_requester)
            .cloned()
            .collect();
        let mut answers = Vec::new();
        let mut seen = Vec::new();
        for (
            index,
            Captured {
                packet, payload, ..
            },
        ) in requests.into_iter().enumerate()
        {
            self.prepare(packet.psn, &packet.message, &mut seen);
            let message = self.ours(packet.message);
            if ready(index) && matches!(message, Message::Send { .. } | Message::Write { .. }) {
                // A full receive queue is no error here: it always has one receive.
                let sges = [Sge {
                    address: BASE,
                    length: self.set_up.receive_length,
                    lkey: self.bench.keys.lkey,
                }];
                let request = ReceiveRequest { id: 1, sges: &sges };
                let _ = self
                    .bench
                    .device
                    .post_receive(self.bench.qpn, &request, self.bench.now);
            }
            let packet = Packet {
                dest: self.bench.qpn,
                message,
                ..packet
            };
            self.bench
                .receive_from(&self.bench.arrival(), &packet, &payload);
            let sent = self.bench.sent().into_iter();
            answers
                .extend(sent.map(|(packet, length)| (packet.psn, packet.message, length as usize)));
        }
        let theirs = self.captured.iter().filter(|other| !other.from_requester);
        let theirs = theirs
            .map(|other| (other.packet.psn, other.packet.message, other.payload.len()))
            .collect();
        (answers, theirs, self.bench.completions())
    }
}

#[test]
fn every_request_of_the_kernel_is_answered_as_the_kernel_answered_it() {
    let jumbo = SetUp {
        mtu: Mtu::B4096,
        ..USUAL
    };
    let read_only = SetUp {
        access: Access::LOCAL_WRITE | Access::REMOTE_READ,
        ..USUAL
    };
    let at_the_end = SetUp {
        offset: REGION - 50,
        ..USUAL
    };
    let cases = [
        ("rc_send_small", USUAL),
        ("rc_send_multi_mtu1024", USUAL),
        ("rc_send_multi_mtu4096", jumbo),
        ("rc_send_imm", USUAL),
        ("rc_write_single", USUAL),
        ("rc_write_multi_mtu1024", USUAL),
        ("rc_write_multi_mtu4096", jumbo),
        ("rc_write_imm", USUAL),
        ("rc_read_single", USUAL),
        ("rc_read_multi_mtu1024", USUAL),
        ("rc_read_multi_mtu4096", jumbo),
        ("rc_atomic_fetch_add", USUAL),
        ("rc_atomic_cmp_swap", USUAL),
        ("rc_atomic_values", USUAL),
        ("rc_padding", USUAL),
        ("rc_zero_length", USUAL),
        ("rc_psn_wrap", USUAL),
        ("rc_bad_rkey_write", USUAL),
        ("rc_read_only_region", read_only),
        ("rc_out_of_bounds", at_the_end),
    ];
    for (name, set_up) in cases {
        let (ours, theirs, _) = Responder::new(name, set_up).replay(|_| true);
        assert_eq!(ours, theirs, "{name}");
    }
}

#[test]
fn a_receiver_that_is_not_ready_answers_as_the_kernel_does() {
    let (ours, theirs, _) = Responder::new("rc_rnr_exhausted", USUAL).replay(|_| false);
    assert_eq!(ours, theirs);
    // Three attempts without a receive, and then there is one.
    let (ours, theirs, _) = Responder::new("rc_rnr_recovered", USUAL).replay(|index| index >= 3);
    assert_eq!(ours, theirs);
}

/// The one deviation: the kernel answers a message that is too long with "remote operational error", where
/// IBTA 9.7.4.1.4 requires "invalid request".
#[test]
fn a_message_that_is_too_long_is_refused_as_the_specification_says() {
    for (name, receive_length) in [("rc_send_too_long", 64), ("rc_send_too_long_multi", 1500)] {
        let set_up = SetUp {
            receive_length,
            ..USUAL
        };
        let (ours, theirs, completions) = Responder::new(name, set_up).replay(|_| true);
        let syndrome = |answers: &[Answer]| match answers {
            [(psn, Message::Acknowledge(aeth), 0)] => (*psn, aeth.syndrome),
            other => panic!("{other:?}"),
        };
        let (psn, found) = syndrome(&ours);
        assert_eq!(found, Syndrome::NAK_INVALID_REQUEST);
        assert_eq!(syndrome(&theirs), (psn, Syndrome::NAK_REMOTE_OPERATIONAL));
        assert_eq!(completions[0], (1, Status::LocalLength));
    }
}

/// These captures have losses in both directions: the requests in a capture arrived, and some of the kernel's
/// answers are not in it. Those that are equal the device's, in order.
#[test]
fn duplicate_requests_are_answered_as_the_kernel_answers_them() {
    for name in ["rc_loss_send", "rc_loss_write"] {
        let (ours, theirs, _) = Responder::new(name, USUAL).replay(|_| true);
        let mut ours = ours.iter();
        let unmatched = theirs
            .iter()
            .find(|theirs| !ours.any(|ours| ours == *theirs));
        assert_eq!(unmatched, None, "{name}");
    }
}
