//! The thread that makes progress while the program is away.
//!
//! A program that polls does the network's work itself, faster than any other thread could: two that share a
//! lock and a socket only get in each other's way. So while the program polls, this thread only looks now and
//! then whether that is still so, and runs timers: soon at first, for a program that polled just for a moment
//! may now wait by looking at memory, and every few milliseconds when it goes on polling. When the program is
//! away, the thread sleeps until a packet arrives. Then it keeps looking for the next ones for a moment
//! before it sleeps again, for waking costs more than that moment; but not where somebody else wants the
//! core: that may be the very program that is to answer.

use crate::attend::Attendant;
use crate::clock;
use crate::device::Shared;
use crate::pump::TICK;
use crate::wait::WANTED;
use rnic::{Instant, Nanos};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long it keeps looking after the last packet: twice what waking another core takes here (22 us).
const LINGER: Nanos = Nanos::from_micros(50);
/// The first look after the program began to poll; each further one waits twice as long, up to [`TICK`].
const FIRST_TICK: Nanos = Nanos::from_micros(50);
/// How long an acknowledgement of what this thread took waits for the answer of a program that looks at its
/// memory for it. Sent alone, it would end the peer's polling before the answer is there: the peer would then
/// look at its memory too, until a thread of its own wakes, and so on back and forth.
const ANSWERS_WITHIN: Nanos = Nanos::from_micros(10);
/// For how long it does not linger where the core was wanted.
const CROWDED: Nanos = Nanos::from_millis(5);
/// Without anything to wait for.
const FOR_EVER: Instant = Instant(u64::MAX);

/// Runs until the device is closed.
pub(crate) fn run(shared: &Shared, attendant: &Attendant) {
    let mut thread =
        Thread { shared, watching: true, tick: FIRST_TICK, crowded_until: Instant(0), calls_at_arrival: 0 };
    let (mut calls_seen, mut looked_at) = (0, clock::now());
    while !shared.stop.load(Ordering::Acquire) {
        let now = clock::now();
        let present = shared.presence.is_polling(calls_seen, now - looked_at);
        (calls_seen, looked_at) = (shared.presence.calls(), now);
        shared.presence.set_ticking(present);
        let wakes_at = if present { thread.tick() } else { thread.serve() };
        let sleep = (wakes_at != FOR_EVER).then(|| Duration::from_nanos((wakes_at - clock::now()).0));
        for ready in shared.epoll.wait(sleep) {
            attendant.attend(shared, ready);
            shared.attend_lane(ready);
        }
        shared.wake.clear();
    }
}

struct Thread<'a> {
    shared: &'a Shared,
    /// Packets wake us.
    watching: bool,
    tick: Nanos,
    /// Somebody else wanted the core when we lingered last: until then we do not.
    crowded_until: Instant,
    /// The program's calls when something arrived last: one that calls after each arrival answers.
    calls_at_arrival: u64,
}

impl Thread<'_> {
    /// Something arrived: whether the program has called since that was so last.
    fn program_answers(&mut self) -> bool {
        let calls = self.shared.presence.calls();
        std::mem::replace(&mut self.calls_at_arrival, calls) != calls
    }

    fn watch(&mut self, wanted: bool) {
        if self.watching != wanted {
            self.watching = wanted;
            self.shared.watch_socket(wanted);
        }
    }

    /// While the program polls. Says when to look again.
    fn tick(&mut self) -> Instant {
        self.watch(false);
        let next = clock::now() + self.tick;
        self.tick = Nanos(self.tick.0 * 2).min(TICK);
        // Whoever has the lock runs the timers as well.
        let Some(mut pump) = self.shared.try_lock() else { return next };
        pump.wake();
        let now = pump.clock();
        pump.tick(now);
        pump.pump_events(&self.shared.events);
        pump.wakes_at = pump.rnic.next_timeout().map_or(next, |at| at.min(next));
        pump.wakes_at
    }

    /// While the program is away: serves the network until nothing came for a moment, or the program polls.
    /// Says when to look again without being woken.
    fn serve(&mut self) -> Instant {
        self.tick = FIRST_TICK;
        self.watch(true);
        let (calls_seen, start) = (self.shared.presence.calls(), clock::now());
        let (mut until, mut held_until) = (None, start);
        self.shared.lock().wake();
        loop {
            let mut pump = self.shared.lock();
            let now = pump.clock();
            let arrived = pump.progress(now, now < held_until);
            pump.pump_events(&self.shared.events);
            if arrived {
                until = Some(now + LINGER);
                if self.program_answers() {
                    held_until = now + ANSWERS_WITHIN;
                }
            }
            let quiet = !arrived && (now < self.crowded_until || until.is_none_or(|until| now >= until));
            let replaced = self.shared.presence.is_polling(calls_seen, now - start);
            if quiet || replaced || self.shared.stop.load(Ordering::Acquire) {
                // Acknowledgements that found no company.
                pump.transmit(now);
                pump.pump_events(&self.shared.events);
                // Taken together with the state: who posts later sees when we wake, and wakes us if that is
                // late.
                pump.wakes_at = pump.rnic.next_timeout().unwrap_or(FOR_EVER);
                // Records wake us, as packets do; those that are there already are no reason to sleep.
                if !pump.sleep() {
                    return pump.wakes_at;
                }
                pump.wake();
                continue;
            }
            drop(pump);
            if !arrived {
                std::thread::yield_now();
                let back = clock::now();
                if back > now + WANTED {
                    self.crowded_until = back + CROWDED;
                }
            }
        }
    }
}
