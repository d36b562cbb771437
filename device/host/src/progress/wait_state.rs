//! State of a device's program that waits for events: whether it waits, and how.

use super::constants::POLLS_AGAIN;
use rnic::Instant;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// The thread that waits in place of the progress thread, and how it waits.
#[derive(Default, Debug)]
pub(crate) struct WaitState {
    /// A thread waits in place of the progress thread.
    taken: AtomicBool,
    /// Polling before the sleep found the last event.
    polls: AtomicBool,
    /// Number of events that were waited for so far.
    waits: AtomicU32,
    /// Threads that wait for completions and for descriptors of their own.
    waiters: AtomicU32,
    /// Until when polls sleep instead of yielding, in nanoseconds of the device's clock.
    crowded_until: AtomicU64,
}

impl WaitState {
    /// Gives the caller the right to wait in place of the progress thread. False while another thread has it.
    pub(crate) fn take(&self) -> bool {
        !self.taken.swap(true, Ordering::Acquire)
    }

    /// Gives that right back.
    pub(crate) fn release(&self) {
        self.taken.store(false, Ordering::Release);
    }

    /// Counts a thread that waits for completions and for descriptors of its own. Whether it is the only one.
    pub(crate) fn enter(&self) -> bool {
        self.waiters.fetch_add(1, Ordering::Relaxed) == 0
    }

    /// Such a thread waits no more.
    pub(crate) fn exit(&self) {
        self.waiters.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether a program that waits for an event polls before it sleeps.
    pub(crate) fn polls(&self) -> bool {
        self.polls.load(Ordering::Relaxed)
    }

    /// Records whether polling before the sleep has found the event.
    pub(crate) fn note_polling(&self, found: bool) {
        self.polls.store(found, Ordering::Relaxed);
    }

    /// Counts an event that is waited for; whether the call polls before it sleeps.
    pub(crate) fn begin_wait(&self) -> bool {
        let waits = self.waits.fetch_add(1, Ordering::Relaxed);
        self.polls() || waits.is_multiple_of(POLLS_AGAIN)
    }

    /// Whether another thread needed the core lately, so that polls sleep instead of yielding.
    pub(crate) fn is_crowded(&self, now: Instant) -> bool {
        now.0 < self.crowded_until.load(Ordering::Relaxed)
    }

    /// Makes polls sleep instead of yielding until `end`.
    pub(crate) fn set_crowded_until(&self, end: Instant) {
        self.crowded_until.store(end.0, Ordering::Relaxed);
    }
}
