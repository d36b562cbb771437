//! The thread that makes progress while the program does not call.
//!
//! A program that polls serves the network itself, faster than another thread could: two threads that
//! share a lock and a socket slow each other down. So while the program polls, this thread only ticks: it
//! checks that the program still polls, and runs timers. The first tick comes soon, because a program that
//! polled only for a moment may wait by reading memory now; later ones come every few milliseconds. A program
//! that goes on to poll runs the timers itself, and postpones these ticks. When the program is away, the
//! thread sleeps until a packet arrives. It then polls for further packets for a moment before it sleeps
//! again, because waking takes longer than that moment, unless another thread wants the core: that may be the
//! program that has to answer.

use crate::progress::clock;
use crate::progress::event_wait::WANTED;
use crate::progress::housekeeping::Attendant;
use crate::progress::pump::TICK;
use crate::progress::shared::Shared;
use rnic::{Instant, Nanos};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

/// Time for which the thread polls after the last packet: twice the time of waking another core (22 us).
const LINGER: Nanos = Nanos::from_micros(50);
/// Time to the first tick after the program began to poll; it doubles with each tick, up to [`TICK`].
const FIRST_TICK: Nanos = Nanos::from_micros(50);
/// Time for which an acknowledgement of a packet that this thread took waits for the answer of a program that
/// polls its memory. Sent alone, it would end the peer's polling before the answer arrives: the peer would
/// then poll its memory too until its own thread wakes, and so on back and forth.
const ANSWERS_WITHIN: Nanos = Nanos::from_micros(10);
/// Time for which the thread does not poll after another thread needed the core.
const CROWDED: Nanos = Nanos::from_millis(5);
/// Wake-up time of the thread if there is no timer.
const FOR_EVER: Instant = Instant(u64::MAX);

/// Runs until the device is closed. A panic ends the device, and a second one the thread as well; the program
/// is notified of the first by `IBV_EVENT_DEVICE_FATAL`.
pub(crate) fn run(shared: &Shared, attendant: &Attendant) {
    crate::sys::memory::guard_this_thread();
    for _ in 0..2 {
        if catch_unwind(AssertUnwindSafe(|| serve(shared, attendant))).is_ok() {
            return;
        }
        let _ = catch_unwind(AssertUnwindSafe(|| drop(shared.lock())));
    }
}

fn serve(shared: &Shared, attendant: &Attendant) {
    let mut thread = Thread {
        shared,
        watching: true,
        tick: FIRST_TICK,
        crowded_until: Instant(0),
        hold: AnswerHold::default(),
    };
    shared.presence.begin_window(clock::now());
    while !shared.stop.load(Ordering::Acquire) {
        let now = clock::now();
        let waits = shared.presence.waits(now);
        let present = waits || shared.presence.polls(now);
        if waits {
            // A program that waits reads the sockets itself.
            thread.tick = TICK;
        }
        shared.presence.begin_window(now);
        shared.presence.set_ticking(present);
        let sleep = if present {
            // Until the timer ends, which the program may postpone.
            thread.tick();
            None
        } else {
            let wakes_at = thread.serve();
            (wakes_at != FOR_EVER).then(|| clock::real(wakes_at - clock::now()))
        };
        let ticker = shared.ticker.raw();
        for ready in shared.epoll.wait(sleep).filter(|ready| *ready != ticker) {
            attendant.attend(shared, ready);
            shared.handle_shm_event(ready);
        }
        shared.wake.clear();
    }
}

struct Thread<'a> {
    shared: &'a Shared,
    /// Packets wake the thread.
    watching: bool,
    tick: Nanos,
    /// Time until which the thread does not poll, because another thread needed the core.
    crowded_until: Instant,
    hold: AnswerHold,
}

/// Delay of acknowledgements for the program's answer.
#[derive(Debug)]
struct AnswerHold {
    /// The program's number of calls at the last arrival.
    calls_at_arrival: u64,
    until: Instant,
}

impl Default for AnswerHold {
    fn default() -> Self {
        Self {
            calls_at_arrival: 0,
            until: Instant(0),
        }
    }
}

impl AnswerHold {
    /// Records an arrival. A program that has called since the arrival before answers each arrival.
    fn note_arrival(&mut self, now: Instant, calls: u64) {
        if std::mem::replace(&mut self.calls_at_arrival, calls) != calls {
            self.until = now + ANSWERS_WITHIN;
        }
    }

    fn holds(&self, now: Instant) -> bool {
        now < self.until
    }
}

impl Thread<'_> {
    fn watch(&mut self, wanted: bool) {
        if self.watching != wanted {
            self.watching = wanted;
            self.shared.watch_socket(wanted);
        }
    }

    /// Runs a tick, while the program polls, and sets the time of the next one. When ticks have their full
    /// interval, the program may postpone them.
    fn tick(&mut self) {
        self.watch(false);
        let (after, is_full) = (self.tick, self.tick == TICK);
        self.tick = Nanos(self.tick.0 * 2).min(TICK);
        // The thread that has the lock runs the timers as well.
        let Some(mut pump) = self.shared.try_lock() else {
            self.shared.ticker.start(clock::real(after));
            return;
        };
        pump.begin_tick();
        let now = pump.clock();
        pump.tick(now);
        pump.pump_events(&self.shared.events);
        self.shared.set_tick(&mut pump, now, after);
        pump.sleepers.postpones_at = is_full.then(|| now + Nanos(TICK.0 / 2));
    }

    /// Serves the network, while the program does not call, until nothing arrived for a moment or the program
    /// polls. Returns the deadline of the next timer.
    fn serve(&mut self) -> Instant {
        self.tick = FIRST_TICK;
        self.watch(true);
        let (calls_seen, start) = (self.shared.presence.calls(), clock::now());
        let mut until = None;
        let mut pump = self.shared.lock();
        pump.sleepers.postpones_at = None;
        pump.wake();
        drop(pump);
        self.shared.ticker.stop();
        loop {
            let mut pump = self.shared.lock();
            let now = pump.clock();
            let arrived = pump.progress(now, self.hold.holds(now));
            pump.pump_events(&self.shared.events);
            if arrived {
                until = Some(now + LINGER);
                self.hold.note_arrival(now, self.shared.presence.calls());
            }
            let quiet =
                !arrived && (now < self.crowded_until || until.is_none_or(|until| now >= until));
            let presence = &self.shared.presence;
            let replaced = presence.waits(now) || presence.is_polling(calls_seen, now - start);
            if quiet || replaced || self.shared.stop.load(Ordering::Acquire) {
                // Sends acknowledgements that were held back for a full batch.
                pump.transmit(now);
                pump.pump_events(&self.shared.events);
                // Set with the lock held: a thread that posts later sees when this one wakes, and wakes it if
                // that is too late.
                pump.sleepers.wakes_at = pump.rnic.next_timeout().unwrap_or(FOR_EVER);
                // Records wake the thread, as packets do, unless they are there already.
                if !pump.sleep() {
                    return pump.sleepers.wakes_at;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledgements_wait_for_programs_that_answer() {
        let (mut hold, now) = (AnswerHold::default(), Instant(1_000_000));
        assert!(!hold.holds(now), "nothing has arrived");
        hold.note_arrival(now, 3);
        assert!(
            hold.holds(now) && hold.holds(now + Nanos::from_micros(9)),
            "the program has called before"
        );
        assert!(
            !hold.holds(now + ANSWERS_WITHIN),
            "the answer is late: the acknowledgement goes alone"
        );
        let later = now + Nanos::from_millis(1);
        hold.note_arrival(later, 3);
        assert!(
            !hold.holds(later),
            "the program has not called since: it does not answer"
        );
        hold.note_arrival(later, 4);
        assert!(hold.holds(later));
    }
}
