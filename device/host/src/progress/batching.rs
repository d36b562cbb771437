//! Batching of posted requests: they are sent at once, or held back so that many are sent with one system
//! call.
//!
//! The first request of an idle device is sent at once. Later ones wait for the next poll, up to a number of
//! requests and bytes.

use super::constants::{
    DEFERRED_BYTES_MAX, DEFERRED_BYTES_MAX_DIRECT, DEFERRED_BYTES_MAX_SHM, DEFERRED_MAX,
    DEFERRED_MAX_SHM,
};
use rnic::{Instant, Nanos};

/// State of the program's posting and polling.
#[derive(Debug)]
pub(crate) struct Batching {
    /// Work requests posted since the last transmission, and their bytes.
    deferred: usize,
    deferred_bytes: u64,
    /// Whether this process itself executed long requests in the last transmission.
    executes: bool,
    /// Start of the polls without completions; `None` if the last call was no poll or found a completion.
    empty_since: Option<Instant>,
    /// A poll has found nothing since the program last posted: the program waits for an answer, and does not
    /// post more requests first.
    polled: bool,
    /// Numbers of transmissions so far, and up to the last tick: requests are overdue if there was none in
    /// between.
    transmissions: u64,
    transmissions_at_tick: u64,
}

impl Default for Batching {
    fn default() -> Self {
        Self {
            deferred: 0,
            deferred_bytes: 0,
            executes: false,
            empty_since: None,
            polled: true,
            transmissions: 0,
            transmissions_at_tick: 0,
        }
    }
}

impl Batching {
    /// Records a posted request of so many bytes.
    pub(crate) fn note_posted(&mut self, bytes: u64) {
        self.deferred += 1;
        self.deferred_bytes += bytes;
    }

    /// Records the end of a call that posted; whether so much is held back that it should be sent.
    pub(crate) fn note_post_call(&mut self, has_channels: bool) -> bool {
        self.empty_since = None;
        self.polled = false;
        let (most, bytes) = match has_channels {
            true if self.executes => (DEFERRED_MAX_SHM, DEFERRED_BYTES_MAX_DIRECT),
            true => (DEFERRED_MAX_SHM, DEFERRED_BYTES_MAX_SHM),
            false => (DEFERRED_MAX, DEFERRED_BYTES_MAX),
        };
        self.deferred >= most || self.deferred_bytes >= bytes
    }

    /// Records that all posted requests are sent now.
    pub(crate) fn note_transmission(&mut self) {
        (self.deferred, self.deferred_bytes) = (0, 0);
        self.transmissions += 1;
    }

    /// Records whether this process itself executed long requests in a transmission that made packets or
    /// executed requests.
    pub(crate) fn note_executed(&mut self, executes: bool) {
        self.executes = executes;
    }

    /// Records that posted requests were executed at once.
    pub(crate) fn note_executed_at_once(&mut self) {
        self.empty_since = None;
    }

    /// Records that the program found completions. Where nothing is in flight any more, the last answer was
    /// taken: the next posted request is sent at once.
    pub(crate) fn note_taken(&mut self, in_flight: u32) {
        self.empty_since = None;
        self.polled |= self.deferred == 0 && in_flight == 0;
    }

    /// Records that the program is about to wait for an event, or has called a control verb.
    pub(crate) fn note_away(&mut self) {
        self.polled = true;
        self.empty_since = None;
    }

    /// Records a poll that found nothing; whether the one before found nothing either.
    pub(crate) fn note_empty_poll(&mut self, now: Instant) -> bool {
        self.polled = true;
        let again = self.empty_since.is_some();
        self.empty_since.get_or_insert(now);
        again
    }

    /// Whether polls have found nothing for `long`, which is longer than a round trip takes. On a machine
    /// with fewer cores than polling programs, the peer may be waiting for this core.
    pub(crate) fn waits_long(&self, now: Instant, long: Nanos) -> bool {
        self.empty_since.is_some_and(|since| now >= since + long)
    }

    /// Whether a request that is posted now should be sent at once.
    pub(crate) fn is_idle(&self, in_flight: u32) -> bool {
        self.polled && in_flight == 0 && self.deferred == 0
    }

    /// Records a tick; whether nothing was sent since the last one.
    pub(crate) fn note_tick(&mut self) -> bool {
        let is_old = self.transmissions == self.transmissions_at_tick;
        self.transmissions_at_tick = self.transmissions;
        is_old
    }
}

#[cfg(test)]
mod tests {
    use super::super::constants::YIELD_AFTER;
    use super::*;

    #[test]
    fn the_second_poll_that_finds_nothing_waits_long_in_a_lab() {
        let (mut batching, now) = (Batching::default(), Instant(1_000_000));
        let waits = |batching: &Batching| {
            [Nanos(0), YIELD_AFTER].map(|long| batching.waits_long(now, long))
        };
        assert_eq!(waits(&batching), [false; 2]);
        batching.note_empty_poll(now);
        assert_eq!(waits(&batching), [true, false]);
        assert!(batching.waits_long(now + YIELD_AFTER, YIELD_AFTER));
        batching.note_taken(0);
        assert_eq!(waits(&batching), [false; 2]);
    }
}
