//! How long commands take: counts by length, for each queue and namespace.
//!
//! A connection's thread counts what it alone writes, so counting costs no locked instruction and no cache
//! line goes
//! between processors. Who asks adds up what all connections have, and what those left that have ended.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::limits::QUEUE_NAMESPACES_OBSERVED_MAX;
use crate::nqn::Nqn;
use crate::target::{Namespace, Queue};

/// Steps between powers of two: each length is known to a fifth.
const STEPS_LOG2: u32 = 2;
/// The last counts everything from 2^36 ns, 69 s.
pub const PLACES: usize = (36 - 1) << STEPS_LOG2;

/// What a command does, as far as its length is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Read, Compare, Verify.
    Read,
    /// Write, Compare and Write, Copy.
    Write,
    /// Flush, Write Zeroes, Dataset Management.
    Other,
}

impl Class {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Other];

    /// As metrics have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Other => "other",
        }
    }
}

/// Where a length counts.
fn place(ns: u64) -> usize {
    let magnitude = 63 - (ns | 1 << STEPS_LOG2).leading_zeros() - STEPS_LOG2;
    (((magnitude as usize) << STEPS_LOG2) + (ns >> magnitude) as usize).min(PLACES - 1)
}

/// The longest that counts at a place, in nanoseconds.
pub fn longest_ns(place: usize) -> u64 {
    let magnitude = (place >> STEPS_LOG2).saturating_sub(1);
    let mantissa = (place - (magnitude << STEPS_LOG2)) as u64;
    ((mantissa + 1) << magnitude) - 1
}

/// Counts of one operation, which one thread writes.
#[derive(Debug)]
struct Counts {
    places: [AtomicU64; PLACES],
    sum_ns: AtomicU64,
}

impl Default for Counts {
    fn default() -> Self {
        Self { places: [const { AtomicU64::new(0) }; PLACES], sum_ns: AtomicU64::new(0) }
    }
}

/// Adds where nobody else does: without a locked instruction.
fn add(counter: &AtomicU64, value: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(value), Ordering::Relaxed);
}

/// What one operation took, as somebody who asks gets it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Latency {
    /// Commands, by place: see [`longest_ns`].
    pub places: Vec<u64>,
    /// What all took together.
    pub sum_ns: u64,
}

impl Default for Latency {
    fn default() -> Self {
        Self { places: vec![0; PLACES], sum_ns: 0 }
    }
}

impl Latency {
    /// How many there are.
    pub fn total(&self) -> u64 {
        self.places.iter().sum()
    }

    /// That which so many of a thousand do not exceed, in nanoseconds; `None` when there are none.
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
        self.sum_ns = self.sum_ns.wrapping_add(other.sum_ns.load(Ordering::Relaxed));
    }
}

/// Whose commands are counted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueName {
    /// The controller.
    pub controller: u16,
    /// Its queue.
    pub queue: u16,
    /// The host.
    pub host: Nqn,
}

/// What one queue did with one namespace.
#[derive(Debug, Default)]
pub struct Figures {
    queue: OnceLock<QueueName>,
    operations: [Counts; 3],
}

impl Figures {
    /// Whose they are; `None` until its first commands have finished.
    pub fn queue(&self) -> Option<&QueueName> {
        self.queue.get()
    }

    /// What an operation took.
    pub fn latency(&self, operation: Class) -> Latency {
        let mut sum = Latency::default();
        sum.add(&self.operations[operation as usize]);
        sum
    }
}

/// What was done with a namespace, by all.
#[derive(Debug, Default)]
pub struct Observed {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    live: Vec<Arc<Figures>>,
    past: [Latency; 3],
}

impl Observed {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What an operation took, of queues that are and that were.
    pub fn latency(&self, operation: Class) -> Latency {
        let state = self.lock();
        let mut sum = state.past[operation as usize].clone();
        for figures in &state.live {
            sum.add(&figures.operations[operation as usize]);
        }
        sum
    }

    /// What each queue did, of those that are.
    pub fn queues(&self) -> Vec<Arc<Figures>> {
        self.lock().live.clone()
    }

    fn begin(&self) -> Arc<Figures> {
        let figures = Arc::new(Figures::default());
        self.lock().live.push(Arc::clone(&figures));
        figures
    }

    fn end(&self, figures: &Arc<Figures>) {
        let mut state = self.lock();
        state.live.retain(|it| !Arc::ptr_eq(it, figures));
        for (past, counts) in state.past.iter_mut().zip(&figures.operations) {
            past.add(counts);
        }
    }
}

/// A command that has finished in this round of its thread, and whose length will be known at its end.
#[derive(Clone, Copy, Debug)]
struct Ended {
    observed: usize,
    operation: Class,
    began_ns: u64,
}

/// Counts for one connection. The clock is read once a round, not once a command.
#[derive(Debug, Default)]
pub(crate) struct Observer {
    now_ns: u64,
    observed: Vec<(Arc<Observed>, Arc<Figures>)>,
    ended: Vec<Ended>,
}

impl Observer {
    /// A round begins.
    pub(crate) fn begin_round(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// When the round began.
    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// A command has ended.
    pub(crate) fn ended(&mut self, namespace: &Namespace, operation: Class, began_ns: u64) {
        let known = self.observed.iter().position(|(it, _)| Arc::ptr_eq(it, namespace.observed()));
        let observed = known.unwrap_or_else(|| self.meet(namespace));
        self.ended.push(Ended { observed, operation, began_ns });
    }

    #[cold]
    fn meet(&mut self, namespace: &Namespace) -> usize {
        if self.observed.len() >= QUEUE_NAMESPACES_OBSERVED_MAX {
            // What it has gone to is not forgotten, it only stands under the namespace alone.
            self.end_round(self.now_ns, None);
            self.end_all();
        }
        let observed = Arc::clone(namespace.observed());
        let figures = observed.begin();
        self.observed.push((observed, figures));
        self.observed.len() - 1
    }

    /// A round ends: its commands took until now.
    pub(crate) fn end_round(&mut self, now_ns: u64, queue: Option<&Queue>) {
        for Ended { observed, operation, began_ns } in self.ended.drain(..) {
            let Some((_, figures)) = self.observed.get(observed) else { continue };
            if figures.queue.get().is_none()
                && let Some((session, id)) = queue.and_then(|it| it.session().zip(it.id()))
            {
                let (controller, host) = (session.id, session.host.clone());
                _ = figures.queue.set(QueueName { controller, queue: id, host });
            }
            let took_ns = now_ns.saturating_sub(began_ns);
            let counts = &figures.operations[operation as usize];
            add(&counts.places[place(took_ns)], 1);
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
    fn each_length_counts_where_it_belongs() {
        for ns in (0..5000).chain((10..40).map(|shift| (1 << shift) - 1)) {
            let at = place(ns);
            assert!(ns <= longest_ns(at) || at == PLACES - 1, "{ns}");
            assert!(at == 0 || ns > longest_ns(at - 1), "{ns}");
        }
        assert_eq!(place(u64::MAX), PLACES - 1);
    }

    #[test]
    fn quantiles_come_from_counts() {
        let mut latency = Latency::default();
        assert_eq!(latency.per_mille_ns(500), None);
        latency.places[place(1_000)] = 99;
        latency.places[place(1_000_000)] = 1;
        let near = |per_mille, ns: u64| {
            let found = latency.per_mille_ns(per_mille).unwrap();
            assert!((ns..ns + ns / 4 + 1).contains(&found), "{found}");
        };
        near(500, 1_000);
        near(990, 1_000);
        near(999, 1_000_000);
    }
}
