//! Out-of-order receive, the responder's window: requests ahead of the expected PSN are placed, or held,
//! instead of being retransmitted by the peer.
//!
//! WRITE packets carry a RETH each and are placed at once; their effects (completion, immediate, MSN) are
//! delayed until they are in order. Other requests are held whole.

use crate::memory::Payload;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use wire::{Packet, Psn};

/// A request that arrived ahead of the expected PSN.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) packet: Packet,
    pub(super) payload: HeldPayload,
}

#[derive(Debug)]
pub(super) enum HeldPayload {
    /// The payload was stored already: so many bytes.
    Placed(u32),
    Bytes(Box<[u8]>),
    Phantom(u32),
}

impl HeldPayload {
    pub(super) fn of(payload: Payload<'_>) -> Self {
        match payload {
            Payload::Bytes(bytes) => Self::Bytes(bytes.into()),
            // Packets of a channel arrive in order: none of them is held.
            Payload::Phantom(length) | Payload::Foreign { length, .. } => Self::Phantom(length),
        }
    }
}

/// Requests ahead of the expected PSN; the first slot is the one after it.
#[derive(Debug, Default)]
pub(super) struct Window {
    slots: VecDeque<Option<Held>>,
    /// The hole that was reported; each is reported once.
    pub(super) reported: Option<Psn>,
}

impl Window {
    pub(super) fn has(&self, distance: u32) -> bool {
        self.slots
            .get(distance as usize - 1)
            .is_some_and(Option::is_some)
    }

    pub(super) fn hold(&mut self, distance: u32, held: Held) {
        let index = distance as usize - 1;
        while self.slots.len() <= index {
            self.slots.push_back(None);
        }
        self.slots[index] = Some(held);
    }

    /// Advances by one PSN: returns the request with the next one, if it has arrived.
    pub(super) fn step(&mut self) -> Option<Held> {
        self.slots.pop_front().flatten()
    }

    /// Distance of the furthest packet held.
    pub(super) fn furthest(&self) -> u32 {
        self.slots.len() as u32
    }
}
