//! Listeners, and the choice of the listener for a request.

use super::config::CmConfig;
use super::request::{CmError, Listen, ListenAddress, ListenerId};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;
use wire::cm::ServiceId;

#[derive(Clone, Copy, Debug)]
struct Listener {
    listen: Listen,
    /// Requests that the owner has not taken yet.
    waiting: u32,
}

/// All listeners of the connection manager.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    by_id: BTreeMap<ListenerId, Listener>,
    /// Listeners of each service, in the order of creation.
    by_service: BTreeMap<ServiceId, Vec<ListenerId>>,
    next: u32,
}

/// Result of matching a request with the listeners.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Match {
    /// This listener takes it.
    Taken(ListenerId),
    /// A listener would take it, but its backlog is full.
    Full,
    /// No listener takes the request.
    Nobody,
}

impl Listeners {
    pub(super) fn add(&mut self, listen: Listen, config: &CmConfig) -> Result<ListenerId, CmError> {
        if self.by_id.len() >= config.listeners_max {
            return Err(CmError::Exhausted("listeners"));
        }
        let others = self.by_service.entry(listen.service).or_default();
        let same = |id: &ListenerId| {
            self.by_id
                .get(id)
                .is_some_and(|other| conflict(&other.listen.address, &listen.address))
        };
        if others.iter().any(same) {
            return Err(CmError::InUse);
        }
        while self.by_id.contains_key(&ListenerId(self.next)) {
            self.next = self.next.wrapping_add(1);
        }
        let id = ListenerId(self.next);
        self.next = self.next.wrapping_add(1);
        others.push(id);
        self.by_id.insert(id, Listener { listen, waiting: 0 });
        Ok(id)
    }

    pub(super) fn remove(&mut self, id: ListenerId) -> Result<(), CmError> {
        let listener = self.by_id.remove(&id).ok_or(CmError::NoSuchConnection)?;
        if let Some(others) = self.by_service.get_mut(&listener.listen.service) {
            others.retain(|other| *other != id);
            if others.is_empty() {
                self.by_service.remove(&listener.listen.service);
            }
        }
        Ok(())
    }

    /// The listener that takes a request for `service` at `address` (`None` where the service has no
    /// addresses), the most specific first. The request then waits until [`Self::taken`].
    pub(super) fn admit(&mut self, service: ServiceId, address: Option<IpAddr>) -> Match {
        let candidates = self
            .by_service
            .get(&service)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let takes = |id: &&ListenerId| {
            let listener = self.by_id.get(id);
            listener.is_some_and(|listener| match address {
                Some(address) => listener.listen.address.takes(address),
                None => true,
            })
        };
        let rank = |id: &&ListenerId| {
            self.by_id
                .get(id)
                .map(|it| particularity(&it.listen.address))
        };
        let Some(id) = candidates.iter().filter(takes).min_by_key(rank).copied() else {
            return Match::Nobody;
        };
        match self.by_id.get_mut(&id) {
            Some(listener) if listener.waiting < listener.listen.backlog => {
                listener.waiting += 1;
                Match::Taken(id)
            }
            Some(_) => Match::Full,
            None => Match::Nobody,
        }
    }

    /// Number of requests that wait at each listener. For tests.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (ListenerId, u32)> {
        self.by_id
            .iter()
            .map(|(id, listener)| (*id, listener.waiting))
    }

    /// Removes a request from the backlog of a listener.
    pub(super) fn taken(&mut self, id: ListenerId) {
        if let Some(listener) = self.by_id.get_mut(&id) {
            listener.waiting = listener.waiting.saturating_sub(1);
        }
    }
}

/// Whether two listeners of one service conflict. A listener for one address and one for any address do not:
/// the more specific one wins. The port table refuses the pair to programs that did not request it.
fn conflict(one: &ListenAddress, other: &ListenAddress) -> bool {
    particularity(one) == particularity(other) && one.overlaps(other)
}

/// Specificity: the lower, the fewer requests the listener takes.
const fn particularity(address: &ListenAddress) -> u8 {
    match address {
        ListenAddress::One(_) => 0,
        ListenAddress::AnyV4 | ListenAddress::AnyV6 => 1,
        ListenAddress::Any => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::cm::PortSpace;

    const SERVICE: ServiceId = ServiceId::ip(PortSpace::Tcp, 7);

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn listen(address: ListenAddress) -> Listen {
        Listen {
            service: SERVICE,
            address,
            backlog: 1,
        }
    }

    #[test]
    fn the_most_particular_takes_a_request() {
        let (config, mut listeners) = (CmConfig::default(), Listeners::default());
        let any = listeners.add(listen(ListenAddress::Any), &config).unwrap();
        let v4 = listeners
            .add(listen(ListenAddress::AnyV4), &config)
            .unwrap();
        let one = listeners
            .add(listen(ListenAddress::One(address("10.0.0.1"))), &config)
            .unwrap();
        assert_eq!(
            listeners.add(listen(ListenAddress::AnyV4), &config),
            Err(CmError::InUse)
        );
        assert_eq!(
            listeners.admit(SERVICE, Some(address("10.0.0.1"))),
            Match::Taken(one)
        );
        assert_eq!(
            listeners.admit(SERVICE, Some(address("10.0.0.1"))),
            Match::Full
        );
        assert_eq!(
            listeners.admit(SERVICE, Some(address("10.0.0.2"))),
            Match::Taken(v4)
        );
        assert_eq!(
            listeners.admit(SERVICE, Some(address("fe80::1"))),
            Match::Taken(any)
        );
        let other = ServiceId::ip(PortSpace::Udp, 7);
        assert_eq!(
            listeners.admit(other, Some(address("10.0.0.1"))),
            Match::Nobody
        );
        listeners.taken(one);
        assert_eq!(
            listeners.admit(SERVICE, Some(address("10.0.0.1"))),
            Match::Taken(one)
        );
        listeners.remove(one).unwrap();
        assert_eq!(listeners.remove(one), Err(CmError::NoSuchConnection));
        listeners.taken(v4);
        assert_eq!(
            listeners.admit(SERVICE, Some(address("10.0.0.1"))),
            Match::Taken(v4)
        );
        listeners.remove(any).unwrap();
        listeners.remove(v4).unwrap();
        assert_eq!(
            listeners.admit(SERVICE, Some(address("10.0.0.1"))),
            Match::Nobody
        );
        assert!(listeners.by_service.is_empty());
    }

    #[test]
    fn there_is_a_limit() {
        let config = CmConfig {
            listeners_max: 1,
            ..CmConfig::default()
        };
        let mut listeners = Listeners::default();
        listeners.add(listen(ListenAddress::Any), &config).unwrap();
        let more = listeners.add(listen(ListenAddress::AnyV6), &config);
        assert_eq!(more, Err(CmError::Exhausted("listeners")));
        assert_eq!(listeners.by_id.len(), 1);
    }
}
