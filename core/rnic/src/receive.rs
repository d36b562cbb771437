//! Receive queues: a queue pair's own, or shared.

use crate::error::Error;
use crate::handle::{Cq, Pd, Xrcd};
use crate::work::{ReceiveRequest, Sge};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// A queue of receive work requests. The elements of all requests are in one ring, in the same order.
#[derive(Debug, Default)]
pub(crate) struct ReceiveQueue {
    requests: VecDeque<(u64, u32)>,
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
        self.requests
            .push_back((request.id, request.sges.len() as u32));
        Ok(())
    }

    /// Buffer size of the next request in bytes.
    pub(crate) fn next_room(&self) -> Option<u64> {
        let &(_, count) = self.requests.front()?;
        Some(
            self.sges
                .iter()
                .take(count as usize)
                .map(|sge| u64::from(sge.length))
                .sum(),
        )
    }

    /// The elements of the oldest requests that have one element each, up to the first that has not.
    pub(crate) fn single_sges(&self) -> impl Iterator<Item = &Sge> {
        let singles = self.requests.iter().take_while(|(_, count)| *count == 1);
        singles.zip(&self.sges).map(|(_, sge)| sge)
    }

    /// Takes the oldest request; its elements replace those in `sges`.
    pub(crate) fn take(&mut self, sges: &mut Vec<Sge>) -> Option<u64> {
        let (id, count) = self.requests.pop_front()?;
        sges.clear();
        for _ in 0..count {
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
