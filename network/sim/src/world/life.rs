//! The life of one queue pair, as results have it.

use super::link_direction::TransportHeaders;
use super::scenario::Traced;
use fabric::{Drop, Span, Time};

/// Records that are kept at most, those of the earliest events.
pub const LIFE_MAX: usize = 1 << 17;

/// Where something happened.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LifePlace {
    /// The queue pair itself, at a host.
    Host(u32),
    /// The port that sends into a link, by the link's number in the topology and the direction.
    Port(u32, u8),
}

/// The reason why a packet did not arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    /// Bit errors on the link.
    Damaged,
    /// The link was down.
    Down,
    /// A switch dropped it.
    Dropped(Drop),
    /// A switch had trimmed it, and dropped what was left.
    DroppedHeaders(Drop),
    /// The receiving adapter had no room for it, or it was of another VLAN.
    Adapter,
}

/// An event in the life of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LifeEvent {
    /// The program posted a message; messages are counted from 0.
    Posted {
        /// From 0 in the order in which they were posted.
        message: u64,
    },
    /// A packet was put behind others.
    Enqueued {
        /// Bytes of its class that were before it.
        ahead_bytes: u32,
        /// Whether the other end of the link had stopped the queue.
        is_paused: bool,
    },
    /// A packet began to leave a port.
    Sent {
        /// When its last bit left.
        end: Time,
        /// Since it had arrived at the node of the port; none at the host that made it.
        waited: Option<Span>,
        /// This node marked it: the queue was long.
        marked: bool,
        /// The host had sent this sequence number before.
        again: bool,
    },
    /// A switch cut a packet to its headers: its queue was full.
    Trimmed {
        /// Bytes that are left of it.
        to_bytes: u32,
    },
    /// A packet did not reach the next node, or not the next queue.
    Lost(Loss),
    /// A packet reached a host.
    Arrived {
        /// With a mark of a switch.
        marked: bool,
        /// Without its payload, which a switch cut off.
        trimmed: bool,
    },
    /// The program took the completion of a message.
    Completed {
        /// From 0 in the order in which they were posted.
        message: u64,
    },
    /// The queue pair ended with an error.
    Failed,
    /// The other end of the link stopped a class of the port.
    Paused {
        /// The queue of the port that was meant.
        class: u8,
    },
    /// The class may send again.
    Resumed {
        /// The queue of the port that was meant.
        class: u8,
        /// For how long it could not.
        after: Span,
    },
}

/// The packet that a record is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LifePacket {
    /// The host that it is from.
    pub from: u32,
    /// What its transport says.
    pub headers: TransportHeaders,
    /// Bytes of payload.
    pub payload: u32,
}

/// One event in the life of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LifeRecord {
    /// The virtual time of it.
    pub at: Time,
    /// The host or port that it happened at.
    pub place: LifePlace,
    /// The change, with its figures.
    pub event: LifeEvent,
    /// The packet that it happened to.
    pub packet: Option<LifePacket>,
}

impl LifeRecord {
    /// Whether a port stopped or went on.
    pub(super) const fn is_of_pause(&self) -> bool {
        matches!(
            self.event,
            LifeEvent::Paused { .. } | LifeEvent::Resumed { .. }
        )
    }
}

/// The life of a queue pair.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Life {
    /// The flow's number in the scenario, and the sequence number that was asked for.
    pub traced: Traced,
    /// In order of time: [`LIFE_MAX`] at most.
    pub records: Vec<LifeRecord>,
    /// Later records that were not kept.
    pub left_out: u64,
}
