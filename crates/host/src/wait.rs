//! How a program waits for a completion event.
//!
//! The call that waits (`ibv_get_cq_event`) does what the progress thread would do: it says in the lanes that
//! the program itself sleeps, is woken by the peer that has something for it, takes that from the ring, and
//! returns with the event. So one thread is woken and not two, one after the other, for waking costs more
//! than all the rest. One thread of a program waits like this; others, programs that wait for the descriptor
//! with `poll(2)`, and those without a peer on this host are served by the progress thread.
//!
//! Where answers came soon the last time, the call looks for a while before it sleeps.

use crate::bell::Bell;
use crate::channel::CompletionChannel;
use crate::clock;
use crate::device::Shared;
use link::memory::Sleeper;
use rnic::Nanos;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// For how long it looks: a peer that sleeps is woken within half of it, and answers within the rest.
const LOOKS_FOR: Nanos = Nanos::from_micros(100);
/// Where looking did not help, it is tried again after so many events.
const TRIES_AGAIN: u32 = 16;

/// Who waits, and what is known about it.
#[derive(Default, Debug)]
pub(crate) struct Waiting {
    taken: AtomicBool,
    /// Looking helped the last time.
    looks: AtomicBool,
    waits: AtomicU32,
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

/// The next event of a channel, waiting for one if that is what its descriptor does.
pub(crate) fn next_event(shared: &Shared, channel: &CompletionChannel) -> io::Result<u64> {
    if let Some(event) = channel.next_now() {
        return Ok(event);
    }
    let turn = if channel.is_blocking() { Turn::take(shared, channel) } else { None };
    match turn.map(|turn| turn.wait()).transpose()?.flatten() {
        Some(event) => Ok(event),
        // Nobody waits in the thread's place now.
        None => channel.next(),
    }
}

/// The right to wait in the thread's place.
struct Turn<'a> {
    shared: &'a Shared,
    channel: &'a CompletionChannel,
    bell: Arc<Bell>,
}

impl<'a> Turn<'a> {
    fn take(shared: &'a Shared, channel: &'a CompletionChannel) -> Option<Self> {
        let lanes = &shared.lock().lanes;
        let bell = lanes.bell().filter(|_| !lanes.is_empty())?;
        let taken = shared.waiting.taken.swap(true, Ordering::Acquire);
        (!taken).then(|| Self { shared, channel, bell: Arc::clone(bell) })
    }

    /// The event; none where the bell is broken.
    fn wait(&self) -> io::Result<Option<u64>> {
        if self.shared.waiting.tries() {
            let found = self.look_for_a_while();
            self.shared.waiting.looks.store(found.is_some(), Ordering::Relaxed);
            if found.is_some() {
                return Ok(found);
            }
        }
        loop {
            let found = self.look();
            if found.is_some() || (self.lie_down() && !self.bell.wait()?) {
                return Ok(found);
            }
            self.get_up();
        }
    }

    fn look_for_a_while(&self) -> Option<u64> {
        let start = clock::now();
        while clock::now() < start + LOOKS_FOR {
            if let Some(event) = self.look() {
                return Some(event);
            }
            std::thread::yield_now();
        }
        None
    }

    fn look(&self) -> Option<u64> {
        let mut pump = self.shared.lock();
        self.shared.presence.note_call();
        let now = pump.clock();
        pump.progress(now, false);
        pump.pump_events(&self.shared.events);
        drop(pump);
        self.channel.next_now()
    }

    /// Says that we sleep. False when there is something to do first.
    fn lie_down(&self) -> bool {
        let mut pump = self.shared.lock();
        pump.note_away();
        let now = pump.clock();
        pump.transmit(now);
        // From here on, whoever has an event rings.
        self.channel.set_waiting(true);
        pump.program_sleeps = true;
        pump.pump_events(&self.shared.events);
        if pump.lanes.sleep(Sleeper::Program) || self.channel.has_events() {
            return false;
        }
        if self.shared.presence.leave() || pump.oversleeps(now) {
            pump.wakes_at = now;
            self.shared.wake.add();
        }
        true
    }

    fn get_up(&self) {
        let mut pump = self.shared.lock();
        self.channel.set_waiting(false);
        pump.program_sleeps = false;
        pump.lanes.wake();
    }
}

impl Drop for Turn<'_> {
    /// The progress thread takes over again.
    fn drop(&mut self) {
        let mut pump = self.shared.lock();
        self.channel.set_waiting(false);
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
