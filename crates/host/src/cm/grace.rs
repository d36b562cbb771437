//! Listeners that come back. Programs (perftest is one) close a listener and open the next one on the same
//! port a second later, while their peer already asks for its next connection. A request for a port that was
//! closed lately waits for a moment; after it it is refused as any other. The next listener may be of another
//! port space: perftest exchanges what it has to say over a connection, and then listens for datagrams.

use rnic::{Instant, Nanos};
use std::collections::{HashMap, VecDeque};
use wire::cm::{Req, ServiceId, SidrReq};
use wire::mad::{MAD_HEADER_SIZE, MadHeader};

/// How long a closed listener is remembered. perftest is away for one second and what its buffers take.
const MEMORY: Nanos = Nanos::from_millis(5_000);
/// How long a request waits.
const PATIENCE: Nanos = Nanos::from_millis(1_000);
/// Requests that wait; more are refused.
const HELD_MAX: usize = 256;
/// Closed listeners that are remembered.
const CLOSED_MAX: usize = 256;

/// A request that waits.
#[derive(Debug)]
struct Held {
    service: ServiceId,
    until: Instant,
    message: Box<[u8]>,
}

/// What was closed, and what waits for it.
#[derive(Debug, Default)]
pub(super) struct Grace {
    closed: VecDeque<(ServiceId, Instant)>,
    held: VecDeque<Held>,
    /// How many listen: on several addresses, perhaps.
    open: HashMap<ServiceId, u32>,
}

impl Grace {
    /// Nobody listens any more.
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

    /// Somebody listens again.
    pub(super) fn open(&mut self, service: ServiceId) {
        self.closed.retain(|(closed, _)| *closed != service);
        *self.open.entry(service).or_default() += 1;
    }

    /// Keeps a message when the datagram in it is a request that may still find a listener.
    pub(super) fn hold(&mut self, mad: &[u8], message: &[u8], now: Instant) -> bool {
        while self.closed.front().is_some_and(|(_, until)| *until <= now) {
            self.closed.pop_front();
        }
        if self.closed.is_empty() || self.held.len() >= HELD_MAX {
            return false;
        }
        let Some(service) = service_of(mad).filter(|service| self.is_away(*service)) else { return false };
        self.held.push_back(Held { service, until: now + PATIENCE, message: message.into() });
        true
    }

    /// Whether nobody listens, but somebody may do so soon.
    fn is_away(&self, service: ServiceId) -> bool {
        let port = |service: ServiceId| service.port().map(|(_, port)| port);
        let may_become =
            |it: ServiceId| it == service || port(it).is_some_and(|it| port(service) == Some(it));
        !self.open.contains_key(&service) && self.closed.iter().any(|(it, _)| may_become(*it))
    }

    /// When what waits has waited long enough.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.held.front().map(|held| held.until)
    }

    /// What waits no longer: its listener is there, or it has waited long enough.
    pub(super) fn take(&mut self, now: Instant) -> Vec<Box<[u8]>> {
        let (open, mut taken) = (&self.open, Vec::new());
        self.held.retain_mut(|held| {
            let goes = held.until <= now || open.contains_key(&held.service);
            if goes {
                taken.push(std::mem::take(&mut held.message));
            }
            !goes
        });
        taken
    }
}

/// The service that a request asks for: REQ and SIDR_REQ have it in the same place.
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
        let message = Req { service_id: service, ..Req::default() }.into();
        CmMad { transaction: 1, modifier: 0, message }.to_bytes()
    }

    #[test]
    fn a_request_waits_for_a_listener_that_was_closed_lately() {
        let (mut grace, now) = (Grace::default(), Instant(1_000));
        let request = request(SERVICE);
        assert!(!grace.hold(&request, b"message", now), "nobody ever listened");
        grace.close(SERVICE, now);
        assert!(grace.hold(&request, b"message", now));
        assert_eq!(grace.next_timeout(), Some(now + PATIENCE));
        assert!(grace.take(now).is_empty());
        assert_eq!(grace.take(now + PATIENCE).len(), 1, "it has waited long enough");
        assert_eq!(grace.next_timeout(), None);
        assert!(grace.hold(&request, b"message", now));
        grace.open(SERVICE);
        assert_eq!(grace.take(now).len(), 1, "somebody listens");
        assert!(!grace.hold(&request, b"message", now), "somebody listens");
        grace.close(SERVICE, now);
        assert!(!grace.hold(&request, b"message", now + MEMORY), "for a moment only");
    }

    #[test]
    fn the_next_listener_may_be_of_another_port_space() {
        let (mut grace, now) = (Grace::default(), Instant(1_000));
        let (datagrams, other) = (ServiceId::ip(PortSpace::Udp, 7), ServiceId::ip(PortSpace::Udp, 8));
        grace.open(SERVICE);
        grace.close(SERVICE, now);
        assert!(grace.hold(&request(datagrams), b"message", now));
        assert!(!grace.hold(&request(other), b"message", now), "another port");
        grace.open(datagrams);
        assert!(!grace.hold(&request(datagrams), b"message", now), "somebody listens");
        assert!(grace.hold(&request(SERVICE), b"message", now));
        assert_eq!(grace.take(now).len(), 1, "the other one still waits");
        assert_eq!(grace.open.len(), 1, "who closed is forgotten");
    }

    #[test]
    fn no_more_wait_than_there_is_room_for() {
        let (mut grace, now) = (Grace::default(), Instant(1_000));
        grace.close(SERVICE, now);
        let held = (0..2 * HELD_MAX).filter(|_| grace.hold(&request(SERVICE), b"message", now)).count();
        assert_eq!(held, HELD_MAX);
        for port in 0..1000 {
            grace.close(ServiceId::ip(PortSpace::Udp, port), now);
        }
        assert_eq!(grace.closed.len(), CLOSED_MAX);
    }
}
