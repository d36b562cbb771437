//! Jobs as threads of their own, as fio's `numjobs` has them.

use std::io;
use std::ops::AddAssign;
use std::thread::available_parallelism;

use super::super::HostError;
use super::super::client::Namespace;
use super::super::queue::Queue;
use super::{Figures, Job, room, run_from, run_local_from};
use crate::store::Store;

/// What a thread needs: it recurses nowhere and keeps data on the heap.
const STACK_BYTES: usize = 512 << 10;

/// Runs a job on each queue, in a thread of its own. Up to half of the processors poll; with more threads
/// than that they sleep while they wait, since what they wait for needs a processor as well.
///
/// # Errors
/// As [`super::run`], or when there is no thread.
pub fn run_threads(queues: &mut [Queue], namespace: &Namespace, job: &Job) -> Result<Figures, HostError> {
    let share = room(namespace, job)? / queues.len().max(1) as u64;
    let looking = available_parallelism().map_or(1, |count| (count.get() / 2).max(1));
    let block = job.block || queues.len() > looking;
    let parts = queues.chunks_mut(1).enumerate();
    let run = |index: usize, queue: &mut [Queue], target| {
        let job = Job { block, target, ..*job };
        run_from(queue, namespace, &job, share * index as u64, 0)
    };
    together(parts.map(|(index, queue)| {
        // The target is one process: one of them looks at it.
        let target = job.target.filter(|_| index == 0);
        move || run(index, queue, target)
    }))
}

/// The same on a store in this process.
///
/// # Errors
/// As the store, or when there is no thread.
pub fn run_local_threads(store: &Store, size: u64, job: &Job, threads: u16) -> io::Result<Figures> {
    let share = size / job.bytes as u64 / u64::from(threads.max(1));
    together((0..threads).map(|index| move || run_local_from(store, size, job, share * u64::from(index))))
}

/// Runs all at the same time, and adds up what comes of them.
fn together<E: From<io::Error> + Send>(
    all: impl Iterator<Item = impl FnOnce() -> Result<Figures, E> + Send>,
) -> Result<Figures, E> {
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for run in all {
            let thread = std::thread::Builder::new().name("nvme-job".to_owned()).stack_size(STACK_BYTES);
            threads.push(thread.spawn_scoped(scope, run)?);
        }
        let mut sum = Figures::default();
        for thread in threads {
            sum.add(&thread.join().map_err(|_| io::Error::other("a job's thread ended"))??);
        }
        Ok(sum)
    })
}

impl Figures {
    /// What another thread did at the same time.
    fn add(&mut self, other: &Self) {
        self.per_second += other.per_second;
        self.bytes_per_second += other.bytes_per_second;
        self.errors += other.errors;
        self.latency.add(&other.latency);
        self.processor += other.processor;
        self.target_processor = self.target_processor.or(other.target_processor);
        add_parts(&mut self.over_time, &other.over_time);
        add_parts(&mut self.errors_over_time, &other.errors_over_time);
    }
}

fn add_parts<T: Copy + Default + AddAssign>(sum: &mut Vec<T>, parts: &[T]) {
    sum.resize(parts.len().max(sum.len()), T::default());
    sum.iter_mut().zip(parts).for_each(|(sum, part)| *sum += *part);
}
