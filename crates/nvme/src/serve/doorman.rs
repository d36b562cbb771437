//! Who may come in: so many connections from one address, so many of them strangers, so that no machine keeps
//! others out.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::End;
use crate::limits::{ADDRESS_CONNECTIONS_MAX, STRANGERS_MAX};

/// Connections by address.
#[derive(Debug, Default)]
pub(super) struct Doorman {
    addresses: Mutex<HashMap<IpAddr, Inside>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Inside {
    connections: usize,
    strangers: usize,
}

/// A connection that was let in, until it is dropped.
#[derive(Debug)]
pub(super) struct Guest<'a> {
    doorman: &'a Doorman,
    address: IpAddr,
    is_stranger: bool,
}

impl Doorman {
    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Inside>> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a stranger in, or says why not.
    pub(super) fn let_in(&self, address: IpAddr) -> Result<Guest<'_>, End> {
        let address = address.to_canonical();
        let mut addresses = self.lock();
        let inside = addresses.entry(address).or_default();
        if inside.connections >= ADDRESS_CONNECTIONS_MAX {
            return Err(End::Full);
        }
        if inside.strangers >= STRANGERS_MAX {
            return Err(End::Strangers);
        }
        inside.connections += 1;
        inside.strangers += 1;
        Ok(Guest { doorman: self, address, is_stranger: true })
    }
}

impl Guest<'_> {
    /// It has said who it is; whether that is news.
    pub(super) fn is_known_now(&mut self) -> bool {
        if !self.is_stranger {
            return false;
        }
        self.is_stranger = false;
        if let Some(inside) = self.doorman.lock().get_mut(&self.address) {
            inside.strangers = inside.strangers.saturating_sub(1);
        }
        true
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        let mut addresses = self.doorman.lock();
        let Some(inside) = addresses.get_mut(&self.address) else { return };
        inside.connections = inside.connections.saturating_sub(1);
        inside.strangers = inside.strangers.saturating_sub(usize::from(self.is_stranger));
        if inside.connections == 0 {
            addresses.remove(&self.address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_has_its_own_limits() {
        let doorman = Doorman::default();
        let (one, other) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let mut guests: Vec<_> = (0..STRANGERS_MAX).map(|_| doorman.let_in(one).unwrap()).collect();
        assert_eq!(doorman.let_in(one).unwrap_err(), End::Strangers);
        assert!(doorman.let_in(other).is_ok());
        assert!(guests[0].is_known_now() && !guests[0].is_known_now());
        guests.push(doorman.let_in(one).unwrap());
        while guests.len() < ADDRESS_CONNECTIONS_MAX {
            guests.last_mut().unwrap().is_known_now();
            guests.push(doorman.let_in(one).unwrap());
        }
        assert_eq!(doorman.let_in(one).unwrap_err(), End::Full);
        drop(guests);
        assert!(doorman.lock().is_empty());
    }
}
