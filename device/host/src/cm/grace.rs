//! Grace period of closed listeners. Programs such as perftest close a listener and open the next one on the
//! same port a second later, while the peer already requests its next connection. A request for a port whose
//! listener was closed lately is held for a moment, and refused afterwards. The next listener may be of
//! another port space: perftest exchanges parameters over a connection, and then listens for datagrams.
//! A request for a port whose listener is being opened, while the agent is asked, is held as well.

use rnic::{Instant, Nanos};
use std::collections::{HashMap, VecDeque};
use wire::cm::{Req, ServiceId, SidrReq};
use wire::mad::{MAD_HEADER_SIZE, MadHeader};

/// Time for which a closed listener is remembered. perftest takes one second and the time to allocate its
/// buffers.
const MEMORY: Nanos = Nanos::from_millis(5_000);
/// Time for which a request is held.
const HELD_FOR: Nanos = Nanos::from_millis(1_000);
/// Limit of held requests; further ones are refused.
const HELD_MAX: usize = 256;
/// Limit of remembered closed listeners.
const CLOSED_MAX: usize = 256;

/// A request that is held.
#[derive(Debug)]
struct Held {
    service: ServiceId,
    until: Instant,
    message: Box<[u8]>,
}

/// Listeners that were closed lately, and the requests that are held for them.
#[derive(Debug, Default)]
pub(super) struct Grace {
    closed: VecDeque<(ServiceId, Instant)>,
    held: VecDeque<Held>,
    /// Services whose listeners are being opened.
    opening: Vec<ServiceId>,
    /// Number of open listeners of a service, which may be on several addresses.
    open: HashMap<ServiceId, u32>,
}

impl Grace {
    /// Records that a listener was closed.
    pub(super) fn close(&mut self, service: ServiceId, now: Instant) {
        if let Some(count) = self.open.get_mut(&service) {
            *count -= 1;
            if *count == 0 {
                self.open.remove(&service);
            }
        }
        self.closed.retain(|(closed, _)| *closed != service);
        self.closed.push_back((service, now + MEMORY));
        if self.closed.len() > CLOSED_MAX {
            self.closed.pop_front();
        }
    }

    /// Records that a listener is being opened, until [`Self::decide`].
    pub(super) fn expect(&mut self, service: ServiceId) {
        self.opening.push(service);
    }

    /// Records that a listener was opened, or that opening failed.
    pub(super) fn decide(&mut self, service: ServiceId) {
        if let Some(place) = self.opening.iter().position(|opening| *opening == service) {
            self.opening.swap_remove(place);
        }
    }

    /// Records that a listener was opened.
    pub(super) fn open(&mut self, service: ServiceId) {
        self.closed.retain(|(closed, _)| *closed != service);
        *self.open.entry(service).or_default() += 1;
    }

    /// Holds a message if its datagram is a request whose listener may come back.
    pub(super) fn hold(&mut self, mad: &[u8], message: &[u8], now: Instant) -> bool {
        while self.closed.front().is_some_and(|(_, until)| *until <= now) {
            self.closed.pop_front();
        }
        let none_is_away = self.closed.is_empty() && self.opening.is_empty();
        if none_is_away || self.held.len() >= HELD_MAX {
            return false;
        }
        let Some(service) = service_of(mad).filter(|service| self.is_away(*service)) else {
            return false;
        };
        self.held.push_back(Held {
            service,
            until: now + HELD_FOR,
            message: message.into(),
        });
        true
    }

    /// Whether there is no listener, but one was closed lately or is being opened.
    fn is_away(&self, service: ServiceId) -> bool {
        let port = |service: ServiceId| service.port().map(|(_, port)| port);
        let may_become =
            |it: ServiceId| it == service || port(it).is_some_and(|it| port(service) == Some(it));
        let was_closed = || self.closed.iter().any(|(it, _)| may_become(*it));
        self.opening.contains(&service) || (!self.open.contains_key(&service) && was_closed())
    }

    /// Time at which the oldest held request is refused.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.held.front().map(|held| held.until)
    }

    /// Takes the held requests whose listener is open now, or whose time is over.
    pub(super) fn take(&mut self, now: Instant) -> Vec<Box<[u8]>> {
        let (open, opening, mut taken) = (&self.open, &self.opening, Vec::new());
        let is_there =
            |service: &ServiceId| open.contains_key(service) && !opening.contains(service);
        self.held.retain_mut(|held| {
            let goes = held.until <= now || is_there(&held.service);
            if goes {
                taken.push(std::mem::take(&mut held.message));
            }
            !goes
        });
        taken
    }
}

/// The service that a request names: REQ and SIDR_REQ have it at the same offset.
fn service_of(mad: &[u8]) -> Option<ServiceId> {
    let header = MadHeader::parse(mad.first_chunk::<MAD_HEADER_SIZE>()?);
    let data = mad.get(MAD_HEADER_SIZE..)?.try_into().ok()?;
    match header.attribute {
        0x10 => Some(Req::parse(data).service_id),
        0x17 => Some(SidrReq::parse(data).service_id),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::cm::{CmMad, PortSpace};

    const SERVICE: ServiceId = ServiceId::ip(PortSpace::Tcp, 7);

    fn request(service: ServiceId) -> [u8; wire::mad::MAD_SIZE] {
        let message = Req {
            service_id: service,
            ..Req::default()
        }
        .into();
        CmMad {
            transaction: 1,
            modifier: 0,
            message,
        }
        .to_bytes()
    }

    #[test]
    fn a_request_waits_for_a_listener_that_was_closed_lately() {
        let (mut grace, now) = (Grace::default(), Instant(1_000));
        let request = request(SERVICE);
        assert!(
            !grace.hold(&request, b"message", now),
            "there never was a listener"
        );
        grace.close(SERVICE, now);
        assert!(grace.hold(&request, b"message", now));
        assert_eq!(grace.next_timeout(), Some(now + HELD_FOR));
        assert!(grace.take(now).is_empty());
        assert_eq!(grace.take(now + HELD_FOR).len(), 1, "its time is over");
        assert_eq!(grace.next_timeout(), None);
        assert!(grace.hold(&request, b"message", now));
        grace.open(SERVICE);
        assert_eq!(grace.take(now).len(), 1, "there is a listener");
        assert!(
            !grace.hold(&request, b"message", now),
            "there is a listener"
        );
        grace.close(SERVICE, now);
        assert!(
            !grace.hold(&request, b"message", now + MEMORY),
            "the listener was closed too long ago"
        );
    }

    #[test]
    fn the_next_listener_may_be_of_another_port_space() {
        let (mut grace, now) = (Grace::default(), Instant(1_000));
        let (datagrams, other) = (
            ServiceId::ip(PortSpace::Udp, 7),
            ServiceId::ip(PortSpace::Udp, 8),
        );
        grace.open(SERVICE);
        grace.close(SERVICE, now);
        assert!(grace.hold(&request(datagrams), b"message", now));
        assert!(
            !grace.hold(&request(other), b"message", now),
            "another port"
        );
        grace.open(datagrams);
        assert!(
            !grace.hold(&request(datagrams), b"message", now),
            "there is a listener"
        );
        assert!(grace.hold(&request(SERVICE), b"message", now));
        assert_eq!(grace.take(now).len(), 1, "the other one is still held");
        assert_eq!(grace.open.len(), 1, "a closed listener is not counted");
    }

    #[test]
    fn a_request_waits_for_a_listener_that_is_being_opened() {
        let (mut grace, now) = (Grace::default(), Instant(1_000));
        let (wanted, other) = (request(SERVICE), request(ServiceId::ip(PortSpace::Tcp, 8)));
        grace.expect(SERVICE);
        assert!(grace.hold(&wanted, b"message", now));
        assert!(!grace.hold(&other, b"message", now), "another port");
        assert!(grace.take(now).is_empty());
        grace.decide(SERVICE);
        grace.open(SERVICE);
        assert_eq!(grace.take(now).len(), 1, "there is a listener");
        assert!(!grace.hold(&wanted, b"message", now), "there is a listener");
        // A second listener on another address, which the agent refuses.
        grace.expect(SERVICE);
        assert!(grace.hold(&wanted, b"message", now));
        assert!(grace.take(now).is_empty());
        grace.decide(SERVICE);
        assert_eq!(grace.take(now).len(), 1, "the first one takes it");
    }

    #[test]
    fn held_requests_are_bounded() {
        let (mut grace, now) = (Grace::default(), Instant(1_000));
        grace.close(SERVICE, now);
        let held = (0..2 * HELD_MAX)
            .filter(|_| grace.hold(&request(SERVICE), b"message", now))
            .count();
        assert_eq!(held, HELD_MAX);
        for port in 0..1000 {
            grace.close(ServiceId::ip(PortSpace::Udp, port), now);
        }
        assert_eq!(grace.closed.len(), CLOSED_MAX);
    }
}
