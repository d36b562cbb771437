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

use super::clock;
use super::constants::{
    FIRST_TICK, THREAD_CROWDED, THREAD_HOLDS_ACKS, THREAD_LINGERS, TICK, YIELD_LONG,
};
use super::housekeeping::Housekeeping;
use super::policy::Server;
use super::pump::Pump;
use super::shared::Shared;
use crate::lab::LabPort;
use link::memory::Sleeper;
use rnic::{Instant, Nanos};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

/// Wake-up time of the thread if there is no timer.
const FOR_EVER: Instant = Instant(u64::MAX);

/// Runs until the device is closed. A panic ends the device, and a second one the thread as well; the program
/// is notified of the first by `IBV_EVENT_DEVICE_FATAL`.
pub(crate) fn run(shared: &Shared, housekeeping: &Housekeeping) {
    for _ in 0..2 {
        if catch_unwind(AssertUnwindSafe(|| serve(shared, housekeeping))).is_ok() {
            return;
        }
        let _ = catch_unwind(AssertUnwindSafe(|| drop(shared.lock())));
    }
}

fn serve(shared: &Shared, housekeeping: &Housekeeping) {
    let mut thread = ServingThread {
        shared,
        watching: true,
        tick: FIRST_TICK,
        crowded_until: Instant(0),
        hold: AnswerHold::default(),
    };
    shared.policy.polls.begin_window(clock::now());
    while !shared.stop.load(Ordering::Acquire) {
        let now = clock::now();
        let server = shared.policy.next_server(now);
        let sleep = match server {
            Server::PollingProgram | Server::WaitingProgram => {
                if server == Server::WaitingProgram {
                    // A program that waits reads the sockets itself.
                    thread.tick = TICK;
                }
                thread.tick();
                // Until the timer ends, which the program may postpone.
                None
            }
            Server::ProgressThread => {
                let wakes_at = thread.serve();
                (wakes_at != FOR_EVER).then(|| clock::real(wakes_at - clock::now()))
            }
        };
        let ticker = shared.ticker.raw();
        for ready in shared
            .epoll
            .wait_fds(sleep)
            .filter(|ready| *ready != ticker)
        {
            housekeeping.handle_descriptor(shared, ready);
            shared.handle_shm_event(ready);
        }
        shared.wake.clear();
    }
}

struct ServingThread<'a> {
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
            self.until = now + THREAD_HOLDS_ACKS;
        }
    }

    fn holds(&self, now: Instant) -> bool {
        now < self.until
    }
}

impl ServingThread<'_> {
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
        begin_tick(&mut pump);
        let now = pump.clock.read();
        pump.tick(now);
        pump.pump_events(&self.shared.events);
        self.shared.set_tick(&mut pump, now, after);
        let sleepers = &mut pump.schedule.sleepers;
        if is_full {
            sleepers.postpone_from_half(now);
        } else {
            sleepers.keep_tick();
        }
    }

    /// Serves the network, while the program does not call, until nothing arrived for a moment or the program
    /// polls. Returns the deadline of the next timer.
    fn serve(&mut self) -> Instant {
        self.tick = FIRST_TICK;
        self.watch(true);
        let (calls_seen, start) = (self.shared.policy.polls.calls(), clock::now());
        let mut until = None;
        let mut pump = self.shared.lock();
        pump.schedule.sleepers.keep_tick();
        wake_thread(&mut pump);
        drop(pump);
        self.shared.ticker.stop();
        loop {
            let mut pump = self.shared.lock();
            let now = pump.clock.read();
            let arrived = pump.progress(now, self.hold.holds(now));
            pump.pump_events(&self.shared.events);
            if arrived {
                until = Some(now + THREAD_LINGERS);
                self.hold
                    .note_arrival(now, self.shared.policy.polls.calls());
            }
            let quiet =
                !arrived && (now < self.crowded_until || until.is_none_or(|until| now >= until));
            let polls = &self.shared.policy.polls;
            let replaced = polls.waits(now) || polls.is_polling(calls_seen, now - start);
            if quiet || replaced || self.shared.stop.load(Ordering::Acquire) {
                // Sends acknowledgements that were held back for a full batch.
                pump.transmit(now);
                pump.pump_events(&self.shared.events);
                // Set with the lock held: a thread that posts later sees when this one wakes, and wakes it if
                // that is too late.
                pump.schedule.sleepers.wakes_at = pump.rnic.next_timeout().unwrap_or(FOR_EVER);
                // Records wake the thread, as packets do, unless they are there already.
                if !put_thread_to_sleep(&mut pump) {
                    return pump.schedule.sleepers.wakes_at;
                }
                wake_thread(&mut pump);
                continue;
            }
            drop(pump);
            if !arrived {
                std::thread::yield_now();
                let back = clock::now();
                if back > now + YIELD_LONG {
                    self.crowded_until = back + THREAD_CROWDED;
                }
            }
        }
    }
}

/// Prepares the sleep of the progress thread. True when records wait already, so that it must not sleep.
fn put_thread_to_sleep(pump: &mut Pump) -> bool {
    pump.schedule.sleepers.thread = true;
    let has_records = pump.lab.as_mut().is_some_and(LabPort::sleep);
    pump.shm.sleep(if pump.schedule.sleepers.program {
        Sleeper::Program
    } else {
        Sleeper::Thread
    }) || has_records
}

/// Ends the sleep of the progress thread: it reads the rings itself.
fn wake_thread(pump: &mut Pump) {
    pump.schedule.sleepers.thread = false;
    pump.lab.iter_mut().for_each(LabPort::wake);
    pump.shm.wake();
}

/// Begins a tick of the progress thread: it reads no ring, and a program that sleeps is woken as before.
fn begin_tick(pump: &mut Pump) {
    pump.schedule.sleepers.thread = false;
    pump.lab.iter_mut().for_each(LabPort::wake);
    if !pump.schedule.sleepers.program {
        pump.shm.wake();
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
            !hold.holds(now + THREAD_HOLDS_ACKS),
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
