//! The key of an event: one thing that can happen, at one place.

/// What happens at a direction of a link. The values are part of the order of events: of the events of one
/// moment and direction, an arrival comes first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EventKind {
    /// A packet arrives: the one that the event names, or the first of a direction on which packets overtake
    /// each other.
    Arrival = 0,
    /// The port that sends into the direction is to be looked at.
    Wake = 1,
    /// A pause frame or flow control packet that came over the direction takes effect.
    Pause = 2,
    /// A host's clock: only directions that hosts send into.
    Clock = 3,
}

/// Number of a direction of a link (30 bits), and what happens there (2 bits). Events of one moment are
/// handled in the order of their keys.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct EventKey(u32);

impl EventKey {
    const KIND_BITS: u32 = 2;

    #[inline(always)]
    pub(crate) fn new(lane: u32, kind: EventKind) -> Self {
        debug_assert!(
            lane <= u32::MAX >> Self::KIND_BITS,
            "lane {lane} has no key"
        );
        Self(lane << Self::KIND_BITS | kind as u32)
    }

    /// The direction of a link.
    #[inline(always)]
    pub(crate) fn lane(self) -> u32 {
        self.0 >> Self::KIND_BITS
    }

    #[inline(always)]
    pub(crate) fn kind(self) -> EventKind {
        match self.0 & ((1 << Self::KIND_BITS) - 1) {
            0 => EventKind::Arrival,
            1 => EventKind::Wake,
            2 => EventKind::Pause,
            _ => EventKind::Clock,
        }
    }

    /// Whether the event is for the node that sends into the direction; otherwise it is for the one that
    /// receives from it.
    #[inline(always)]
    pub(crate) fn is_of_sender(self) -> bool {
        self.0 & 1 == 1
    }

    /// The key as part of a number that sorts events.
    #[inline(always)]
    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    /// The key that has [these bits](Self::bits).
    #[inline(always)]
    pub(crate) fn from_bits(bits: u32) -> Self {
        Self(bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_keeps_its_direction_and_kind_and_sorts_by_them() {
        use EventKind::{Arrival, Clock, Pause, Wake};
        let mut before = None;
        for lane in [0, 1, 77, u32::MAX >> 2] {
            for kind in [Arrival, Wake, Pause, Clock] {
                let key = EventKey::new(lane, kind);
                assert_eq!((key.lane(), key.kind()), (lane, kind));
                assert_eq!(EventKey::from_bits(key.bits()), key);
                assert_eq!(key.is_of_sender(), matches!(kind, Wake | Clock), "{kind:?}");
                assert!(before < Some(key), "{key:?} comes after {before:?}");
                before = Some(key);
            }
        }
    }
}
