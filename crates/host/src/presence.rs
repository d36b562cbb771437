//! Whether the program polls: who polls does the network's work, and the progress thread keeps away.

use rnic::Nanos;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A program that posts or polls this often on average serves the network as well as the thread would.
const CALL_EVERY: Nanos = Nanos::from_micros(25);
/// However short the time. Programs that wait by looking at memory call once or twice per message.
const CALLS_MIN: u64 = 3;

/// What the program's threads tell the progress thread. Nothing here needs to be exact: it decides who looks
/// at the network, and both may.
#[derive(Default, Debug)]
pub(crate) struct Presence {
    /// Written with the device's lock held.
    calls: AtomicU64,
    /// How many they were when the program last said that it would sleep.
    calls_at_leave: AtomicU64,
    /// The thread ticks, and does not look at the network.
    ticking: AtomicBool,
}

impl Presence {
    /// The program posts or polls, and has the device's lock.
    pub(crate) fn note_call(&self) {
        self.calls.store(self.calls() + 1, Ordering::Relaxed);
    }

    /// The program polls, and is about to doze for so long at most: with the device's lock held.
    pub(crate) fn note_doze(&self, time: Nanos) {
        self.calls.store(self.calls() + time.0 / CALL_EVERY.0 + CALLS_MIN, Ordering::Relaxed);
    }

    /// The program is about to sleep. True when the thread has to be woken for it.
    pub(crate) fn leave(&self) -> bool {
        self.calls_at_leave.store(self.calls(), Ordering::Relaxed);
        self.ticking.swap(false, Ordering::Relaxed)
    }

    /// Calls so far.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Whether the program waited by polling, `seen` calls and so much time ago.
    pub(crate) fn is_polling(&self, seen: u64, elapsed: Nanos) -> bool {
        let since = seen.max(self.calls_at_leave.load(Ordering::Relaxed));
        self.calls().saturating_sub(since) >= CALLS_MIN.max(elapsed.0 / CALL_EVERY.0)
    }

    /// Whether the thread ticks.
    pub(crate) fn set_ticking(&self, ticking: bool) {
        self.ticking.store(ticking, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn polled(times: u64) -> Presence {
        let presence = Presence::default();
        (0..times).for_each(|_| presence.note_call());
        presence
    }

    #[test]
    fn polling_is_a_matter_of_rate() {
        let presence = polled(10);
        assert!(presence.is_polling(0, Nanos::from_micros(50)));
        assert!(!presence.is_polling(8, Nanos::from_micros(50)));
        assert!(!presence.is_polling(0, Nanos::from_millis(1)));
    }

    #[test]
    fn who_dozes_polls_still() {
        let presence = polled(1);
        presence.note_doze(Nanos::from_micros(500));
        assert!(presence.is_polling(1, Nanos::from_micros(500)));
        assert!(!presence.is_polling(1, Nanos::from_millis(1)));
    }

    #[test]
    fn who_goes_to_sleep_does_not_poll() {
        let presence = polled(10);
        presence.set_ticking(true);
        assert!(presence.leave());
        assert!(!presence.leave(), "told once");
        assert!(!presence.is_polling(0, Nanos::from_micros(50)));
    }
}
