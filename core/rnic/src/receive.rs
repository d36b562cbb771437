//! Receive queues: a queue pair's own, or shared.

use crate::error::Error;
use crate::handle::{Cq, Pd, Xrcd};
use crate::work::{ReceiveRequest, Sge};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// A receive work request that is posted.
#[derive(Clone, Copy, Debug)]
struct Posted {
    id: u64,
    /// How many elements it has.
    elements: u32,
    /// How many more times a message that would take it is refused, as if it were not posted.
    refusals: u32,
}

/// A queue of receive work requests. The elements of all requests are in one ring, in the same order.
#[derive(Debug, Default)]
pub(crate) struct ReceiveQueue {
    requests: VecDeque<Posted>,
    sges: VecDeque<Sge>,
    max_wr: u32,
    max_sge: u32,
}

impl ReceiveQueue {
    pub(crate) fn new(max_wr: u32, max_sge: u32) -> Self {
        Self {
            max_wr,
            max_sge,
            ..Self::default()
        }
    }

    pub(crate) fn limits(&self) -> (u32, u32) {
        (self.max_wr, self.max_sge)
    }

    pub(crate) fn len(&self) -> u32 {
        self.requests.len() as u32
    }

    pub(crate) fn post(&mut self, request: &ReceiveRequest<'_>) -> Result<(), Error> {
        if request.sges.len() > self.max_sge as usize {
            return Err(Error::Invalid(
                "more scatter elements than the queue was created for",
            ));
        }
        if self.len() >= self.max_wr {
            return Err(Error::QueueFull);
        }
        // `extend` is a call, which for one element takes longer than the element.
        request
            .sges
            .iter()
            .for_each(|sge| self.sges.push_back(*sge));
        self.requests.push_back(Posted {
            id: request.id,
            elements: request.sges.len() as u32,
            refusals: 0,
        });
        Ok(())
    }

    /// Refuses the message that would take the request that was posted last, so many times.
    pub(crate) fn refuse_last(&mut self, times: u32) {
        if let Some(last) = self.requests.back_mut() {
            last.refusals = times;
        }
    }

    /// Buffer size of the next request in bytes.
    pub(crate) fn next_room(&self) -> Option<u64> {
        let elements = self.requests.front()?.elements;
        Some(
            self.sges
                .iter()
                .take(elements as usize)
                .map(|sge| u64::from(sge.length))
                .sum(),
        )
    }

    /// The elements of the oldest requests that have one element each, up to the first that has not.
    pub(crate) fn single_sges(&self) -> impl Iterator<Item = &Sge> {
        let is_single = |one: &&Posted| one.elements == 1 && one.refusals == 0;
        let singles = self.requests.iter().take_while(is_single);
        singles.zip(&self.sges).map(|(_, sge)| sge)
    }

    /// Takes the oldest request; its elements replace those in `sges`. None is there, or it is not to be
    /// taken yet.
    pub(crate) fn take(&mut self, sges: &mut Vec<Sge>) -> Option<u64> {
        let front = self.requests.front_mut()?;
        if front.refusals > 0 {
            front.refusals -= 1;
            return None;
        }
        let Posted { id, elements, .. } = self.requests.pop_front()?;
        sges.clear();
        for _ in 0..elements {
            sges.extend(self.sges.pop_front());
        }
        Some(id)
    }

    pub(crate) fn resize(&mut self, max_wr: u32) {
        self.max_wr = max_wr;
    }

    pub(crate) fn clear(&mut self) {
        self.requests = VecDeque::new();
        self.sges = VecDeque::new();
    }
}

/// Shared receive queue (IBTA 10.2.9).
#[derive(Debug)]
pub(crate) struct SharedReceiveQueue {
    pub(crate) pd: Pd,
    pub(crate) queue: ReceiveQueue,
    /// Limit: with fewer requests than this, an event is raised once. 0 is disarmed.
    pub(crate) limit: u32,
    pub(crate) xrc: Option<(Xrcd, Cq)>,
    pub(crate) users: u32,
}

impl SharedReceiveQueue {
    /// Takes a request; the flag is true when the limit was passed just now.
    pub(crate) fn take(&mut self, sges: &mut Vec<Sge>) -> (Option<u64>, bool) {
        let id = self.queue.take(sges);
        let below = id.is_some() && self.limit > 0 && self.queue.len() < self.limit;
        if below {
            self.limit = 0;
        }
        (id, below)
    }
}
