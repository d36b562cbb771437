//! Polls that find nothing yield the core.
//!
//! Where another thread wants the core, it may take ten milliseconds to get it back, and a peer that yields
//! in the same way completes in each time slice only what its queues have room for. Polls then sleep for a
//! bounded time instead: the kernel gives the core to a thread that was woken before it gives it to threads
//! that compute.

use super::clock;
use super::constants::{POLL_ROUND_MAX, POLLS_CROWDED, YIELD_LONG};
use super::event_wait::WaitGuard;
use super::shared::Shared;
use rnic::Instant;
use std::cell::Cell;

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
        let ends = at == device || at == 0 || since >= POLL_ROUND_MAX;
        self.since.set(if ends { 0 } else { since });
        if ends {
            self.yielded_at.set(device);
        }
        ends
    }
}

fn address_of(shared: &Shared) -> usize {
    std::ptr::from_ref(shared).addr()
}

/// Records the device that this thread polls. True when it polled the same device before: a thread that polls
/// several devices must not sleep for one of them, because arrivals for the others do not wake it.
#[inline]
pub(crate) fn polls_alone(shared: &Shared) -> bool {
    POLLER.with(|poller| poller.polls(address_of(shared)))
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
        if POLLER.with(|poller| poller.ends_round(address_of(shared))) {
            std::thread::yield_now();
        }
        return;
    }
    if shared.policy.waits.is_crowded(now)
        && let Some(guard) = WaitGuard::take(shared, None)
        && guard.sleep_bounded()
    {
        return;
    }
    let offered = clock::now();
    std::thread::yield_now();
    let back = clock::now();
    if back > offered + YIELD_LONG {
        shared.policy.waits.set_crowded_until(back + POLLS_CROWDED);
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
        let (polls, most) = (
            10 * POLL_ROUND_MAX as usize,
            10 * POLL_ROUND_MAX as usize / 3 + 1,
        );
        let later = { 0..polls }
            .filter(|poll| poller.ends_round(300 + poll % 3))
            .count();
        assert!(
            (polls / 3 - POLL_ROUND_MAX as usize..=most).contains(&later),
            "{later}"
        );
    }
}
