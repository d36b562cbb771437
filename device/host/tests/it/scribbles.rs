//! A peer on the same host that overwrites all shared memory with random values while requests are executed:
//! only its own connections break.

use crate::kills::{BYTES, Card, Random, SHORT_TIMEOUT, setting, start, work};
use crate::pair::{Side, Transport, pair_of};
use rnic::{Operation, QpType, Status};
use std::fs::{File, OpenOptions, read_to_string};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use wire::Tail;

/// Number of scribblers, and the seed of the first one.
const SCRIBBLERS: &str = "ROCKERY_TEST_SCRIBBLERS";
const SEED: &str = "ROCKERY_TEST_SEED";
const SCRIBBLERS_DEFAULT: u64 = 12;
/// Longest time for which one scribbles.
const SCRIBBLES_FOR_MS: u64 = 200;
/// Words between two pauses, so that some of the requests succeed.
const WORDS_PER_PAUSE: u64 = 3;
/// Bytes of the control words at the beginning; and the offset of the rings.
const CONTROL_BYTES: u64 = 1024;
const RINGS: u64 = 1 << 16;
/// Value of the busy word of a writer that executes a request on local memory: the only value that is waited
/// for.
const BUSY: u32 = 1;

/// A mapping of this process that peers have as well: shared-memory channels, and the grant table.
struct Mapped {
    start: u64,
    bytes: u64,
}

fn mapped() -> Vec<Mapped> {
    let maps = read_to_string("/proc/self/maps").unwrap();
    let lines = maps
        .lines()
        .filter(|line| line.contains("memfd:rockery") && line.contains("rw-s"));
    let range = |line: &str| {
        let (start, rest) = line.split_once('-')?;
        let (end, _) = rest.split_once(' ')?;
        let [start, end] = [start, end].map(|text| u64::from_str_radix(text, 16).ok());
        Some(Mapped {
            start: start?,
            bytes: end? - start?,
        })
    };
    lines.filter_map(range).collect()
}

/// Overwrites memory until it is killed, mostly at locations that the peer reads.
fn scribble(seed: u64) -> ! {
    let memory: File = OpenOptions::new()
        .write(true)
        .open("/proc/self/mem")
        .unwrap();
    let (mut random, mut places) = (Random(seed), mapped());
    for turn in 0u64.. {
        if turn.is_multiple_of(WORDS_PER_PAUSE) {
            std::thread::sleep(Duration::from_micros(1));
        }
        // All mappings are closed: there may be another channel soon.
        if places.is_empty() {
            std::thread::sleep(Duration::from_millis(1));
            places = mapped();
            continue;
        }
        let place = &places[random.below(places.len() as u64) as usize];
        let at = match random.below(4) {
            0 => random.below(CONTROL_BYTES),
            // The beginnings of records.
            1 => random.below(place.bytes / 64) * 64 + random.below(16),
            2 => RINGS + random.below(1 << 13),
            _ => random.below(place.bytes),
        };
        let at = at % place.bytes / 4 * 4;
        let word = (random.below(1 << 32) >> random.below(32)) as u32;
        // A broken channel is closed.
        if word != BUSY
            && memory
                .write_all_at(&word.to_le_bytes(), place.start + at)
                .is_err()
        {
            places = mapped();
        }
    }
    unreachable!("there is always a next turn")
}

/// The process that overwrites shared memory.
pub(crate) fn scribbler(seed: u64) {
    let side = Side {
        timeout: SHORT_TIMEOUT,
        ..Side::open(QpType::Rc, BYTES)
    };
    Card::of(&side).write(std::io::stdout());
    let mut input = std::io::BufReader::new(std::io::stdin());
    let Some(peer) = Card::read(&mut input) else {
        return;
    };
    side.bring_up(peer.qpn, Transport::SharedMemory);
    Card::of(&side).write(std::io::stdout());
    // Both are connected.
    let Some(_) = Card::read(&mut input) else {
        return;
    };
    std::thread::spawn(move || scribble(seed));
    // Damage to its own process, including this thread, does not matter.
    std::thread::spawn(move || work(&side, peer, || false));
    // It ends when the process that started it has ended.
    while Card::read(&mut input).is_some() {}
}

/// Checks an unrelated connection, byte for byte.
fn go_on(one: &mut Side, other: &Side, number: u64) {
    const LENGTH: usize = 3000;
    one.memory[..LENGTH].fill(number as u8);
    other.receive(number, other.sge(BYTES / 2, LENGTH));
    let write = Operation::Write {
        address: other.sge(0, 8).address,
        rkey: other.keys.rkey,
        immediate: None,
    };
    one.post(number, write, one.sge(0, LENGTH));
    one.post(number, Operation::Send(Tail::None), one.sge(0, LENGTH));
    let done = [one.wait(2), other.wait(1)].concat();
    assert!(
        done.iter()
            .all(|completion| completion.status == Status::Success),
        "{done:?}"
    );
    for start in [0, BYTES / 2] {
        assert!(
            (start..start + LENGTH).all(|at| other.byte(at) == number as u8),
            "message {number}"
        );
        assert_eq!(other.byte(start + LENGTH), 0, "beyond message {number}");
    }
}

/// The same device has a connection to a scribbler, and an unrelated one.
#[test]
fn a_peer_that_overwrites_shared_memory_harms_only_itself() {
    let seed = setting(SEED, 1);
    let mut victim = Side {
        timeout: SHORT_TIMEOUT,
        ..Side::open(QpType::Rc, BYTES)
    };
    let (mut one, other) = pair_of(
        victim.beside(BYTES),
        Side::open(QpType::Rc, BYTES),
        Transport::SharedMemory,
    );
    let mut number = 0;
    for seed in seed..seed + setting(SCRIBBLERS, SCRIBBLERS_DEFAULT) {
        let (mut scribbler, mut output) = start("scribbler", &seed.to_string());
        let peer = Card::read(&mut output).unwrap();
        let mut input = scribbler.stdin.take().unwrap();
        Card::of(&victim).write(&mut input);
        victim.bring_up(peer.qpn, Transport::SharedMemory);
        Card::read(&mut output).unwrap();
        Card::of(&victim).write(&mut input);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| work(&victim, peer, || over.load(Ordering::Relaxed)));
            let time = Duration::from_millis(Random(seed).below(SCRIBBLES_FOR_MS));
            let start = std::time::Instant::now();
            while start.elapsed() < time {
                number += 1;
                go_on(&mut one, &other, number);
            }
            over.store(true, Ordering::Relaxed);
        });
        scribbler.kill().unwrap();
        scribbler.wait().unwrap();
        victim.renew();
        while victim.device.poll_cq(victim.cq, 64, |_| {}) > 0 {}
        go_on(&mut one, &other, number);
    }
}
