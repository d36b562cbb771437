//! A device with traffic in progress, and packets from an address that it trusts.
//!
//! The input is a list of steps: a byte that chooses the event, a length, and the bytes of a packet from the
//! BTH on.
#![no_main]

#[path = "../../../core/rnic/tests/it/bench.rs"]
#[allow(dead_code, reason = "the fuzzer takes a part of the bench")]
mod bench;

use bench::{ALL, BASE, Bench, START};
use rnic::{Config, Operation, QpType, ReceiveRequest, Sge};
use wire::{Message, Packet, Psn, Reth, Rkey, Tail};

/// Steps of one input at most: faults show early.
const STEPS_MAX: usize = 64;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((&kind, steps)) = bytes.split_first() else {
        return;
    };
    let config = Config {
        out_of_order: kind & 1 != 0,
        reorder_window: 16,
        ..Config::default()
    };
    let transport = [QpType::Rc, QpType::Uc, QpType::Ud][usize::from(kind >> 1) % 3];
    let mut bench = Bench::with(transport, config, ALL);
    let mut rest = steps;
    for _ in 0..STEPS_MAX {
        let Some(([action, length], after)) =
            rest.split_first_chunk().map(|(head, rest)| (*head, rest))
        else {
            break;
        };
        let (packet, after) = after.split_at(usize::from(length).min(after.len()));
        rest = after;
        receive(&mut bench, packet, action);
        work(&mut bench, action);
    }
    bench.sent();
});

/// Hands a packet to the device, aimed: at its queue pair, near its PSNs, often with its key.
fn receive(bench: &mut Bench, bytes: &[u8], action: u8) {
    let Ok((mut packet, payload)) = Packet::parse(bytes) else {
        return;
    };
    packet.dest = bench.qpn;
    packet.psn = Psn::new(START + packet.psn.value() % 24).minus(8);
    let rkey = bench.rkey();
    if action & 1 == 0 {
        packet.message = with_key(packet.message, rkey);
    }
    // The longest packets do not fit a length byte: some are filled up to the path MTU.
    let full = [0x5a; bench::MTU];
    let payload = if action & 2 != 0 { &full } else { payload };
    bench.receive_from(&bench.arrival(), &packet, payload);
}

fn with_key(message: Message, rkey: Rkey) -> Message {
    let aimed = |reth: Reth| Reth {
        rkey,
        address: BASE + reth.address % 0x1_0000,
        ..reth
    };
    match message {
        Message::Write {
            position,
            reth,
            tail,
        } => Message::Write {
            position,
            reth: reth.map(aimed),
            tail,
        },
        Message::ReadRequest {
            reth,
            response_only,
        } => Message::ReadRequest {
            reth: aimed(reth),
            response_only,
        },
        Message::AtomicWrite(reth) => Message::AtomicWrite(aimed(reth)),
        Message::CompareSwap(mut eth) => {
            (eth.rkey, eth.address) = (rkey, BASE + eth.address % 0x1_0000);
            Message::CompareSwap(eth)
        }
        Message::FetchAdd(mut eth) => {
            (eth.rkey, eth.address) = (rkey, BASE + eth.address % 0x1_0000);
            Message::FetchAdd(eth)
        }
        other => other,
    }
}

/// The program and the clock go on meanwhile.
fn work(bench: &mut Bench, action: u8) {
    let element = |length| Sge {
        address: BASE,
        length,
        lkey: bench.keys.lkey,
    };
    let elements = [element(8), element(3000)];
    // A queue that is full, or in error, may refuse.
    let _ = match action >> 2 & 7 {
        0 => bench.post_sges(1, Operation::Send(Tail::None), &elements[1..]),
        1 => bench.post_sges(
            2,
            Operation::Read {
                address: BASE,
                rkey: Rkey(1),
            },
            &elements[1..],
        ),
        2 => bench.post_sges(
            3,
            Operation::FetchAdd {
                address: BASE,
                rkey: Rkey(1),
                add: 1,
            },
            &elements[..1],
        ),
        3 => {
            let request = ReceiveRequest {
                id: 4,
                sges: &elements[1..],
            };
            bench.device.post_receive(bench.qpn, &request, bench.now)
        }
        _ => Ok(()),
    };
    if action & 0x20 != 0 {
        bench.sent();
    }
    if action & 0x40 != 0 && bench.device.next_timeout().is_some() {
        bench.wait();
    }
}
