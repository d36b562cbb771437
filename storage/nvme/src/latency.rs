//! Latency histograms of commands, for each queue and namespace.
//!
//! Each connection has its own counters, which only its thread writes, so that counting needs no atomic
//! read-modify-write and moves no cache line between processors. A reader adds the counters of all
//! connections to those of the connections that have ended.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::limits::QUEUE_NAMESPACES_OBSERVED_MAX;
use crate::nqn::Nqn;

/// Steps between powers of two, as a power of two: each latency is known to a fifth.
const STEPS_LOG2: u32 = 2;
/// Buckets of a histogram; the last one counts all latencies from 2^36 ns (69 s).
pub const PLACES: usize = (36 - 1) << STEPS_LOG2;

/// The class of a command in the statistics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Read, Compare and Verify.
    Read,
    /// Write, Compare and Write, and Copy.
    Write,
    /// Flush, Write Zeroes and Dataset Management.
    Other,
}

impl Class {
    /// All classes, in the order of their counters.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Other];

    /// The name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Other => "other",
        }
    }
}

/// The bucket of a latency.
fn bucket_of(ns: u64) -> usize {
    let magnitude = 63 - (ns | 1 << STEPS_LOG2).leading_zeros() - STEPS_LOG2;
    (((magnitude as usize) << STEPS_LOG2) + (ns >> magnitude) as usize).min(PLACES - 1)
}

/// The upper bound of a bucket, in nanoseconds.
pub fn longest_ns(place: usize) -> u64 {
    let magnitude = (place >> STEPS_LOG2).saturating_sub(1);
    let mantissa = (place - (magnitude << STEPS_LOG2)) as u64;
    ((mantissa + 1) << magnitude) - 1
}

/// Counters of one class, written by one thread.
#[derive(Debug)]
struct Counts {
    places: [AtomicU64; PLACES],
    sum_ns: AtomicU64,
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            places: [const { AtomicU64::new(0) }; PLACES],
            sum_ns: AtomicU64::new(0),
        }
    }
}

/// Adds to a counter that no other thread writes: without an atomic read-modify-write.
fn add(counter: &AtomicU64, value: u64) {
    counter.store(
        counter.load(Ordering::Relaxed).wrapping_add(value),
        Ordering::Relaxed,
    );
}

/// A copy of the histogram of one class.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Latency {
    /// Commands by bucket: see [`longest_ns`].
    pub places: Vec<u64>,
    /// The sum of all latencies, in nanoseconds.
    pub sum_ns: u64,
}

impl Default for Latency {
    fn default() -> Self {
        Self {
            places: vec![0; PLACES],
            sum_ns: 0,
        }
    }
}

impl Latency {
    /// The number of commands.
    pub fn total(&self) -> u64 {
        self.places.iter().sum()
    }

    /// The latency that `per_mille` thousandths of the commands do not exceed, in nanoseconds; `None` without
    /// commands.
    pub fn per_mille_ns(&self, per_mille: u64) -> Option<u64> {
        let wanted = (self.total() * per_mille).div_ceil(1000).max(1);
        let mut seen = 0;
        let counts_it = |count: &u64| {
            seen += count;
            seen >= wanted
        };
        self.places.iter().position(counts_it).map(longest_ns)
    }

    fn add(&mut self, other: &Counts) {
        for (sum, count) in self.places.iter_mut().zip(&other.places) {
            *sum += count.load(Ordering::Relaxed);
        }
        self.sum_ns = self
            .sum_ns
            .wrapping_add(other.sum_ns.load(Ordering::Relaxed));
    }
}

/// The queue that counters belong to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueName {
    /// The controller identifier (CNTLID).
    pub controller: u16,
    /// The queue identifier (QID); 0 is the admin queue.
    pub queue: u16,
    /// The NQN of the host.
    pub host: Nqn,
}

/// Counters of one queue for one namespace.
#[derive(Debug, Default)]
pub struct QueueCounts {
    queue: OnceLock<QueueName>,
    operations: [Counts; 3],
}

impl QueueCounts {
    /// The queue; `None` until its first commands have finished.
    pub fn queue(&self) -> Option<&QueueName> {
        self.queue.get()
    }

    /// The histogram of a class.
    pub fn latency(&self, operation: Class) -> Latency {
        let mut sum = Latency::default();
        sum.add(&self.operations[operation as usize]);
        sum
    }
}

/// Counters of a namespace, of all queues.
#[derive(Debug, Default)]
pub struct Observed {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    live: Vec<Arc<QueueCounts>>,
    past: [Latency; 3],
}

impl Observed {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The histogram of a class, of open and closed queues.
    pub fn latency(&self, operation: Class) -> Latency {
        let state = self.lock();
        let mut sum = state.past[operation as usize].clone();
        for figures in &state.live {
            sum.add(&figures.operations[operation as usize]);
        }
        sum
    }

    /// The counters of each open queue.
    pub fn queues(&self) -> Vec<Arc<QueueCounts>> {
        self.lock().live.clone()
    }

    fn begin(&self) -> Arc<QueueCounts> {
        let figures = Arc::new(QueueCounts::default());
        self.lock().live.push(Arc::clone(&figures));
        figures
    }

    fn end(&self, figures: &Arc<QueueCounts>) {
        let mut state = self.lock();
        state.live.retain(|it| !Arc::ptr_eq(it, figures));
        for (past, counts) in state.past.iter_mut().zip(&figures.operations) {
            past.add(counts);
        }
    }
}

/// A command that has finished in this round; its latency is known at the end of the round.
#[derive(Clone, Copy, Debug)]
struct Ended {
    observed: usize,
    operation: Class,
    began_ns: u64,
}

/// The counters of one connection. The clock is read once per round, not once per command.
#[derive(Debug, Default)]
pub(crate) struct Observer {
    now_ns: u64,
    observed: Vec<(Arc<Observed>, Arc<QueueCounts>)>,
    ended: Vec<Ended>,
}

impl Observer {
    /// Begins a round.
    pub(crate) fn begin_round(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// The time at which the round began, in nanoseconds.
    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Counts a command that has finished.
    pub(crate) fn ended(&mut self, namespace: &Arc<Observed>, operation: Class, began_ns: u64) {
        let known = self
            .observed
            .iter()
            .position(|(it, _)| Arc::ptr_eq(it, namespace));
        let observed = known.unwrap_or_else(|| self.meet(Arc::clone(namespace)));
        self.ended.push(Ended {
            observed,
            operation,
            began_ns,
        });
    }

    #[cold]
    fn meet(&mut self, observed: Arc<Observed>) -> usize {
        if self.observed.len() >= QUEUE_NAMESPACES_OBSERVED_MAX {
            // The earlier counts stay in the totals of the namespace; only the split by queue is lost.
            self.end_round(self.now_ns, &|| None);
            self.end_all();
        }
        let figures = observed.begin();
        self.observed.push((observed, figures));
        self.observed.len() - 1
    }

    /// Ends a round: its commands finished at `now_ns`. `name` is called for counters that have no name yet.
    pub(crate) fn end_round(&mut self, now_ns: u64, name: &dyn Fn() -> Option<QueueName>) {
        for Ended {
            observed,
            operation,
            began_ns,
        } in self.ended.drain(..)
        {
            let Some((_, figures)) = self.observed.get(observed) else {
                continue;
            };
            if figures.queue.get().is_none()
                && let Some(name) = name()
            {
                _ = figures.queue.set(name);
            }
            let took_ns = now_ns.saturating_sub(began_ns);
            let counts = &figures.operations[operation as usize];
            add(&counts.places[bucket_of(took_ns)], 1);
            add(&counts.sum_ns, took_ns);
        }
    }

    fn end_all(&mut self) {
        for (observed, figures) in self.observed.drain(..) {
            observed.end(&figures);
        }
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.end_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_latency_counts_in_its_bucket() {
        for ns in (0..5000).chain((10..40).map(|shift| (1 << shift) - 1)) {
            let at = bucket_of(ns);
            assert!(ns <= longest_ns(at) || at == PLACES - 1, "{ns}");
            assert!(at == 0 || ns > longest_ns(at - 1), "{ns}");
        }
        assert_eq!(bucket_of(u64::MAX), PLACES - 1);
    }

    #[test]
    fn quantiles_come_from_counts() {
        let mut latency = Latency::default();
        assert_eq!(latency.per_mille_ns(500), None);
        latency.places[bucket_of(1_000)] = 99;
        latency.places[bucket_of(1_000_000)] = 1;
        let near = |per_mille, ns: u64| {
            let found = latency.per_mille_ns(per_mille).unwrap();
            assert!((ns..ns + ns / 4 + 1).contains(&found), "{found}");
        };
        near(500, 1_000);
        near(990, 1_000);
        near(999, 1_000_000);
    }
}
