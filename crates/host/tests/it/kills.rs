//! A peer on the same host is killed, at any moment: this program starts itself as the victim.

use crate::pair::{Side, Way};
use rnic::{Completion, Operation, QpType, Status};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use wire::{Qpn, Rkey, Tail};

/// Set for the victim.
const VICTIM: &str = "ROCKERY_TEST_VICTIM";
/// Victims in every test run; `ROCKERY_TEST_KILLS` says another number.
const KILLS: u64 = 60;
const BYTES: usize = 1 << 16;
/// Requests that are posted at once.
const DEPTH: u64 = 16;
/// What receives are called; sends count from 0.
const RECEIVE: u64 = 1 << 32;
/// The code of the ACK timeout: 17 ms, so a kill is known after 140.
const TIMEOUT: u8 = 12;

/// What the two have to know of each other: queue pair, key, address.
#[derive(Clone, Copy, Debug)]
struct Card {
    qpn: Qpn,
    rkey: Rkey,
    address: u64,
}

impl Card {
    fn of(side: &Side) -> Self {
        Self { qpn: side.qpn, rkey: side.keys.rkey, address: side.memory.as_ptr() as u64 }
    }

    fn write(self, mut to: impl Write) {
        writeln!(to, "card {} {} {}", self.qpn.value(), self.rkey.0, self.address).unwrap();
        to.flush().unwrap();
    }

    /// `None` when the other end is gone. A test program prints lines of its own.
    fn read(from: &mut impl BufRead) -> Option<Self> {
        for line in from.lines() {
            let line = line.ok()?;
            let Some((_, card)) = line.split_once("card ") else { continue };
            let mut numbers = card.split(' ').map(|number| number.parse::<u64>().unwrap());
            let mut next = || numbers.next().unwrap();
            let (qpn, rkey) = (Qpn::new(next() as u32), Rkey(next() as u32));
            return Some(Self { qpn, rkey, address: next() });
        }
        None
    }
}

/// Keeps requests of all kinds going, until it is killed or the connection ends. Says how the first request
/// that failed did.
fn work(side: &Side, peer: Card, until: impl Fn() -> bool) -> Option<Status> {
    let (mut posted, mut done, mut failed) = (0u64, 0, None);
    (0..DEPTH).for_each(|_| side.receive(RECEIVE, side.sge(0, 4096)));
    while failed.is_none() && !until() {
        while posted < done + DEPTH && failed.is_none() {
            let (address, rkey) = (peer.address + BYTES as u64 / 2, peer.rkey);
            let (operation, length) = match posted % 5 {
                0 => (Operation::Write { address, rkey, immediate: None }, 1 + posted as usize % 30_000),
                1 => (Operation::Read { address, rkey }, 1 + posted as usize % 30_000),
                2 => (Operation::FetchAdd { address, rkey, add: 1 }, 8),
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

#[test]
fn a_victim() {
    if std::env::var_os(VICTIM).is_none() {
        return;
    }
    let side = Side { timeout: TIMEOUT, ..Side::open(QpType::Rc, BYTES) };
    Card::of(&side).write(std::io::stdout());
    let Some(peer) = Card::read(&mut std::io::stdin().lock()) else { return };
    side.connect_to(peer.qpn, Way::Lane);
    println!("card 0 0 0");
    work(&side, peer, || false);
}

fn start_victim() -> (Child, BufReader<std::process::ChildStdout>) {
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kills::a_victim", "--nocapture", "--test-threads=1"])
        .env(VICTIM, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(victim.stdout.take().unwrap());
    (victim, output)
}

#[test]
fn whoever_survives_has_what_verbs_promise() {
    let kills = std::env::var("ROCKERY_TEST_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(KILLS);
    for round in 0..kills {
        let (mut victim, mut output) = start_victim();
        let side = Side { timeout: TIMEOUT, ..Side::open(QpType::Rc, BYTES) };
        let peer = Card::read(&mut output).unwrap();
        Card::of(&side).write(victim.stdin.take().unwrap());
        side.connect_to(peer.qpn, Way::Lane);
        Card::read(&mut output).unwrap();
        // Some die in the middle of their work, some of ours.
        let start = Instant::now();
        let after = Duration::from_micros(round * 7919 % 4000);
        let killer = std::thread::spawn(move || {
            std::thread::sleep(after);
            victim.kill().unwrap();
            victim.wait().unwrap();
        });
        let failed = work(&side, peer, || start.elapsed() > Duration::from_secs(20));
        killer.join().unwrap();
        assert_eq!(failed, Some(Status::RetryExceeded), "round {round}");
        // Everything else is flushed, and there is nothing that was not posted.
        let mut rest = Vec::new();
        while side.device.poll_cq(side.cq, 64, |completion| rest.push(*completion)) > 0 {}
        assert!(rest.iter().all(|completion| completion.status == Status::Flushed), "{rest:?}");
        side.device.with(|rnic, _| rnic.destroy_qp(side.qpn)).unwrap();
    }
}
