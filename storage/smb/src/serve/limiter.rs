//! Limits connections: in all, and those of one address that have not authenticated; and the memory of all
//! that have not. When that memory is used up, the oldest connection of the source with the most memory gives
//! way: a few addresses cannot keep another one out.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use server::UnauthenticatedBudget;

use crate::limits::{
    ADDRESS_UNAUTHENTICATED_MAX, CONNECTION_BYTES, CONNECTIONS_MAX, HALF_OPEN_MAX,
    UNAUTHENTICATED_BYTES,
};
use crate::memory::Unauthenticated;

/// The connections of all clients.
#[derive(Debug)]
pub(super) struct Limiter {
    counts: Mutex<Counts>,
    budget: Arc<UnauthenticatedBudget>,
}

#[derive(Default, Debug)]
struct Counts {
    connections: usize,
    /// Unauthenticated connections of each address that has one.
    addresses: HashMap<IpAddr, usize>,
}

/// An admitted connection; it counts until this is dropped.
#[derive(Debug)]
pub(super) struct Permit {
    limiter: Arc<Limiter>,
    address: IpAddr,
    is_unauthenticated: bool,
    /// The memory of a confirmed connection that has not authenticated.
    memory: Option<Unauthenticated>,
    /// Bytes of it that [`Permit::hold`] has charged.
    held: usize,
}

impl Default for Limiter {
    fn default() -> Self {
        // Half-open connections have no address that is known to be true: they have a part of their own.
        let bytes = UNAUTHENTICATED_BYTES - HALF_OPEN_MAX * CONNECTION_BYTES;
        Self {
            counts: Mutex::default(),
            budget: UnauthenticatedBudget::new(bytes),
        }
    }
}

impl Limiter {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of unauthenticated clients, without half-open connections.
    pub(super) fn unauthenticated_bytes(&self) -> usize {
        self.budget.used()
    }

    /// Admits a connection without a session; `None` when a limit is reached.
    pub(super) fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Permit> {
        let address = address.to_canonical();
        let mut counts = self.lock();
        let same = counts.addresses.get(&address).copied().unwrap_or(0);
        if counts.connections >= CONNECTIONS_MAX || same >= ADDRESS_UNAUTHENTICATED_MAX {
            return None;
        }
        counts.connections += 1;
        counts.addresses.insert(address, same + 1);
        let limiter = Arc::clone(self);
        Some(Permit {
            limiter,
            address,
            is_unauthenticated: true,
            memory: None,
            held: 0,
        })
    }
}

impl Permit {
    /// Charges what a confirmed connection costs; `None` when the memory of unauthenticated clients is used
    /// up, and no other one can give way.
    pub(super) fn charge(&mut self) -> Option<Unauthenticated> {
        let budget = Arc::clone(&self.limiter.budget);
        let share = Arc::new(budget.admit(self.address, CONNECTION_BYTES)?);
        self.memory = Some(Unauthenticated { budget, share });
        self.memory.clone()
    }

    /// Whether another client needs the memory of this one.
    pub(super) fn is_displaced(&self) -> bool {
        self.memory
            .as_ref()
            .is_some_and(|memory| memory.share.is_displaced())
    }

    /// Notes how many bytes the connection holds in queues, receives and sends; `false` when there are not as
    /// many for it.
    #[must_use]
    pub(super) fn hold(&mut self, bytes: usize) -> bool {
        let Some(Unauthenticated { share, .. }) = &self.memory else {
            return true;
        };
        if bytes > self.held && !share.grow(bytes - self.held) {
            return false;
        }
        share.shrink(self.held.saturating_sub(bytes));
        self.held = bytes;
        true
    }

    /// Whether `bytes` more leave half of the memory to others.
    pub(super) fn is_affordable(&self, bytes: usize) -> bool {
        self.memory
            .as_ref()
            .is_none_or(|memory| memory.leaves_half(bytes))
    }

    /// Notes that the client has authenticated.
    pub(super) fn mark_authenticated(&mut self) {
        if !std::mem::take(&mut self.is_unauthenticated) {
            return;
        }
        self.memory = None;
        let mut counts = self.limiter.lock();
        let left = counts.addresses.get_mut(&self.address).map(|count| {
            *count -= 1;
            *count
        });
        if left == Some(0) {
            counts.addresses.remove(&self.address);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.mark_authenticated();
        self.limiter.lock().connections -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: usize) -> IpAddr {
        IpAddr::from([192, 0, 2, number as u8])
    }

    #[test]
    fn one_address_does_not_take_the_places_of_others() {
        let limiter = Arc::new(Limiter::default());
        let mut permits: Vec<_> = (0..ADDRESS_UNAUTHENTICATED_MAX)
            .map(|_| limiter.admit(address(1)).unwrap())
            .collect();
        assert!(limiter.admit(address(1)).is_none());
        assert!(limiter.admit(address(2)).is_some());
        permits[0].mark_authenticated();
        permits[0].mark_authenticated();
        permits.push(limiter.admit(address(1)).unwrap());
        assert!(limiter.admit(address(1)).is_none());
    }

    /// Four addresses with as many connections as they may have, and a fifth one.
    #[test]
    fn several_addresses_do_not_keep_another_one_out() {
        let limiter = Arc::new(Limiter::default());
        let mut permits: Vec<Permit> = Vec::new();
        let open = |permits: &mut Vec<Permit>, number: usize| {
            let mut permit = limiter
                .admit(address(number))
                .expect("fewer than one address may have");
            let is_charged = permit.charge().is_some() && permit.hold(72 << 10);
            permits.extend(is_charged.then_some(permit));
            permits.retain(|permit| !permit.is_displaced());
            assert!(
                limiter.unauthenticated_bytes() + HALF_OPEN_MAX * CONNECTION_BYTES
                    <= UNAUTHENTICATED_BYTES
            );
            is_charged
        };
        for number in 0..4 * ADDRESS_UNAUTHENTICATED_MAX {
            open(&mut permits, number % 4);
        }
        for _ in 0..10 {
            assert!(open(&mut permits, 9));
        }
        for number in 0..200 {
            open(&mut permits, number % 4);
        }
        let of_fifth = permits
            .iter()
            .filter(|permit| permit.address == address(9))
            .count();
        assert_eq!(of_fifth, 10, "the others give way to each other");
        permits.iter_mut().for_each(Permit::mark_authenticated);
        assert_eq!(limiter.unauthenticated_bytes(), 0);
        drop(permits);
        let counts = limiter.lock();
        assert_eq!((counts.connections, counts.addresses.len()), (0, 0));
    }

    #[test]
    fn a_connection_holds_what_it_says_and_no_more_than_there_is() {
        let limiter = Arc::new(Limiter::default());
        let mut permit = limiter.admit(address(1)).unwrap();
        let Unauthenticated { share, .. } = permit.charge().unwrap();
        assert!(permit.hold(10_000) && permit.hold(2000));
        assert_eq!(share.bytes(), CONNECTION_BYTES + 2000);
        assert!(!permit.hold(UNAUTHENTICATED_BYTES));
        assert!(permit.is_affordable(1 << 20) && !permit.is_affordable(UNAUTHENTICATED_BYTES / 2));
        permit.mark_authenticated();
        assert!(permit.hold(UNAUTHENTICATED_BYTES) && permit.is_affordable(usize::MAX));
        assert_eq!(
            limiter.unauthenticated_bytes(),
            CONNECTION_BYTES + 2000,
            "the share has another owner"
        );
        drop(share);
        assert_eq!(limiter.unauthenticated_bytes(), 0);
    }
}
