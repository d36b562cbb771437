//! Events by their time; those of one time in the order in which they were made.

use super::packet::Packet;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use fabric::Time;

/// What happens at a time.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// A packet arrives at a port.
    Arrive {
        node: usize,
        port: u8,
        packet: Box<Packet>,
    },
    /// The agents of a node have a packet that arrived at a port.
    Process {
        node: usize,
        port: u8,
        is_local: bool,
        packet: Box<Packet>,
    },
    /// A node sends an answer of its agents, by this port if the route names none.
    Answer {
        node: usize,
        port: u8,
        packet: Box<Packet>,
    },
    /// A link has been trained, if it has not gone down again since.
    Trained { link: usize, generation: u32 },
    /// A node repeats a trap that its manager has not repressed.
    RepeatTrap { node: usize, trap: u64 },
}

/// Events in order.
#[derive(Default, Debug)]
pub(super) struct Queue {
    events: BTreeMap<(Time, u64), Event>,
    made: u64,
}

impl Queue {
    pub(super) fn add(&mut self, at: Time, event: Event) {
        self.events.insert((at, self.made), event);
        self.made += 1;
    }

    pub(super) fn next(&self) -> Time {
        self.events
            .first_key_value()
            .map_or(Time::NEVER, |((at, _), _)| *at)
    }

    pub(super) fn take(&mut self) -> Option<(Time, Event)> {
        self.events.pop_first().map(|((at, _), event)| (at, event))
    }
}
