//! Asynchronous events (Base 5.2): waiting requests, waiting events, and events that were reported and whose
//! log page was not read yet.

use std::collections::{BTreeSet, VecDeque};

use wire::nvme::feature::{self, events, health_status, notice};
use wire::nvme::log;

use crate::limits::{EVENT_REQUESTS_MAX, EVENTS_MAX};

/// A kind of event.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Event {
    /// Namespaces were added, removed or resized (Namespace Attribute Changed).
    Namespaces,
    /// The state of an ANA group changed.
    Ana,
    /// The discovery log page changed.
    Discovery,
    /// A reservation notification was recorded.
    Reservation,
    /// The temperature is beyond a threshold.
    Temperature,
}

impl Event {
    /// Dword 0 of the completion.
    const fn result(self) -> u64 {
        match self {
            Self::Namespaces => {
                feature::event(feature::NOTICE, notice::NAMESPACES, log::CHANGED_NAMESPACES)
            }
            Self::Ana => feature::event(feature::NOTICE, notice::ANA, log::ANA),
            Self::Discovery => feature::event(feature::NOTICE, notice::DISCOVERY, log::DISCOVERY),
            Self::Reservation => feature::event(feature::IO_COMMAND_SET, 0, log::RESERVATIONS),
            Self::Temperature => feature::event(
                feature::HEALTH_STATUS,
                health_status::TEMPERATURE,
                log::HEALTH,
            ),
        }
    }

    /// The bit in Asynchronous Event Configuration; reservations have a mask of their own.
    const fn switch(self) -> u32 {
        match self {
            Self::Namespaces => events::NAMESPACES,
            Self::Ana => events::ANA,
            Self::Discovery => events::DISCOVERY,
            Self::Reservation => u32::MAX,
            Self::Temperature => events::TEMPERATURE,
        }
    }

    /// The event that reading this log page clears.
    pub(crate) const fn of_page(page: u8) -> Option<Self> {
        match page {
            log::CHANGED_NAMESPACES => Some(Self::Namespaces),
            log::ANA => Some(Self::Ana),
            log::DISCOVERY => Some(Self::Discovery),
            log::RESERVATIONS => Some(Self::Reservation),
            log::HEALTH => Some(Self::Temperature),
            _ => None,
        }
    }
}

/// The requests, events and configuration of a controller.
#[derive(Debug, Default)]
pub(crate) struct Events {
    requests: VecDeque<u16>,
    waiting: VecDeque<Event>,
    told: BTreeSet<Event>,
    /// The enabled events: none until the host enables them (Base 5.27.1.8).
    pub(crate) enabled: u32,
}

impl Events {
    /// Adds a request; `false` when there are too many.
    pub(crate) fn request(&mut self, cid: u16) -> bool {
        let has_room = self.requests.len() < EVENT_REQUESTS_MAX;
        if has_room {
            self.requests.push_back(cid);
        }
        has_room
    }

    /// Removes the request with this CID; returns whether it existed.
    pub(crate) fn withdraw(&mut self, cid: u16) -> bool {
        let found = self.requests.iter().position(|waiting| *waiting == cid);
        found.and_then(|at| self.requests.remove(at)).is_some()
    }

    pub(crate) fn raise(&mut self, event: Event) {
        let is_on = self.enabled & event.switch() != 0 || event == Event::Reservation;
        if is_on && !self.waiting.contains(&event) && self.waiting.len() < EVENTS_MAX {
            self.waiting.push_back(event);
        }
    }

    /// Clears an event, because the host has read its log page: the next change is reported again.
    pub(crate) fn clear_event(&mut self, event: Event) {
        self.told.remove(&event);
    }

    /// Removes requests and events, and restores the default configuration.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }

    /// The next pair of a request and an event: CID and dword 0.
    pub(crate) fn next(&mut self) -> Option<(u16, u64)> {
        self.requests.front()?;
        let at = self
            .waiting
            .iter()
            .position(|event| !self.told.contains(event))?;
        let event = self.waiting.remove(at)?;
        self.told.insert(event);
        Some((self.requests.pop_front()?, event.result()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_reported_once_until_its_log_page_is_read() {
        let mut events = Events {
            enabled: events::NAMESPACES,
            ..Events::default()
        };
        events.raise(Event::Ana);
        events.raise(Event::Namespaces);
        assert_eq!(events.next(), None);
        assert!(events.request(1) && events.request(2));
        assert_eq!(events.next(), Some((1, 0x04_0002)));
        events.raise(Event::Namespaces);
        assert_eq!(events.next(), None);
        events.clear_event(Event::Namespaces);
        assert_eq!(events.next(), Some((2, 0x04_0002)));
    }

    #[test]
    fn requests_have_a_limit_and_can_be_withdrawn() {
        let mut events = Events::default();
        assert!((0..EVENT_REQUESTS_MAX as u16).all(|cid| events.request(cid)));
        assert!(!events.request(99));
        assert!(events.withdraw(1) && !events.withdraw(1));
        assert!(events.request(99));
    }
}
