//! Whether the program polls: a program that polls serves the network, and the progress thread does not.

use super::constants::{CALL_EVERY, CALLS_MIN, COPIED_PER_CALL, WAIT_COUNTS_FOR};
use rnic::{Instant, Nanos};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// State by which the program's threads inform the progress thread. It need not be exact: it decides which
/// thread serves the network, and both may.
#[derive(Default, Debug)]
pub(crate) struct PollDetector {
    /// Number of posts and polls so far; written with the device's lock held.
    calls: AtomicU64,
    /// The value of `calls` when the program last announced that it would sleep.
    calls_at_leave: AtomicU64,
    /// The value of `calls`, and the time, from which on calls count.
    window_calls: AtomicU64,
    window_begun: AtomicU64,
    /// The progress thread only ticks, and does not serve the network.
    ticking: AtomicBool,
    /// End of the time in which the last wait for completions counts as polling, in nanoseconds of the
    /// device's clock.
    waits_until: AtomicU64,
}

impl PollDetector {
    /// Counts a post or poll. The caller has the device's lock.
    pub(crate) fn note_call(&self) {
        self.calls.store(self.calls() + 1, Ordering::Relaxed);
    }

    /// Counts a bounded sleep of at most this time as polling. The caller has the device's lock.
    pub(crate) fn note_bounded_sleep(&self, time: Nanos) {
        self.calls.store(
            self.calls() + time.0 / CALL_EVERY.0 + CALLS_MIN,
            Ordering::Relaxed,
        );
    }

    /// Counts the time in which a call has copied so many bytes as polling. The caller has the device's lock.
    pub(crate) fn note_copied(&self, bytes: u32) {
        self.calls.store(
            self.calls() + u64::from(bytes / COPIED_PER_CALL),
            Ordering::Relaxed,
        );
    }

    /// Records that a program waits for completions in place of the progress thread (see
    /// [`super::completion_wait`]).
    pub(crate) fn note_wait(&self, now: Instant) {
        self.waits_until
            .store((now + WAIT_COUNTS_FOR).0, Ordering::Relaxed);
    }

    /// Whether a program waits again and again in this way.
    pub(crate) fn waits(&self, now: Instant) -> bool {
        now.0 < self.waits_until.load(Ordering::Relaxed)
    }

    /// Records that the program is about to sleep. True when the progress thread has to be woken for it.
    pub(crate) fn leave(&self) -> bool {
        self.calls_at_leave.store(self.calls(), Ordering::Relaxed);
        self.waits_until.store(0, Ordering::Relaxed);
        self.ticking.swap(false, Ordering::Relaxed)
    }

    /// Number of posts and polls so far.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Whether the program has polled since `elapsed` ago, when the number of calls was `seen`.
    pub(crate) fn is_polling(&self, seen: u64, elapsed: Nanos) -> bool {
        let since = seen.max(self.calls_at_leave.load(Ordering::Relaxed));
        self.calls().saturating_sub(since) >= CALLS_MIN.max(elapsed.0 / CALL_EVERY.0)
    }

    /// Begins a window: [`Self::polls`] counts calls from now on. Two threads that do so at once may mix
    /// their windows, which is then too long by a moment.
    pub(crate) fn begin_window(&self, now: Instant) {
        self.window_calls.store(self.calls(), Ordering::Relaxed);
        self.window_begun.store(now.0, Ordering::Relaxed);
    }

    /// Whether the program has polled since the window began.
    pub(crate) fn polls(&self, now: Instant) -> bool {
        let begun = Instant(self.window_begun.load(Ordering::Relaxed));
        self.is_polling(self.window_calls.load(Ordering::Relaxed), now - begun)
    }

    /// Sets whether the progress thread only ticks.
    pub(crate) fn set_ticking(&self, ticking: bool) {
        self.ticking.store(ticking, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn polled(times: u64) -> PollDetector {
        let detector = PollDetector::default();
        (0..times).for_each(|_| detector.note_call());
        detector
    }

    #[test]
    fn polling_is_a_matter_of_rate() {
        let detector = polled(10);
        assert!(detector.is_polling(0, Nanos::from_micros(50)));
        assert!(!detector.is_polling(8, Nanos::from_micros(50)));
        assert!(!detector.is_polling(0, Nanos::from_millis(1)));
    }

    #[test]
    fn a_program_that_has_stopped_does_not_poll_however_often_it_did_before() {
        let (detector, now) = (polled(1000), Instant(1_000_000));
        assert!(detector.polls(now), "1000 calls in the first millisecond");
        detector.begin_window(now);
        assert!(!detector.polls(now + Nanos::from_millis(4)));
        (0..160).for_each(|_| detector.note_call());
        assert!(detector.polls(now + Nanos::from_millis(4)));
    }

    #[test]
    fn a_program_in_a_bounded_sleep_still_polls() {
        let detector = polled(1);
        detector.note_bounded_sleep(Nanos::from_micros(500));
        assert!(detector.is_polling(1, Nanos::from_micros(500)));
        assert!(!detector.is_polling(1, Nanos::from_millis(1)));
    }

    #[test]
    fn a_program_that_copies_long_requests_polls() {
        let detector = polled(2);
        let time = Nanos::from_micros(100);
        assert!(!detector.is_polling(0, time));
        detector.note_copied(1 << 20);
        assert!(
            detector.is_polling(0, time),
            "a mebibyte was copied meanwhile"
        );
    }

    #[test]
    fn a_program_that_goes_to_sleep_does_not_poll() {
        let detector = polled(10);
        detector.set_ticking(true);
        assert!(detector.leave());
        assert!(!detector.leave(), "told once");
        assert!(!detector.is_polling(0, Nanos::from_micros(50)));
    }

    #[test]
    fn a_wait_counts_as_polling_for_a_while() {
        let (detector, now) = (PollDetector::default(), Instant(1_000_000));
        assert!(!detector.waits(now));
        detector.note_wait(now);
        assert!(detector.waits(now + Nanos::from_millis(3)));
        assert!(!detector.waits(now + Nanos::from_millis(4)));
        detector.leave();
        assert!(!detector.waits(now), "the program waits elsewhere");
    }
}
