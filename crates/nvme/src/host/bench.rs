//! Measures a queue: how many commands it carries, and how long each takes.

use std::io;
use std::time::{Duration, Instant};

use rdma::Buffer;
use wire::nvme::Io;

use super::HostError;
use super::client::{Namespace, transfer};
use super::commands::{Done, Payload};
use super::queue::Queue;
use crate::store::Store;

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
    /// Processor time of this thread per second.
    pub processor: f64,
    /// Processor time of the target per second, if that could be seen.
    pub target_processor: Option<f64>,
    /// Commands per second in each of [`MOMENTS`] parts of the time, one after the other.
    pub over_time: Vec<f64>,
}

/// Parts of a measurement that are counted apart, to see whether it is steady.
pub const MOMENTS: usize = 20;

/// Counts of latencies, with 64 steps between powers of two: each is known to 1.6 %.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    sum_ns: u128,
    max_ns: u64,
}

const STEPS: u32 = 6;

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; 64 << STEPS], total: 0, sum_ns: 0, max_ns: 0 }
    }
}

impl Histogram {
    fn place(ns: u64) -> usize {
        let magnitude = 63_u32.saturating_sub((ns | 1 << STEPS).leading_zeros()) - STEPS;
        ((magnitude as usize) << STEPS) + (ns >> magnitude) as usize
    }

    /// The highest value that falls where this index counts.
    fn value(index: usize) -> u64 {
        let magnitude = (index >> STEPS).saturating_sub(1);
        let mantissa = (index - (magnitude << STEPS)) as u64;
        ((mantissa + 1) << magnitude) - 1
    }

    /// Counts one.
    pub fn count(&mut self, ns: u64) {
        if let Some(count) = self.counts.get_mut(Self::place(ns)) {
            *count += 1;
        }
        self.total += 1;
        self.sum_ns += u128::from(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// How many there are.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Their mean.
    pub fn mean_ns(&self) -> u64 {
        (self.sum_ns / u128::from(self.total.max(1))) as u64
    }

    /// The longest.
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// That which so many of a thousand do not exceed.
    pub fn per_mille_ns(&self, per_mille: u64) -> u64 {
        let wanted = (self.total * per_mille).div_ceil(1000);
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return Self::value(index).min(self.max_ns);
            }
        }
        self.max_ns
    }
}

/// What is counted while a job runs.
struct Count {
    warm_up: Duration,
    time: Duration,
    started: Instant,
    is_warm: bool,
    processor_ns: u64,
    target: Option<u32>,
    target_ns: Option<u64>,
    latency: Histogram,
    errors: u64,
    moments: Vec<u64>,
}

impl Count {
    fn new(job: &Job) -> Self {
        Self {
            warm_up: job.warm_up,
            time: job.time,
            started: Instant::now(),
            is_warm: job.warm_up.is_zero(),
            processor_ns: processor_ns(),
            target: job.target,
            target_ns: job.target.and_then(process_ns),
            latency: Histogram::default(),
            errors: 0,
            moments: vec![0; MOMENTS],
        }
    }

    /// Whether the time is over.
    fn look(&mut self, now: Instant) -> bool {
        if !self.is_warm && now - self.started >= self.warm_up {
            (self.started, self.is_warm) = (now, true);
            (self.processor_ns, self.target_ns) = (processor_ns(), self.target.and_then(process_ns));
            (self.latency, self.errors) = (Histogram::default(), 0);
            self.moments.fill(0);
        }
        self.is_warm && now - self.started >= self.time
    }

    fn one(&mut self, begun: Instant, now: Instant, is_success: bool) {
        self.latency.count((now - begun).as_nanos() as u64);
        self.errors += u64::from(!is_success);
        let part = (now - self.started).as_nanos() * MOMENTS as u128 / self.time.as_nanos().max(1);
        if let Some(moment) = self.moments.get_mut(part as usize) {
            *moment += 1;
        }
    }

    fn figures(self, now: Instant, bytes: usize) -> Figures {
        let seconds = (now - self.started).as_secs_f64();
        let per_second = self.latency.total() as f64 / seconds;
        let part = self.time.as_secs_f64() / MOMENTS as f64;
        let target_ns = self.target.and_then(process_ns).zip(self.target_ns);
        Figures {
            per_second,
            bytes_per_second: per_second * bytes as f64,
            errors: self.errors,
            latency: self.latency,
            processor: (processor_ns() - self.processor_ns) as f64 / 1e9 / seconds,
            target_processor: target_ns.map(|(now, then)| now.saturating_sub(then) as f64 / 1e9 / seconds),
            over_time: self.moments.iter().map(|count| *count as f64 / part).collect(),
        }
    }
}

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

/// Runs a job on queues of one controller, all of them in this thread.
///
/// # Errors
/// When a connection is broken, or the namespace is smaller than one command.
pub fn run(queues: &mut [Queue], namespace: &Namespace, job: &Job) -> Result<Figures, HostError> {
    let blocks = (job.bytes / namespace.block_size) as u64;
    let count = namespace.blocks.checked_div(blocks).filter(|count| *count > 0);
    let count = count.ok_or(HostError::Protocol("the namespace is smaller than one command"))?;
    let share = count / queues.len().max(1) as u64;
    let mut lanes = Vec::new();
    for (index, queue) in queues.iter_mut().enumerate() {
        let places = Places::new(job, count, share * index as u64);
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

/// What fills a disk before it is measured: reading what was never written measures nothing.
fn fill_buffer(buffer: &mut Buffer, seed: u64) {
    let mut state = seed;
    for word in buffer.chunks_exact_mut(8) {
        word.copy_from_slice(&random(&mut state).to_le_bytes());
    }
}

/// Writes the whole namespace, `bytes` at a time.
///
/// # Errors
/// When the connection is broken, or a write fails.
pub fn fill(queue: &mut Queue, namespace: &Namespace, bytes: usize) -> Result<(), HostError> {
    let most = (bytes / namespace.block_size) as u64;
    let mut buffer = queue.buffer(bytes)?;
    fill_buffer(&mut buffer, 1);
    let mut start = 0;
    while start < namespace.blocks {
        let count = most.min(namespace.blocks - start) as u32;
        let payload = Payload::Out(buffer, count as usize * namespace.block_size);
        let done = queue.call("Write", transfer(Io::Write, namespace.nsid, start, count), payload)?;
        buffer = done.buffer.ok_or(HostError::Protocol("a write without its buffer"))?;
        start += u64::from(count);
    }
    Ok(())
}

/// The same for a store in this process.
///
/// # Errors
/// As the store.
pub fn fill_local(store: &Store, size: u64) -> io::Result<()> {
    const PIECE: usize = 1 << 20;
    let mut buffer = Buffer::zeroed(PIECE);
    fill_buffer(&mut buffer, 1);
    let mut offset = 0;
    while offset < size {
        let length = (size - offset).min(PIECE as u64);
        store.write(offset, &buffer[..length as usize], false)?;
        offset += length;
    }
    Ok(())
}

/// Runs a job on a store in this process, without a network, one command after the other: a store that
/// answers at once has no use for depth.
///
/// # Errors
/// As the store.
pub fn run_local(store: &Store, size: u64, job: &Job) -> io::Result<Figures> {
    let mut places = Places::new(job, (size / job.bytes as u64).max(1), 0);
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

/// Processor time of this thread; 0 where the kernel does not count it.
fn processor_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Processor time of all threads of a process.
fn process_ns(process: u32) -> Option<u64> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let of = |path: std::path::PathBuf| {
        let text = std::fs::read_to_string(path.join("schedstat")).unwrap_or_default();
        text.split(' ').next().and_then(|number| number.parse::<u64>().ok())
    };
    Some(threads.flatten().filter_map(|thread| of(thread.path())).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_known_to_two_in_a_hundred() {
        for ns in [0, 1, 63, 64, 65, 1000, 12_345, 1_000_000, 123_456_789, u64::from(u32::MAX) * 100] {
            let value = Histogram::value(Histogram::place(ns));
            assert!(value >= ns && value as f64 <= ns as f64 * 1.02 + 1.0, "{ns} becomes {value}");
        }
    }

    #[test]
    fn percentiles_count_from_below() {
        let mut histogram = Histogram::default();
        (1..=1000).for_each(|ns| histogram.count(ns * 1000));
        let near = |found: u64, expected: f64| (found as f64 / expected - 1.0).abs() < 0.02;
        assert!(near(histogram.per_mille_ns(500), 500_000.0));
        assert!(near(histogram.per_mille_ns(990), 990_000.0));
        assert_eq!((histogram.max_ns(), histogram.mean_ns()), (1_000_000, 500_500));
    }
}
