//! A peer on the same host is killed, at any moment. Half of the victims grant memory that they have mapped
//! shared, which their peers map as well.

use crate::pair::{Side, Transport};
use crate::sys::Mapping;
use rnic::{Completion, Operation, QpType, RegionKeys, Status};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use wire::{Qpn, Rkey, Tail};

/// Number of kills, and the seed.
const KILLS: &str = "ROCKERY_TEST_KILLS";
const SEED: &str = "ROCKERY_TEST_SEED";
/// Number of kills in every test run.
const KILLS_DEFAULT: u64 = 200;
/// Survivors at a time: most of their time they wait for timeouts.
const SURVIVORS: u64 = 4;
/// Kills before the survivor's resources are counted.
const WARM: u64 = 5;
/// Sockets that a device makes when it sends packets, once.
const PACKET_SOCKETS: usize = 32;
pub(crate) const BYTES: usize = 1 << 16;
/// Argument of a victim that grants a shared mapping.
const SHARED: &str = "shared";
const SHARED_BYTES: usize = 4 << 20;
/// Requests that are posted at once.
const DEPTH: u64 = 16;
/// IDs of receives begin here; those of sends with 0.
const RECEIVE: u64 = 1 << 32;
/// The code of the ACK timeout: 17 ms, so a kill is detected after 140.
const TIMEOUT: u8 = 12;
/// The survivor's: 4 ms, so a kill is detected after 34.
pub(crate) const SHORT_TIMEOUT: u8 = 10;

/// The data that the two processes exchange: queue pair, key, address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Card {
    pub(crate) qpn: Qpn,
    pub(crate) rkey: Rkey,
    pub(crate) address: u64,
}

impl Card {
    /// A card without data: its sender is ready.
    pub(crate) const NONE: Self = Self {
        qpn: Qpn::new(0),
        rkey: Rkey(0),
        address: 0,
    };

    /// The card of memory that was registered for this side's queue pair.
    pub(crate) fn granting(side: &Side, keys: RegionKeys, address: u64) -> Self {
        Self {
            qpn: side.qpn,
            rkey: keys.rkey,
            address,
        }
    }

    pub(crate) fn of(side: &Side) -> Self {
        Self {
            qpn: side.qpn,
            rkey: side.keys.rkey,
            address: side.memory.as_ptr() as u64,
        }
    }

    pub(crate) fn write(self, mut to: impl Write) {
        writeln!(
            to,
            "card {} {} {}",
            self.qpn.value(),
            self.rkey.0,
            self.address
        )
        .unwrap();
        to.flush().unwrap();
    }

    /// Reads a card; `None` when the other end is closed. A test program prints lines of its own, which are
    /// skipped.
    pub(crate) fn read(from: &mut impl BufRead) -> Option<Self> {
        for line in from.lines() {
            let line = line.ok()?;
            let Some((_, card)) = line.split_once("card ") else {
                continue;
            };
            let mut numbers = card.split(' ').map(|number| number.parse::<u64>().unwrap());
            let mut next = || numbers.next().unwrap();
            let (qpn, rkey) = (Qpn::new(next() as u32), Rkey(next() as u32));
            return Some(Self {
                qpn,
                rkey,
                address: next(),
            });
        }
        None
    }
}

/// Keeps requests of all kinds outstanding, until it is killed or the connection ends. Returns the status of
/// the first request that failed.
pub(crate) fn work(side: &Side, peer: Card, until: impl Fn() -> bool) -> Option<Status> {
    let (mut posted, mut done, mut failed) = (0u64, 0, None);
    (0..DEPTH).for_each(|_| side.receive(RECEIVE, side.sge(0, 4096)));
    while failed.is_none() && !until() {
        while posted < done + DEPTH && failed.is_none() {
            let (address, rkey) = (peer.address + BYTES as u64 / 2, peer.rkey);
            let (operation, length) = match posted % 5 {
                0 => (
                    Operation::Write {
                        address,
                        rkey,
                        immediate: None,
                    },
                    1 + posted as usize % 30_000,
                ),
                1 => (
                    Operation::Read { address, rkey },
                    1 + posted as usize % 30_000,
                ),
                2 => (
                    Operation::FetchAdd {
                        address,
                        rkey,
                        add: 1,
                    },
                    8,
                ),
                _ => (Operation::Send(Tail::None), posted as usize % 4096),
            };
            side.post(posted, operation, side.sge(BYTES / 2, length));
            posted += 1;
        }
        let mut received = 0;
        side.device.poll_cq(side.cq, 16, |completion: &Completion| {
            match (completion.status, completion.id >= RECEIVE) {
                (Status::Success, true) => received += 1,
                (Status::Success, false) => done += 1,
                (status, false) => failed = failed.or(Some(status)),
                (_, true) => {}
            }
        });
        (0..received).for_each(|_| side.receive(RECEIVE, side.sge(0, 4096)));
    }
    failed
}

/// Random numbers of a run, from its seed (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

pub(crate) fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(otherwise)
}

/// Starts another process of a test, with pipes to it: a part of `tests/it/processes/main.rs`, which starts
/// processes too.
pub(crate) fn start(part: &str, argument: &str) -> (Child, BufReader<std::process::ChildStdout>) {
    let program = option_env!("CARGO_BIN_EXE_host-test-processes").map(PathBuf::from);
    let mut child = Command::new(program.unwrap_or_else(|| std::env::current_exe().unwrap()))
        .args([part, argument])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    (child, output)
}

/// The process that is killed. It grants `memory` that is shared or private.
pub(crate) fn victim(memory: &str) {
    let side = Side {
        timeout: TIMEOUT,
        ..Side::open(QpType::Rc, BYTES)
    };
    let mapping = Mapping::new(c"rockery-test", SHARED_BYTES);
    let card = if memory == SHARED {
        let keys = side.register(mapping.address(), SHARED_BYTES);
        Card::granting(&side, keys, mapping.address())
    } else {
        Card::of(&side)
    };
    card.write(std::io::stdout());
    let Some(peer) = Card::read(&mut std::io::stdin().lock()) else {
        return;
    };
    side.bring_up(peer.qpn, Transport::SharedMemory);
    println!("card 0 0 0");
    work(&side, peer, || false);
}

/// Resources of a process that could leak: descriptors in all of its tables, and shared memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug)]
struct Holdings {
    sockets: usize,
    other_descriptors: usize,
    shared_mappings: usize,
    /// Threads with a descriptor table of their own.
    file_threads: usize,
}

impl Holdings {
    fn look() -> Self {
        let (mut tables, mut file_threads) = (vec![PathBuf::from("/proc/self/fd")], 0);
        for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
            let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            if name.trim() == "rockery-files" {
                tables.push(task.path().join("fd"));
                file_threads += 1;
            }
        }
        let entries = tables
            .iter()
            .filter_map(|table| std::fs::read_dir(table).ok())
            .flatten()
            .flatten();
        let links = entries.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        let (sockets, others): (Vec<_>, Vec<_>) =
            links.partition(|link| link.to_string_lossy().starts_with("socket:"));
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let shared_mappings = maps.matches("memfd:rockery").count();
        Self {
            sockets: sockets.len(),
            other_descriptors: others.len(),
            shared_mappings,
            file_threads,
        }
    }

    /// Whether there are no more resources than before, except the sockets from which packets are sent.
    fn is_within(self, before: Self) -> bool {
        self.sockets <= before.sockets + PACKET_SOCKETS
            && self.other_descriptors <= before.other_descriptors
            && self.shared_mappings <= before.shared_mappings
            && self.file_threads <= before.file_threads
    }
}

/// The survivor's device outlives many peers, which are killed at any moment: while they create a channel,
/// while they work. Then the next peer gets the same numbers, and everything works as before.
pub(crate) fn survivor(seed: u64) {
    let mut random = Random(seed);
    let mut side = Side {
        timeout: SHORT_TIMEOUT,
        ..Side::open(QpType::Rc, BYTES)
    };
    let mut first = None;
    for round in 0..setting(KILLS, KILLS_DEFAULT) / SURVIVORS {
        let memory = if random.below(2) == 0 {
            SHARED
        } else {
            "private"
        };
        let (mut victim, mut output) = start("victim", memory);
        let peer = Card::read(&mut output).unwrap();
        Card::of(&side).write(victim.stdin.take().unwrap());
        // Half of them before or while the two connect.
        let (works, after) = (
            random.below(2) == 0,
            Duration::from_micros(random.below(4000)),
        );
        let killer = std::thread::spawn(move || {
            if works {
                Card::read(&mut output).unwrap();
            }
            std::thread::sleep(after);
            victim.kill().unwrap();
            victim.wait().unwrap();
        });
        let start = Instant::now();
        side.bring_up(peer.qpn, Transport::SharedMemory);
        let failed = work(&side, peer, || start.elapsed() > Duration::from_secs(20));
        killer.join().unwrap();
        assert_eq!(
            failed,
            Some(Status::RetryExceeded),
            "round {round} of seed {seed}"
        );
        let mut rest = Vec::new();
        while side
            .device
            .poll_cq(side.cq, 64, |completion| rest.push(*completion))
            > 0
        {}
        assert!(
            rest.iter()
                .all(|completion| completion.status == Status::Flushed),
            "{rest:?}"
        );
        side.renew();
        if round == WARM {
            // The channel to the last victim may not be closed yet.
            std::thread::sleep(Duration::from_millis(200));
            first = Some(Holdings::look());
        }
    }
    let Some(first) = first else { return };
    // Shared-memory channels to killed processes are closed a moment later.
    let start = Instant::now();
    let mut last = Holdings::look();
    while !last.is_within(first) && start.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(10));
        last = Holdings::look();
    }
    assert!(last.is_within(first), "{first:?}, then {last:?}");
    println!("survived");
}

#[test]
fn survivors_get_retry_exceeded_and_release_all_resources() {
    let seed = setting(SEED, 1);
    let survivors: Vec<_> = (0..SURVIVORS)
        .map(|index| start("survivor", &(seed + index).to_string()))
        .collect();
    for (mut survivor, mut output) in survivors {
        let mut said = String::new();
        std::io::Read::read_to_string(&mut output, &mut said).unwrap();
        assert!(
            survivor.wait().unwrap().success() && said.contains("survived"),
            "seed {seed}: {said}"
        );
    }
}
