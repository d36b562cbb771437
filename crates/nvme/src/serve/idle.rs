//! How a connection's thread waits: it looks for work for a while, which is fast, then it sleeps, which is
//! free.
//!
//! Threads that look take a processor each. No more than half of the processors look; the others sleep at
//! once, since what they would look for needs a processor as well.

use std::time::Duration;

use super::{Counted, Shared};

/// How long it looks before each look gives the processor to whoever wants it: longer than a round trip
/// takes. On a machine with fewer processors than threads that look, the host may be waiting for this one.
const YIELD_AFTER_NS: u64 = 10_000;

/// A thread without work.
pub(super) struct Idle<'a> {
    shared: &'a Shared,
    look_ns: u64,
    since_ns: Option<u64>,
    looking: Option<Counted<'a>>,
}

impl<'a> Idle<'a> {
    /// One that looks as long as the tuning says, and not less than `least`.
    pub(super) fn new(shared: &'a Shared, least: Duration) -> Self {
        let look_ns = shared.tuning.poll.max(least).as_nanos() as u64;
        Self { shared, look_ns, since_ns: None, looking: None }
    }

    /// There was work. Who looks may go on: work that came is followed by more.
    pub(super) fn worked(&mut self) {
        self.since_ns = None;
    }

    /// Whether to look once more.
    pub(super) fn may_look(&mut self, now_ns: u64) -> bool {
        let since_ns = *self.since_ns.get_or_insert(now_ns);
        if now_ns - since_ns >= self.look_ns {
            self.looking = None;
            return false;
        }
        if self.looking.is_none() {
            self.looking = Counted::one_more(&self.shared.lookers, self.shared.lookers_max);
        }
        if self.looking.is_some() && now_ns - since_ns >= YIELD_AFTER_NS {
            std::thread::yield_now();
        }
        self.looking.is_some()
    }

    /// It slept, and looked at nothing meanwhile.
    pub(super) fn slept(&mut self) {
        (self.since_ns, self.looking) = (None, None);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::serve::Tuning;
    use crate::target::Target;

    #[test]
    fn half_of_the_processors_look_and_only_for_a_while() {
        let tuning = Tuning { poll: Duration::from_nanos(100), ..Tuning::default() };
        let shared = Shared::new(Arc::new(Target::new()), tuning);
        let mut all: Vec<_> = (0..64).map(|_| Idle::new(&shared, Duration::ZERO)).collect();
        let looking = all.iter_mut().filter_map(|idle| idle.may_look(0).then_some(())).count();
        assert_eq!(looking, shared.lookers_max.min(64));
        assert!(all[0].may_look(99) && !all[0].may_look(100));
        assert!(all[63].may_look(99), "one gave its place away");
        drop(all);
        assert!(Idle::new(&shared, Duration::ZERO).may_look(0));
    }
}
