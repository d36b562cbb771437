//! Completion queues (IBTA 10.8).

use crate::completion::Completion;
use crate::event::Event;
use crate::handle::Cq;
use alloc::collections::VecDeque;

/// For which completion an armed queue raises its event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arm {
    /// The next.
    Any,
    /// The next that is solicited or failed.
    Solicited,
}

/// What a completion means for the event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Notice {
    Ordinary,
    /// Solicited by the sender, or an error.
    Solicited,
}

#[derive(Debug)]
pub(crate) struct CompletionQueue {
    ring: VecDeque<Completion>,
    capacity: u32,
    armed: Option<Arm>,
    overrun: bool,
    /// Queue pairs and SRQs that complete here: it cannot be destroyed before them.
    pub(crate) users: u32,
}

impl CompletionQueue {
    pub(crate) fn new(capacity: u32) -> Self {
        Self { ring: VecDeque::new(), capacity, armed: None, overrun: false, users: 0 }
    }

    pub(crate) fn len(&self) -> u32 {
        self.ring.len() as u32
    }

    pub(crate) fn resize(&mut self, capacity: u32) {
        self.capacity = capacity;
    }

    pub(crate) fn arm(&mut self, arm: Arm) {
        // Asking for any completion is not taken back by asking for solicited ones (IBTA 11.4.2.2).
        if self.armed != Some(Arm::Any) {
            self.armed = Some(arm);
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Completion> {
        self.ring.pop_front()
    }

    /// Adds a completion. A full queue loses it, and is in error from then on (IBTA 10.8.2.1).
    pub(crate) fn push(&mut self, cq: Cq, completion: Completion, notice: Notice) -> Option<Event> {
        if self.ring.len() >= self.capacity as usize {
            let first = !core::mem::replace(&mut self.overrun, true);
            return first.then_some(Event::CqError(cq));
        }
        self.ring.push_back(completion);
        let wanted = match self.armed {
            Some(Arm::Any) => true,
            Some(Arm::Solicited) => notice == Notice::Solicited,
            None => false,
        };
        wanted.then(|| {
            self.armed = None;
            Event::Completion(cq)
        })
    }

    /// Forgets the completions of a queue pair that is reset or destroyed (as `ibv_destroy_qp` promises).
    pub(crate) fn purge(&mut self, qpn: wire::Qpn) {
        self.ring.retain(|completion| completion.qpn != qpn);
    }
}
