//! NVMe over Fabrics between hosts: programs that send commands and responses, on processors that take time,
//! over RDMA or over a byte stream. The network carries the messages; the drives take the time that drives
//! take.
//!
//! ```text
//! RDMA, read:   command ─▶ drive ─▶ WRITE of the data, response
//! RDMA, write:  command ─▶ READ of the data ─▶ drive ─▶ response
//! TCP, read:    command ─▶ drive ─▶ data, the last of it with the response
//! TCP, write:   command ─▶ ready to transfer ─▶ data ─▶ drive ─▶ response (short data: with the command)
//! ```
//!
//! (NVMe RDMA transport 1.0, section 3.2; NVMe TCP transport 1.0, sections 3.2 and 3.3.)

pub(super) mod config;
mod host;
mod session;
mod station;
mod timeouts;

use super::results::IoTimeouts;
use super::scenario::{Flow, HostConfig, PcieConfig, Transfer};
use config::{Processor, StorageConfig};
use fabric::{Pcg32, Span, Time};
use rnic::RegionKeys;
use session::{Session, Step, Word, Work};
use station::{Core, Shelf};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use wire::Qpn;

/// Bytes of a command and of a response over RDMA (NVMe base specification 2.0, figures 87 and 90).
const COMMAND_BYTES: u32 = 64;
const RESPONSE_BYTES: u32 = 16;

/// Bytes of the headers of a command PDU and of all others over TCP (NVMe TCP transport 1.0, section 3.6).
const TCP_COMMAND_BYTES: u32 = 72;
const TCP_HEADER_BYTES: u32 = 24;

/// Data over TCP travels in pieces of this size: the most that segmentation offload takes at once.
const PIECE_BYTES: u32 = 64 << 10;

/// Data up to this travels with its command over TCP: the `inline_data_size` of Linux' target.
const INLINE_BYTES: u32 = 8 << 10;

/// How often a byte of the stream passes memory: moved by the adapter, read, and written by the copy.
const PASSES: u64 = 3;

/// The number of a message travels as an immediate, in addition to the NVMe headers.
const NUMBER_BYTES: u32 = 4;

/// Work requests and receives that a storage queue pair needs.
pub(super) fn requests(flow: &Flow, config: &HostConfig) -> [u32; 2] {
    let stream = config.storage.is_some_and(|storage| storage.stream);
    let pieces = if stream {
        flow.message_bytes.div_ceil(PIECE_BYTES)
    } else {
        1
    };
    // Those of a connection that ended may be under way beside those of the next one.
    let all = flow.depth.saturating_mul(pieces + 2).saturating_mul(2);
    [all, all]
}

/// A host's part in storage.
#[derive(Debug)]
pub(super) struct Store {
    config: StorageConfig,
    /// From posting work until the adapter has it, and its data.
    posting: Span,
    mtu: u32,
    cores: Vec<Core>,
    /// The memory bandwidth that copies keep busy, whichever core makes them.
    memory: Core,
    shelf: Shelf,
    sessions: Vec<Session>,
    by_qpn: BTreeMap<u32, u32>,
    /// Messages that wait for an interrupt, by core: session, word, number, bytes.
    waiting: Vec<Vec<(u32, Word, u64, u32)>>,
    steps: BinaryHeap<Reverse<(Time, u64, Step)>>,
    /// Steps that ever were: those of one moment are done in their order.
    steps_made: u64,
    random: Pcg32,
    pub(super) timed_out: IoTimeouts,
}

impl Store {
    pub(super) fn new(
        config: StorageConfig,
        mtu: u32,
        pcie: Option<PcieConfig>,
        random: Pcg32,
    ) -> Self {
        let cores = config.processor.cores.max(1) as usize;
        Self {
            config,
            posting: pcie.map_or(Span::ZERO, |link| link.doorbell + link.read_latency),
            mtu,
            cores: vec![Core::default(); cores],
            memory: Core::default(),
            shelf: Shelf::new(config.drives),
            sessions: Vec::new(),
            by_qpn: BTreeMap::new(),
            waiting: vec![Vec::new(); cores],
            steps: BinaryHeap::new(),
            steps_made: 0,
            random,
            timed_out: IoTimeouts::default(),
        }
    }

    /// Takes part in a flow.
    pub(super) fn add(&mut self, flow: &Flow, qpn: Qpn, peer: RegionKeys, poster: Option<u32>) {
        let number = self.sessions.len() as u32;
        self.by_qpn.insert(qpn.value(), number);
        let core = number % self.cores.len() as u32;
        self.sessions
            .push(Session::new(*flow, qpn, peer, poster, core));
    }

    pub(super) fn next_at(&self) -> Time {
        self.steps
            .peek()
            .map_or(Time::NEVER, |Reverse((at, ..))| *at)
    }

    /// How long each core that works did.
    pub(super) fn cores_busy_ps(&self) -> Vec<u64> {
        self.cores
            .iter()
            .take(self.sessions.len())
            .map(|core| core.busy_ps)
            .collect()
    }

    /// How long memory was busy with copies.
    pub(super) fn memory_busy_ps(&self) -> u64 {
        self.memory.busy_ps
    }

    /// How long each drive did.
    pub(super) fn drives_busy_ps(&self) -> Vec<u64> {
        self.shelf.busy_ps.clone()
    }

    fn plan(&mut self, at: Time, step: Step) {
        self.steps_made += 1;
        self.steps.push(Reverse((at, self.steps_made, step)));
    }

    fn due(&mut self, now: Time) -> Option<Step> {
        let due = self
            .steps
            .peek()
            .is_some_and(|Reverse((at, ..))| *at <= now);
        if due {
            self.steps.pop().map(|Reverse((_, _, step))| step)
        } else {
            None
        }
    }

    fn work(&mut self, now: Time, session: u32, span: Span) -> Time {
        let core = self.sessions[session as usize].core;
        self.cores[core as usize].work(now, span)
    }

    /// Works and copies: no faster than its core does, nor than memory that all cores share.
    fn work_and_copy(&mut self, now: Time, session: u32, span: Span, bytes: u32) -> Time {
        let Processor { copy, memory, .. } = self.config.processor;
        let done = self.work(now, session, span + copy.time_of(bytes));
        let Some(memory) = memory.filter(|_| bytes > 0) else {
            return done;
        };
        let copied = self.memory.work(now, memory.time_of(bytes).times(PASSES));
        // The core waits for memory, and looks busy.
        self.work(now, session, Span(copied.0.saturating_sub(done.0)))
    }

    /// Sends commands for as many I/Os as the job's depth allows.
    fn ask(&mut self, now: Time, session: u32) {
        loop {
            let this = &mut self.sessions[session as usize];
            let flow = this.flow;
            let Some(number) = this.next_command(now) else {
                return;
            };
            self.watch(now, session);
            let begun = self.work(now, session, self.config.processor.io);
            let with_data =
                flow.operation == Transfer::StorageWrite && flow.message_bytes <= INLINE_BYTES;
            let bytes = match self.config.stream {
                true if with_data => TCP_COMMAND_BYTES + flow.message_bytes,
                true => TCP_COMMAND_BYTES,
                false => COMMAND_BYTES,
            };
            self.say(begun, session, Word::Command, number, bytes);
        }
    }

    /// Sends a message.
    fn say(&mut self, now: Time, session: u32, word: Word, number: u64, bytes: u32) {
        let processor = self.config.processor;
        let span = match self.config.stream {
            true => processor.call,
            false => processor.request,
        };
        let copied = if self.config.stream { bytes } else { 0 };
        let done = self.work_and_copy(now, session, span, copied);
        let work = Work::Say {
            word,
            number,
            bytes: bytes - NUMBER_BYTES,
        };
        self.plan(done + self.posting, Step::Post { session, work });
    }

    /// Sends data over the stream.
    fn say_data(&mut self, now: Time, session: u32, number: u64) {
        let mut left = self.sessions[session as usize].flow.message_bytes;
        while left > 0 {
            let piece = left.min(PIECE_BYTES);
            left -= piece;
            let word = if left == 0 { Word::Data } else { Word::Part };
            self.say(now, session, word, number, piece + TCP_HEADER_BYTES);
        }
    }

    /// A message is in memory.
    fn arrived(&mut self, now: Time, session: u32, word: Word, number: u64, bytes: u32) {
        if !self.config.stream {
            let done = self.work(now, session, self.config.processor.request);
            return self.plan(
                done,
                Step::Hear {
                    session,
                    word,
                    number,
                },
            );
        }
        let index = self.sessions[session as usize].core;
        let core = &mut self.cores[index as usize];
        if core.is_busy(now) && !core.interrupted {
            // The core polls for more before it sleeps again.
            return self.receive(now, session, word, number, bytes);
        }
        self.waiting[index as usize].push((session, word, number, bytes));
        if !std::mem::replace(&mut core.interrupted, true) {
            self.plan(
                now + self.config.processor.moderation,
                Step::Interrupt { core: index },
            );
        }
    }

    /// The stack takes a message off the stream.
    fn receive(&mut self, now: Time, session: u32, word: Word, number: u64, bytes: u32) {
        let processor = self.config.processor;
        let packets = u64::from(bytes.div_ceil(self.mtu));
        let span = processor.call + processor.packet.times(packets);
        let done = self.work_and_copy(now, session, span, bytes);
        self.plan(
            done,
            Step::Hear {
                session,
                word,
                number,
            },
        );
    }

    fn interrupt(&mut self, now: Time, index: u32) {
        let processor = self.config.processor;
        let late = processor.lateness(&mut self.random);
        let core = &mut self.cores[index as usize];
        core.interrupted = false;
        core.rest(now, late);
        core.work(now, processor.interrupt);
        for (session, word, number, bytes) in std::mem::take(&mut self.waiting[index as usize]) {
            self.receive(now, session, word, number, bytes);
        }
    }

    /// The program has a message. Whether an I/O of its own is done with it.
    fn hear(&mut self, now: Time, session: u32, word: Word, number: u64) -> bool {
        let this = &mut self.sessions[session as usize];
        let (flow, poster) = (this.flow, this.poster);
        if word == Word::Closed {
            this.first = number;
        }
        if this.is_stale(number) {
            return false;
        }
        let writes = flow.operation == Transfer::StorageWrite;
        match (word, poster) {
            (Word::Command, None) => {
                let begun = self.work(now, session, self.config.processor.io);
                match (writes, self.config.stream) {
                    (true, false) => {
                        let done = self.work(begun, session, self.config.processor.request);
                        let work = Work::Fetch {
                            number,
                            bytes: flow.message_bytes,
                        };
                        self.plan(done + self.posting, Step::Post { session, work });
                    }
                    (true, true) if flow.message_bytes > INLINE_BYTES => {
                        self.say(begun, session, Word::Ready, number, TCP_HEADER_BYTES);
                    }
                    _ => self.serve(begun, session, number),
                }
            }
            (Word::Data | Word::Fetched, None) => self.serve(now, session, number),
            (Word::Ready, Some(_)) => self.say_data(now, session, number),
            (Word::Response | Word::Data, Some(_)) => return true,
            _ => {}
        }
        false
    }

    fn serve(&mut self, now: Time, session: u32, number: u64) {
        let flow = self.sessions[session as usize].flow;
        let writes = flow.operation == Transfer::StorageWrite;
        // Jobs begin with different drives.
        let turn = number + u64::from(session);
        let done = self
            .shelf
            .serve(now, turn, flow.message_bytes, writes, &mut self.random);
        self.plan(done, Step::Served { session, number });
    }

    /// The drive is done: the answer.
    fn served(&mut self, now: Time, session: u32, number: u64) {
        let this = &self.sessions[session as usize];
        if this.is_stale(number) {
            return;
        }
        let flow = this.flow;
        let reads = flow.operation == Transfer::StorageRead;
        if self.config.stream {
            return match reads {
                true => self.say_data(now, session, number),
                false => self.say(now, session, Word::Response, number, TCP_HEADER_BYTES),
            };
        }
        if reads {
            let done = self.work(now, session, self.config.processor.request);
            let work = Work::Place {
                bytes: flow.message_bytes,
            };
            self.plan(done + self.posting, Step::Post { session, work });
        }
        self.say(now, session, Word::Response, number, RESPONSE_BYTES);
    }
}
