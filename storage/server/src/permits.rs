//! Limits connections per address, in all and unauthenticated ones, and the memory of unauthenticated ones,
//! so that one machine cannot use up the connections or the memory of others.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::{UnauthenticatedBudget, UnauthenticatedShare, source};

/// How many connections a server has at most.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// Connections of all addresses.
    pub connections: usize,
    /// Connections of one address.
    pub of_address: usize,
    /// Unauthenticated connections of one address.
    pub unauthenticated_of_address: usize,
}

/// Why a connection is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// A limit of connections or of memory is reached.
    Full,
    /// The limit of unauthenticated connections of the address is reached.
    Unauthenticated,
}

/// The connections of each address.
#[derive(Debug)]
pub struct ConnectionLimiter {
    limits: ConnectionLimits,
    counts: Mutex<Counts>,
    budget: Arc<UnauthenticatedBudget>,
}

#[derive(Debug, Default)]
struct Counts {
    addresses: HashMap<IpAddr, AddressCount>,
    /// Connections of each source: an IPv4 address, or the /64 of IPv6 addresses.
    sources: HashMap<IpAddr, usize>,
    connections: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct AddressCount {
    connections: usize,
    unauthenticated: usize,
}

/// An admitted connection; it counts until this is dropped.
#[derive(Debug)]
pub struct ConnectionPermit {
    limiter: Arc<ConnectionLimiter>,
    address: IpAddr,
    is_unauthenticated: bool,
    /// The memory of an unauthenticated host; `None` until the connection is confirmed, and for a host that
    /// is authenticated.
    memory: Option<Arc<UnauthenticatedShare>>,
    /// Bytes of it that [`ConnectionPermit::hold`] has charged.
    held: usize,
}

impl ConnectionLimiter {
    /// A limiter whose unauthenticated connections take memory of this budget.
    pub fn new(limits: ConnectionLimits, budget: Arc<UnauthenticatedBudget>) -> Arc<Self> {
        Arc::new(Self {
            limits,
            counts: Mutex::default(),
            budget,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a new, unauthenticated connection, or returns the reason for refusing it.
    pub fn admit(self: &Arc<Self>, address: IpAddr) -> Result<ConnectionPermit, Refusal> {
        let address = address.to_canonical();
        let mut counts = self.lock();
        let left = self.limits.connections.saturating_sub(counts.connections);
        let of_source = counts.sources.get(&source(address)).copied().unwrap_or(0);
        let of_address = counts.addresses.get(&address).copied().unwrap_or_default();
        // As for memory (`Budget`): one source gets at most half of all, each of n an (n + 1)th part.
        if of_address.connections >= self.limits.of_address || of_source >= left {
            return Err(Refusal::Full);
        }
        if of_address.unauthenticated >= self.limits.unauthenticated_of_address {
            return Err(Refusal::Unauthenticated);
        }
        counts.connections += 1;
        *counts.sources.entry(source(address)).or_default() += 1;
        let count = counts.addresses.entry(address).or_default();
        count.connections += 1;
        count.unauthenticated += 1;
        let limiter = Arc::clone(self);
        Ok(ConnectionPermit {
            limiter,
            address,
            is_unauthenticated: true,
            memory: None,
            held: 0,
        })
    }
}

impl ConnectionPermit {
    /// Charges the memory of the connection to the budget of unauthenticated hosts, or returns the reason for
    /// closing it. Waits up to `patience` for displaced connections to end.
    pub fn charge(&mut self, bytes: usize, patience: Duration) -> Result<(), Refusal> {
        let memory = self
            .limiter
            .budget
            .admit_within(self.address, bytes, patience)
            .ok_or(Refusal::Full)?;
        self.memory = Some(Arc::new(memory));
        Ok(())
    }

    /// The memory of an unauthenticated host, for buffers of its connection.
    pub fn memory(&self) -> Option<&Arc<UnauthenticatedShare>> {
        self.memory.as_ref()
    }

    /// Whether another unauthenticated connection needs the memory of this one.
    pub fn is_displaced(&self) -> bool {
        self.memory
            .as_ref()
            .is_some_and(|memory| memory.is_displaced())
    }

    /// Notes how many bytes an unauthenticated host holds beside those that were charged: in queues, receives
    /// and sends. `false` when there are not as many for it.
    #[must_use]
    pub fn hold(&mut self, bytes: usize) -> bool {
        let Some(share) = &self.memory else {
            return true;
        };
        if bytes > self.held && !share.grow(bytes - self.held) {
            return false;
        }
        share.shrink(self.held.saturating_sub(bytes));
        self.held = bytes;
        true
    }

    /// Notes that the host is authenticated; returns whether it was not before.
    pub fn mark_authenticated(&mut self) -> bool {
        if !self.is_unauthenticated {
            return false;
        }
        self.is_unauthenticated = false;
        self.memory = None;
        if let Some(count) = self.limiter.lock().addresses.get_mut(&self.address) {
            count.unauthenticated = count.unauthenticated.saturating_sub(1);
        }
        true
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut counts = self.limiter.lock();
        counts.connections = counts.connections.saturating_sub(1);
        let source = source(self.address);
        if let Some(count) = counts.sources.get_mut(&source) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                counts.sources.remove(&source);
            }
        }
        let Some(count) = counts.addresses.get_mut(&self.address) else {
            return;
        };
        count.connections = count.connections.saturating_sub(1);
        count.unauthenticated = count
            .unauthenticated
            .saturating_sub(usize::from(self.is_unauthenticated));
        if count.connections == 0 {
            counts.addresses.remove(&self.address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONNECTIONS_MAX: usize = 8192;
    const ADDRESS_CONNECTIONS_MAX: usize = CONNECTIONS_MAX / 4;
    const UNAUTHENTICATED_MAX: usize = 256;
    const UNAUTHENTICATED_BYTES: usize = 64 << 20;
    const CONNECTION_BYTES: usize = 64 << 10;

    const LIMITS: ConnectionLimits = ConnectionLimits {
        connections: CONNECTIONS_MAX,
        of_address: ADDRESS_CONNECTIONS_MAX,
        unauthenticated_of_address: UNAUTHENTICATED_MAX,
    };

    fn limiter() -> Arc<ConnectionLimiter> {
        ConnectionLimiter::new(LIMITS, UnauthenticatedBudget::new(UNAUTHENTICATED_BYTES))
    }

    fn v4(number: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, number])
    }

    #[test]
    fn each_address_has_its_own_limits() {
        let limiter = limiter();
        let (one, other) = (v4(1), v4(2));
        let mut permits: Vec<_> = (0..UNAUTHENTICATED_MAX)
            .map(|_| limiter.admit(one).unwrap())
            .collect();
        assert_eq!(limiter.admit(one).unwrap_err(), Refusal::Unauthenticated);
        assert!(limiter.admit(other).is_ok());
        assert!(permits[0].mark_authenticated() && !permits[0].mark_authenticated());
        permits.push(limiter.admit(one).unwrap());
        while permits.len() < ADDRESS_CONNECTIONS_MAX {
            permits.last_mut().unwrap().mark_authenticated();
            permits.push(limiter.admit(one).unwrap());
        }
        assert_eq!(limiter.admit(one).unwrap_err(), Refusal::Full);
        drop(permits);
        let counts = limiter.lock();
        assert_eq!(
            (
                counts.connections,
                counts.addresses.len(),
                counts.sources.len()
            ),
            (0, 0, 0)
        );
    }

    /// Opens authenticated connections from these addresses in turn, until each is refused.
    fn fill(limiter: &Arc<ConnectionLimiter>, addresses: &[IpAddr]) -> Vec<ConnectionPermit> {
        let mut permits = Vec::new();
        loop {
            let before = permits.len();
            for mut permit in addresses
                .iter()
                .filter_map(|address| limiter.admit(*address).ok())
            {
                permit.mark_authenticated();
                permits.push(permit);
            }
            if permits.len() == before {
                return permits;
            }
        }
    }

    #[test]
    fn connections_of_four_addresses_do_not_lock_out_a_fifth() {
        let limiter = limiter();
        let permits = fill(&limiter, &[1, 2, 3, 4].map(v4));
        assert!(permits.len() < CONNECTIONS_MAX && limiter.admit(v4(1)).is_err());
        assert!(fill(&limiter, &[v4(5)]).len() > CONNECTIONS_MAX / 12);
        assert!(limiter.admit(v4(6)).is_ok());
    }

    #[test]
    fn addresses_of_one_ipv6_network_share_a_limit() {
        let limiter = limiter();
        let network = |host| IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, host]);
        let permits = fill(&limiter, &(0..64).map(network).collect::<Vec<_>>());
        assert_eq!(permits.len(), CONNECTIONS_MAX / 2);
        assert!(limiter.admit(network(999)).is_err() && limiter.admit(v4(1)).is_ok());
    }

    /// Four addresses with as many connections as they may have, and a fifth one.
    #[test]
    fn unauthenticated_connections_of_four_addresses_do_not_keep_out_a_fifth() {
        const HELD: usize = 72 << 10;
        let limiter = limiter();
        let mut permits: Vec<ConnectionPermit> = Vec::new();
        let open = |permits: &mut Vec<ConnectionPermit>, number: u8| {
            let mut permit = limiter.admit(v4(number)).expect("fewer than it may have");
            let is_charged =
                permit.charge(CONNECTION_BYTES, Duration::ZERO).is_ok() && permit.hold(HELD);
            permits.extend(is_charged.then_some(permit));
            permits.retain(|permit| !permit.is_displaced());
            assert!(limiter.budget.used() <= UNAUTHENTICATED_BYTES);
            is_charged
        };
        for number in 0..4 * UNAUTHENTICATED_MAX {
            open(&mut permits, number as u8 % 4);
        }
        for _ in 0..10 {
            assert!(open(&mut permits, 9));
        }
        for number in 0..200 {
            open(&mut permits, number % 4);
        }
        let of_fifth = permits
            .iter()
            .filter(|permit| permit.address == v4(9))
            .count();
        assert_eq!(of_fifth, 10, "the others give way to each other");
    }

    #[test]
    fn a_connection_holds_what_it_says_and_no_more_than_there_is() {
        let limiter = limiter();
        let mut permit = limiter.admit(v4(1)).unwrap();
        permit.charge(CONNECTION_BYTES, Duration::ZERO).unwrap();
        let share = Arc::clone(permit.memory().unwrap());
        assert!(permit.hold(10_000) && permit.hold(2000));
        assert_eq!(share.bytes(), CONNECTION_BYTES + 2000);
        assert!(!permit.hold(UNAUTHENTICATED_BYTES));
        assert!(share.leaves_half(1 << 20) && !share.leaves_half(UNAUTHENTICATED_BYTES / 2));
        assert!(permit.mark_authenticated() && permit.hold(UNAUTHENTICATED_BYTES));
        let used = limiter.budget.used();
        assert_eq!(used, CONNECTION_BYTES + 2000, "the share has another owner");
        drop(share);
        assert_eq!(limiter.budget.used(), 0);
    }

    #[test]
    fn the_memory_of_unauthenticated_connections_is_limited() {
        let limiter = limiter();
        let mut permits: Vec<ConnectionPermit> = Vec::new();
        for number in 0..2 * UNAUTHENTICATED_BYTES / CONNECTION_BYTES {
            permits.retain(|permit| !permit.is_displaced());
            let mut permit = limiter.admit(v4((number % 200) as u8)).unwrap();
            permit.charge(CONNECTION_BYTES, Duration::ZERO).unwrap();
            assert!(limiter.budget.used() <= UNAUTHENTICATED_BYTES);
            permits.push(permit);
        }
        assert!(permits.len() < UNAUTHENTICATED_BYTES / CONNECTION_BYTES);
        permits
            .iter_mut()
            .for_each(|permit| assert!(permit.mark_authenticated()));
        assert_eq!(
            limiter.budget.used(),
            0,
            "authenticated hosts take nothing of it"
        );
    }
}
