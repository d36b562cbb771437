//! A shared-memory channel between the two devices, as between two devices of one host: nothing on it is
//! lost, but it may be full, and it may end while both still use it.

use rnic::{Instant, Payload, Senders};
use sim::random::RunRng;
use wire::{Message, Packet, Qpn, Service};

/// Number of the shared-memory channel at both devices.
pub(super) const CHANNEL: u16 = 1;

/// The state of the shared-memory channel in a run.
#[derive(Clone, Debug)]
pub(super) struct ShmChannel {
    open: [bool; 2],
    /// How often it is full, in thousandths.
    full: u64,
    /// How often the payload of a SEND, to which its record refers, cannot be fetched, in thousandths.
    unfetched: u64,
    /// Whether payloads could not be fetched in this run.
    has_unfetched: bool,
    /// Packets that may go as one at most.
    together: u64,
    /// When each side finds that it has ended.
    ends: [Option<Instant>; 2],
}

impl ShmChannel {
    pub(super) fn new(rng: &mut RunRng) -> Self {
        let last = rng.below(2_000_000);
        let ends = rng
            .per_mille(500)
            .then(|| [rng.below(last + 1), last].map(Instant));
        let swapped = rng.per_mille(500);
        Self {
            open: [true; 2],
            full: if rng.per_mille(300) {
                0
            } else {
                rng.below(700)
            },
            together: rng.pick(&[1, 2, 7, 100]),
            unfetched: if rng.per_mille(500) { 0 } else { rng.below(30) },
            has_unfetched: false,
            ends: match ends {
                Some([first, second]) if swapped => [Some(second), Some(first)],
                Some([first, second]) => [Some(first), Some(second)],
                None => [None; 2],
            },
        }
    }

    /// One that does not end.
    pub(super) fn lasting(rng: &mut RunRng) -> Self {
        Self {
            ends: [None; 2],
            ..Self::new(rng)
        }
    }

    pub(super) fn is_open(&self, side: usize) -> bool {
        self.open[side]
    }

    /// Whether it never ends.
    pub(super) fn lasts(&self) -> bool {
        self.ends == [None; 2]
    }

    /// The payload as its receiver gets it: of a SEND on RC it may be one that cannot be fetched.
    pub(super) fn deliver<'a>(
        &mut self,
        packet: &Packet,
        payload: &'a [u8],
        rng: &mut RunRng,
    ) -> Payload<'a> {
        let is_send =
            packet.service == Service::Rc && matches!(packet.message, Message::Send { .. });
        if is_send && self.unfetched > 0 && rng.per_mille(self.unfetched) {
            self.has_unfetched = true;
            return Payload::Foreign {
                address: 0,
                length: payload.len() as u32,
            };
        }
        Payload::Bytes(payload)
    }

    /// Ends all faults of the channel.
    pub(super) fn heal(&mut self) {
        (self.full, self.unfetched) = (0, 0);
    }

    /// Whether a payload could not be fetched.
    pub(super) fn has_unfetched(&self) -> bool {
        self.has_unfetched
    }

    /// How many packets may go as one now.
    pub(super) fn room(&self, rng: &mut RunRng) -> u32 {
        if rng.per_mille(self.full) {
            0
        } else {
            1 + rng.below(self.together) as u32
        }
    }

    /// Ends it at one side where its time has come; whether it has just ended.
    pub(super) fn end(&mut self, side: usize, now: Instant) -> bool {
        let ends = self.open[side] && self.ends[side].is_some_and(|end| now >= end);
        self.open[side] &= !ends;
        ends
    }
}

/// The queue pair numbers of the side that sends to `side`.
pub(super) fn senders_to(side: usize) -> Senders {
    Senders {
        first: Qpn::new(0x1000 * (2 - side as u32)),
        count: 64,
    }
}
