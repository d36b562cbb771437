//! Benchmark jobs in several threads, as with `numjobs` of fio.

use std::io;
use std::ops::AddAssign;
use std::thread::available_parallelism;

use super::super::HostError;
use super::super::namespace::Namespace;
use super::super::queue::Queue;
use super::{Figures, Job, room, run_from, run_local_from};
use crate::store::Store;

/// Stack of a thread: it does not recurse, and its data are on the heap.
const STACK_BYTES: usize = 512 << 10;

/// Runs a job on each queue, in a thread of its own. Threads poll if they are at most half of the processors;
/// otherwise they block, because the target needs processors too.
///
/// # Errors
/// As [`super::run`], and when a thread cannot be started.
pub fn run_threads(
    queues: &mut [Queue],
    namespace: &Namespace,
    job: &Job,
) -> Result<Figures, HostError> {
    let share = room(namespace, job)? / queues.len().max(1) as u64;
    let looking = available_parallelism().map_or(1, |count| (count.get() / 2).max(1));
    let block = job.block || queues.len() > looking;
    let parts = queues.chunks_mut(1).enumerate();
    let run = |index: usize, queue: &mut [Queue], target| {
        let job = Job {
            block,
            target,
            ..*job
        };
        run_from(queue, namespace, &job, share * index as u64, 0)
    };
    together(parts.map(|(index, queue)| {
        // Only one thread measures the process of the target.
        let target = job.target.filter(|_| index == 0);
        move || run(index, queue, target)
    }))
}

/// Runs a job on a store of this process in several threads.
///
/// # Errors
/// The error of the store, or of starting a thread.
pub fn run_local_threads(store: &Store, size: u64, job: &Job, threads: u16) -> io::Result<Figures> {
    let share = size / job.bytes as u64 / u64::from(threads.max(1));
    together(
        (0..threads)
            .map(|index| move || run_local_from(store, size, job, share * u64::from(index))),
    )
}

/// Runs all jobs at the same time, and adds their results.
fn together<E: From<io::Error> + Send>(
    all: impl Iterator<Item = impl FnOnce() -> Result<Figures, E> + Send>,
) -> Result<Figures, E> {
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for run in all {
            let thread = std::thread::Builder::new()
                .name("nvme-job".to_owned())
                .stack_size(STACK_BYTES);
            threads.push(thread.spawn_scoped(scope, run)?);
        }
        let mut sum = Figures::default();
        for thread in threads {
            sum.add(
                &thread
                    .join()
                    .map_err(|_| io::Error::other("a job's thread ended"))??,
            );
        }
        Ok(sum)
    })
}

impl Figures {
    /// Adds the result of another thread that ran at the same time.
    fn add(&mut self, other: &Self) {
        self.per_second += other.per_second;
        self.bytes_per_second += other.bytes_per_second;
        self.errors += other.errors;
        self.first_error = self.first_error.or(other.first_error);
        self.latency.add(&other.latency);
        self.processor += other.processor;
        self.processor_wait += other.processor_wait;
        self.longest_pause = self.longest_pause.max(other.longest_pause);
        self.target_processor = self.target_processor.or(other.target_processor);
        self.switches += other.switches;
        self.target_switches = self.target_switches.or(other.target_switches);
        self.interrupts = self.interrupts.or(other.interrupts);
        if self.cores.is_empty() {
            self.cores.clone_from(&other.cores);
        }
        add_parts(&mut self.over_time, &other.over_time);
        add_parts(&mut self.errors_over_time, &other.errors_over_time);
    }
}

fn add_parts<T: Copy + Default + AddAssign>(sum: &mut Vec<T>, parts: &[T]) {
    sum.resize(parts.len().max(sum.len()), T::default());
    sum.iter_mut()
        .zip(parts)
        .for_each(|(sum, part)| *sum += *part);
}
