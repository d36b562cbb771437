//! When threads drive the parts of a network together, and when one drives all of them.

use std::time::{Duration, Instant};

/// How long one thread drives all parts after the first time that another had no processor,
const REST_MIN: Duration = Duration::from_millis(20);

/// and after that has happened again and again.
const REST_MAX: Duration = Duration::from_secs(2);

/// Whether one thread drives all parts. It decides about speed alone, never about results.
#[derive(Debug)]
pub(super) struct ThreadPolicy {
    alone_until: Option<Instant>,
    rest: Duration,
}

impl ThreadPolicy {
    /// All threads together.
    pub(super) const fn new() -> Self {
        Self {
            alone_until: None,
            rest: REST_MIN,
        }
    }

    /// Whether one thread drives all parts now.
    pub(super) fn is_alone(&self) -> bool {
        self.alone_until.is_some_and(|until| Instant::now() < until)
    }

    /// Has one thread drive all parts for a while, because a thread had no processor. The rests get longer
    /// until threads have been together for longer than the last one.
    pub(super) fn rest(&mut self, together: Duration) {
        if together > self.rest {
            self.rest = REST_MIN;
        }
        self.alone_until = Some(Instant::now() + self.rest);
        self.rest = (self.rest * 2).min(REST_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_get_longer_until_threads_stay_together() {
        let mut thread_policy = ThreadPolicy::new();
        assert!(!thread_policy.is_alone());
        let mut rested = Vec::new();
        for together_ms in [0, 1, 1, 1000, 1] {
            rested.push(thread_policy.rest.as_millis());
            thread_policy.rest(Duration::from_millis(together_ms));
            assert!(thread_policy.alone_until.is_some());
        }
        assert_eq!(
            (rested, thread_policy.rest),
            (vec![20, 40, 80, 160, 40], Duration::from_millis(80))
        );
        (0..9).for_each(|_| thread_policy.rest(Duration::ZERO));
        assert_eq!(thread_policy.rest, REST_MAX);
    }
}
