//! Several threads, one part of the network each, in windows as long as the shortest delay between two parts.

use super::part::Part;
use super::wires::Crossing;
use fabric::{Span, Time};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Turns of waiting for the others before the core is given away: a few microseconds.
const SPINS: u32 = 2_000;

/// What the threads share.
struct Shared {
    /// When each part's next event is.
    next: Vec<AtomicU64>,
    /// What is for each part, by the part that it comes from.
    mail: Vec<Vec<Mutex<Vec<Crossing>>>>,
    arrived: AtomicUsize,
    round: AtomicUsize,
}

impl Shared {
    /// Waits until all have come here.
    fn meet(&self) {
        let round = self.round.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.next.len() {
            self.arrived.store(0, Ordering::Relaxed);
            self.round.store(round + 1, Ordering::Release);
            return;
        }
        let mut spins = 0;
        while self.round.load(Ordering::Acquire) == round {
            spins += 1;
            if spins < SPINS { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
    }
}

/// Runs all parts until `stop`.
pub(super) fn run_until(parts: &mut [Part], lookahead: Span, stop: Time) {
    let count = parts.len();
    // A watchdog may have sent something across since the last window.
    for to in 0..count {
        for from in 0..count {
            let letters = std::mem::take(&mut parts[from].wires.crossing[to]);
            let part = &mut parts[to];
            letters.into_iter().for_each(|crossing| part.wires.cross(crossing, &mut part.packets));
        }
    }
    let boxes = || (0..count).map(|_| Mutex::new(Vec::new())).collect();
    let shared = Shared {
        next: (0..count).map(|_| AtomicU64::new(0)).collect(),
        mail: (0..count).map(|_| boxes()).collect(),
        arrived: AtomicUsize::new(0),
        round: AtomicUsize::new(0),
    };
    std::thread::scope(|scope| {
        let (first, rest) = parts.split_at_mut(1);
        for (index, part) in (1..).zip(rest) {
            let shared = &shared;
            scope.spawn(move || drive(part, index, shared, lookahead, stop));
        }
        for part in first {
            drive(part, 0, &shared, lookahead, stop);
        }
    });
}

fn drive(part: &mut Part, index: usize, shared: &Shared, lookahead: Span, stop: Time) {
    loop {
        for letters in &shared.mail[index] {
            let mut letters = letters.lock().unwrap_or_else(PoisonError::into_inner);
            for crossing in letters.drain(..) {
                part.wires.cross(crossing, &mut part.packets);
            }
        }
        let next = part.wires.events.next_at().unwrap_or(Time::NEVER);
        shared.next[index].store(next.0, Ordering::Release);
        shared.meet();
        let earliest = shared.next.iter().map(|next| next.load(Ordering::Acquire)).min().unwrap_or(u64::MAX);
        if earliest >= stop.0 {
            return;
        }
        part.run_until((Time(earliest) + lookahead).min(stop));
        for (to, letters) in part.wires.crossing.iter_mut().enumerate().filter(|(_, all)| !all.is_empty()) {
            let mut mail = shared.mail[to][index].lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::swap(&mut *mail, letters);
        }
        shared.meet();
    }
}
