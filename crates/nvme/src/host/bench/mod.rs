//! Measures a queue: how many commands it carries, and how long each takes.

mod count;
mod fill;
mod histogram;
mod threads;

use std::io;
use std::time::{Duration, Instant};

use rdma::Buffer;
use wire::nvme::Io;

use super::HostError;
use super::client::{Namespace, transfer};
use super::commands::{Done, Payload};
use super::queue::Queue;
use crate::store::Store;

use count::Count;
pub use fill::{fill, fill_local};
pub use histogram::Histogram;
pub use threads::{run_local_threads, run_threads};

/// What to do, and for how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Job {
    /// Write instead of read.
    pub write: bool,
    /// Anywhere instead of one behind the other.
    pub random: bool,
    /// Bytes of a command: a multiple of the block size.
    pub bytes: usize,
    /// Commands at once, on each queue.
    pub depth: usize,
    /// Before counting.
    pub warm_up: Duration,
    /// While counting.
    pub time: Duration,
    /// Sleep while nothing is finished, instead of looking all the time. For one queue.
    pub block: bool,
    /// A process whose processor time is counted beside: the target, where it is on this host.
    pub target: Option<u32>,
}

/// What came of it. Latencies are in nanoseconds, from giving a command to the queue to having its
/// completion.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Commands per second.
    pub per_second: f64,
    /// Bytes per second.
    pub bytes_per_second: f64,
    /// Commands that failed.
    pub errors: u64,
    /// The latency of all.
    pub latency: Histogram,
    /// Processor time of this thread, or of all that ran the job, per second.
    pub processor: f64,
    /// Processor time of the target per second, if that could be seen.
    pub target_processor: Option<f64>,
    /// Commands per second in each of [`MOMENTS`] parts of the time, one after the other.
    pub over_time: Vec<f64>,
    /// Commands that failed in each of these parts.
    pub errors_over_time: Vec<u64>,
}

/// Parts of a measurement that are counted apart, to see whether it is steady.
pub const MOMENTS: usize = 20;

/// Where commands go.
struct Places {
    count: u64,
    next: u64,
    random: Option<u64>,
}

impl Places {
    fn new(job: &Job, count: u64, first: u64) -> Self {
        Self { count, next: first % count, random: job.random.then_some(first ^ 0x9e37_79b9_7f4a_7c15) }
    }

    fn next(&mut self) -> u64 {
        self.next = match &mut self.random {
            Some(state) => random(state) % self.count,
            None => (self.next + 1) % self.count,
        };
        self.next
    }
}

/// A queue with what it has to do.
struct Lane<'a> {
    queue: &'a mut Queue,
    begun: Vec<Instant>,
    places: Places,
}

impl Lane<'_> {
    fn submit(
        &mut self,
        job: &Job,
        namespace: &Namespace,
        token: u64,
        buffer: Buffer,
    ) -> Result<(), HostError> {
        let count = (job.bytes / namespace.block_size) as u32;
        let start = self.places.next() * u64::from(count);
        self.begun[token as usize] = Instant::now();
        let (kind, payload) = match job.write {
            true => (Io::Write, Payload::Out(buffer, job.bytes)),
            false => (Io::Read, Payload::In(buffer, job.bytes)),
        };
        self.queue.submit(transfer(kind, namespace.nsid, start, count), payload, token)
    }
}

/// How many commands a namespace has room for.
fn room(namespace: &Namespace, job: &Job) -> Result<u64, HostError> {
    let blocks = (job.bytes / namespace.block_size) as u64;
    let count = namespace.blocks.checked_div(blocks).filter(|count| *count > 0);
    count.ok_or(HostError::Protocol("the namespace is smaller than one command"))
}

/// Runs a job on queues of one controller, all of them in this thread.
///
/// # Errors
/// When a connection is broken, or the namespace is smaller than one command.
pub fn run(queues: &mut [Queue], namespace: &Namespace, job: &Job) -> Result<Figures, HostError> {
    let share = room(namespace, job)? / queues.len().max(1) as u64;
    run_from(queues, namespace, job, 0, share)
}

/// The same, each queue's first command so far behind the one before.
fn run_from(
    queues: &mut [Queue],
    namespace: &Namespace,
    job: &Job,
    first: u64,
    share: u64,
) -> Result<Figures, HostError> {
    let count = room(namespace, job)?;
    let mut lanes = Vec::new();
    for (index, queue) in queues.iter_mut().enumerate() {
        let places = Places::new(job, count, first + share * index as u64);
        let mut lane = Lane { queue, begun: vec![Instant::now(); job.depth], places };
        for token in 0..job.depth {
            let buffer = lane.queue.buffer(job.bytes)?;
            lane.submit(job, namespace, token as u64, buffer)?;
        }
        lanes.push(lane);
    }
    let is_alone = lanes.len() == 1;
    let (mut counted, mut done) = (Count::new(job), Vec::<Done>::new());
    loop {
        for lane in &mut lanes {
            if job.block && is_alone {
                lane.queue.wait(&mut done)?;
            } else {
                lane.queue.poll(&mut done)?;
            }
            let now = Instant::now();
            if counted.look(now) {
                for lane in &mut lanes {
                    while lane.queue.outstanding() > 0 {
                        lane.queue.wait(&mut done)?;
                    }
                }
                return Ok(counted.figures(now, job.bytes));
            }
            for Done { token, completion, buffer } in done.drain(..) {
                counted.one(lane.begun[token as usize], now, completion.status().is_success());
                if let Some(buffer) = buffer {
                    lane.submit(job, namespace, token, buffer)?;
                }
            }
        }
    }
}

/// Runs a job on a store in this process, without a network, one command after the other: a store that
/// answers at once has no use for depth.
///
/// # Errors
/// As the store.
pub fn run_local(store: &Store, size: u64, job: &Job) -> io::Result<Figures> {
    run_local_from(store, size, job, 0)
}

/// The same, beginning at this command's place.
fn run_local_from(store: &Store, size: u64, job: &Job, first: u64) -> io::Result<Figures> {
    let mut places = Places::new(job, (size / job.bytes as u64).max(1), first);
    let mut buffer = Buffer::zeroed(job.bytes);
    let mut counted = Count::new(job);
    loop {
        let (offset, begun) = (places.next() * job.bytes as u64, Instant::now());
        match job.write {
            true => store.write(offset, &buffer[..job.bytes], false)?,
            false => store.read(offset, &mut buffer[..job.bytes])?,
        }
        let now = Instant::now();
        counted.one(begun, now, true);
        if counted.look(now) {
            return Ok(counted.figures(now, job.bytes));
        }
    }
}

/// Steele, Lea and Flood's SplitMix64: the same places in every run.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}
