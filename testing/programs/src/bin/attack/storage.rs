//! Attacks on hosts that lock their disks with Compare and Write: hosts that are killed while they write, and
//! changes by other commands.

use std::process::{Command as Program, Stdio};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use buffer::Buffer;
use nvme::host::{HostError, Payload, Queue, transfer};
use programs::ledger::BLOCK;
use programs::storage::{NQN, Server};
use programs::{Error, Rockery};
use rand_core::RngCore;
use tempfile::TempDir;
use wire::nvme::dsm::DEALLOCATE;
use wire::nvme::{Command, Io, Status};

use crate::Outcome;
use crate::place::{Effort, random};

const FIRST: u8 = 1;
const SECOND: u8 = 2;
/// The blocks of each attempt of a race.
const RACE_BLOCKS: u32 = 4;
/// Pairs of 4 KiB that have more data than the memory of a queue (16 MiB).
const PAIRS: u64 = 4500;

/// A server with one disk in a file.
struct Disk {
    server: Server,
    _folder: TempDir,
}

impl Disk {
    fn new() -> Result<Self, String> {
        let folder = TempDir::new()
            .map_err(Error::file("a temporary folder"))
            .map_err(text)?;
        let disk = folder.path().join("disk").display().to_string();
        let server = Server::start(folder.path(), &format!("{disk} --size 16MiB")).map_err(text)?;
        Ok(Self {
            server,
            _folder: folder,
        })
    }

    /// Waits until no host is connected; then the server must have nothing in use.
    fn has_given_back(&self) -> Result<(), String> {
        let idle = || Ok(self.server.metric("connections")? == 0);
        if !programs::machine::until(60, idle).map_err(text)? {
            return Err("connections of hosts that have gone are still open after 60 s".to_owned());
        }
        match self.server.in_use().map_err(text)? {
            used if used.is_empty() => Ok(()),
            used => Err(format!("the server has no host, and {used} in use")),
        }
    }
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

fn filled(byte: u8, length: usize) -> Payload {
    let mut buffer = Buffer::zeroed(length);
    buffer[..length].fill(byte);
    Payload::Out(buffer, length)
}

/// Compares with `expected`, and writes `new`; the statuses of the two commands.
fn compare_and_write(
    queue: &mut Queue,
    block: u64,
    blocks: u32,
    [expected, new]: [u8; 2],
) -> Result<[Status; 2], HostError> {
    let length = blocks as usize * BLOCK;
    let half = |kind, flags| Command {
        flags,
        ..transfer(kind, 1, block, blocks)
    };
    queue.submit(half(Io::Compare, FIRST), filled(expected, length), 0)?;
    queue.submit(half(Io::Write, SECOND), filled(new, length), 1)?;
    let mut done = Vec::new();
    while done.len() < 2 {
        queue.wait(&mut done)?;
    }
    done.sort_by_key(|it| it.token);
    Ok([done[0].completion.status(), done[1].completion.status()])
}

/// Hosts that are killed while they write. Another host's Compare and Write must go on.
pub(crate) fn killed_writers(effort: Effort) -> Outcome {
    let disk = Disk::new()?;
    let address = disk.server.address().to_string();
    let kills = 4 * effort.seconds();
    for kill in 0..kills {
        let mut bench = Program::new(Rockery::built().path());
        bench.args([
            "nvme",
            "bench",
            &address,
            "--subsystem",
            NQN,
            "--destroy",
            "--job",
            "write:64k:32x2",
        ]);
        bench
            .args(["--seconds", "60"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut bench = bench.spawn().map_err(text)?;
        let writes = || {
            Ok(disk.server.metric("written_bytes_total")? > 0
                && disk.server.metric("connections")? > 2)
        };
        let has_begun = programs::machine::until(60, writes);
        thread::sleep(Duration::from_millis(random(kill.into()).next_u64() % 200));
        bench.kill().map_err(text)?;
        bench.wait().map_err(text)?;
        if !has_begun.map_err(text)? {
            return Err("the host does not write".to_owned());
        }
        let (_client, mut queues) = disk.server.connect(1, 4);
        let zeros = queues[0].call("Write", transfer(Io::Write, 1, 0, 1), filled(0, BLOCK));
        zeros.map_err(text)?;
        let statuses = compare_and_write(&mut queues[0], 0, 1, [0, 1]);
        let statuses =
            statuses.map_err(|error| format!("Compare and Write behind {kill} kills: {error}"))?;
        // A killed host's write may come between the two.
        if statuses[1].is_success() != statuses[0].is_success() {
            return Err(format!("Compare and Write: {statuses:?}"));
        }
    }
    disk.has_given_back()?;
    Ok(format!(
        "{kills} writing hosts killed; each time another host compared and wrote; nothing in use"
    ))
}

/// More Compare and Write than the memory of a queue has buffers.
pub(crate) fn memory_of_pairs(_effort: Effort) -> Outcome {
    let disk = Disk::new()?;
    {
        let (_client, mut queues) = disk.server.connect(1, 8);
        let queue = &mut queues[0];
        for pair in 0..PAIRS {
            // The second of four fails, because the block has its new contents.
            let statuses = compare_and_write(queue, 9, 1, [(pair / 2) as u8, (pair / 2 + 1) as u8]);
            let read = Payload::In(Buffer::zeroed(BLOCK), BLOCK);
            let read = statuses.and_then(|_| queue.call("Read", transfer(Io::Read, 1, 9, 1), read));
            read.map_err(|error| format!("behind {pair} pairs: {error}"))?;
        }
    }
    disk.has_given_back()?;
    Ok(format!(
        "{PAIRS} pairs of 4 KiB, each with a read behind it; nothing in use"
    ))
}

/// Compare and Write of one host beside each other change of the same blocks. If both succeed, the blocks
/// have the contents of the other change: it came last, or the comparison failed.
pub(crate) fn changes_beside(effort: Effort) -> Outcome {
    let disk = Disk::new()?;
    let rounds = 60 * effort.seconds();
    let mut both = 0;
    for kind in [Io::Write, Io::WriteZeroes, Io::DatasetManagement, Io::Copy] {
        both += race(&disk, kind, rounds)?;
    }
    disk.has_given_back()?;
    Ok(format!(
        "{rounds} pairs beside each of four changes; in {both} both succeeded, and all were whole"
    ))
}

/// The change that makes the blocks zero, from block 64 on.
fn zeroing(kind: Io) -> (Command, Payload) {
    let command = Command {
        opcode: kind as u8,
        nsid: 1,
        ..Command::default()
    };
    let mut buffer = Buffer::zeroed(BLOCK);
    match kind {
        Io::DatasetManagement => {
            buffer[4..8].copy_from_slice(&RACE_BLOCKS.to_le_bytes());
            buffer[8..16].copy_from_slice(&64_u64.to_le_bytes());
            (
                Command {
                    cdw11: DEALLOCATE,
                    ..command
                },
                Payload::Out(buffer, 16),
            )
        }
        Io::Copy => {
            buffer[8..16].copy_from_slice(&200_u64.to_le_bytes());
            buffer[16..18].copy_from_slice(&(RACE_BLOCKS as u16 - 1).to_le_bytes());
            (
                Command {
                    cdw10: 64,
                    ..command
                },
                Payload::Out(buffer, 32),
            )
        }
        Io::WriteZeroes => (transfer(kind, 1, 64, RACE_BLOCKS), Payload::None),
        _ => (
            transfer(kind, 1, 64, RACE_BLOCKS),
            filled(0, RACE_BLOCKS as usize * BLOCK),
        ),
    }
}

fn race(disk: &Disk, kind: Io, rounds: u32) -> Result<u32, String> {
    let length = RACE_BLOCKS as usize * BLOCK;
    let (_one, mut queues) = disk.server.connect(1, 8);
    let (_other, mut others) = disk.server.connect(1, 8);
    let barrier = Arc::new(Barrier::new(2));
    let ours = Arc::clone(&barrier);
    let changes = thread::spawn(move || -> Result<Vec<bool>, HostError> {
        let mut delay = random(9);
        let change = |round| {
            barrier.wait();
            thread::sleep(Duration::from_micros(
                delay.next_u64() % 3 * u64::from(round & 1) * 50,
            ));
            let (command, payload) = zeroing(kind);
            let done = others[0].call("the change", command, payload);
            barrier.wait();
            done.map(|done| done.completion.status().is_success())
        };
        (0..rounds).map(change).collect()
    });
    let mut ended = Vec::new();
    for _ in 0..rounds {
        let old = queues[0].call(
            "Write",
            transfer(Io::Write, 1, 64, RACE_BLOCKS),
            filled(b'o', length),
        );
        ours.wait();
        let pair =
            old.and_then(|_| compare_and_write(&mut queues[0], 64, RACE_BLOCKS, [b'o', b'n']));
        ours.wait();
        let read = Payload::In(Buffer::zeroed(length), length);
        let read = pair.and_then(|statuses| {
            let done = queues[0].call("Read", transfer(Io::Read, 1, 64, RACE_BLOCKS), read)?;
            Ok((
                statuses[0].is_success() && statuses[1].is_success(),
                done.buffer,
            ))
        });
        ended.push(read);
    }
    let changes = changes
        .join()
        .map_err(|_| "the other host failed".to_owned())?
        .map_err(text)?;
    let mut both = 0;
    for (round, (ended, has_changed)) in ended.into_iter().zip(changes).enumerate() {
        let (has_written, contents) = ended.map_err(text)?;
        let is_zero = contents.is_some_and(|bytes| bytes[..length].iter().all(|byte| *byte == 0));
        if has_changed && has_written {
            both += 1;
        }
        if has_changed && !is_zero {
            return Err(format!(
                "{kind:?} and Compare and Write succeeded; the blocks are not zero (round {round})"
            ));
        }
    }
    Ok(both)
}
