//! How a program waits for a completion event.
//!
//! The call that waits (`ibv_get_cq_event`) does what the progress thread would do: it says in the lanes that
//! the program itself sleeps, is woken by the peer that has something for it, takes that from the ring, and
//! returns with the event. So one thread is woken and not two, one after the other, for waking costs more
//! than all the rest. One thread of a program waits like this; others, programs that wait for the descriptor
//! with `poll(2)`, and those without a peer on this host are served by the progress thread.
//!
//! Where answers came soon the last time, the call looks for a while before it sleeps.
//!
//! A program that polls in vain gives the core to whoever wants it. Where somebody does, it may be ten
//! milliseconds until the core comes back, and a peer that takes its turn in the same way gets no more done
//! in each than its queues have room for. So polls doze there: who sleeps and is woken by its peer gets the
//! core before those that only compute.

use crate::bell::Bell;
use crate::channel::CompletionChannel;
use crate::clock;
use crate::device::Shared;
use link::memory::Sleeper;
use rnic::{Instant, Nanos};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// For how long it looks: a peer that sleeps is woken within half of it, and answers within the rest.
const LOOKS_FOR: Nanos = Nanos::from_micros(100);
/// Where looking did not help, it is tried again after so many events.
const TRIES_AGAIN: u32 = 16;

/// A core that was offered to others comes back at once when nobody wants it.
pub(crate) const WANTED: Nanos = Nanos::from_micros(150);
/// For how long polls doze where the core was wanted.
const CROWDED: Nanos = Nanos::from_millis(100);
/// How long they do, should nobody wake them: what they wait for may come by the network.
const DOZE: Nanos = Nanos::from_micros(500);

/// Who waits, and what is known about it.
#[derive(Default, Debug)]
pub(crate) struct Waiting {
    taken: AtomicBool,
    /// Looking helped the last time.
    looks: AtomicBool,
    waits: AtomicU32,
    /// Until when polls doze, in nanoseconds.
    crowded_until: AtomicU64,
}

impl Waiting {
    /// Whether the program does not sleep at once when it waits.
    pub(crate) fn looks(&self) -> bool {
        self.looks.load(Ordering::Relaxed)
    }

    fn tries(&self) -> bool {
        let waits = self.waits.fetch_add(1, Ordering::Relaxed);
        self.looks() || waits.is_multiple_of(TRIES_AGAIN)
    }
}

/// The program has polled in vain, just `now` and for a while: others may have the core.
pub(crate) fn step_aside(shared: &Shared, now: Instant) {
    let crowded_until = &shared.waiting.crowded_until;
    if now.0 < crowded_until.load(Ordering::Relaxed)
        && let Some(turn) = Turn::take(shared, None)
        && turn.doze()
    {
        return;
    }
    let offered = clock::now();
    std::thread::yield_now();
    let back = clock::now();
    if back > offered + WANTED {
        crowded_until.store((back + CROWDED).0, Ordering::Relaxed);
    }
}

/// The next event of a channel, waiting for one if that is what its descriptor does.
pub(crate) fn next_event(shared: &Shared, channel: &CompletionChannel) -> io::Result<u64> {
    if let Some(event) = channel.next_now() {
        return Ok(event);
    }
    let turn = if channel.is_blocking() { Turn::take(shared, Some(channel)) } else { None };
    match turn.map(|turn| turn.wait(channel)).transpose()?.flatten() {
        Some(event) => Ok(event),
        // Nobody waits in the thread's place now.
        None => channel.next(),
    }
}

/// The right to wait in the thread's place.
struct Turn<'a> {
    shared: &'a Shared,
    /// None for a poll.
    channel: Option<&'a CompletionChannel>,
    bell: Arc<Bell>,
}

impl<'a> Turn<'a> {
    fn take(shared: &'a Shared, channel: Option<&'a CompletionChannel>) -> Option<Self> {
        let lanes = &shared.lock().lanes;
        let bell = lanes.bell().filter(|_| !lanes.is_empty())?;
        let taken = shared.waiting.taken.swap(true, Ordering::Acquire);
        (!taken).then(|| Self { shared, channel, bell: Arc::clone(bell) })
    }

    /// The event; none where the bell is broken.
    fn wait(&self, channel: &CompletionChannel) -> io::Result<Option<u64>> {
        if self.shared.waiting.tries() {
            let found = self.look_for_a_while(channel);
            self.shared.waiting.looks.store(found.is_some(), Ordering::Relaxed);
            if found.is_some() {
                return Ok(found);
            }
        }
        loop {
            let found = self.look(channel);
            if found.is_some() || (self.lie_down(channel) && !self.bell.wait()?) {
                return Ok(found);
            }
            self.get_up(channel);
        }
    }

    /// Sleeps until a peer has something for us, for a moment at most. False where the bell is broken.
    fn doze(&self) -> bool {
        let mut pump = self.shared.lock();
        self.shared.presence.note_doze(DOZE);
        pump.program_sleeps = true;
        let is_there = pump.lanes.sleep(Sleeper::Program);
        drop(pump);
        is_there || self.bell.wait_for(Duration::from_nanos(DOZE.0))
    }

    fn look_for_a_while(&self, channel: &CompletionChannel) -> Option<u64> {
        let start = clock::now();
        while clock::now() < start + LOOKS_FOR {
            if let Some(event) = self.look(channel) {
                return Some(event);
            }
            std::thread::yield_now();
        }
        None
    }

    fn look(&self, channel: &CompletionChannel) -> Option<u64> {
        let mut pump = self.shared.lock();
        self.shared.presence.note_call();
        let now = pump.clock();
        pump.progress(now, false);
        pump.pump_events(&self.shared.events);
        drop(pump);
        channel.next_now()
    }

    /// Says that we sleep. False when there is something to do first.
    fn lie_down(&self, channel: &CompletionChannel) -> bool {
        let mut pump = self.shared.lock();
        pump.note_away();
        let now = pump.clock();
        pump.transmit(now);
        // From here on, whoever has an event rings.
        channel.set_waiting(true);
        pump.program_sleeps = true;
        pump.pump_events(&self.shared.events);
        if pump.lanes.sleep(Sleeper::Program) || channel.has_events() {
            return false;
        }
        if self.shared.presence.leave() || pump.oversleeps(now) {
            pump.wakes_at = now;
            self.shared.wake.add();
        }
        true
    }

    fn get_up(&self, channel: &CompletionChannel) {
        let mut pump = self.shared.lock();
        channel.set_waiting(false);
        pump.program_sleeps = false;
        pump.lanes.wake();
    }
}

impl Drop for Turn<'_> {
    /// The progress thread takes over again.
    fn drop(&mut self) {
        let mut pump = self.shared.lock();
        if let Some(channel) = self.channel {
            channel.set_waiting(false);
        }
        pump.program_sleeps = false;
        if !pump.thread_sleeps {
            pump.lanes.wake();
        } else if pump.lanes.sleep(Sleeper::Thread) {
            pump.wakes_at = pump.read_at;
            self.shared.wake.add();
        }
        drop(pump);
        self.shared.waiting.taken.store(false, Ordering::Release);
    }
}
