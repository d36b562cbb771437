//! The content that a disk must have: for each written block its versions, and which of them are durable.
//!
//! A [`Writer`] fills a disk by seed, with many writes at once, some of them with FUA, and flushes between.
//! After the disk's server was killed, the ledger has the versions that each block may contain: from the last
//! durable one to the last that was sent. Other content, and mixtures of versions, are errors.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use nvme::host::{Done, HostError, Payload, Queue, transfer};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use wire::nvme::{Io, Status};

use crate::Error;

/// Bytes of a block.
pub const BLOCK: usize = 4096;
/// Blocks of one write, at most.
const WRITE_BLOCKS_MAX: u64 = 16;
/// One write of so many is made durable by itself.
const FUA_IN: u32 = 12;
/// After so many writes, on average, comes a flush.
const FLUSH_IN: u32 = 24;
/// Flushes have tokens from here on.
const FLUSH_TOKEN: u64 = 1 << 40;

/// The kind of failure after which a disk is checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    /// Its server was killed: the kernel below still has every write that completed.
    Process,
    /// The machine lost power: only flushed writes, and writes with FUA, must be there.
    Power,
}

/// The versions of one block: 0 is the initial content, zeros.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Block {
    durable: u64,
    completed: u64,
    sent: u64,
}

/// The expected content of a range of blocks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ledger {
    seed: u64,
    first: u64,
    blocks: Vec<Block>,
    /// Blocks that were found older than their last completed write, which was not promised to be durable.
    taken_back: u64,
}

/// A block with wrong content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wrong {
    /// The number of the block.
    pub block: u64,
    /// The version that is there; `None` when it is no version of this block, or a mixture.
    pub found: Option<u64>,
    /// The oldest that may be.
    pub from: u64,
    /// The newest that may be.
    pub to: u64,
}

impl Ledger {
    /// Of `count` blocks from `first`, which are zeros.
    pub fn new(seed: u64, first: u64, count: usize) -> Self {
        Self {
            seed,
            first,
            blocks: vec![Block::default(); count],
            taken_back: 0,
        }
    }

    /// Reads every block, and returns those that are wrong. The content found is the expected content from
    /// now on.
    ///
    /// # Errors
    /// When the disk cannot be read.
    pub fn check_disk(
        &mut self,
        queue: &mut Queue,
        nsid: u32,
        loss: Loss,
    ) -> Result<Vec<Wrong>, HostError> {
        let mut wrong = Vec::new();
        for start in (0..self.blocks.len()).step_by(WRITE_BLOCKS_MAX as usize) {
            let end = self.blocks.len().min(start + WRITE_BLOCKS_MAX as usize);
            let length = (end - start) * BLOCK;
            let command = transfer(
                Io::Read,
                nsid,
                self.first + start as u64,
                (end - start) as u32,
            );
            let done = queue.call("Read", command, Payload::In(queue.buffer(length)?, length))?;
            let Some(buffer) = done.buffer else { continue };
            for (index, bytes) in (start..end).zip(buffer.chunks_exact(BLOCK)) {
                wrong.extend(self.see(index, bytes, loss));
            }
        }
        Ok(wrong)
    }

    fn see(&mut self, index: usize, bytes: &[u8], loss: Loss) -> Option<Wrong> {
        let block = self.first + index as u64;
        let found = self.version(block, bytes);
        let it = &mut self.blocks[index];
        let from = if loss == Loss::Process {
            it.completed
        } else {
            it.durable
        };
        match found.filter(|version| (from..=it.sent).contains(version)) {
            Some(version) => {
                self.taken_back += u64::from(version < it.completed);
                it.completed = version;
                // Content that survived a power loss is durable.
                it.durable = if loss == Loss::Power {
                    version
                } else {
                    it.durable
                };
                None
            }
            None => Some(Wrong {
                block,
                found,
                from,
                to: it.sent,
            }),
        }
    }

    /// How often a block was found older than its last completed write, and was allowed to be.
    #[must_use]
    pub const fn taken_back(&self) -> u64 {
        self.taken_back
    }

    fn version(&self, block: u64, bytes: &[u8]) -> Option<u64> {
        let version = u64::from_le_bytes(*bytes.first_chunk()?);
        let mut expected = [0; BLOCK];
        fill(&mut expected, self.seed, block, version);
        (*bytes == expected).then_some(version)
    }

    /// Writes the ledger to a file, for another process.
    ///
    /// # Errors
    /// As the file system.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        let mut text = format!("{} {}\n", self.seed, self.first);
        for it in &self.blocks {
            _ = writeln!(text, "{} {} {}", it.durable, it.completed, it.sent);
        }
        std::fs::write(path, text).map_err(Error::file(path))
    }

    /// Reads a ledger that another process wrote.
    ///
    /// # Errors
    /// As the file system, and when it is no ledger.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).map_err(Error::file(path))?;
        let mut lines = text
            .lines()
            .map(|line| line.split(' ').filter_map(|it| it.parse().ok()).collect());
        let head: Vec<u64> = lines.next().unwrap_or_default();
        let [seed, first] = head[..] else {
            let source = std::io::Error::from(std::io::ErrorKind::InvalidData);
            return Err(Error::file(path)(source));
        };
        Ok(Self {
            seed,
            first,
            blocks: lines.map(block).collect(),
            taken_back: 0,
        })
    }
}

fn block(numbers: Vec<u64>) -> Block {
    match numbers[..] {
        [durable, completed, sent] => Block {
            durable,
            completed,
            sent,
        },
        _ => Block::default(),
    }
}

/// The bytes of a version: zeros at first, and then such that every eight differ from all others.
fn fill(place: &mut [u8], seed: u64, block: u64, version: u64) {
    if version == 0 {
        return place.fill(0);
    }
    let mut word = version;
    for chunk in place.chunks_exact_mut(8) {
        chunk.copy_from_slice(&word.to_le_bytes());
        word = word
            .wrapping_add(seed ^ block << 32)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(23);
    }
}

/// Writes by seed, and updates the ledger.
#[derive(Debug)]
pub struct Writer<'a> {
    ledger: &'a mut Ledger,
    queue: &'a mut Queue,
    nsid: u32,
    depth: usize,
    random: ChaCha8Rng,
    /// Outstanding writes: the first block, the new versions, and whether they have FUA.
    writes: BTreeMap<u64, (usize, Vec<u64>, bool)>,
    /// Outstanding flushes, each with the writes that had completed before it.
    flushes: BTreeMap<u64, Vec<u64>>,
    next: u64,
}

impl<'a> Writer<'a> {
    /// With at most `depth` commands at once. `seed` decides what is written; other than the ledger's own, it
    /// should differ from round to round.
    pub fn new(
        ledger: &'a mut Ledger,
        queue: &'a mut Queue,
        nsid: u32,
        depth: usize,
        seed: u64,
    ) -> Self {
        let random = ChaCha8Rng::seed_from_u64(seed);
        let (writes, flushes) = (BTreeMap::new(), BTreeMap::new());
        Self {
            ledger,
            queue,
            nsid,
            depth,
            random,
            writes,
            flushes,
            next: 0,
        }
    }

    /// Writes until `go_on`, which gets the number of completed commands, returns false; then it waits for
    /// all outstanding commands. Returns how many completed.
    ///
    /// # Errors
    /// When the connection breaks, which is what the ledger is for, or a command fails.
    pub fn run(&mut self, mut go_on: impl FnMut(u64) -> bool) -> Result<u64, HostError> {
        let (mut completed, mut done) = (0, Vec::new());
        loop {
            let wants_more = go_on(completed);
            while wants_more && self.queue.outstanding() < self.depth && self.submit()? {}
            if self.queue.outstanding() == 0 {
                return Ok(completed);
            }
            self.queue.wait(&mut done)?;
            completed += done.len() as u64;
            done.drain(..).try_for_each(|done| self.finish(&done))?;
        }
    }

    fn below(&mut self, limit: u32) -> u32 {
        self.random.next_u32() % limit
    }

    /// Submits one more command; `false` when one of its blocks is being written already.
    fn submit(&mut self) -> Result<bool, HostError> {
        self.next += 1;
        if self.below(FLUSH_IN) == 0 {
            let token = FLUSH_TOKEN + self.next;
            self.queue
                .submit(transfer(Io::Flush, self.nsid, 0, 1), Payload::None, token)?;
            let completed = self.ledger.blocks.iter().map(|it| it.completed).collect();
            self.flushes.insert(token, completed);
            return Ok(true);
        }
        let count = self.ledger.blocks.len();
        let start = self.below(count as u32) as usize;
        let blocks = (1 + self.below(WRITE_BLOCKS_MAX as u32) as usize).min(count - start);
        let overlaps = |(at, versions, _): &(usize, Vec<u64>, bool)| {
            *at < start + blocks && start < at + versions.len()
        };
        if self.writes.values().any(overlaps) {
            return Ok(false);
        }
        let durable = self.below(FUA_IN) == 0;
        let mut buffer = self.queue.buffer(blocks * BLOCK)?;
        let mut versions = Vec::with_capacity(blocks);
        for (index, place) in (start..start + blocks).zip(buffer.chunks_exact_mut(BLOCK)) {
            let it = &mut self.ledger.blocks[index];
            it.sent += 1;
            versions.push(it.sent);
            fill(
                place,
                self.ledger.seed,
                self.ledger.first + index as u64,
                it.sent,
            );
        }
        let first = self.ledger.first + start as u64;
        let mut command = transfer(Io::Write, self.nsid, first, blocks as u32);
        const FORCE_UNIT_ACCESS: u32 = 1 << 30;
        command.cdw12 |= if durable { FORCE_UNIT_ACCESS } else { 0 };
        self.queue
            .submit(command, Payload::Out(buffer, blocks * BLOCK), self.next)?;
        self.writes.insert(self.next, (start, versions, durable));
        Ok(true)
    }

    fn finish(&mut self, done: &Done) -> Result<(), HostError> {
        let status = done.completion.status();
        if status != Status::SUCCESS {
            return Err(HostError::Status {
                what: "a write or a flush",
                status,
            });
        }
        if let Some((start, versions, durable)) = self.writes.remove(&done.token) {
            for (it, version) in self.ledger.blocks[start..].iter_mut().zip(versions) {
                it.completed = version;
                it.durable = if durable { version } else { it.durable };
            }
        }
        if let Some(completed) = self.flushes.remove(&done.token) {
            for (it, version) in self.ledger.blocks.iter_mut().zip(completed) {
                it.durable = it.durable.max(version);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_old_and_mixed_blocks_are_wrong() {
        let mut ledger = Ledger::new(7, 100, 1);
        ledger.blocks[0] = Block {
            durable: 3,
            completed: 5,
            sent: 6,
        };
        let bytes = |version| {
            let mut bytes = [0; BLOCK];
            fill(&mut bytes, 7, 100, version);
            bytes
        };
        let right = |bytes: &[u8], loss| ledger.clone().see(0, bytes, loss).is_none();
        let versions = |loss| {
            (0..9)
                .filter(|version| right(&bytes(*version), loss))
                .collect::<Vec<_>>()
        };
        assert_eq!(versions(Loss::Power), [3, 4, 5, 6]);
        assert_eq!(versions(Loss::Process), [5, 6]);
        let mut mixed = bytes(5);
        mixed[2048..].copy_from_slice(&bytes(6)[2048..]);
        assert!(!right(&mixed, Loss::Power));
        let mut elsewhere = [0; BLOCK];
        fill(&mut elsewhere, 7, 101, 5);
        assert!(!right(&elsewhere, Loss::Power));
    }

    #[test]
    fn a_ledger_is_read_as_it_was_written() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut ledger = Ledger::new(u64::MAX, 5, 3);
        ledger.blocks[1] = Block {
            durable: 1,
            completed: 2,
            sent: 3,
        };
        ledger.write(file.path()).unwrap();
        assert_eq!(Ledger::read(file.path()).unwrap(), ledger);
    }
}
