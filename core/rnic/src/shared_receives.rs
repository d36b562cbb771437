//! The shared receive queues of a device, and the queue pairs that wait for their receives.

use crate::error::Error;
use crate::handle::{Pd, Srq};
use crate::receive::SharedReceiveQueue;
use alloc::vec::Vec;
use slab::Slab;
use wire::Qpn;

#[derive(Debug)]
pub(crate) struct SharedReceives {
    queues: Slab<SharedReceiveQueue>,
    /// The first number, and how many numbers there are.
    numbers: (u32, u32),
    /// Queue pairs whose peers, on shared-memory channels, wait for a receive of a shared queue.
    not_ready: Vec<(Srq, Qpn)>,
}

impl Default for SharedReceives {
    fn default() -> Self {
        Self {
            queues: Slab::new(),
            numbers: (0, 1 << 24),
            not_ready: Vec::new(),
        }
    }
}

impl SharedReceives {
    pub(crate) fn len(&self) -> usize {
        self.queues.len()
    }

    pub(crate) fn insert(&mut self, queue: SharedReceiveQueue) -> Srq {
        Srq(self.queues.insert(queue) as u32)
    }

    pub(crate) fn remove(&mut self, srq: Srq) {
        self.queues.remove(srq.0 as usize);
        self.not_ready.retain(|&(waits_for, _)| waits_for != srq);
    }

    #[inline]
    pub(crate) fn get(&self, srq: Srq) -> Option<&SharedReceiveQueue> {
        self.queues.get(srq.0 as usize)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, srq: Srq) -> Result<&mut SharedReceiveQueue, Error> {
        self.queues
            .get_mut(srq.0 as usize)
            .ok_or(Error::NoSuchObject)
    }

    /// Whether any queue belongs to `pd`.
    pub(crate) fn uses(&self, pd: Pd) -> bool {
        self.queues.iter().any(|(_, srq)| srq.pd == pd)
    }

    pub(crate) fn set_numbers(&mut self, first: Qpn, count: u32) {
        self.numbers = (first.value(), count);
    }

    /// Whether there is a number for the next queue.
    pub(crate) fn has_number(&self) -> bool {
        self.queues.vacant_key() < self.numbers.1 as usize
    }

    /// The number by which peers name a queue.
    pub(crate) fn number(&self, srq: Srq) -> Qpn {
        Qpn::new(self.numbers.0 + srq.0)
    }

    /// The local queue with this number, if there is one.
    pub(crate) fn by_number(&self, number: Qpn) -> Option<Srq> {
        let (first, count) = self.numbers;
        number
            .value()
            .checked_sub(first)
            .filter(|index| *index < count)
            .map(Srq)
    }

    /// Records a queue pair whose peer waits for a receive.
    pub(crate) fn note_not_ready(&mut self, srq: Srq, qpn: Qpn) {
        if !self.not_ready.contains(&(srq, qpn)) {
            self.not_ready.push((srq, qpn));
        }
    }

    /// Removes and returns the queue pair that has waited longest.
    pub(crate) fn take_not_ready(&mut self, srq: Srq) -> Option<Qpn> {
        let place = self
            .not_ready
            .iter()
            .position(|&(waits_for, _)| waits_for == srq)?;
        Some(self.not_ready.remove(place).1)
    }
}
