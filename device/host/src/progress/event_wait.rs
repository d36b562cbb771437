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

use super::clock;
use super::constants::{BOUNDED_SLEEP, EVENT_POLLS};
use super::pump::Pump;
use super::shared::Shared;
use super::wake_up::WakeUp;
use crate::channel::CompletionChannel;
use link::memory::Sleeper;
use std::io;
use std::sync::Arc;
use std::time::Duration;

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
        shared.policy.waits.take().then(|| Self {
            shared,
            channel,
            wake_up: Arc::clone(wake_up),
        })
    }

    /// The same for a thread that waits for the device's sockets too: it needs no peer on this host where
    /// packets arrive one by one, and no other thread waits (`is_alone`).
    pub(crate) fn take_for_any(shared: &'a Shared, is_alone: bool) -> Option<Self> {
        let mut pump = shared.lock();
        let is_light = begin_light_wait(&mut pump) && is_alone;
        let wake_up = pump
            .shm
            .wake_up()
            .filter(|_| is_light || !pump.shm.is_empty())
            .map(Arc::clone)?;
        drop(pump);
        shared.policy.waits.take().then(|| Self {
            shared,
            channel: None,
            wake_up,
        })
    }

    /// The event; `None` where the wake-up socket was shut down.
    fn wait(&self, channel: &CompletionChannel) -> io::Result<Option<u64>> {
        if self.shared.policy.waits.begin_wait() {
            let found = self.poll_for_a_while(channel);
            self.shared.policy.waits.note_polling(found.is_some());
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
    pub(super) fn sleep_bounded(&self) -> bool {
        let mut pump = self.shared.lock();
        self.shared.policy.polls.note_bounded_sleep(BOUNDED_SLEEP);
        pump.schedule.sleepers.program = true;
        let has_records = pump.shm.sleep(Sleeper::Program);
        drop(pump);
        has_records || self.wake_up.wait_for(Duration::from_nanos(BOUNDED_SLEEP.0))
    }

    fn poll_for_a_while(&self, channel: &CompletionChannel) -> Option<u64> {
        let start = clock::now();
        while clock::now() < start + EVENT_POLLS {
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
        self.shared.policy.polls.note_call();
        let now = pump.clock.read();
        pump.progress(now, false);
        pump.pump_events(&self.shared.events);
        drop(pump);
        channel.next_now()
    }

    /// Marks the program as asleep, so that peers wake it. False when a record or an event has arrived
    /// already.
    fn prepare_sleep(&self, channel: &CompletionChannel) -> bool {
        let mut pump = self.shared.lock();
        pump.schedule.batching.note_away();
        let now = pump.clock.read();
        pump.transmit(now);
        // From here on, an event that is pushed signals the wake-up socket.
        channel.set_waiting(true);
        pump.schedule.sleepers.program = true;
        pump.pump_events(&self.shared.events);
        if pump.shm.sleep(Sleeper::Program) || channel.has_events() {
            return false;
        }
        if self.shared.policy.polls.leave() || pump.oversleeps(now) {
            self.shared.wake_thread(&mut pump, now);
        }
        true
    }

    /// Cancels the wake-ups of the program by peers.
    fn finish_sleep(&self, channel: &CompletionChannel) {
        let mut pump = self.shared.lock();
        channel.set_waiting(false);
        pump.schedule.sleepers.program = false;
        pump.shm.wake();
    }
}

/// Records a wait of the program. Whether it may take packets in place of the progress thread, because few
/// have come and gone since the waits before. In a host of a lab packets wake the progress thread alone.
fn begin_light_wait(pump: &mut Pump) -> bool {
    let counters = pump.counters();
    let packets = counters.sent_datagrams + counters.received_datagrams;
    pump.schedule.traffic.is_light(packets) && pump.lab.is_none()
}

impl Drop for WaitGuard<'_> {
    /// Returns the work to the progress thread.
    fn drop(&mut self) {
        let mut pump = self.shared.lock();
        if let Some(channel) = self.channel {
            channel.set_waiting(false);
        }
        pump.schedule.sleepers.program = false;
        if !pump.schedule.sleepers.thread {
            pump.shm.wake();
        } else if pump.shm.sleep(Sleeper::Thread) {
            let now = pump.clock.last();
            self.shared.wake_thread(&mut pump, now);
        }
        drop(pump);
        self.shared.policy.waits.release();
    }
}
