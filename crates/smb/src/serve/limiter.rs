//! Limits connections: in all, those without a session, and those without a session from one address, so that
//! unauthenticated clients cannot use up the memory of others, and one machine not the places of others.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::limits::{ADDRESS_UNAUTHENTICATED_MAX, CONNECTIONS_MAX, UNAUTHENTICATED_MAX};

/// The connections of all clients.
#[derive(Default, Debug)]
pub(super) struct Limiter(Mutex<Counts>);

#[derive(Default, Debug)]
struct Counts {
    connections: usize,
    unauthenticated: usize,
    /// Connections without a session, of each address that has one.
    addresses: HashMap<IpAddr, usize>,
}

/// An admitted connection; it counts until this is dropped.
#[derive(Debug)]
pub(super) struct Permit {
    limiter: Arc<Limiter>,
    address: IpAddr,
    is_unauthenticated: bool,
}

impl Limiter {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a connection without a session; `None` when a limit is reached.
    pub(super) fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Permit> {
        let address = address.to_canonical();
        let mut counts = self.lock();
        let same = counts.addresses.get(&address).copied().unwrap_or(0);
        if counts.connections >= CONNECTIONS_MAX
            || counts.unauthenticated >= UNAUTHENTICATED_MAX
            || same >= ADDRESS_UNAUTHENTICATED_MAX
        {
            return None;
        }
        counts.connections += 1;
        counts.unauthenticated += 1;
        counts.addresses.insert(address, same + 1);
        Some(Permit { limiter: Arc::clone(self), address, is_unauthenticated: true })
    }
}

impl Permit {
    /// Notes that the client has set up a session.
    pub(super) fn mark_authenticated(&mut self) {
        if !std::mem::take(&mut self.is_unauthenticated) {
            return;
        }
        let mut counts = self.limiter.lock();
        counts.unauthenticated -= 1;
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
        let mut permits: Vec<_> =
            (0..ADDRESS_UNAUTHENTICATED_MAX).map(|_| limiter.admit(address(1)).unwrap()).collect();
        assert!(limiter.admit(address(1)).is_none());
        assert!(limiter.admit(address(2)).is_some());
        permits[0].mark_authenticated();
        permits[0].mark_authenticated();
        permits.push(limiter.admit(address(1)).unwrap());
        assert!(limiter.admit(address(1)).is_none());
    }

    #[test]
    fn strangers_do_not_take_the_places_of_clients() {
        let limiter = Arc::new(Limiter::default());
        let mut permits: Vec<_> =
            (0..UNAUTHENTICATED_MAX).map(|number| limiter.admit(address(number % 200)).unwrap()).collect();
        assert!(limiter.admit(address(250)).is_none());
        while permits.len() < CONNECTIONS_MAX {
            permits.iter_mut().for_each(Permit::mark_authenticated);
            permits.push(limiter.admit(address(250)).unwrap());
        }
        permits.iter_mut().for_each(Permit::mark_authenticated);
        assert!(limiter.admit(address(250)).is_none());
        drop(permits);
        let counts = limiter.lock();
        assert_eq!((counts.connections, counts.unauthenticated, counts.addresses.len()), (0, 0, 0));
    }
}
