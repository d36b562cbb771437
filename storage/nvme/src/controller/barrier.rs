//! Barriers: a change that revokes rights waits for the commands that began before it.
//!
//! A command is counted first, and then its rights are checked; a change is made first, and then waits for
//! the commands that are counted. All of these accesses are sequentially consistent, so each command either
//! sees the change or is waited for. Commands whose data have not come are not counted: their rights are
//! checked when the data come.

use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use server::Wake;

use super::Namespace;
use super::epochs::Closed;

/// A namespace, and a command that is executed on it: from before the check of its rights until its
/// completion. Barriers wait until it is dropped.
#[derive(Debug)]
pub(crate) struct Underway {
    namespace: Arc<Namespace>,
    stripe: usize,
    epoch: u64,
}

impl Underway {
    /// Counts a command; its rights have to be checked after this.
    pub(crate) fn new(namespace: &Arc<Namespace>, stripe: usize) -> Self {
        let namespace = Arc::clone(namespace);
        let epoch = namespace.epochs.enter(stripe);
        Self {
            namespace,
            stripe,
            epoch,
        }
    }
}

impl Deref for Underway {
    type Target = Namespace;

    fn deref(&self) -> &Namespace {
        &self.namespace
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        self.namespace.epochs.leave(self.stripe, self.epoch);
    }
}

/// A command on one namespace, or a Flush of several.
#[derive(Debug)]
#[expect(dead_code, reason = "the commands count until they are dropped")]
pub(crate) enum Counted {
    One(Underway),
    Several(Vec<Underway>),
}

/// Waits for the commands that were executed on some namespaces when a change was made.
#[derive(Debug, Default)]
#[must_use = "the commands of before the change may still be executed"]
pub struct Barrier(Vec<Awaited>);

/// The part of a barrier at one namespace.
#[derive(Debug)]
struct Awaited {
    namespace: Arc<Namespace>,
    closed: Closed,
}

impl Barrier {
    /// A barrier behind a change that was made. `wake` is called when it has passed.
    pub(crate) fn new<'a>(
        namespaces: impl IntoIterator<Item = &'a Arc<Namespace>>,
        wake: Option<&Arc<dyn Wake>>,
    ) -> Self {
        let close = |namespace: &Arc<Namespace>| {
            let closed = namespace.epochs.close(wake.cloned());
            Awaited {
                namespace: Arc::clone(namespace),
                closed,
            }
        };
        Self(namespaces.into_iter().map(close).collect())
    }

    /// Whether all commands that began before the change have ended.
    pub fn has_passed(&self) -> bool {
        self.0
            .iter()
            .all(|it| it.namespace.epochs.has_drained(&it.closed))
    }

    /// Waits until all commands that began before the change have ended, at most for `limit`; returns whether
    /// they have.
    #[must_use]
    pub fn wait(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        let left = || end.saturating_duration_since(Instant::now());
        self.0
            .iter()
            .all(|it| it.namespace.epochs.drain(&it.closed, left()))
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        self.namespace.epochs.forget(&self.closed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use super::*;
    use crate::controller::Identity;
    use crate::store::Store;

    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn namespace() -> Arc<Namespace> {
        let identity = Identity::of(&"nqn.2024-01.org.example:disk".parse().unwrap(), 1);
        Arc::new(Namespace::new(1, identity, 512, 512, Store::Null))
    }

    #[test]
    fn a_barrier_waits_for_commands_of_before_and_for_no_others() {
        let namespace = namespace();
        assert!(Barrier::new([&namespace], None).has_passed());
        let before = [1, 1, 2].map(|stripe| Underway::new(&namespace, stripe));
        let first = Barrier::new([&namespace], None);
        let between = Underway::new(&namespace, 1);
        let second = Barrier::new([&namespace], None);
        let after = Underway::new(&namespace, 1);
        assert!(!first.wait(Duration::ZERO) && !second.has_passed());
        for command in before {
            assert!(!first.has_passed());
            drop(command);
        }
        assert!(first.wait(Duration::ZERO) && !second.has_passed());
        // The second barrier could end its epoch only now: it waits for this command too.
        drop(between);
        assert!(!second.has_passed());
        drop(after);
        assert!(second.has_passed() && Barrier::new([&namespace], None).has_passed());
    }

    #[test]
    fn a_connection_is_woken_when_its_barrier_passes_and_not_when_it_is_gone() {
        let namespace = namespace();
        let count = Arc::new(Count(AtomicU32::new(0)));
        let wake: Arc<dyn Wake> = count.clone();
        let command = Underway::new(&namespace, 0);
        let barrier = Barrier::new([&namespace], Some(&wake));
        drop(Barrier::new([&namespace], Some(&wake)));
        assert_eq!(namespace.epochs.waiting(), 1);
        drop(command);
        assert!(barrier.has_passed() && namespace.epochs.waiting() == 0);
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
    }

    /// Commands check a right after they are counted, and use it after that; a thread takes the right away
    /// and waits: no command uses it afterwards.
    #[test]
    fn no_command_uses_a_right_after_the_barrier() {
        const ROUNDS: usize = 2_000;
        let namespace = namespace();
        let (may, ends) = (AtomicBool::new(true), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for stripe in 0..2 {
                let (namespace, may, ends) = (&namespace, &may, &ends);
                scope.spawn(move || {
                    while !ends.load(Ordering::SeqCst) {
                        let command = Underway::new(namespace, stripe);
                        if may.load(Ordering::SeqCst) {
                            std::hint::spin_loop();
                            namespace.counters.writes.fetch_add(1, Ordering::SeqCst);
                        }
                        drop(command);
                    }
                });
            }
            for _ in 0..ROUNDS {
                may.store(false, Ordering::SeqCst);
                assert!(Barrier::new([&namespace], None).wait(Duration::from_secs(60)));
                let writes = namespace.counters.writes.load(Ordering::SeqCst);
                std::thread::yield_now();
                assert_eq!(namespace.counters.writes.load(Ordering::SeqCst), writes);
                may.store(true, Ordering::SeqCst);
            }
            ends.store(true, Ordering::SeqCst);
        });
    }
}
