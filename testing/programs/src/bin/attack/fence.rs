//! Hosts that lose a right and hold their data back until it is gone.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command as Program, Stdio};
use std::time::{Duration, Instant};

use programs::Rockery;
use tempfile::TempDir;
use wire::nvme::command::Blocks;
use wire::nvme::reservation::{AcquireData, RegisterData, ReleaseData, ReservationType};
use wire::nvme::{Admin, Command, Fuse, Io};

use crate::Outcome;
use crate::place::Effort;
use crate::raw_host::{RawHost, name};

const NQN: &str = "nqn.2024-01.org.example:disk";
const BLOCK: usize = 4096;
/// Blocks of a command: more than a capsule holds.
const COUNT: u32 = 8;
const BYTES: usize = COUNT as usize * BLOCK;
const DISK: u64 = 16 << 20;
/// The keys of the host that fences, and of the attacker.
const KEYS: [u64; 2] = [0xa, 0xb];
/// What the attacker writes.
const LATE: u8 = 0xbb;

/// A server with one disk in a file.
struct Server {
    process: Child,
    folder: TempDir,
    address: SocketAddr,
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Server {
    fn new() -> Result<Self, String> {
        let folder = TempDir::new().map_err(text)?;
        let disk = folder.path().join("disk");
        fs::write(&disk, vec![0; DISK as usize]).map_err(text)?;
        let mut program = Program::new(Rockery::built().path());
        program.args(["serve", "nvme"]).arg(&disk).args([
            "--subsystem",
            NQN,
            "--listen",
            "127.0.0.1:0",
        ]);
        program
            .arg("--control")
            .arg(folder.path().join("control"))
            .stdout(Stdio::piped());
        let mut process = program.stderr(Stdio::null()).spawn().map_err(text)?;
        let output = process.stdout.take().ok_or("no output")?;
        let mut server = Self {
            process,
            folder,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
        };
        for line in BufReader::new(output).lines() {
            if let Some(address) = line.map_err(text)?.strip_prefix("listening on ") {
                server.address = address.parse().map_err(text)?;
                return Ok(server);
            }
        }
        Err("the server does not listen".to_owned())
    }

    fn disk(&self) -> PathBuf {
        self.folder.path().join("disk")
    }

    fn content(&self) -> Result<Vec<u8>, String> {
        fs::read(self.disk()).map_err(text)
    }

    /// Runs `rockery serve` with these words.
    fn change(&self, words: &[&str]) -> Result<(), String> {
        let mut program = Program::new(Rockery::built().path());
        program
            .arg("serve")
            .args(words)
            .arg("--control")
            .arg(self.folder.path().join("control"));
        let output = program.output().map_err(text)?;
        match output.status.success() {
            true => Ok(()),
            false => Err(format!(
                "serve {words:?}: {}",
                String::from_utf8_lossy(&output.stderr)
            )),
        }
    }
}

fn of_namespace(kind: Io, cdw10: u32) -> Command {
    Command {
        opcode: kind as u8,
        nsid: 1,
        cdw10,
        ..Command::default()
    }
}

fn write(kind: Io, start: u64, fuse: Fuse) -> Command {
    let command = Command {
        flags: fuse as u8 | 1 << 6,
        ..of_namespace(kind, 0)
    };
    command.with_blocks(Blocks {
        start,
        count: COUNT,
    })
}

fn register(host: &mut RawHost, new: u64) -> Result<(), String> {
    let data = RegisterData { current: 0, new }.to_bytes();
    host.io
        .succeed(of_namespace(Io::ReservationRegister, 0), &data)
        .map(drop)
}

fn acquire(host: &mut RawHost, action: u32, current: u64, preempted: u64) -> Result<(), String> {
    let command = of_namespace(
        Io::ReservationAcquire,
        action | (ReservationType::WriteExclusive as u32) << 8,
    );
    host.io
        .succeed(command, &AcquireData { current, preempted }.to_bytes())
        .map(drop)
}

fn release(host: &mut RawHost) -> Result<(), String> {
    let command = of_namespace(
        Io::ReservationRelease,
        (ReservationType::WriteExclusive as u32) << 8,
    );
    host.io
        .succeed(command, &ReleaseData { current: KEYS[0] }.to_bytes())
        .map(drop)
}

/// How the attacker loses its right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fence {
    Acquire,
    Preempt,
    PreemptAndAbort,
    WriteProtection,
    Access,
    Hosts,
    Secrets,
    Resize,
    Remove,
    RemoveSubsystem,
}

const FENCES: [Fence; 10] = [
    Fence::Acquire,
    Fence::Preempt,
    Fence::PreemptAndAbort,
    Fence::WriteProtection,
    Fence::Access,
    Fence::Hosts,
    Fence::Secrets,
    Fence::Resize,
    Fence::Remove,
    Fence::RemoveSubsystem,
];

impl Fence {
    /// What precedes the command of the attacker.
    fn prepare(self, owner: &mut RawHost, attacker: &mut RawHost) -> Result<(), String> {
        match self {
            Self::Acquire => register(owner, KEYS[0]),
            Self::Preempt | Self::PreemptAndAbort => {
                register(owner, KEYS[0])?;
                register(attacker, KEYS[1])?;
                acquire(attacker, 0, KEYS[1], 0)
            }
            _ => Ok(()),
        }
    }

    fn make(self, server: &Server, owner: &mut RawHost) -> Result<(), String> {
        match self {
            Self::Acquire => acquire(owner, 0, KEYS[0], 0),
            Self::Preempt => acquire(owner, 1, KEYS[0], KEYS[1]),
            Self::PreemptAndAbort => acquire(owner, 2, KEYS[0], KEYS[1]),
            Self::WriteProtection => {
                let opcode = Admin::SetFeatures as u8;
                let command = Command {
                    opcode,
                    nsid: 1,
                    cdw10: 0x84,
                    cdw11: 1,
                    ..Command::default()
                };
                owner.admin.succeed(command, &[]).map(drop)
            }
            Self::Access => server.change(&["access", NQN, "1", "1", "inaccessible"]),
            Self::Hosts => server.change(&["hosts", NQN, &name(1)]),
            Self::Secrets => {
                // 32 bytes and their checksum, as nvme gen-dhchap-key prints them.
                let secret = "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:";
                server.change(&["secrets", NQN, &name(2), "--secret", secret])
            }
            Self::Resize => server.change(&["resize", NQN, "1", "4MiB"]),
            Self::Remove => server.change(&["remove", NQN, "1"]),
            Self::RemoveSubsystem => server.change(&["remove-subsystem", NQN]),
        }
    }
}

/// Which data of the attacker are late.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Late {
    Write,
    SecondOfPair,
    FirstOfPair,
    BothOfPair,
}

const LATES: [Late; 4] = [
    Late::Write,
    Late::SecondOfPair,
    Late::FirstOfPair,
    Late::BothOfPair,
];

/// Data that the attacker holds back: CID, tag and bytes.
type Held = Vec<(u16, u16, Vec<u8>)>;

/// Begins a command whose last data are held back.
fn begin(attacker: &mut RawHost, late: Late, start: u64) -> Result<Held, String> {
    let io = &mut attacker.io;
    if late == Late::Write {
        let cid = io.announce(write(Io::Write, start, Fuse::No), BYTES)?;
        return Ok(vec![(cid, io.asked(cid)?, vec![LATE; BYTES])]);
    }
    let first = io.announce(write(Io::Compare, start, Fuse::First), BYTES)?;
    let second = io.announce(write(Io::Write, start, Fuse::Second), BYTES)?;
    let first = (first, io.asked(first)?, vec![0; BYTES]);
    let second = (second, io.asked(second)?, vec![LATE; BYTES]);
    let (now, held) = match late {
        Late::SecondOfPair => (vec![first], vec![second]),
        Late::FirstOfPair => (vec![second], vec![first]),
        _ => (Vec::new(), vec![first, second]),
    };
    for (cid, tag, data) in now {
        io.pay(cid, tag, &data)?;
    }
    Ok(held)
}

/// A host that sends its data when its right is gone.
fn late(fence: Fence, late: Late) -> Result<(), String> {
    let server = Server::new()?;
    let mut owner = RawHost::new(server.address, NQN, 1)?;
    let mut attacker = RawHost::new(server.address, NQN, 2)?;
    fence.prepare(&mut owner, &mut attacker)?;
    let start = DISK / 2 / BLOCK as u64;
    let held = begin(&mut attacker, late, start)?;
    fence.make(&server, &mut owner)?;
    let before = server.content()?;
    let responses = if late == Late::Write { 1 } else { 2 };
    for (cid, tag, data) in held {
        // The connection may have ended.
        _ = attacker.io.pay(cid, tag, &data);
    }
    for _ in 0..responses {
        match attacker.io.response() {
            Ok(completion) if completion.status().is_success() => {
                return Err(format!("{fence:?}, {late:?}: the command succeeded"));
            }
            Ok(_) => {}
            Err(_) => break,
        }
    }
    match server.content()? == before {
        true => Ok(()),
        false => Err(format!("{fence:?}, {late:?}: the disk was written")),
    }
}

/// Every way to lose a right, while each kind of data is late.
pub(crate) fn late_data(_: Effort) -> Outcome {
    let mut count = 0;
    for fence in FENCES {
        for what in LATES {
            late(fence, what).map_err(|error| format!("{fence:?}, {what:?}: {error}"))?;
            count += 1;
        }
    }
    Ok(format!("{count} commands came late: nothing was written"))
}

/// Writes as fast as it can until a write fails; returns how many succeeded.
fn hammer(attacker: &mut RawHost, round: u8) -> Result<u64, String> {
    const AT_ONCE: u64 = 16;
    let mut done = 0;
    for index in 0.. {
        let mut failed = false;
        let mut asked = Vec::new();
        for place in 0..AT_ONCE {
            let start = (index % 8 * AT_ONCE + place) * u64::from(COUNT);
            asked.push(
                attacker
                    .io
                    .announce(write(Io::Write, start, Fuse::No), BYTES)?,
            );
        }
        // A command that is refused is asked for no data.
        for cid in asked {
            if let Ok(tag) = attacker.io.asked_or_refused(cid)? {
                attacker.io.pay(cid, tag, &vec![round; BYTES])?;
            }
        }
        for _ in 0..AT_ONCE {
            match attacker.io.response()?.status().is_success() {
                true => done += 1,
                false => failed = true,
            }
        }
        if failed {
            break;
        }
    }
    Ok(done)
}

/// Hosts that write while they are fenced out: after that the disk stays as it is.
pub(crate) fn busy(effort: Effort) -> Outcome {
    let server = Server::new()?;
    let mut owner = RawHost::new(server.address, NQN, 1)?;
    register(&mut owner, KEYS[0])?;
    let end = Instant::now() + Duration::from_secs(effort.seconds().into());
    let (mut rounds, mut writes) = (0_u64, 0);
    while Instant::now() < end || rounds == 0 {
        rounds += 1;
        let attackers = [2, 3].map(|number| {
            let (address, round) = (server.address, rounds as u8);
            std::thread::spawn(move || hammer(&mut RawHost::new(address, NQN, number)?, round))
        });
        std::thread::sleep(Duration::from_millis(100));
        acquire(&mut owner, 0, KEYS[0], 0)?;
        let before = server.content()?;
        for attacker in attackers {
            writes += attacker.join().map_err(|_| "an attacker panicked")??;
        }
        if server.content()? != before {
            return Err(format!(
                "round {rounds}: a write reached the disk after the reservation"
            ));
        }
        release(&mut owner)?;
    }
    Ok(format!(
        "{rounds} reservations during {writes} writes: nothing was written after one"
    ))
}
