//! Limits connections per address, in all and unauthenticated ones, so that one machine cannot use up the
//! connections of others.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::End;
use crate::limits::{ADDRESS_CONNECTIONS_MAX, UNAUTHENTICATED_MAX};

/// The connections of each address.
#[derive(Debug, Default)]
pub(super) struct ConnectionLimiter {
    addresses: Mutex<HashMap<IpAddr, AddressCount>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct AddressCount {
    connections: usize,
    unauthenticated: usize,
}

/// An admitted connection; it counts until this is dropped.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    limiter: Arc<ConnectionLimiter>,
    address: IpAddr,
    is_unauthenticated: bool,
}

impl ConnectionLimiter {
    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, AddressCount>> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a new, unauthenticated connection, or returns the reason for refusing it.
    pub(super) fn admit(self: &Arc<Self>, address: IpAddr) -> Result<ConnectionPermit, End> {
        let address = address.to_canonical();
        let mut addresses = self.lock();
        let count = addresses.entry(address).or_default();
        if count.connections >= ADDRESS_CONNECTIONS_MAX {
            return Err(End::Full);
        }
        if count.unauthenticated >= UNAUTHENTICATED_MAX {
            return Err(End::Unauthenticated);
        }
        count.connections += 1;
        count.unauthenticated += 1;
        Ok(ConnectionPermit { limiter: Arc::clone(self), address, is_unauthenticated: true })
    }
}

impl ConnectionPermit {
    /// Notes that the host is authenticated; returns whether it was not before.
    pub(super) fn mark_authenticated(&mut self) -> bool {
        if !self.is_unauthenticated {
            return false;
        }
        self.is_unauthenticated = false;
        if let Some(count) = self.limiter.lock().get_mut(&self.address) {
            count.unauthenticated = count.unauthenticated.saturating_sub(1);
        }
        true
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut addresses = self.limiter.lock();
        let Some(count) = addresses.get_mut(&self.address) else { return };
        count.connections = count.connections.saturating_sub(1);
        count.unauthenticated = count.unauthenticated.saturating_sub(usize::from(self.is_unauthenticated));
        if count.connections == 0 {
            addresses.remove(&self.address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_has_its_own_limits() {
        let limiter = Arc::new(ConnectionLimiter::default());
        let (one, other) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let mut permits: Vec<_> = (0..UNAUTHENTICATED_MAX).map(|_| limiter.admit(one).unwrap()).collect();
        assert_eq!(limiter.admit(one).unwrap_err(), End::Unauthenticated);
        assert!(limiter.admit(other).is_ok());
        assert!(permits[0].mark_authenticated() && !permits[0].mark_authenticated());
        permits.push(limiter.admit(one).unwrap());
        while permits.len() < ADDRESS_CONNECTIONS_MAX {
            permits.last_mut().unwrap().mark_authenticated();
            permits.push(limiter.admit(one).unwrap());
        }
        assert_eq!(limiter.admit(one).unwrap_err(), End::Full);
        drop(permits);
        assert!(limiter.lock().is_empty());
    }
}
