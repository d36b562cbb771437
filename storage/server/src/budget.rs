//! One budget for the data of all connections of a server, shared fairly among hosts.
//!
//! A host may take more memory as long as it has no more than what is free: one host alone gets half of the
//! budget, each of n hosts that take all they can an (n + 1)th part. So memory is always left for a new host
//! (Choudhury and Hahne, "Dynamic queue length thresholds", 1998). A connection whose request for memory
//! fails is woken when another connection returns some.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::Wake;

/// Up to this size a buffer counts as small: that of one command of an admin queue. The limit of a host is
/// twice as high for small buffers, so that connections of its own that take all they can get do not keep a
/// new connection of the same address from its first commands.
const SMALL_BYTES: usize = 4096;

/// The bytes of a server that connections may take, and those that they have taken.
#[derive(Debug)]
pub struct Budget {
    total: usize,
    used: AtomicUsize,
    hosts: Mutex<HashMap<IpAddr, Weak<AtomicUsize>>>,
    waiting: Mutex<Vec<Arc<Waiter>>>,
    /// Whether `waiting` has entries: read without its lock.
    is_short: AtomicBool,
}

struct Waiter {
    wake: Arc<dyn Wake>,
    is_queued: AtomicBool,
}

impl std::fmt::Debug for Waiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiter")
            .field("is_queued", &self.is_queued)
            .finish_non_exhaustive()
    }
}

/// What one connection takes bytes with.
#[derive(Debug)]
pub struct Share {
    budget: Arc<Budget>,
    /// Bytes that all connections of the same host have taken.
    host: Arc<AtomicUsize>,
    waiter: Arc<Waiter>,
}

/// Bytes of the budget that a connection has taken; returned when this is dropped.
#[derive(Debug)]
pub struct Charge {
    share: Arc<Share>,
    bytes: usize,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Budget {
    /// A budget of `total` bytes.
    pub fn new(total: usize) -> Arc<Self> {
        Arc::new(Self {
            total,
            used: AtomicUsize::new(0),
            hosts: Mutex::default(),
            waiting: Mutex::default(),
            is_short: AtomicBool::new(false),
        })
    }

    /// Bytes that all connections have taken.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// The share of a connection from `host`. `wake` is called when a request that failed may succeed.
    pub fn share(self: &Arc<Self>, host: IpAddr, wake: Arc<dyn Wake>) -> Arc<Share> {
        let mut hosts = locked(&self.hosts);
        hosts.retain(|_, host| host.strong_count() > 0);
        let host = host.to_canonical();
        let known = hosts.get(&host).and_then(Weak::upgrade);
        let used = known.unwrap_or_else(|| {
            let used = Arc::new(AtomicUsize::new(0));
            hosts.insert(host, Arc::downgrade(&used));
            used
        });
        let waiter = Arc::new(Waiter {
            wake,
            is_queued: AtomicBool::new(false),
        });
        Arc::new(Share {
            budget: Arc::clone(self),
            host: used,
            waiter,
        })
    }
}

impl Share {
    /// Takes `bytes` if the limit of the host allows it. Nothing is added before it is known to fit: two
    /// connections that saw each other's bytes for a moment would both be refused, and wait for bytes that no
    /// connection has. (The bytes of the host may pass its limit by what its other connections take at the
    /// same time.)
    fn take(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        let Budget { used, total, .. } = &*self.budget;
        let fits = |used: usize| {
            let own = self.host.load(Ordering::SeqCst);
            let limit = total
                .saturating_sub(used)
                .saturating_mul(if bytes <= SMALL_BYTES { 2 } else { 1 });
            (used + bytes <= *total && own + bytes <= limit).then_some(used + bytes)
        };
        used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits)
            .ok()?;
        self.host.fetch_add(bytes, Ordering::SeqCst);
        Some(Charge {
            share: Arc::clone(self),
            bytes,
        })
    }

    /// Takes `bytes` if the limit of the host allows it; otherwise registers the connection to be woken when
    /// another connection returns memory.
    pub fn charge(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        if let Some(charge) = self.take(bytes) {
            return Some(charge);
        }
        if !self.waiter.is_queued.swap(true, Ordering::SeqCst) {
            let mut waiting = locked(&self.budget.waiting);
            waiting.push(Arc::clone(&self.waiter));
            self.budget.is_short.store(true, Ordering::SeqCst);
        }
        // Memory that was returned before this waiter was registered caused no wake-up: try once more.
        self.take(bytes)
    }

    /// Takes `bytes` even beyond the limits.
    pub fn charge_anyway(self: &Arc<Self>, bytes: usize) -> Charge {
        self.budget.used.fetch_add(bytes, Ordering::SeqCst);
        self.host.fetch_add(bytes, Ordering::SeqCst);
        Charge {
            share: Arc::clone(self),
            bytes,
        }
    }

    fn release(&self, bytes: usize) {
        self.budget.used.fetch_sub(bytes, Ordering::SeqCst);
        self.host.fetch_sub(bytes, Ordering::SeqCst);
        if bytes > 0 && self.budget.is_short.load(Ordering::SeqCst) {
            self.wake_others();
        }
    }

    fn wake_others(&self) {
        let mut waiting = locked(&self.budget.waiting);
        self.budget.is_short.store(false, Ordering::SeqCst);
        for waiter in waiting.drain(..) {
            waiter.is_queued.store(false, Ordering::SeqCst);
            waiter.wake.wake();
        }
    }

    /// Whether another connection waits for memory.
    pub fn is_wanted(&self) -> bool {
        self.budget.is_short.load(Ordering::Relaxed)
    }

    /// Whether the connections have taken more than the total.
    pub fn is_exceeded(&self) -> bool {
        self.budget.used() > self.budget.total
    }
}

impl Charge {
    /// No bytes of a share.
    pub fn none(share: &Arc<Share>) -> Self {
        Self {
            share: Arc::clone(share),
            bytes: 0,
        }
    }

    /// How many bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes `bytes` more, as [`Share::charge`]; returns whether the limits allow it.
    pub fn grow(&mut self, bytes: usize) -> bool {
        let more = self.share.charge(bytes);
        let is_allowed = more.is_some();
        more.into_iter().for_each(|more| self.add(more));
        is_allowed
    }

    /// Adds the bytes of another charge to the same share.
    pub fn add(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Returns `bytes` of it to the budget.
    pub fn release(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.share.release(bytes);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.share.release(self.bytes);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut waiting = locked(&self.budget.waiting);
        waiting.retain(|waiter| !Arc::ptr_eq(waiter, &self.waiter));
        self.budget
            .is_short
            .store(!waiting.is_empty(), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Counting(AtomicUsize);

    impl Wake for Counting {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn host(number: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, number])
    }

    #[test]
    fn hosts_share_fairly_and_memory_is_left() {
        const TOTAL: usize = 1 << 20;
        let budget = Budget::new(TOTAL);
        let wake: Arc<dyn Wake> = Arc::new(Counting::default());
        let mut takers: Vec<(Arc<Share>, Charge)> = [1, 1, 2, 3]
            .map(|number| budget.share(host(number), Arc::clone(&wake)))
            .map(|share| (Arc::clone(&share), Charge::none(&share)))
            .into();
        let mut goes_on = true;
        while goes_on {
            goes_on = false;
            for (share, taken) in &mut takers {
                let more = share.charge(2 * SMALL_BYTES);
                goes_on |= more.is_some();
                more.into_iter().for_each(|more| taken.add(more));
            }
        }
        let taken = |index: usize| takers[index].1.bytes();
        // Each of three hosts gets a quarter; the host with two connections took more before the others came.
        for used in [taken(0) + taken(1), taken(2), taken(3)] {
            assert!((TOTAL / 5..=TOTAL * 3 / 8).contains(&used), "{used}");
        }
        let new = budget.share(host(4), wake).charge(TOTAL / 8);
        assert!(new.is_some(), "a host that comes anew gets something");
        drop((takers, new));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_host_that_has_its_part_still_gets_small_buffers() {
        const TOTAL: usize = 1 << 20;
        let budget = Budget::new(TOTAL);
        let wake: Arc<dyn Wake> = Arc::new(Counting::default());
        let all_of = |share: &Arc<Share>, bytes| -> Vec<Charge> {
            std::iter::from_fn(|| share.charge(bytes)).collect()
        };
        let greedy = budget.share(host(1), Arc::clone(&wake));
        let _long = all_of(&greedy, TOTAL / 16);
        let new = budget.share(host(1), Arc::clone(&wake));
        assert!(new.charge(TOTAL / 16).is_none() && new.charge(SMALL_BYTES).is_some());
        // Small buffers alone leave a third to others.
        let _short = all_of(&new, SMALL_BYTES);
        assert!(
            budget.used() <= TOTAL * 2 / 3 + SMALL_BYTES,
            "{}",
            budget.used()
        );
    }

    /// Each takes more than half, many times at once: as long as nothing is taken, one of them gets it.
    #[test]
    fn attempts_at_the_same_time_do_not_refuse_each_other() {
        const ROUNDS: usize = 20_000;
        let budget = Budget::new(100);
        let got = [1, 2].map(|number| {
            let share = budget.share(host(number), Arc::new(Counting::default()) as Arc<dyn Wake>);
            std::thread::spawn(move || {
                let mut got = 0;
                for _ in 0..ROUNDS {
                    // Refused only where the other one has it, and then the other one has counted it.
                    let _charge = loop {
                        match share.take(60) {
                            Some(charge) => break charge,
                            None if share.budget.used() == 0 => {}
                            None => std::thread::yield_now(),
                        }
                    };
                    got += 1;
                }
                got
            })
        });
        assert_eq!(got.map(|thread| thread.join().unwrap()), [ROUNDS; 2]);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_waiting_connection_is_woken_once_when_memory_returns() {
        let budget = Budget::new(100);
        let counting = Arc::new(Counting::default());
        let one = budget.share(host(1), Arc::new(Counting::default()));
        let other = budget.share(host(2), Arc::clone(&counting) as Arc<dyn Wake>);
        let mut taken = one.charge_anyway(100);
        assert!(other.charge(10).is_none() && other.charge(10).is_none());
        assert!(one.is_wanted() && !one.is_exceeded());
        taken.release(60);
        taken.release(10);
        assert_eq!(counting.0.load(Ordering::Relaxed), 1);
        let got = other.charge(10);
        assert!(got.is_some() && !one.is_wanted());
        taken.add(one.charge_anyway(100));
        assert!(one.is_exceeded() && other.charge(10).is_none());
        drop((one, taken));
        assert_eq!((counting.0.load(Ordering::Relaxed), budget.used()), (2, 10));
    }
}
