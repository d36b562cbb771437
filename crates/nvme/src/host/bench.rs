//! Measures a queue: how many commands it carries, and how long each takes.

use std::time::{Duration, Instant};

use rdma::Buffer;
use wire::nvme::Io;

use super::HostError;
use super::client::{Namespace, transfer};
use super::commands::{Done, Payload};
use super::queue::Queue;

/// What to do, and for how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Job {
    /// Write instead of read.
    pub write: bool,
    /// Anywhere instead of one behind the other.
    pub random: bool,
    /// Bytes of a command: a multiple of the block size.
    pub bytes: usize,
    /// Commands at once.
    pub depth: usize,
    /// Before counting.
    pub warm_up: Duration,
    /// While counting.
    pub time: Duration,
    /// Sleep while nothing is finished, instead of looking all the time.
    pub block: bool,
}

/// What came of it. Latencies are in nanoseconds, from giving a command to the queue to having its
/// completion.
#[derive(Clone, Debug)]
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
}

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

/// Runs a job on a queue.
///
/// # Errors
/// When the connection is broken, or the namespace is smaller than one command.
pub fn run(queue: &mut Queue, namespace: &Namespace, job: &Job) -> Result<Figures, HostError> {
    let count = (job.bytes / namespace.block_size) as u32;
    let places = namespace.blocks.checked_div(count.into()).filter(|places| *places > 0);
    let places = places.ok_or(HostError::Protocol("the namespace is smaller than one command"))?;
    let mut generator = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next_place = 0;
    let mut place = || {
        next_place = if job.random { random(&mut generator) % places } else { (next_place + 1) % places };
        next_place * u64::from(count)
    };
    let kind = if job.write { Io::Write } else { Io::Read };
    let mut begun = vec![Instant::now(); job.depth];
    let mut submit = |queue: &mut Queue, begun: &mut [Instant], token: u64, buffer: Buffer| {
        begun[token as usize] = Instant::now();
        let payload = match job.write {
            true => Payload::Out(buffer, job.bytes),
            false => Payload::In(buffer, job.bytes),
        };
        queue.submit(transfer(kind, namespace.nsid, place(), count), payload, token)
    };
    for token in 0..job.depth {
        let buffer = queue.buffer(job.bytes)?;
        submit(queue, &mut begun, token as u64, buffer)?;
    }
    let (mut latency, mut errors, mut done) = (Histogram::default(), 0, Vec::<Done>::new());
    let mut started = Instant::now();
    let mut processor_ns = processor_ns();
    let mut is_warm = job.warm_up.is_zero();
    loop {
        if job.block {
            queue.wait(&mut done)?
        } else {
            queue.poll(&mut done)?
        };
        let now = Instant::now();
        if !is_warm && now - started >= job.warm_up {
            (started, is_warm, processor_ns) = (now, true, self::processor_ns());
            (latency, errors) = (Histogram::default(), 0);
        }
        let is_over = is_warm && now - started >= job.time;
        for Done { token, completion, buffer } in done.drain(..) {
            latency.count((now - begun[token as usize]).as_nanos() as u64);
            errors += u64::from(!completion.status().is_success());
            if let Some(buffer) = buffer.filter(|_| !is_over) {
                submit(queue, &mut begun, token, buffer)?;
            }
        }
        if is_over {
            let seconds = (now - started).as_secs_f64();
            let processor = (self::processor_ns() - processor_ns) as f64 / 1e9 / seconds;
            while queue.outstanding() > 0 {
                queue.wait(&mut done)?;
            }
            let per_second = latency.total() as f64 / seconds;
            let bytes_per_second = per_second * job.bytes as f64;
            return Ok(Figures { per_second, bytes_per_second, errors, latency, processor });
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
