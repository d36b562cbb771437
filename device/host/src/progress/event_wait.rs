//! Waiting of a program for a completion event.
//!
//! The call that waits (`ibv_get_cq_event`) does the work of the progress thread: it sets in the
//! shared-memory channels that the program itself sleeps, is woken by the peer that writes a record, takes
//! the record from the ring, and returns the event. So one thread is woken instead of two, one after the
//! other; waking a thread takes longer than all the rest. One thread of a program waits like this. Other
//! threads, programs that wait for the channel's descriptor with `poll(2)`, and programs without a peer on
//! this host are served by the progress thread.
//!
//! Where the last event came soon, the call polls for a while before it sleeps.
//!
//! Polls that find nothing yield the core. Where another thread wants the core, it may take ten milliseconds
//! to get it back, and a peer that yields in the same way completes in each time slice only what its queues
//! have room for. Polls then sleep for a bounded time instead: the kernel gives the core to a thread that was
//! woken before it gives it to threads that compute.

use crate::channel::CompletionChannel;
use crate::progress::clock;
use crate::progress::shared::Shared;
use crate::progress::wake_up::WakeUp;
use link::memory::Sleeper;
use rnic::{Instant, Nanos};
use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Time for which the call polls before it sleeps: a peer that sleeps is woken within half of it, and answers
/// within the rest.
const POLLS_FOR: Nanos = Nanos::from_micros(100);

/// Longest time that `sched_yield` takes where no other thread needs the core; a longer one means that one
/// did.
pub(crate) const WANTED: Nanos = Nanos::from_micros(150);
/// Time for which polls sleep instead of yielding after another thread needed the core.
pub(crate) const CROWDED: Nanos = Nanos::from_millis(100);
/// The longest sleep of one poll: an expected packet may come from the network, which does not wake it.
const BOUNDED_SLEEP: Nanos = Nanos::from_micros(500);

/// Polls of several devices in a row after which a thread yields the core, if it has not come back to the
/// device at which it yielded last.
const ROUND_MAX: u32 = 256;

/// The devices that a thread polls; a device is identified by its address in memory.
struct Poller {
    /// The device that was polled last.
    last: Cell<usize>,
    /// The device that was polled when the thread last yielded the core.
    yielded_at: Cell<usize>,
    /// Number of polls since then that found nothing.
    since: Cell<u32>,
    /// Whether the thread waits for descriptors of its own too, see [`super::completion_wait`].
    waits_for_others: Cell<bool>,
}

thread_local! {
    static POLLER: Poller = const { Poller::new() };
}

impl Poller {
    const fn new() -> Self {
        let zero = Cell::new(0);
        Self {
            last: Cell::new(0),
            yielded_at: zero,
            since: Cell::new(0),
            waits_for_others: Cell::new(false),
        }
    }

    /// Records a poll; whether the poll before it was of the same device.
    #[inline]
    fn polls(&self, device: usize) -> bool {
        self.last.replace(device) == device
    }

    /// Whether a round over all devices ends with this poll, which found nothing.
    fn ends_round(&self, device: usize) -> bool {
        let (since, at) = (self.since.get() + 1, self.yielded_at.get());
        let ends = at == device || at == 0 || since >= ROUND_MAX;
        self.since.set(if ends { 0 } else { since });
        if ends {
            self.yielded_at.set(device);
        }
        ends
    }
}

fn address(shared: &Shared) -> usize {
    std::ptr::from_ref(shared).addr()
}

/// Records the device that this thread polls. True when it polled the same device before: a thread that polls
/// several devices must not sleep for one of them, because arrivals for the others do not wake it.
#[inline]
pub(crate) fn polls_alone(shared: &Shared) -> bool {
    POLLER.with(|poller| poller.polls(address(shared)))
}

/// Records that this thread waits for descriptors of its own together with completions: its polls do not
/// wait.
pub(crate) fn note_waits_for_others() {
    POLLER.with(|poller| poller.waits_for_others.set(true));
}

/// Yields the core after polls have found nothing for a while, or sleeps for a bounded time where another
/// thread wanted the core lately. A thread that does not poll this device `alone` yields once in a round over
/// its devices.
pub(crate) fn yield_core(shared: &Shared, now: Instant, alone: bool) {
    if POLLER.with(|poller| poller.waits_for_others.get()) {
        return;
    }
    if !alone {
        if POLLER.with(|poller| poller.ends_round(address(shared))) {
            std::thread::yield_now();
        }
        return;
    }
    if shared.waiting.is_crowded(now)
        && let Some(guard) = WaitGuard::take(shared, None)
        && guard.sleep_bounded()
    {
        return;
    }
    let offered = clock::now();
    std::thread::yield_now();
    let back = clock::now();
    if back > offered + WANTED {
        shared.waiting.set_crowded_until(back + CROWDED);
    }
}

/// The next event of a channel; waits for one if its descriptor is in blocking mode.
pub(crate) fn next_event(shared: &Shared, channel: &CompletionChannel) -> io::Result<u64> {
    if let Some(event) = channel.next_now() {
        return Ok(event);
    }
    let guard = if channel.is_blocking() {
        WaitGuard::take(shared, Some(channel))
    } else {
        None
    };
    match guard
        .map(|guard| guard.wait(channel))
        .transpose()?
        .flatten()
    {
        Some(event) => Ok(event),
        // No thread waits in place of the progress thread now.
        None => channel.next(),
    }
}

/// The right to wait in place of the progress thread. One thread has it at a time.
pub(crate) struct WaitGuard<'a> {
    pub(crate) shared: &'a Shared,
    /// The completion channel that the thread waits for. There is none where the thread polls, or waits for a
    /// completion queue.
    channel: Option<&'a CompletionChannel>,
    pub(crate) wake_up: Arc<WakeUp>,
}

impl<'a> WaitGuard<'a> {
    pub(crate) fn take(shared: &'a Shared, channel: Option<&'a CompletionChannel>) -> Option<Self> {
        let shm = &shared.lock().shm;
        let wake_up = shm.wake_up().filter(|_| !shm.is_empty())?;
        shared.waiting.take().then(|| Self {
            shared,
            channel,
            wake_up: Arc::clone(wake_up),
        })
    }

    /// The same for a thread that waits for the device's sockets too: it needs no peer on this host where
    /// packets arrive one by one, and no other thread waits (`is_alone`).
    pub(crate) fn take_for_any(shared: &'a Shared, is_alone: bool) -> Option<Self> {
        let mut pump = shared.lock();
        let is_light = pump.note_light_wait() && is_alone;
        let wake_up = pump
            .shm
            .wake_up()
            .filter(|_| is_light || !pump.shm.is_empty())
            .map(Arc::clone)?;
        drop(pump);
        shared.waiting.take().then(|| Self {
            shared,
            channel: None,
            wake_up,
        })
    }

    /// The event; `None` where the wake-up socket was shut down.
    fn wait(&self, channel: &CompletionChannel) -> io::Result<Option<u64>> {
        if self.shared.waiting.begin_wait() {
            let found = self.poll_for_a_while(channel);
            self.shared.waiting.note_polling(found.is_some());
            if found.is_some() {
                return Ok(found);
            }
        }
        loop {
            let found = self.poll(channel);
            if found.is_some() || (self.prepare_sleep(channel) && !self.wake_up.wait()?) {
                return Ok(found);
            }
            self.finish_sleep(channel);
        }
    }

    /// Sleeps until a peer writes a record, for [`BOUNDED_SLEEP`] at most. False where the wake-up socket was
    /// shut down.
    fn sleep_bounded(&self) -> bool {
        let mut pump = self.shared.lock();
        self.shared.presence.note_bounded_sleep(BOUNDED_SLEEP);
        pump.sleepers.program = true;
        let has_records = pump.shm.sleep(Sleeper::Program);
        drop(pump);
        has_records || self.wake_up.wait_for(Duration::from_nanos(BOUNDED_SLEEP.0))
    }

    fn poll_for_a_while(&self, channel: &CompletionChannel) -> Option<u64> {
        let start = clock::now();
        while clock::now() < start + POLLS_FOR {
            if let Some(event) = self.poll(channel) {
                return Some(event);
            }
            std::thread::yield_now();
        }
        None
    }

    /// Serves the network once; returns the channel's next event, if there is one then.
    fn poll(&self, channel: &CompletionChannel) -> Option<u64> {
        let mut pump = self.shared.lock();
        self.shared.presence.note_call();
        let now = pump.clock();
        pump.progress(now, false);
        pump.pump_events(&self.shared.events);
        drop(pump);
        channel.next_now()
    }

    /// Marks the program as asleep, so that peers wake it. False when a record or an event has arrived
    /// already.
    fn prepare_sleep(&self, channel: &CompletionChannel) -> bool {
        let mut pump = self.shared.lock();
        pump.note_away();
        let now = pump.clock();
        pump.transmit(now);
        // From here on, an event that is pushed signals the wake-up socket.
        channel.set_waiting(true);
        pump.sleepers.program = true;
        pump.pump_events(&self.shared.events);
        if pump.shm.sleep(Sleeper::Program) || channel.has_events() {
            return false;
        }
        if self.shared.presence.leave() || pump.oversleeps(now) {
            pump.sleepers.wakes_at = now;
            self.shared.wake.add();
        }
        true
    }

    /// Cancels the wake-ups of the program by peers.
    fn finish_sleep(&self, channel: &CompletionChannel) {
        let mut pump = self.shared.lock();
        channel.set_waiting(false);
        pump.sleepers.program = false;
        pump.shm.wake();
    }
}

impl Drop for WaitGuard<'_> {
    /// Returns the work to the progress thread.
    fn drop(&mut self) {
        let mut pump = self.shared.lock();
        if let Some(channel) = self.channel {
            channel.set_waiting(false);
        }
        pump.sleepers.program = false;
        if !pump.sleepers.thread {
            pump.shm.wake();
        } else if pump.shm.sleep(Sleeper::Thread) {
            pump.sleepers.wakes_at = pump.last_reading();
            self.shared.wake.add();
        }
        drop(pump);
        self.shared.waiting.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_polls_one_device_polls_it_alone() {
        let poller = Poller::new();
        assert_eq!(
            [1, 1, 1, 2, 2].map(|device| poller.polls(device)),
            [false, true, true, false, true]
        );
        // A thread that polls two devices in turn polls neither alone.
        assert!((0..10).all(|poll| !poller.polls(3 + poll % 2)));
    }

    #[test]
    fn a_thread_that_polls_many_devices_yields_once_in_a_round() {
        let poller = Poller::new();
        let yields = |round: std::ops::Range<usize>| {
            round.filter(|&device| poller.ends_round(device)).count()
        };
        assert_eq!([yields(1..201), yields(1..201), yields(1..201)], [1, 1, 1]);
        // The device at which rounds ended is not polled any more.
        let (polls, most) = (10 * ROUND_MAX as usize, 10 * ROUND_MAX as usize / 3 + 1);
        let later = { 0..polls }
            .filter(|poll| poller.ends_round(300 + poll % 3))
            .count();
        assert!(
            (polls / 3 - ROUND_MAX as usize..=most).contains(&later),
            "{later}"
        );
    }
}
