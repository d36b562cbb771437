//! The completion queues of a device.

use crate::completion::{Completion, Status};
use crate::config::Config;
use crate::cq::{Arm, CompletionQueue, Moderation, Notice};
use crate::error::Error;
use crate::event::Event;
use crate::handle::Cq;
use crate::time::Instant;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use slab::Slab;
use wire::Qpn;

/// The completion queues of a device ([`crate::Device::cqs`]).
#[derive(Debug)]
pub struct CompletionQueues {
    queues: Slab<CompletionQueue>,
    queues_max: usize,
    entries_max: u32,
    /// Queues that overran: the device fails their queue pairs after the call in which they did.
    overrun: Vec<Cq>,
    /// Queues whose event waits for further completions.
    moderated: Vec<Cq>,
}

/// Operations of programs on completion queues.
impl CompletionQueues {
    /// Creates a completion queue.
    pub fn create(&mut self, entries: u32) -> Result<Cq, Error> {
        self.check_size(entries)?;
        if self.queues.len() >= self.queues_max {
            return Err(Error::Exhausted("completion queues"));
        }
        Ok(Cq(self.queues.insert(CompletionQueue::new(entries)) as u32))
    }

    /// Changes the size. It cannot fall below the number of completions in the queue.
    pub fn resize(&mut self, cq: Cq, entries: u32) -> Result<(), Error> {
        self.check_size(entries)?;
        let queue = self.get_mut(cq)?;
        if queue.len() > entries {
            return Err(Error::Invalid(
                "more completions wait in the queue than it would hold",
            ));
        }
        queue.resize(entries);
        Ok(())
    }

    /// Sets how long an armed queue delays its event for further completions.
    pub fn moderate(&mut self, cq: Cq, moderation: Moderation) -> Result<(), Error> {
        self.get_mut(cq)?.moderate(moderation);
        Ok(())
    }

    /// Removes a completion queue that no queue pair or SRQ uses.
    pub fn destroy(&mut self, cq: Cq) -> Result<(), Error> {
        if self.get_mut(cq)?.users > 0 {
            return Err(Error::Busy);
        }
        self.queues.remove(cq.0 as usize);
        Ok(())
    }

    /// Requests one [`Event::Completion`] for a later completion.
    pub fn arm(&mut self, cq: Cq, arm: Arm) -> Result<(), Error> {
        self.get_mut(cq)?.arm(arm);
        Ok(())
    }

    /// Cancels the request of [`Self::arm`]: the queue reports no completion until it is armed again.
    pub fn disarm(&mut self, cq: Cq) {
        if let Ok(queue) = self.get_mut(cq) {
            queue.disarm();
        }
    }

    /// Raises the event of an armed queue without a completion: for a driver that has held one back.
    pub fn notify(&mut self, cq: Cq, now: Instant) {
        if let Ok(queue) = self.get_mut(cq)
            && queue.notify(now)
            && !self.moderated.contains(&cq)
        {
            self.moderated.push(cq);
        }
    }

    /// Passes up to `most` completions to `take`, oldest first; returns how many.
    pub fn poll(&mut self, cq: Cq, most: usize, mut take: impl FnMut(&Completion)) -> usize {
        let Ok(queue) = self.get_mut(cq) else {
            return 0;
        };
        let mut taken = 0;
        while taken < most {
            let Some(completion) = queue.pop() else { break };
            take(&completion);
            taken += 1;
        }
        taken
    }

    /// Number of completions that [`Self::poll`] would return.
    #[inline]
    pub fn completions(&self, cq: Cq) -> usize {
        self.queues
            .get(cq.0 as usize)
            .map_or(0, |queue| queue.len() as usize)
    }

    /// Whether [`Self::poll`] would return a completion.
    #[inline]
    pub fn has_completions(&self, cq: Cq) -> bool {
        self.completions(cq) > 0
    }

    fn check_size(&self, entries: u32) -> Result<(), Error> {
        if entries == 0 || entries > self.entries_max {
            return Err(Error::Invalid(
                "a completion queue has 1 to max_cqe entries",
            ));
        }
        Ok(())
    }
}

/// Operations of queue pairs and SRQs, which add completions.
impl CompletionQueues {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            queues: Slab::new(),
            queues_max: config.max_cq as usize,
            entries_max: config.max_cqe,
            overrun: Vec::new(),
            moderated: Vec::new(),
        }
    }

    pub(crate) fn contains(&self, cq: Cq) -> bool {
        self.queues.contains(cq.0 as usize)
    }

    pub(crate) fn get_mut(&mut self, cq: Cq) -> Result<&mut CompletionQueue, Error> {
        self.queues
            .get_mut(cq.0 as usize)
            .ok_or(Error::NoSuchObject)
    }

    /// Drops the completions of a queue pair.
    pub(crate) fn purge(&mut self, cq: Cq, qpn: Qpn) {
        if let Some(queue) = self.queues.get_mut(cq.0 as usize) {
            queue.purge(qpn);
        }
    }

    /// Adds a completion.
    #[inline]
    pub(crate) fn complete(
        &mut self,
        cq: Cq,
        completion: Completion,
        notice: Notice,
        events: &mut VecDeque<Event>,
    ) {
        let notice = if completion.status == Status::Success {
            notice
        } else {
            Notice::Solicited
        };
        let Some(queue) = self.queues.get_mut(cq.0 as usize) else {
            return;
        };
        match queue.push(cq, completion, notice) {
            Some(event @ Event::CqError(_)) => {
                self.overrun.push(cq);
                events.push_back(event);
            }
            Some(event) => events.push_back(event),
            None => {
                if queue.due().is_some() && !self.moderated.contains(&cq) {
                    self.moderated.push(cq);
                }
            }
        }
    }

    /// Lets a queue overrun that has room.
    pub(crate) fn overrun(&mut self, cq: Cq, events: &mut VecDeque<Event>) {
        if let Ok(queue) = self.get_mut(cq)
            && queue.set_overrun()
        {
            self.overrun.push(cq);
            events.push_back(Event::CqError(cq));
        }
    }

    /// Whether a queue overran.
    #[inline]
    pub(crate) fn has_overrun(&self) -> bool {
        !self.overrun.is_empty()
    }

    /// A queue that overran since the last call.
    pub(crate) fn take_overrun(&mut self) -> Option<Cq> {
        self.overrun.pop()
    }

    /// Whether events wait for further completions.
    #[inline]
    pub(crate) fn is_moderating(&self) -> bool {
        !self.moderated.is_empty()
    }

    /// Deadline of the first event that waits for further completions.
    pub(crate) fn next_moderated(&self) -> Option<Instant> {
        self.moderated
            .iter()
            .filter_map(|cq| self.queues.get(cq.0 as usize)?.due())
            .min()
    }

    /// Raises the events that have waited long enough.
    pub(crate) fn release_moderated(&mut self, now: Instant, events: &mut VecDeque<Event>) {
        let queues = &mut self.queues;
        self.moderated.retain(|cq| {
            let Some(queue) = queues.get_mut(cq.0 as usize) else {
                return false;
            };
            events.extend(queue.release(*cq, now));
            queue.due().is_some()
        });
    }
}
