//! Runs a job: one connection for each of its queues, each with a thread and so many requests under way.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use command::process::processor_time;
use serde::{Deserialize, Serialize};

use super::client::{Client, pattern};
use ::nvme::host::job::Spec;

/// Bytes of a WRITE that fills the file.
const FILL_BYTES: usize = 1 << 16;

/// The results of a job. Latencies are in microseconds, processor time in seconds per second.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Figures {
    pub(super) job: String,
    pub(super) per_second: f64,
    pub(super) bytes_per_second: f64,
    pub(super) mean_us: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) max_us: f64,
    /// Processor time of the client.
    pub(super) client: f64,
    /// Processor time of the gateway, where there is one.
    pub(super) gateway: Option<f64>,
    /// Processor time of Samba, or of the server in memory, where it is known.
    pub(super) samba: Option<f64>,
}

/// A job's duration, and the file it works on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) warm_up: Duration,
    pub(super) time: Duration,
    /// Without load, between two jobs.
    pub(super) rest: Duration,
    pub(super) size: u64,
    /// Process ids of the gateway and of Samba or the server in memory, for their processor time.
    pub(super) others: [Option<u32>; 2],
}

impl Load {
    /// Rests before a job that is not the first.
    pub(super) fn rest_before(&self, index: usize) {
        if index > 0 {
            std::thread::sleep(self.rest);
        }
    }
}

/// The file or connection with which a thread makes its transfers.
pub(super) trait Target: Send {
    /// Whether another transfer may begin.
    fn may_submit(&self, bytes: usize) -> bool;
    /// Begins a transfer.
    fn submit(&mut self, slot: usize, write: bool, offset: u64, bytes: usize) -> io::Result<()>;
    /// Waits for the end of one, and returns its slot.
    fn complete(&mut self) -> io::Result<usize>;
}

impl Target for Client {
    fn may_submit(&self, bytes: usize) -> bool {
        Self::may_submit(self, bytes)
    }

    fn submit(&mut self, slot: usize, write: bool, offset: u64, bytes: usize) -> io::Result<()> {
        Self::submit(self, slot, write, offset, bytes)
    }

    fn complete(&mut self) -> io::Result<usize> {
        Self::complete(self)
    }
}

/// A file of this machine. Its transfers are made one after the other: they come from the page cache, where
/// there is nothing to wait for.
pub(super) struct Local {
    file: File,
    data: Vec<u8>,
    done: Vec<usize>,
}

impl Local {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        Ok(Self {
            file,
            data: pattern(1 << 20),
            done: Vec::new(),
        })
    }
}

impl Target for Local {
    fn may_submit(&self, _bytes: usize) -> bool {
        true
    }

    fn submit(&mut self, slot: usize, write: bool, offset: u64, bytes: usize) -> io::Result<()> {
        let data = self
            .data
            .get_mut(..bytes)
            .ok_or(io::ErrorKind::InvalidInput)?;
        match write {
            true => self.file.write_all_at(data, offset)?,
            false => self.file.read_exact_at(data, offset)?,
        }
        self.done.push(slot);
        Ok(())
    }

    fn complete(&mut self) -> io::Result<usize> {
        self.done
            .pop()
            .ok_or_else(|| io::Error::other("no transfer is under way"))
    }
}

/// Writes the whole file once.
pub(super) fn fill(target: &mut dyn Target, size: u64) -> io::Result<()> {
    for offset in (0..size).step_by(FILL_BYTES) {
        let bytes = FILL_BYTES.min((size - offset) as usize);
        target.submit(0, true, offset, bytes)?;
        target.complete()?;
    }
    Ok(())
}

/// The parts of a file that one thread uses.
struct Places {
    count: u64,
    next: u64,
    random: Option<u64>,
}

impl Places {
    fn new(spec: &Spec, size: u64, thread: u64) -> Self {
        let count = (size / spec.bytes as u64).max(1);
        let first = count / u64::from(spec.queues.max(1)) * thread;
        let random = spec
            .random
            .then_some((thread + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Self {
            count,
            next: first,
            random,
        }
    }

    fn next(&mut self) -> u64 {
        let place = match &mut self.random {
            Some(state) => {
                // Marsaglia's xorshift: only its spread matters.
                *state ^= *state << 13;
                *state ^= *state >> 7;
                *state ^= *state << 17;
                *state % self.count
            }
            None => self.next,
        };
        self.next = (self.next + 1) % self.count;
        place
    }
}

/// One thread's work: latencies in nanoseconds of what completed in the measured time.
fn work(
    target: &mut dyn Target,
    spec: &Spec,
    load: &Load,
    thread: u64,
    begin: &Barrier,
    is_over: &AtomicBool,
) -> io::Result<Vec<u32>> {
    let mut places = Places::new(spec, load.size, thread);
    let mut free: Vec<usize> = (0..usize::from(spec.depth)).collect();
    let mut begun = vec![Instant::now(); free.len()];
    let mut latencies = Vec::new();
    begin.wait();
    let start = Instant::now() + load.warm_up;
    loop {
        while !is_over.load(Ordering::Relaxed) && target.may_submit(spec.bytes) {
            let Some(slot) = free.pop() else { break };
            begun[slot] = Instant::now();
            target.submit(
                slot,
                spec.write,
                places.next() * spec.bytes as u64,
                spec.bytes,
            )?;
        }
        if free.len() == begun.len() {
            return Ok(latencies);
        }
        let slot = target.complete()?;
        let now = Instant::now();
        if now >= start && !is_over.load(Ordering::Relaxed) {
            latencies.push(u32::try_from((now - begun[slot]).as_nanos()).unwrap_or(u32::MAX));
        }
        free.push(slot);
    }
}

/// Runs a job on what `open` opens for each of its threads.
pub(super) fn run(
    spec: &Spec,
    load: &Load,
    open: impl Fn() -> io::Result<Box<dyn Target>>,
) -> io::Result<Figures> {
    let mut targets: Vec<Box<dyn Target>> = (0..spec.queues)
        .map(|_| open())
        .collect::<io::Result<_>>()?;
    let (begin, is_over) = (Barrier::new(targets.len() + 1), AtomicBool::new(false));
    let (begin, is_over) = (&begin, &is_over);
    let (found, times) = std::thread::scope(|scope| {
        let threads: Vec<_> = targets
            .iter_mut()
            .zip(0..)
            .map(|(target, thread)| {
                scope.spawn(move || work(&mut **target, spec, load, thread, begin, is_over))
            })
            .collect();
        begin.wait();
        std::thread::sleep(load.warm_up);
        let before = (Instant::now(), processors(load));
        std::thread::sleep(load.time);
        is_over.store(true, Ordering::Relaxed);
        let after = (Instant::now(), processors(load));
        let joined = threads.into_iter().map(|thread| {
            thread
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("a thread of the benchmark panicked")))
        });
        let found: io::Result<Vec<Vec<u32>>> = joined.collect();
        (found, (before, after))
    });
    let ((begin, before), (end, after)) = times;
    let seconds = (end - begin).as_secs_f64();
    let used =
        |which: usize| Some(after[which]?.saturating_sub(before[which]?).as_secs_f64() / seconds);
    let mut figures = Figures::of(spec, found?.concat(), seconds);
    (figures.client, figures.gateway, figures.samba) =
        (used(0).unwrap_or_default(), used(1), used(2));
    Ok(figures)
}

impl Figures {
    fn of(spec: &Spec, mut latencies: Vec<u32>, seconds: f64) -> Self {
        latencies.sort_unstable();
        let count = latencies.len();
        let us = |ns: f64| ns / 1000.0;
        let quantile = |part: f64| {
            let place = ((count as f64 * part) as usize).min(count.saturating_sub(1));
            us(latencies.get(place).copied().unwrap_or_default().into())
        };
        let sum = latencies.iter().fold(0.0, |sum, &ns| sum + f64::from(ns));
        let per_second = count as f64 / seconds;
        Self {
            job: spec.to_string(),
            per_second,
            bytes_per_second: per_second * spec.bytes as f64,
            mean_us: us(sum / count.max(1) as f64),
            p50_us: quantile(0.5),
            p99_us: quantile(0.99),
            max_us: quantile(1.0),
            ..Self::default()
        }
    }
}

/// Processor time of this process, the gateway and Samba.
fn processors(load: &Load) -> [Option<Duration>; 3] {
    let [gateway, samba] = load.others;
    [
        Some(of_process(std::process::id())),
        gateway.map(of_family),
        samba.map(of_family),
    ]
}

fn of_process(process: u32) -> Duration {
    processor_time(Path::new(&format!("/proc/{process}")))
}

/// Processor time of a process and its descendants: Samba has one for each connection.
fn of_family(process: u32) -> Duration {
    let path = format!("/proc/{process}/task/{process}/children");
    let children = fs::read_to_string(path).unwrap_or_default();
    let children = children
        .split_whitespace()
        .filter_map(|it| it.parse().ok())
        .map(of_family);
    of_process(process) + children.sum::<Duration>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_begin_apart_and_stay_within_the_file() {
        let spec: Spec = "read:1m:8t4".parse().expect("a job");
        let mut places = Places::new(&spec, 16 << 20, 3);
        assert_eq!(
            (0..5).map(|_| places.next()).collect::<Vec<_>>(),
            [12, 13, 14, 15, 0]
        );
        let spec: Spec = "randread:4k:1".parse().expect("a job");
        let mut places = Places::new(&spec, 1 << 20, 0);
        let found: std::collections::BTreeSet<_> = (0..10_000).map(|_| places.next()).collect();
        assert_eq!((found.len(), found.last()), (256, Some(&255)));
    }

    #[test]
    fn figures_are_of_all_latencies() {
        let spec: Spec = "read:4k:1".parse().expect("a job");
        let figures = Figures::of(&spec, vec![3000, 1000, 2000, 10_000], 2.0);
        assert_eq!(
            (figures.per_second, figures.bytes_per_second),
            (2.0, 8192.0)
        );
        assert_eq!(
            (figures.mean_us, figures.p50_us, figures.max_us),
            (4.0, 3.0, 10.0)
        );
    }

    #[test]
    fn a_local_file_is_filled_and_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let mut file = Local::open(&path).expect("a file");
        fill(&mut file, 100_000).expect("it is filled");
        assert_eq!(fs::metadata(&path).expect("a file").len(), 100_000);
        let spec: Spec = "randread:4k:4t2".parse().expect("a job");
        let (warm_up, time) = (Duration::ZERO, Duration::from_millis(20));
        let load = Load {
            warm_up,
            time,
            rest: Duration::ZERO,
            size: 100_000,
            others: [None; 2],
        };
        let open = || Ok(Box::new(Local::open(&path)?) as Box<dyn Target>);
        assert!(run(&spec, &load, open).expect("it runs").per_second > 0.0);
    }
}
