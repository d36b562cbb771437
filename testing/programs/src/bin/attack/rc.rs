//! Attacks on a reliable connection whose queue pair number the attacker knows.

use std::net::Ipv4Addr;

use programs::forge::Route;
use programs::{Machine, Namespace, Rockery};
use rand_core::RngCore;
use wire::{Aeth, Message, Packet, Psn, Qpn, Service, Syndrome};

use crate::Outcome;
use crate::place::{Effort, Place, random, route, v4};

/// Packets a second, as many as the rough proof of these attacks needed to end a connection in 0.3 s.
const RATE: u32 = 20_000;
/// Distinct packets, which are sent round robin.
const PACKETS: usize = 60_000;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Packets that a transfer has sent before it is attacked: programs have exchanged everything by then.
const UNDER_WAY: u64 = 1_000;

/// The number of the queue pair by which a program of this machine sends data on a reliable connection.
pub(crate) fn queue_pair_of(machine: &Namespace) -> Result<u32, String> {
    let rockery = Rockery::built();
    let list = format!("{} devices", rockery.path().display());
    let mut number = None;
    let found = programs::machine::until(60, || {
        number = machine.call(&list)?.lines().find_map(sending_queue_pair);
        Ok(number.is_some())
    });
    match (found, number) {
        (Ok(true), Some(number)) => Ok(number),
        _ => Err("no program sends data on a reliable connection".to_owned()),
    }
}

/// The number in a line `QP 0xc78511 RC RTS to … sent 1234 packets …` of `rockery devices`.
fn sending_queue_pair(line: &str) -> Option<u32> {
    let (digits, rest) = line.trim().strip_prefix("QP 0x")?.split_once(" RC ")?;
    let sent: u64 = rest
        .split("sent ")
        .nth(1)?
        .split(' ')
        .next()?
        .parse()
        .ok()?;
    if sent < UNDER_WAY {
        return None;
    }
    u32::from_str_radix(digits, 16).ok()
}

/// Runs `ib_write_bw` from the victim to its peer, sends what `forge` makes in the peer's name to the
/// victim's queue pair meanwhile, and looks whether the transfer ended well.
fn against_a_transfer(effort: Effort, forge: impl Fn(&Route, Qpn) -> Vec<Vec<u8>>) -> Outcome {
    let place = Place::new().map_err(text)?;
    let seconds = (effort.seconds() + 10).to_string();
    let words = ["ib_write_bw", "-F", "-s", "65536", "-D", &seconds];
    let mut server = place.peer.start(&words).map_err(text)?;
    place.peer.wait_for_listener(18515, 60).map_err(text)?;
    let address = v4(&place.peer).to_string();
    let mut client = place
        .victim
        .start(&[&words[..], &[&address]].concat())
        .map_err(text)?;
    let number = queue_pair_of(&place.victim)?;
    let source: Ipv4Addr = v4(&place.peer);
    let packets = forge(&route(source, &place.victim), Qpn::new(number));
    let sent = place.blast(&packets, RATE, effort).map_err(text)?;
    let client = client.wait(120).map_err(text)?;
    let server = server.wait(120).map_err(text)?;
    if !client.succeeded() || !server.succeeded() {
        return Err(format!(
            "{} packets ended the connection: {}",
            sent.packets, client.output
        ));
    }
    Ok(format!("{} packets; the transfer ended well", sent.packets))
}

/// NAKs of every code at PSNs all over the space: the attacker does not know the PSN.
pub(crate) fn naks(effort: Effort) -> Outcome {
    against_a_transfer(effort, |route, victim| {
        let mut random = random(5);
        let codes = [
            Syndrome::NAK_INVALID_REQUEST,
            Syndrome::NAK_REMOTE_ACCESS,
            Syndrome::NAK_REMOTE_OPERATIONAL,
        ];
        let nak = |number: usize| {
            let aeth = Aeth {
                syndrome: codes[number % codes.len()],
                msn: random.next_u32() & 0xff_ffff,
            };
            let psn = Psn::new(random.next_u32() & 0xff_ffff);
            route.packet(
                &Packet::new(Service::Rc, victim, psn, Message::Acknowledge(aeth)),
                &[],
            )
        };
        (0..PACKETS).map(nak).collect()
    })
}

/// Congestion notification packets, which have no PSN.
pub(crate) fn notifications(effort: Effort) -> Outcome {
    against_a_transfer(effort, |route, victim| {
        let packet = Packet {
            becn: true,
            ..Packet::new(Service::Rc, victim, Psn::new(0), Message::Congestion)
        };
        vec![route.packet(&packet, &[0; 16])]
    })
}

/// Transport headers of random bytes, but for the queue pair number, with up to 64 bytes behind them.
pub(crate) fn garbage(effort: Effort) -> Outcome {
    against_a_transfer(effort, |route, victim| {
        let mut random = random(6);
        let datagram = |_| {
            let mut bytes = vec![0; 12 + 4 * (random.next_u32() as usize % 16)];
            random.fill_bytes(&mut bytes);
            // Opcodes of RC (0x00 to 0x17), so that the packets pass the first look.
            bytes[0] = (random.next_u32() % 0x18) as u8;
            bytes[1] &= 0xf0;
            bytes[2..4].copy_from_slice(&[0xff, 0xff]);
            bytes[4] = 0;
            bytes[5..8].copy_from_slice(&victim.value().to_be_bytes()[1..]);
            route.datagram(&bytes)
        };
        (0..PACKETS).map(datagram).collect()
    })
}
