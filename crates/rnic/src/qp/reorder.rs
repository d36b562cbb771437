//! Out-of-order receive: what arrives ahead of the expected PSN is placed, or held, instead of being asked
//! for again.
//!
//! WRITE packets carry a RETH each and are placed at once; their effects (completion, immediate, MSN) wait
//! for their turn. Other requests are held whole. READ responses are placed by their PSN.

use super::Qp;
use super::completer::Answer;
use super::requester::Outstanding;
use crate::memory::{Memory, Payload};
use crate::resources::Resources;
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use wire::{Packet, Psn};

/// Bits for PSNs behind an edge, as far as packets arrived ahead of it.
#[derive(Debug, Default)]
pub(crate) struct Arrived {
    bits: VecDeque<bool>,
}

impl Arrived {
    /// Notes that the PSN `distance` (1 or more) ahead of the edge arrived; false if it had before.
    pub(super) fn note(&mut self, distance: u32) -> bool {
        let index = distance as usize;
        if self.bits.len() <= index {
            self.bits.resize(index + 1, false);
        }
        !core::mem::replace(&mut self.bits[index], true)
    }

    /// Moves the edge by one; whether the PSN at the new edge had arrived.
    pub(super) fn step(&mut self) -> bool {
        self.bits.pop_front();
        self.bits.front().copied().unwrap_or(false)
    }

    pub(super) fn clear(&mut self) {
        self.bits.clear();
    }
}

/// A request that came ahead of its turn.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) packet: Packet,
    pub(super) payload: HeldPayload,
}

#[derive(Debug)]
pub(super) enum HeldPayload {
    /// Stored already: so many bytes.
    Placed(u32),
    Bytes(Box<[u8]>),
    Phantom(u32),
}

impl HeldPayload {
    pub(super) fn of(payload: Payload<'_>) -> Self {
        match payload {
            Payload::Bytes(bytes) => Self::Bytes(bytes.into()),
            // What comes by a lane is in order: nothing of it is held.
            Payload::Phantom(length) | Payload::Foreign { length, .. } => Self::Phantom(length),
        }
    }
}

/// Requests ahead of the expected PSN; the first slot is the one after it.
#[derive(Debug, Default)]
pub(super) struct Window {
    slots: VecDeque<Option<Held>>,
    /// A hole that was reported; reported once.
    pub(super) reported: Option<Psn>,
}

impl Window {
    pub(super) fn has(&self, distance: u32) -> bool {
        self.slots.get(distance as usize - 1).is_some_and(Option::is_some)
    }

    pub(super) fn hold(&mut self, distance: u32, held: Held) {
        let index = distance as usize - 1;
        while self.slots.len() <= index {
            self.slots.push_back(None);
        }
        self.slots[index] = Some(held);
    }

    /// The expected PSN was executed: the next one, if it is here.
    pub(super) fn step(&mut self) -> Option<Held> {
        self.slots.pop_front().flatten()
    }

    /// Distance of the furthest packet held.
    pub(super) fn furthest(&self) -> u32 {
        self.slots.len() as u32
    }
}

impl Qp {
    /// A READ response or the result of an atomic, in any order.
    pub(super) fn handle_answer_ahead(
        &mut self,
        resources: &mut Resources,
        now: Instant,
        psn: Psn,
        answer: Answer<'_>,
        memory: &mut impl Memory,
    ) {
        let outstanding = &self.requester.outstanding;
        let asked = |read: &Outstanding| psn.is_before(read.end) && !psn.is_before(read.next);
        let oldest = outstanding.front().filter(|_| outstanding.iter().any(asked)).map(|read| read.next);
        let distance = oldest.map_or(u32::MAX, |oldest| psn.distance_from(oldest) as u32);
        let Some(oldest) = oldest.filter(|_| distance <= resources.config.reorder_window) else {
            resources.counters.dropped_unexpected_response += 1;
            return;
        };
        if distance > 0 && !self.requester.ahead.note(distance) {
            return;
        }
        let last = psn.plus(self.packets_of(resources, &answer) - 1);
        if let Err(status) = self.place_answer(resources, psn, answer, memory) {
            return self.fail_request(resources, status, now);
        }
        if distance == 0 {
            self.take_arrived(resources, last, now);
        } else {
            resources.counters.placed_out_of_order += 1;
            self.suspect_loss(resources, oldest, distance, now);
        }
    }

    /// Takes the answer with this PSN, and those behind it that came before it.
    fn take_arrived(&mut self, resources: &mut Resources, mut psn: Psn, now: Instant) {
        loop {
            self.answer_taken(resources, psn, now);
            let Some(oldest) = self.requester.outstanding.front() else {
                return self.requester.ahead.clear();
            };
            // Requests that have no answer may lie between two that do.
            let steps = oldest.next.distance_from(psn);
            psn = oldest.next;
            let mut arrived = false;
            for _ in 0..steps {
                arrived = self.requester.ahead.step();
            }
            if !arrived {
                return;
            }
        }
    }

    /// An answer this far ahead of a missing one means that it was lost: half of the window is left for it to
    /// come again.
    fn suspect_loss(&mut self, resources: &mut Resources, missing: Psn, distance: u32, now: Instant) {
        let lost = distance >= resources.config.reorder_window / 2;
        if lost && !self.requester.recovering {
            self.requester.recovering = true;
            resources.counters.implied_nak_seq_err += 1;
            self.congestion.lost(now);
            self.requester.resend.push_back(missing);
        }
    }
}
