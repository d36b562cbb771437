//! Several threads, one part of the network each, in windows as long as the shortest delay between two parts.
//!
//! Threads meet once per window. Each then knows when the next event of every thread is, events that were
//! sent to other parts included, and how many flows are not done. There are two sets of these values, which
//! windows use in turn: no thread is more than one window ahead of a thread that still reads the other set.
//!
//! A window takes some ten microseconds, a thread that lost its processor to another program comes back after
//! milliseconds, and all wait for it. So while processors are crowded one thread drives all parts, and the
//! others are tried again later ([`ThreadPolicy`]).

use super::link_state::Crossing;
use super::part::Part;
use super::thread_policy::ThreadPolicy;
use super::{CHECK_EVERY, DEADLOCK_CHECKS};
use fabric::{Span, Time};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Turns of waiting for the others before a thread sleeps: about the time of a window.
const SPINS: u32 = 2_000;

/// A thread that sleeps for this long, and for twice its own work, waits for one that has no processor.
const CROWDED: Duration = Duration::from_micros(200);

/// How far threads run before the run is checked for a deadlock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    /// The shortest delay between two parts.
    pub(super) lookahead: Span,
    /// The time of the first check.
    pub(super) stop: Time,
    /// Up to here they may go on by themselves, where checks would find nothing to do.
    pub(super) limit: Time,
}

/// The values that a thread publishes for its part before others read them. Two cache lines, since they are
/// fetched in pairs.
#[derive(Default)]
#[repr(align(128))]
struct Said {
    /// When the next event is.
    next: AtomicU64,
    unfinished: AtomicU64,
    /// Whether a thread waited for another one that had no processor.
    crowded: AtomicBool,
}

/// A number with cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Apart(AtomicUsize);

/// Packets and pause frames for a part, by the part that they come from.
type Mail = Vec<Mutex<Vec<Crossing>>>;

/// The state that threads share; there are two of what changes from window to window.
struct Shared {
    said: [Vec<Said>; 2],
    mail: [Vec<Mail>; 2],
    arrived: Apart,
    round: Apart,
    /// How many threads sleep until the next round.
    asleep: Mutex<usize>,
    woken: Condvar,
}

impl Shared {
    fn new(count: usize) -> Self {
        let said = || (0..count).map(|_| Said::default()).collect();
        let mail = || {
            (0..count)
                .map(|_| (0..count).map(|_| Mutex::new(Vec::new())).collect())
                .collect()
        };
        Self {
            said: [said(), said()],
            mail: [mail(), mail()],
            arrived: Apart::default(),
            round: Apart::default(),
            asleep: Mutex::new(0),
            woken: Condvar::new(),
        }
    }

    /// Waits until all have come here; for how long it slept.
    fn meet(&self, count: usize) -> Duration {
        let round = self.round.0.load(Ordering::Acquire);
        if self.arrived.0.fetch_add(1, Ordering::AcqRel) + 1 == count {
            self.arrived.0.store(0, Ordering::Relaxed);
            self.round.0.store(round + 1, Ordering::Release);
            if *self.asleep.lock().unwrap_or_else(PoisonError::into_inner) > 0 {
                self.woken.notify_all();
            }
            return Duration::ZERO;
        }
        let waits = || self.round.0.load(Ordering::Acquire) == round;
        for _ in 0..SPINS {
            if !waits() {
                return Duration::ZERO;
            }
            std::hint::spin_loop();
        }
        let since = Instant::now();
        let mut asleep = self.asleep.lock().unwrap_or_else(PoisonError::into_inner);
        *asleep += 1;
        while waits() {
            asleep = self
                .woken
                .wait(asleep)
                .unwrap_or_else(PoisonError::into_inner);
        }
        *asleep -= 1;
        since.elapsed()
    }
}

/// Runs all parts; until when they came.
pub(super) fn run_until(
    parts: &mut [Part],
    mut stretch: Stretch,
    thread_policy: &mut ThreadPolicy,
) -> Time {
    loop {
        // A watchdog may have sent something across since the last window.
        exchange(parts);
        let is_done = if thread_policy.is_alone() {
            alone(parts, &mut stretch, thread_policy)
        } else {
            let began = Instant::now();
            let is_done = together(parts, &mut stretch);
            if !is_done {
                thread_policy.rest(began.elapsed());
            }
            is_done
        };
        if is_done {
            return stretch.stop;
        }
    }
}

/// Gives each part what the others sent to it.
fn exchange(parts: &mut [Part]) {
    for to in 0..parts.len() {
        for from in 0..parts.len() {
            let mut letters = std::mem::take(&mut parts[from].links.crossing[to]);
            let part = &mut parts[to];
            letters
                .drain(..)
                .for_each(|crossing| part.links.cross(crossing, &mut part.packets));
            parts[from].links.crossing[to] = letters;
        }
    }
}

/// This thread drives all parts; whether the end of the stretch is reached.
fn alone(parts: &mut [Part], stretch: &mut Stretch, thread_policy: &ThreadPolicy) -> bool {
    while thread_policy.is_alone() {
        let next = parts
            .iter()
            .filter_map(|part| part.links.events.next_at())
            .min();
        let unfinished = parts.iter().map(|part| part.unfinished).sum();
        let Some(end) = stretch.window(next.unwrap_or(Time::NEVER), unfinished) else {
            return true;
        };
        parts
            .iter_mut()
            .for_each(|part| part.run_until(end, &mut None));
        exchange(parts);
    }
    false
}

/// Each part gets a thread; whether they came to the end of the stretch, or gave up because one waits too
/// long for another.
fn together(parts: &mut [Part], stretch: &mut Stretch) -> bool {
    let shared = Shared::new(parts.len());
    std::thread::scope(|scope| {
        let (first, rest) = parts.split_at_mut(1);
        for (index, part) in (1..).zip(rest) {
            let (shared, mut stretch) = (&shared, *stretch);
            scope.spawn(move || drive(part, index, shared, &mut stretch));
        }
        first
            .iter_mut()
            .all(|part| drive(part, 0, &shared, stretch))
    })
}

fn drive(part: &mut Part, index: usize, shared: &Shared, stretch: &mut Stretch) -> bool {
    let mut next = part.links.events.next_at().unwrap_or(Time::NEVER);
    let mut crowded = false;
    let mut worked = Duration::ZERO;
    for window in 0_usize.. {
        let (said, mail) = (&shared.said[window % 2], &shared.mail[window % 2]);
        said[index].next.store(next.0, Ordering::Relaxed);
        said[index]
            .unfinished
            .store(part.unfinished, Ordering::Relaxed);
        said[index].crowded.store(crowded, Ordering::Relaxed);
        let slept = shared.meet(said.len());
        crowded = slept > CROWDED && slept > 2 * worked;
        for letters in &mail[index] {
            let mut letters = letters.lock().unwrap_or_else(PoisonError::into_inner);
            for crossing in letters.drain(..) {
                part.links.cross(crossing, &mut part.packets);
            }
        }
        if said.iter().any(|said| said.crowded.load(Ordering::Relaxed)) {
            return false;
        }
        let earliest = said
            .iter()
            .map(|said| said.next.load(Ordering::Relaxed))
            .min()
            .map_or(Time::NEVER, Time);
        let unfinished = said
            .iter()
            .map(|said| said.unfinished.load(Ordering::Relaxed))
            .sum();
        let Some(end) = stretch.window(earliest, unfinished) else {
            break;
        };
        let began = Instant::now();
        part.run_until(end, &mut None);
        worked = began.elapsed();
        next = part.links.events.next_at().unwrap_or(Time::NEVER);
        let mail = &shared.mail[(window + 1) % 2];
        for (to, letters) in part
            .links
            .crossing
            .iter_mut()
            .enumerate()
            .filter(|(_, all)| !all.is_empty())
        {
            next = letters.iter().map(Crossing::at).fold(next, Time::min);
            let mut mail = mail[to][index]
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            std::mem::swap(&mut *mail, letters);
        }
    }
    true
}

impl Stretch {
    /// Where the window ends that begins with the next event of all; none if the stretch does.
    fn window(&mut self, earliest: Time, unfinished: u64) -> Option<Time> {
        if earliest >= self.stop {
            if unfinished == 0 || !self.goes_on(self.stop, earliest) {
                return None;
            }
            self.stop = (self.stop + CHECK_EVERY).min(self.limit);
        }
        Some((earliest + self.lookahead).min(self.stop))
    }

    /// Whether a check at `stop` would find nothing to do, while the next event is at `earliest`.
    fn goes_on(&self, stop: Time, earliest: Time) -> bool {
        let is_check = stop.0.is_multiple_of(CHECK_EVERY.0);
        let searches = (stop.0 / CHECK_EVERY.0).is_multiple_of(DEADLOCK_CHECKS);
        is_check && !searches && stop < self.limit && earliest < stop + CHECK_EVERY
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::{
        Flow, HostConfig, Lossless, Results, Scenario, Watch, World, lossless_switches,
    };
    use fabric::topology::{LinkConfig, Speeds, fat_tree};
    use fabric::{Rate, Spread};

    fn scenario(threads: u32) -> Scenario {
        let link = LinkConfig::new(Rate::from_gbps(100), Span::from_ns(500));
        let topology = fat_tree(
            4,
            Speeds {
                hosts: link,
                fabric: link,
            },
        )
        .expect("four ports are enough");
        Scenario {
            switches: lossless_switches(&topology, &Lossless::default()),
            hosts: vec![HostConfig::new(); topology.hosts() as usize],
            topology,
            spread: Spread::Hash,
            hash_seed: 0,
            reaction: None,
            cards: Vec::new(),
            traces: Vec::new(),
            flows: (0..16)
                .map(|from| Flow::write(from, (from + 5) % 16, 300_000))
                .collect(),
            seed: 1,
            end: Time::NEVER,
            threads,
            watch: Watch::default(),
            skip_steady: None,
            collectives: None,
        }
    }

    /// Runs in pieces; `is_alone` returns for each piece whether one thread drives all parts.
    fn run(threads: u32, is_alone: impl Fn(u64) -> bool) -> Results {
        let mut world = World::new(&scenario(threads)).expect("it fits together");
        for piece in 0.. {
            world.thread_policy = ThreadPolicy::new();
            if is_alone(piece) {
                // As long a rest as there is.
                (0..10).for_each(|_| world.thread_policy.rest(Duration::ZERO));
            }
            if world.run_until(Time::from_ns((piece + 1) * 7_000)) {
                break;
            }
        }
        world.results()
    }

    #[test]
    fn the_thread_that_runs_a_part_changes_no_result() {
        let one = run(1, |_| false);
        assert!(
            one.flows.iter().all(|flow| flow.messages == 1) && one.hops > 5_000,
            "{} hops",
            one.hops
        );
        for threads in [2, 3] {
            assert_eq!(run(threads, |_| true), one, "{threads} parts, one thread");
            assert_eq!(
                run(threads, |piece| piece % 2 == 1),
                one,
                "{threads} threads, and one by turns"
            );
        }
    }
}
