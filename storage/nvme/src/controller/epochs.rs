//! Counts the commands that are executed on a namespace, so that a change of rights can wait for them.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use server::Wake;

/// Counters: queues count on different cache lines.
const STRIPES: usize = 16;

/// Counts the commands that are executed on a namespace.
///
/// Each command belongs to the epoch in which it began. A barrier ends the present epoch, and waits until the
/// commands of that epoch have ended, while further commands begin in the next one: a busy namespace does not
/// delay it. Commands of at most two epochs are counted, by the lowest bit of their epoch.
#[derive(Debug, Default)]
pub(crate) struct Epochs {
    epoch: AtomicU64,
    stripes: [Stripe; STRIPES],
    /// Whether a barrier waits, so that a command that ends has to check `progress`.
    is_awaited: AtomicBool,
    progress: Mutex<Progress>,
    changed: Condvar,
}

/// Counters on a cache line of their own, by the lowest bit of the epoch.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Stripe([AtomicU32; 2]);

/// The state of the barriers of a namespace.
#[derive(Debug, Default)]
struct Progress {
    /// All commands of the epochs before this one have ended.
    drained: u64,
    /// The highest epoch that a barrier waits for.
    wanted: u64,
    tickets: u64,
    waiters: Vec<Waiter>,
}

/// A connection to wake when all commands of the epochs before `epoch` have ended.
#[derive(Debug)]
struct Waiter {
    ticket: u64,
    epoch: u64,
    wake: Arc<dyn Wake>,
}

/// What a barrier waits for: the end of all commands of the epochs before `epoch`.
#[derive(Debug)]
pub(super) struct Closed {
    epoch: u64,
    ticket: u64,
}

impl Epochs {
    /// Counts a command; returns its epoch.
    pub(super) fn enter(&self, stripe: usize) -> u64 {
        loop {
            let epoch = self.epoch.load(Ordering::SeqCst);
            self.count(stripe, epoch).fetch_add(1, Ordering::SeqCst);
            // A barrier that ended the epoch in between may not have seen the count.
            if self.epoch.load(Ordering::SeqCst) == epoch {
                return epoch;
            }
            self.leave(stripe, epoch);
        }
    }

    /// Counts the end of a command.
    pub(super) fn leave(&self, stripe: usize, epoch: u64) {
        self.count(stripe, epoch).fetch_sub(1, Ordering::SeqCst);
        if self.is_awaited.load(Ordering::SeqCst) {
            self.advance(&mut self.progress());
        }
    }

    fn count(&self, stripe: usize, epoch: u64) -> &AtomicU32 {
        &self.stripes[stripe % STRIPES].0[(epoch & 1) as usize]
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the present epoch, or has it ended as soon as the commands of the epoch before have ended. `wake`
    /// is called when the commands of the present epoch have.
    pub(super) fn close(&self, wake: Option<Arc<dyn Wake>>) -> Closed {
        let mut progress = self.progress();
        self.is_awaited.store(true, Ordering::SeqCst);
        let epoch = self.epoch.load(Ordering::SeqCst) + 1;
        progress.wanted = epoch;
        progress.tickets += 1;
        let ticket = progress.tickets;
        progress.waiters.extend(wake.map(|wake| Waiter {
            ticket,
            epoch,
            wake,
        }));
        self.advance(&mut progress);
        Closed { epoch, ticket }
    }

    /// Whether the commands of before [`Epochs::close`] have ended.
    pub(super) fn has_drained(&self, closed: &Closed) -> bool {
        self.progress().drained >= closed.epoch
    }

    /// As [`Epochs::has_drained`], after waiting for it at most this long.
    pub(super) fn drain(&self, closed: &Closed, limit: Duration) -> bool {
        let waits = |progress: &mut Progress| progress.drained < closed.epoch;
        let waited = self
            .changed
            .wait_timeout_while(self.progress(), limit, waits);
        let (progress, _) = waited.unwrap_or_else(PoisonError::into_inner);
        progress.drained >= closed.epoch
    }

    /// Withdraws the wake of [`Epochs::close`].
    pub(super) fn forget(&self, closed: &Closed) {
        self.progress()
            .waiters
            .retain(|waiter| waiter.ticket != closed.ticket);
    }

    /// Ends epochs as far as barriers want it and commands have ended.
    fn advance(&self, progress: &mut Progress) {
        let before = progress.drained;
        while progress.drained < progress.wanted {
            if self.epoch.load(Ordering::SeqCst) == progress.drained {
                self.epoch.fetch_add(1, Ordering::SeqCst);
            }
            let of_epoch = (0..STRIPES).map(|stripe| self.count(stripe, progress.drained));
            if of_epoch
                .map(|count| count.load(Ordering::SeqCst))
                .any(|count| count != 0)
            {
                break;
            }
            progress.drained += 1;
        }
        if progress.drained == before {
            return;
        }
        self.is_awaited
            .store(progress.drained < progress.wanted, Ordering::SeqCst);
        let drained = progress.drained;
        progress.waiters.retain(|waiter| {
            let waits = waiter.epoch > drained;
            if !waits {
                waiter.wake.wake();
            }
            waits
        });
        self.changed.notify_all();
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.progress().waiters.len()
    }
}
