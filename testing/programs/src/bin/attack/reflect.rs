//! Attacks that have a listener of `rockery doctor probe` send load to another host.

use doctor::probe::{LoadOrder, ProbeMessage};
use programs::namespace::Process;
use programs::probe::Probe;
use programs::{Namespace, Rockery};
use rand_core::RngCore;
use wire::{Deth, Message, Packet, Psn, Qpn, Service, Tail};

use crate::Outcome;
use crate::place::{Blasted, Effort, Place, random, route, v4, wait_for};

/// The queue pair number and queue key of probes.
const PROBE: Qpn = Qpn::new(0x00ff_fffe);
const PROBE_QKEY: u32 = 0x726b_7062;
/// BTH and DETH before a message.
const BEFORE: usize = 12 + 8;
/// The rate of one order and its time: 25 MB.
const KBPS: u32 = 100_000;
const MILLIS: u32 = 2_000;
/// Forged orders a second.
const RATE: u32 = 2_000;
/// Forged orders with nonces by chance, beside those with nonces that listeners have given.
const GUESSES: usize = 200;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn packet(from: &Namespace, to: &Namespace, message: ProbeMessage) -> Vec<u8> {
    let deth = Deth {
        qkey: PROBE_QKEY,
        source: PROBE,
    };
    let tail = Tail::None;
    let header = Packet::new(
        Service::Ud,
        PROBE,
        Psn::new(0),
        Message::Datagram { deth, tail },
    );
    route(v4(from), to).packet(&header, &message.to_bytes(0))
}

fn order(nonce: u64, stream: u32) -> ProbeMessage {
    ProbeMessage::Order(LoadOrder {
        nonce,
        stream,
        traffic_class: 2,
        bytes: 1500,
        kbps: KBPS,
        millis: MILLIS,
    })
}

/// `rockery doctor probe --listen` in a namespace.
fn listen(machine: &Namespace, more: &[&str]) -> Result<Process, String> {
    let rockery = Rockery::built();
    let program = rockery.path().to_string_lossy().into_owned();
    let words = [&[&*program, "doctor", "probe", "--listen"], more].concat();
    let mut listener = machine.start_plain(&words).map_err(text)?;
    wait_for(&mut listener, "answering")?;
    Ok(listener)
}

/// Asks the listener with the attacker's own address; returns the nonce of its answer.
fn nonce(place: &Place) -> Result<u64, String> {
    let look = ProbeMessage::Look {
        question: 7,
        traffic_class: 2,
    };
    let file = place.folder.path().join("look");
    let bytes = packet(&place.attacker, &place.peer, look);
    std::fs::write(&file, bytes).map_err(text)?;
    let ask = Probe::compile_with("cc", "ask", &[]).map_err(text)?;
    let (program, file) = (ask.path().to_string_lossy(), file.to_string_lossy());
    let own = v4(&place.attacker).to_string();
    let argv = [&*program, &own, "4791", &*file];
    let said = place.attacker.start_plain(&argv).map_err(text)?;
    let said = crate::place::output_of(said)?;
    let byte = |index: usize| u8::from_str_radix(said.get(2 * index..2 * index + 2)?, 16).ok();
    let answer: Vec<u8> = (BEFORE..).map_while(byte).collect();
    match ProbeMessage::parse(&answer) {
        Some(ProbeMessage::Seen(seen)) => Ok(seen.nonce),
        other => Err(format!("{other:?} in place of an answer: {said}")),
    }
}

/// The bytes that a machine's interface has received.
fn received(machine: &Namespace) -> Result<u64, String> {
    let said = machine.call("cat /sys/class/net/eth0/statistics/rx_bytes");
    said.map_err(text)?.trim().parse().map_err(text)
}

/// Orders load in the victim's name, with a nonce that the listener gave the attacker, nonces beside it, and
/// nonces by chance. The same order in the attacker's own name shows that it is right otherwise.
pub(crate) fn load(effort: Effort) -> Outcome {
    let place = Place::new().map_err(text)?;
    let [victim, attacker] = [&place.victim, &place.attacker].map(|it| v4(it).to_string());
    let rate = format!("{KBPS}kb/s");
    let from = ["--load", &rate, "--from", &victim, "--from", &attacker];
    let _listener = listen(&place.peer, &from)?;
    // Without a program on port 4791 its kernel's ICMP would end a stream.
    let _victim = listen(&place.victim, &[])?;
    let nonce = nonce(&place)?;

    let mut chance = random(34);
    let near = [
        nonce,
        nonce.wrapping_add(1),
        nonce.wrapping_sub(1),
        !nonce,
        0,
    ];
    let guesses = (0..GUESSES).map(|_| chance.next_u64());
    let forged: Vec<Vec<u8>> = near
        .into_iter()
        .chain(guesses)
        .enumerate()
        .map(|(stream, nonce)| packet(&place.victim, &place.peer, order(nonce, stream as u32)))
        .collect();
    let each = forged[0].len() as u64;
    let before = received(&place.victim)?;
    let Blasted { packets } = place.blast(&forged, RATE, effort).map_err(text)?;
    std::thread::sleep(std::time::Duration::from_millis(MILLIS.into()));
    let reflected = received(&place.victim)?.saturating_sub(before);
    // Frames have 14 bytes more than packets; neighbours are resolved meanwhile.
    let sent = packets * (each + 14) + 4096;

    let before = received(&place.attacker)?;
    let own = [packet(&place.attacker, &place.peer, order(nonce, 1))];
    place.blast(&own, 10, Effort::Short).map_err(text)?;
    let ordered = received(&place.attacker)?.saturating_sub(before);
    if ordered < u64::from(KBPS) * u64::from(MILLIS) / 8 / 10 {
        return Err(format!(
            "an order in the attacker's own name was sent {ordered} bytes only"
        ));
    }
    match reflected <= sent {
        true => Ok(format!(
            "{packets} orders in its name, {sent} bytes: it received {reflected}"
        )),
        false => Err(format!("{sent} bytes in its name: it received {reflected}")),
    }
}
