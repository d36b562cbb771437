//! Listeners that come back. Programs (perftest is one) close a listener and open the next one on the same
//! port, while their peer already asks for its next connection. Requests for a port that was closed a moment
//! ago wait for that; after it they are refused as any other.

use rnic::{Instant, Nanos};
use std::collections::VecDeque;
use wire::cm::{Req, ServiceId, SidrReq};
use wire::mad::{MAD_HEADER_SIZE, MadHeader};

/// How long a listener may be away.
const GRACE: Nanos = Nanos::from_millis(500);
/// Requests that wait; more are refused.
const HELD_MAX: usize = 256;
/// Closed listeners that are remembered.
const CLOSED_MAX: usize = 256;

/// What was closed, and what waits for it.
#[derive(Debug, Default)]
pub(super) struct Grace {
    closed: VecDeque<(ServiceId, Instant)>,
    held: VecDeque<Box<[u8]>>,
}

impl Grace {
    /// Nobody listens any more.
    pub(super) fn close(&mut self, service: ServiceId, now: Instant) {
        self.open(service);
        self.closed.push_back((service, now + GRACE));
        if self.closed.len() > CLOSED_MAX {
            self.closed.pop_front();
        }
    }

    /// Somebody listens again.
    pub(super) fn open(&mut self, service: ServiceId) {
        self.closed.retain(|(closed, _)| *closed != service);
    }

    /// Keeps a message when the datagram in it is a request that may still find a listener.
    pub(super) fn hold(&mut self, mad: &[u8], message: &[u8], now: Instant) -> bool {
        while self.closed.front().is_some_and(|(_, until)| *until <= now) {
            self.closed.pop_front();
        }
        if self.closed.is_empty() || self.held.len() >= HELD_MAX {
            return false;
        }
        let holds = service_of(mad).is_some_and(|service| self.closed.iter().any(|(it, _)| *it == service));
        if holds {
            self.held.push_back(message.into());
        }
        holds
    }

    /// When what waits has waited long enough.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let (_, until) = self.closed.front()?;
        (!self.held.is_empty()).then_some(*until)
    }

    /// What waited, to be handled as if it came now.
    pub(super) fn take(&mut self) -> VecDeque<Box<[u8]>> {
        std::mem::take(&mut self.held)
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
    fn a_request_waits_for_a_listener_that_was_closed_a_moment_ago() {
        let (mut grace, now) = (Grace::default(), Instant(1_000));
        let request = request(SERVICE);
        assert!(!grace.hold(&request, b"message", now), "nobody ever listened");
        grace.close(SERVICE, now);
        assert!(grace.hold(&request, b"message", now));
        assert_eq!(grace.next_timeout(), Some(now + GRACE));
        assert_eq!(grace.take().len(), 1);
        assert_eq!(grace.next_timeout(), None);
        grace.open(SERVICE);
        assert!(!grace.hold(&request, b"message", now), "somebody listens");
        grace.close(SERVICE, now);
        assert!(!grace.hold(&request, b"message", now + GRACE), "for a moment only");
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
