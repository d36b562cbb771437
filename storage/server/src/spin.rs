//! How the thread of a connection waits: it polls for a while, which has the lowest latency, then it sleeps,
//! which uses no processor time.
//!
//! A polling thread occupies a processor. At most half of the processors poll; further threads sleep at once,
//! because the peers that they wait for need processors too.

use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use crate::{Counted, nanoseconds};

/// How long a thread polls before each poll yields the processor: longer than a round trip. On a machine with
/// fewer processors than polling threads, the host may be waiting for this processor.
const YIELD_AFTER_NS: u64 = 10_000;

/// The threads of a server that poll.
#[derive(Debug)]
pub struct Spinners {
    threads: AtomicUsize,
    threads_max: usize,
}

/// The state of a waiting thread.
#[derive(Debug)]
pub struct Spin<'a> {
    spinners: &'a Spinners,
    poll_ns: u64,
    since_ns: Option<u64>,
    polling: Option<Counted<'a>>,
}

impl Default for Spinners {
    fn default() -> Self {
        let processors = std::thread::available_parallelism();
        Self {
            threads: AtomicUsize::new(0),
            threads_max: processors.map_or(1, |count| (count.get() / 2).max(1)),
        }
    }
}

impl<'a> Spin<'a> {
    /// A thread that polls for this time before it sleeps.
    pub fn new(spinners: &'a Spinners, time: Duration) -> Self {
        Self {
            spinners,
            poll_ns: nanoseconds(time),
            since_ns: None,
            polling: None,
        }
    }

    /// Notes that there was work: the next wait begins with polling again, because more work is likely.
    pub fn worked(&mut self) {
        self.since_ns = None;
    }

    /// Whether to poll once more instead of sleeping.
    pub fn may_poll(&mut self, now_ns: u64) -> bool {
        let since_ns = *self.since_ns.get_or_insert(now_ns);
        if now_ns - since_ns >= self.poll_ns {
            self.polling = None;
            return false;
        }
        if self.polling.is_none() {
            let Spinners {
                threads,
                threads_max,
            } = self.spinners;
            self.polling = Counted::one_more(threads, *threads_max);
        }
        if self.polling.is_some() && now_ns - since_ns >= YIELD_AFTER_NS {
            std::thread::yield_now();
        }
        self.polling.is_some()
    }

    /// Notes that the thread slept and no longer counts as polling.
    pub fn slept(&mut self) {
        (self.since_ns, self.polling) = (None, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_processors_poll_for_a_limited_time() {
        let (spinners, time) = (Spinners::default(), Duration::from_nanos(100));
        let mut all: Vec<_> = (0..64).map(|_| Spin::new(&spinners, time)).collect();
        let polling = all
            .iter_mut()
            .filter_map(|spin| spin.may_poll(0).then_some(()))
            .count();
        assert_eq!(polling, spinners.threads_max.min(64));
        assert!(all[0].may_poll(99) && !all[0].may_poll(100));
        assert!(all[63].may_poll(99), "one stopped polling");
        drop(all);
        assert!(Spin::new(&spinners, time).may_poll(0));
    }
}
