//! The time that one packet takes in this crate, beside that of its CRC alone, the lower bound.
//!
//! `cargo bench -p rockery-wire` measures. A test run executes it as well, with a handful of rounds, so that
//! it keeps compiling and measures no work that was optimised away: the digest at the end is the same in
//! both, and on every machine.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::hint::black_box;
use std::time::Instant;

use wire::{
    Aeth, Flow, Identification, MAX_HEADERS, Message, Packet, Position, Psn, Qpn, Reth, Rkey,
    Service, Syndrome, Tail, crc32, explain_identification, pad_of,
};

/// Repetitions of a measurement, of which the median counts: the machine is shared.
const SAMPLES: usize = 9;

fn main() {
    let rounds = if std::env::args().any(|argument| argument == "--bench") {
        200_000
    } else {
        100
    };
    let mut bench = Bench { rounds, digest: 0 };
    println!(
        "{:34} {:>10} {:>10} {:>10}",
        "ns per packet, payload of", "64 B", "1 KiB", "4 KiB"
    );
    bench.row("parse a WRITE", |_, bytes| {
        let (packet, payload) = Packet::parse(black_box(bytes)).expect("it was encoded");
        packet.psn.value() ^ payload.len() as u32
    });
    bench.row("parse an ACK", |case, _| {
        let (packet, _) = Packet::parse(black_box(&case.ack)).expect("it was encoded");
        packet.psn.value()
    });
    bench.row("encode a WRITE", |case, _| {
        let mut out = [0; MAX_HEADERS];
        let length = black_box(&case.packet)
            .encode(0, black_box(&mut out))
            .expect("it is consistent");
        u32::from(out[9]) ^ length as u32
    });
    bench.row("ICRC, in one piece (receive)", |case, bytes| {
        let mut icrc = black_box(&case.flow).seed(bytes.len() as u16, Identification::ZERO);
        icrc.transport(black_box(bytes));
        u32::from_le_bytes(icrc.finish())
    });
    bench.row("ICRC, headers and payload (send)", |case, bytes| {
        let (headers, payload) = bytes.split_at(case.header_length);
        let mut icrc = black_box(&case.flow).seed(bytes.len() as u16, Identification::ZERO);
        icrc.transport(black_box(headers));
        icrc.update(black_box(payload));
        u32::from_le_bytes(icrc.finish())
    });
    bench.row("ICRC, payload's CRC known", |case, bytes| {
        let (headers, payload) = bytes.split_at(case.header_length);
        let mut icrc = black_box(&case.flow).seed(bytes.len() as u16, Identification::ZERO);
        icrc.transport(black_box(headers));
        icrc.append(black_box(0x1234_5678), payload.len());
        u32::from_le_bytes(icrc.finish())
    });
    bench.row("explain an identification", |case, bytes| {
        let computed = black_box(case.computed);
        let found =
            explain_identification(computed, case.received, Identification::ZERO, bytes.len());
        u32::from(found.map_or(0, |found| found.value))
    });
    bench.row("CRC-32 of the bytes alone", |_, bytes| {
        crc32::update(0, black_box(bytes))
    });
    println!("digest {:016x}", bench.digest);
}

/// A packet of one size, with its ICRC flow and encoded bytes.
struct Case {
    packet: Packet,
    header_length: usize,
    bytes: Vec<u8>,
    ack: [u8; 16],
    flow: Flow,
    computed: [u8; 4],
    received: [u8; 4],
}

impl Case {
    fn new(payload_length: u32) -> Self {
        let reth = Reth {
            address: 0x7f00_0000_1000,
            rkey: Rkey(0x1234),
            length: payload_length,
        };
        let message = Message::Write {
            position: Position::Only,
            reth: Some(reth),
            tail: Tail::None,
        };
        let packet = Packet::new(Service::Rc, Qpn::new(0x11), Psn::new(0x12_3456), message);
        let mut headers = [0; MAX_HEADERS];
        let pad = pad_of(payload_length as usize);
        let header_length = packet.encode(pad, &mut headers).expect("it is consistent");
        let payload = (0..payload_length).map(|index| (index * 31) as u8);
        let bytes: Vec<u8> = headers[..header_length]
            .iter()
            .copied()
            .chain(payload)
            .collect();
        let mut ack = [0; MAX_HEADERS];
        let message = Message::Acknowledge(Aeth {
            syndrome: Syndrome::ACK,
            msn: 5,
        });
        let acknowledgement =
            Packet::new(Service::Rc, Qpn::new(0x12), Psn::new(0x12_3456), message);
        acknowledgement
            .encode(0, &mut ack)
            .expect("it is consistent");
        let flow = Flow::ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 0xc123, 4791);
        let icrc = |value| {
            let sent = Identification {
                value,
                dont_fragment: true,
            };
            let mut icrc = flow.seed(bytes.len() as u16, sent);
            icrc.transport(&bytes);
            icrc.finish()
        };
        let (computed, received) = (icrc(0), icrc(0x4321));
        let ack = core::array::from_fn(|index| ack[index]);
        Self {
            packet,
            header_length,
            bytes,
            ack,
            flow,
            computed,
            received,
        }
    }
}

struct Bench {
    rounds: u32,
    digest: u64,
}

impl Bench {
    fn row(&mut self, name: &str, work: impl Fn(&Case, &[u8]) -> u32) {
        print!("{name:34}");
        for payload_length in [64, 1024, 4096] {
            let case = Case::new(payload_length);
            let mut samples: Vec<f64> = (0..SAMPLES).map(|_| self.sample(&case, &work)).collect();
            samples.sort_by(f64::total_cmp);
            let median_ns = samples[SAMPLES / 2];
            self.digest = self.digest.rotate_left(5) ^ u64::from(work(&case, &case.bytes));
            print!(" {median_ns:10.1}");
            if name.starts_with("CRC") {
                print!(" ({:.0} GB/s)", case.bytes.len() as f64 / median_ns);
            }
        }
        println!();
    }

    /// Nanoseconds per round.
    fn sample(&self, case: &Case, work: &impl Fn(&Case, &[u8]) -> u32) -> f64 {
        let begin = Instant::now();
        for _ in 0..self.rounds {
            black_box(work(case, &case.bytes));
        }
        begin.elapsed().as_nanos() as f64 / f64::from(self.rounds)
    }
}
