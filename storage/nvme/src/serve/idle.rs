//! How the thread of a connection waits: it polls for a while, which has the lowest latency, then it sleeps,
//! which uses no processor time.
//!
//! A polling thread occupies a processor. At most half of the processors poll; further threads sleep at once,
//! because the peers that they wait for need processors too.

use std::time::Duration;

use super::{Counted, Shared};

/// How long a thread polls before each poll yields the processor: longer than a round trip. On a machine with
/// fewer processors than polling threads, the host may be waiting for this processor.
const YIELD_AFTER_NS: u64 = 10_000;

/// The state of a waiting thread.
pub(super) struct Idle<'a> {
    shared: &'a Shared,
    poll_ns: u64,
    since_ns: Option<u64>,
    polling: Option<Counted<'a>>,
}

impl<'a> Idle<'a> {
    /// A thread that polls as long as the tuning says, and at least `least`.
    pub(super) fn new(shared: &'a Shared, least: Duration) -> Self {
        let poll_ns = shared.tuning.poll.max(least).as_nanos() as u64;
        Self {
            shared,
            poll_ns,
            since_ns: None,
            polling: None,
        }
    }

    /// Notes that there was work: the next wait begins with polling again, because more work is likely.
    pub(super) fn worked(&mut self) {
        self.since_ns = None;
    }

    /// Whether to poll once more instead of sleeping.
    pub(super) fn may_poll(&mut self, now_ns: u64) -> bool {
        let since_ns = *self.since_ns.get_or_insert(now_ns);
        if now_ns - since_ns >= self.poll_ns {
            self.polling = None;
            return false;
        }
        if self.polling.is_none() {
            self.polling = Counted::one_more(
                &self.shared.polling_threads,
                self.shared.polling_threads_max,
            );
        }
        if self.polling.is_some() && now_ns - since_ns >= YIELD_AFTER_NS {
            std::thread::yield_now();
        }
        self.polling.is_some()
    }

    /// Notes that the thread slept and no longer counts as polling.
    pub(super) fn slept(&mut self) {
        (self.since_ns, self.polling) = (None, None);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::controller::Target;
    use crate::serve::Tuning;

    #[test]
    fn half_of_the_processors_poll_for_a_limited_time() {
        let tuning = Tuning {
            poll: Duration::from_nanos(100),
            ..Tuning::default()
        };
        let shared = Shared::new(Arc::new(Target::new()), tuning);
        let mut all: Vec<_> = (0..64)
            .map(|_| Idle::new(&shared, Duration::ZERO))
            .collect();
        let polling = all
            .iter_mut()
            .filter_map(|idle| idle.may_poll(0).then_some(()))
            .count();
        assert_eq!(polling, shared.polling_threads_max.min(64));
        assert!(all[0].may_poll(99) && !all[0].may_poll(100));
        assert!(all[63].may_poll(99), "one stopped polling");
        drop(all);
        assert!(Idle::new(&shared, Duration::ZERO).may_poll(0));
    }
}
