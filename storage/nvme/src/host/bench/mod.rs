//! Measures queues: command rate and latency.

mod count;
mod fill;
mod histogram;
pub mod job;
mod kernel;
mod threads;

use std::io;
use std::time::{Duration, Instant};

use buffer::Buffer;
use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::SplitMix64;
use wire::nvme::{Io, Status};

use super::HostError;
use super::client::transfer;
use super::commands::{Done, Payload};
use super::namespace::Namespace;
use super::queue::Queue;
use crate::store::Store;

use count::Count;
pub use fill::{fill, fill_local};
pub use histogram::Histogram;
pub use threads::{run_local_threads, run_threads};

/// A benchmark job: its commands and its duration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Job {
    /// Whether commands write instead of read.
    pub write: bool,
    /// Whether blocks are chosen at random instead of sequentially.
    pub random: bool,
    /// Bytes per command: a multiple of the block size.
    pub bytes: usize,
    /// Outstanding commands on each queue; at most the depth of the queue.
    pub depth: usize,
    /// How long the job runs before it is measured.
    pub warm_up: Duration,
    /// How long the job is measured.
    pub time: Duration,
    /// Whether the thread sleeps until a completion arrives instead of polling. Only for a single queue.
    pub block: bool,
    /// The process of the target, if it runs on this machine: its processor time is measured too.
    pub target: Option<u32>,
}

/// The result of a job. Rates and latencies are of successful commands. A latency is the time in nanoseconds
/// from submitting a command to its completion.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Commands per second.
    pub per_second: f64,
    /// Bytes per second.
    pub bytes_per_second: f64,
    /// Commands that failed.
    pub errors: u64,
    /// The status of the first command that failed.
    pub first_error: Option<Status>,
    /// Latencies of successful commands.
    pub latency: Histogram,
    /// Processor time of all threads of the job, per second of measured time.
    pub processor: f64,
    /// Time per second in which threads of the job could have run and other threads had the processors.
    pub processor_wait: f64,
    /// The longest time in which a thread of the job saw no command finish. With a `processor_wait` of the
    /// same order, the machine was too busy to run the thread.
    pub longest_pause: Duration,
    /// Processor time of the target per second; `None` if it could not be read.
    pub target_processor: Option<f64>,
    /// Context switches of all threads of the job per second, those that they waited for and those that the
    /// kernel forced.
    pub switches: f64,
    /// The same of all threads of the target; `None` if they could not be read.
    pub target_switches: Option<f64>,
    /// Interrupts of the whole machine per second; `None` if they could not be read.
    pub interrupts: Option<f64>,
    /// How busy each processor of the machine was, from 0 to 1, whoever kept it busy.
    pub cores: Vec<f64>,
    /// Commands per second in each of the [`MOMENTS`] intervals of the measurement.
    pub over_time: Vec<f64>,
    /// Failed commands in each interval.
    pub errors_over_time: Vec<u64>,
}

/// Intervals of a measurement that are counted separately, to show whether the rate is steady.
pub const MOMENTS: usize = 20;

/// Combined with the first block of a queue, so that queues do not choose the blocks of their neighbours.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// The blocks that commands use.
struct Places {
    count: u64,
    next: u64,
    random: Option<SplitMix64>,
}

impl Places {
    fn new(job: &Job, count: u64, first: u64) -> Self {
        Self {
            count,
            next: first % count,
            random: job.random.then(|| SplitMix64::seed_from_u64(first ^ SEED)),
        }
    }

    fn next(&mut self) -> u64 {
        self.next = match &mut self.random {
            Some(generator) => generator.next_u64() % self.count,
            None => (self.next + 1) % self.count,
        };
        self.next
    }
}

/// A queue with the state of its job.
struct QueueJob<'a> {
    queue: &'a mut Queue,
    begun: Vec<Instant>,
    places: Places,
}

impl QueueJob<'_> {
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
        self.queue
            .submit(transfer(kind, namespace.nsid, start, count), payload, token)
    }
}

/// The number of different block ranges of this length in a namespace.
fn room(namespace: &Namespace, job: &Job) -> Result<u64, HostError> {
    let blocks = (job.bytes / namespace.block_size) as u64;
    let count = namespace
        .blocks
        .checked_div(blocks)
        .filter(|count| *count > 0);
    count.ok_or(HostError::Protocol(
        "the namespace is smaller than one command",
    ))
}

/// Runs a job on queues of one controller, all of them in this thread.
///
/// # Errors
/// When a connection is broken, or the namespace is smaller than one command.
pub fn run(queues: &mut [Queue], namespace: &Namespace, job: &Job) -> Result<Figures, HostError> {
    let share = room(namespace, job)? / queues.len().max(1) as u64;
    run_from(queues, namespace, job, 0, share)
}

/// Runs a job, in which the first command of the first queue uses range `first`, and that of each further
/// queue a range `share` later.
fn run_from(
    queues: &mut [Queue],
    namespace: &Namespace,
    job: &Job,
    first: u64,
    share: u64,
) -> Result<Figures, HostError> {
    let count = room(namespace, job)?;
    let mut jobs = Vec::new();
    for (index, queue) in queues.iter_mut().enumerate() {
        let places = Places::new(job, count, first + share * index as u64);
        let depth = job.depth.min(queue.depth());
        let mut queue_job = QueueJob {
            queue,
            begun: vec![Instant::now(); depth],
            places,
        };
        for token in 0..depth {
            let buffer = queue_job.queue.buffer(job.bytes)?;
            queue_job.submit(job, namespace, token as u64, buffer)?;
        }
        jobs.push(queue_job);
    }
    let is_alone = jobs.len() == 1;
    let (mut counted, mut done) = (Count::new(job), Vec::<Done>::new());
    loop {
        for queue_job in &mut jobs {
            if job.block && is_alone {
                queue_job.queue.wait(&mut done)?;
            } else {
                queue_job.queue.poll(&mut done)?;
            }
            let now = Instant::now();
            if counted.look(now) {
                for queue_job in &mut jobs {
                    while queue_job.queue.outstanding() > 0 {
                        queue_job.queue.wait(&mut done)?;
                    }
                    // A command that was repeated to the end has failed within the time of the job.
                    done.drain(..)
                        .for_each(|done| counted.last(done.completion.status()));
                }
                return Ok(counted.figures(now, job.bytes));
            }
            for Done {
                token,
                completion,
                buffer,
                ..
            } in done.drain(..)
            {
                counted.one(queue_job.begun[token as usize], now, completion.status());
                if let Some(buffer) = buffer {
                    queue_job.submit(job, namespace, token, buffer)?;
                }
            }
        }
    }
}

/// Runs a job on a store of this process, without a network, one command at a time: a store that finishes
/// each operation immediately does not use a queue depth.
///
/// # Errors
/// The error of the store.
pub fn run_local(store: &Store, size: u64, job: &Job) -> io::Result<Figures> {
    run_local_from(store, size, job, 0)
}

/// Runs a job on a store, from this range on.
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
        counted.one(begun, now, Status::SUCCESS);
        if counted.look(now) {
            return Ok(counted.figures(now, job.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Measurements of one seed are comparable between versions.
    #[test]
    fn a_queue_chooses_the_same_blocks_in_all_versions() {
        let spec: job::Spec = "randread:4k:1x1".parse().expect("a job");
        let mut places = Places::new(&spec.job(), 1_000_003, 7);
        let chosen: Vec<u64> = (0..4).map(|_| places.next()).collect();
        assert_eq!(chosen, [198392, 915014, 400360, 971418]);
    }
}
