//! Several threads, one part of the network each, in windows as long as the shortest delay between two parts.
//!
//! Threads meet once per window. Each then knows when the next event of every thread is, events that were
//! sent to other parts included, and how many flows are not done. There are two sets of these values, which
//! windows use in turn: no thread is more than one window ahead of a thread that still reads the other set.

use super::link_state::Crossing;
use super::part::Part;
use super::{CHECK_EVERY, DEADLOCK_CHECKS};
use fabric::{Span, Time};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Turns of waiting for the others before the core is given away: a few microseconds.
const SPINS: u32 = 2_000;

/// How far threads run before the run is checked for a deadlock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    /// The shortest delay between two parts.
    pub(super) lookahead: Span,
    /// The first moment of looking.
    pub(super) stop: Time,
    /// Up to here they may go on by themselves, where looking would find nothing to do.
    pub(super) limit: Time,
}

/// What a thread says of its part before others read it. Two lines of the cache, since they are fetched in
/// pairs.
#[derive(Default)]
#[repr(align(128))]
struct Said {
    /// When the next event is.
    next: AtomicU64,
    unfinished: AtomicU64,
}

/// A number with cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Apart(AtomicUsize);

/// What is for a part, by the part that it comes from.
type Mail = Vec<Mutex<Vec<Crossing>>>;

/// What the threads share; what changes from window to window, twice.
struct Shared {
    said: [Vec<Said>; 2],
    mail: [Vec<Mail>; 2],
    arrived: Apart,
    round: Apart,
}

impl Shared {
    fn new(count: usize) -> Self {
        let said = || (0..count).map(|_| Said::default()).collect();
        let mail = || (0..count).map(|_| (0..count).map(|_| Mutex::new(Vec::new())).collect()).collect();
        Self {
            said: [said(), said()],
            mail: [mail(), mail()],
            arrived: Apart::default(),
            round: Apart::default(),
        }
    }

    /// Waits until all have come here.
    fn meet(&self, count: usize) {
        let round = self.round.0.load(Ordering::Acquire);
        if self.arrived.0.fetch_add(1, Ordering::AcqRel) + 1 == count {
            self.arrived.0.store(0, Ordering::Relaxed);
            self.round.0.store(round + 1, Ordering::Release);
            return;
        }
        let mut spins = 0;
        while self.round.0.load(Ordering::Acquire) == round {
            spins += 1;
            if spins < SPINS { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
    }
}

/// Runs all parts; until when they came.
pub(super) fn run_until(parts: &mut [Part], stretch: Stretch) -> Time {
    let count = parts.len();
    // A watchdog may have sent something across since the last window.
    for to in 0..count {
        for from in 0..count {
            let letters = std::mem::take(&mut parts[from].links.crossing[to]);
            let part = &mut parts[to];
            letters.into_iter().for_each(|crossing| part.links.cross(crossing, &mut part.packets));
        }
    }
    let shared = Shared::new(count);
    let mut reached = stretch.stop;
    std::thread::scope(|scope| {
        let (first, rest) = parts.split_at_mut(1);
        for (index, part) in (1..).zip(rest) {
            let shared = &shared;
            scope.spawn(move || drive(part, index, shared, stretch));
        }
        for part in first {
            reached = drive(part, 0, &shared, stretch);
        }
    });
    reached
}

fn drive(part: &mut Part, index: usize, shared: &Shared, stretch: Stretch) -> Time {
    let mut stop = stretch.stop;
    let mut next = part.links.events.next_at().unwrap_or(Time::NEVER);
    for window in 0_usize.. {
        let (said, mail) = (&shared.said[window % 2], &shared.mail[window % 2]);
        said[index].next.store(next.0, Ordering::Relaxed);
        said[index].unfinished.store(part.unfinished, Ordering::Relaxed);
        shared.meet(said.len());
        for letters in &mail[index] {
            let mut letters = letters.lock().unwrap_or_else(PoisonError::into_inner);
            for crossing in letters.drain(..) {
                part.links.cross(crossing, &mut part.packets);
            }
        }
        let earliest =
            said.iter().map(|said| said.next.load(Ordering::Relaxed)).min().map_or(Time::NEVER, Time);
        if earliest >= stop {
            let unfinished: u64 = said.iter().map(|said| said.unfinished.load(Ordering::Relaxed)).sum();
            if unfinished == 0 || !stretch.goes_on(stop, earliest) {
                break;
            }
            stop = (stop + CHECK_EVERY).min(stretch.limit);
        }
        part.run_until((earliest + stretch.lookahead).min(stop), &mut None);
        next = part.links.events.next_at().unwrap_or(Time::NEVER);
        let mail = &shared.mail[(window + 1) % 2];
        for (to, letters) in part.links.crossing.iter_mut().enumerate().filter(|(_, all)| !all.is_empty()) {
            next = letters.iter().map(Crossing::at).fold(next, Time::min);
            let mut mail = mail[to][index].lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::swap(&mut *mail, letters);
        }
    }
    stop
}

impl Stretch {
    /// Whether looking at `stop` would find nothing to do, while the next event is at `earliest`.
    fn goes_on(&self, stop: Time, earliest: Time) -> bool {
        let is_check = stop.0.is_multiple_of(CHECK_EVERY.0);
        let searches = (stop.0 / CHECK_EVERY.0).is_multiple_of(DEADLOCK_CHECKS);
        is_check && !searches && stop < self.limit && earliest < stop + CHECK_EVERY
    }
}
