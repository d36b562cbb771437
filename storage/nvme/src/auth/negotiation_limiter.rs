//! Limits the processor time of Diffie-Hellman exchanges: an unauthenticated host makes the controller
//! compute two powers of 2048 to 8192 bits, so negotiations that do not end in authentication are limited per
//! address, and few are computed at the same time.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use server::source;

use crate::limits::{NEGOTIATIONS_MAX, NEGOTIATIONS_PER_SECOND};

/// Nanoseconds after which an address may begin one more negotiation.
const EACH_NS: u64 = 1_000_000_000 / NEGOTIATIONS_PER_SECOND as u64;
/// Sources in the table; those with their full number of negotiations are removed first, then the one that
/// gets it soonest.
const ADDRESSES_MAX: usize = 4096;

/// A token bucket of negotiations per address, or per /64 of IPv6, and a limit of computations at once.
#[derive(Debug)]
pub(crate) struct NegotiationLimiter {
    /// The time in nanoseconds at which the bucket of each address is full again.
    addresses: Mutex<HashMap<IpAddr, u64>>,
    running: Mutex<usize>,
    ended: Condvar,
    running_max: usize,
}

impl Default for NegotiationLimiter {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let (addresses, running, ended) = (Mutex::default(), Mutex::default(), Condvar::new());
        Self {
            addresses,
            running,
            ended,
            running_max: (processors / 2).max(1),
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl NegotiationLimiter {
    /// Takes a negotiation from the bucket of an address; `false` when the bucket is empty.
    pub(crate) fn begin(&self, address: IpAddr, now_ns: u64) -> bool {
        let address = source(address);
        let mut addresses = locked(&self.addresses);
        let full_ns = addresses.get(&address).copied().unwrap_or(0).max(now_ns) + EACH_NS;
        if full_ns - now_ns > u64::from(NEGOTIATIONS_MAX) * EACH_NS {
            return false;
        }
        if addresses.len() >= ADDRESSES_MAX && !addresses.contains_key(&address) {
            addresses.retain(|_, full_ns| *full_ns > now_ns);
        }
        if addresses.len() >= ADDRESSES_MAX && !addresses.contains_key(&address) {
            let soonest = addresses
                .iter()
                .min_by_key(|(_, full_ns)| **full_ns)
                .map(|(address, _)| *address);
            soonest.map(|address| addresses.remove(&address));
        }
        addresses.insert(address, full_ns);
        true
    }

    /// Returns the negotiation to the bucket: it ended with an authenticated host.
    pub(crate) fn authenticated(&self, address: IpAddr) {
        if let Some(full_ns) = locked(&self.addresses).get_mut(&source(address)) {
            *full_ns = full_ns.saturating_sub(EACH_NS);
        }
    }

    /// Runs a computation, after waiting until fewer than half of the processors run one.
    pub(crate) fn run<T>(&self, compute: impl FnOnce() -> T) -> T {
        struct Running<'a>(&'a NegotiationLimiter);
        impl Drop for Running<'_> {
            fn drop(&mut self) {
                *locked(&self.0.running) -= 1;
                self.0.ended.notify_one();
            }
        }
        let mut running = locked(&self.running);
        while *running >= self.running_max {
            running = self
                .ended
                .wait(running)
                .unwrap_or_else(PoisonError::into_inner);
        }
        *running += 1;
        drop(running);
        let _running = Running(self);
        compute()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_negotiations_are_counted_by_address() {
        let limiter = NegotiationLimiter::default();
        let [one, other] = [1, 2].map(|number| IpAddr::from([192, 0, 2, number]));
        assert_eq!(
            (0..1000).filter(|_| limiter.begin(one, 5)).count(),
            NEGOTIATIONS_MAX as usize
        );
        assert!(limiter.begin(other, 5));
        limiter.authenticated(one);
        assert!(limiter.begin(one, 5) && !limiter.begin(one, 5));
        let later_ns = 5 + 3 * EACH_NS;
        assert_eq!(
            (0..1000).filter(|_| limiter.begin(one, later_ns)).count(),
            3
        );
        // A host that authenticates each time has no limit.
        let goes_on = (0..1000).all(|_| {
            let may = limiter.begin(other, 5);
            limiter.authenticated(other);
            may
        });
        assert!(goes_on);
    }

    #[test]
    fn many_addresses_keep_no_other_one_out() {
        let limiter = NegotiationLimiter::default();
        for number in 0..3 * ADDRESSES_MAX as u32 {
            assert!(limiter.begin(std::net::Ipv4Addr::from(0x0a00_0000 + number).into(), 5));
        }
        assert!(limiter.begin([192, 0, 2, 1].into(), 5));
        assert!(locked(&limiter.addresses).len() <= ADDRESSES_MAX);
        let of_network = |host| IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, host]);
        let begun = (0..1000)
            .filter(|host| limiter.begin(of_network(*host), 5))
            .count();
        assert_eq!(begun, NEGOTIATIONS_MAX as usize, "a /64 is one source");
    }

    #[test]
    fn computations_at_once_are_limited() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let limiter = NegotiationLimiter {
            running_max: 2,
            ..NegotiationLimiter::default()
        };
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    limiter.run(|| {
                        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::yield_now();
                        now.fetch_sub(1, Ordering::SeqCst);
                    });
                });
            }
        });
        assert!((1..=2).contains(&most.into_inner()));
        assert_eq!(*locked(&limiter.running), 0);
    }
}
