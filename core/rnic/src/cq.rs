//! Completion queues (IBTA 10.8).

use crate::completion::Completion;
use crate::event::Event;
use crate::handle::Cq;
use crate::time::{Instant, Nanos};
use alloc::collections::VecDeque;

/// The completions for which an armed queue raises its event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arm {
    /// The next completion.
    Any,
    /// The next completion that is solicited or failed.
    Solicited,
}

/// Interrupt moderation: an event is raised after so many completions, or so much time after the first. It is
/// not delayed when either is 0.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Moderation {
    /// Number of completions that an event waits for.
    pub count: u16,
    /// Time since the first of them.
    pub period: Nanos,
}

/// Kind of a completion, which decides whether it raises the event.
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
    moderation: Moderation,
    /// Completions that wait for the event, and the deadline at which the first of them raises it.
    held: u16,
    due: Option<Instant>,
    /// Number of queue pairs and SRQs that complete here: the queue cannot be destroyed before them.
    pub(crate) users: u32,
}

impl CompletionQueue {
    pub(crate) fn new(capacity: u32) -> Self {
        let moderation = Moderation::default();
        let ring = VecDeque::new();
        Self {
            ring,
            capacity,
            armed: None,
            overrun: false,
            moderation,
            held: 0,
            due: None,
            users: 0,
        }
    }

    pub(crate) fn len(&self) -> u32 {
        self.ring.len() as u32
    }

    pub(crate) fn resize(&mut self, capacity: u32) {
        self.capacity = capacity;
    }

    pub(crate) fn moderate(&mut self, moderation: Moderation) {
        self.moderation = moderation;
    }

    /// Deadline of an event that waits.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Raises an event that has waited long enough.
    pub(crate) fn release(&mut self, cq: Cq, now: Instant) -> Option<Event> {
        self.due.filter(|due| *due <= now).map(|_| self.raise(cq))
    }

    fn raise(&mut self, cq: Cq) -> Event {
        (self.armed, self.held, self.due) = (None, 0, None);
        Event::Completion(cq)
    }

    /// Whether one more completion raises the event; if not, it is counted as held.
    fn is_enough(&mut self, at: Instant) -> bool {
        self.held += 1;
        if self.moderation.period == Nanos(0) || self.held >= self.moderation.count {
            return true;
        }
        self.due.get_or_insert(at + self.moderation.period);
        false
    }

    pub(crate) fn arm(&mut self, arm: Arm) {
        // A request for any completion is not cancelled by one for solicited completions (IBTA 11.4.2.2).
        if self.armed != Some(Arm::Any) {
            self.armed = Some(arm);
        }
    }

    pub(crate) fn disarm(&mut self) {
        (self.armed, self.held, self.due) = (None, 0, None);
    }

    /// Whether the event is due now, because the queue is armed.
    pub(crate) fn notify(&mut self, now: Instant) -> bool {
        if self.armed.is_some() {
            self.due = Some(now);
        }
        self.armed.is_some()
    }

    /// Puts the queue in error; false if it was.
    pub(crate) fn set_overrun(&mut self) -> bool {
        !core::mem::replace(&mut self.overrun, true)
    }

    pub(crate) fn pop(&mut self) -> Option<Completion> {
        self.ring.pop_front()
    }

    /// Adds a completion. A full queue drops it, and is in error from then on (IBTA 10.8.2.1).
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
        let raises = wanted && self.is_enough(Instant(completion.at_ns));
        raises.then(|| self.raise(cq))
    }

    /// Drops the completions of a queue pair that is reset or destroyed (as `ibv_destroy_qp` promises).
    pub(crate) fn purge(&mut self, qpn: wire::Qpn) {
        self.ring.retain(|completion| completion.qpn != qpn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::completion::{CompletionKind, Status};
    use crate::resources::completion;

    fn complete(queue: &mut CompletionQueue, at: u64) -> bool {
        let done = completion(
            wire::Qpn::new(1),
            0,
            Status::Success,
            CompletionKind::Send,
            Instant(at),
        );
        queue.push(Cq(0), done, Notice::Ordinary).is_some()
    }

    #[test]
    fn a_queue_that_was_disarmed_reports_nothing() {
        let mut queue = CompletionQueue::new(16);
        queue.moderate(Moderation {
            count: 2,
            period: Nanos(100),
        });
        queue.arm(Arm::Any);
        assert!(!complete(&mut queue, 1), "held");
        queue.disarm();
        assert_eq!(queue.due(), None);
        assert_eq!([2, 3].map(|at| complete(&mut queue, at)), [false, false]);
        queue.arm(Arm::Any);
        assert_eq!([4, 5].map(|at| complete(&mut queue, at)), [false, true]);
    }

    #[test]
    fn an_event_waits_for_company_or_for_its_time() {
        let mut queue = CompletionQueue::new(16);
        queue.moderate(Moderation {
            count: 3,
            period: Nanos(100),
        });
        queue.arm(Arm::Any);
        assert_eq!(
            [1, 2, 3].map(|at| complete(&mut queue, at)),
            [false, false, true]
        );
        assert_eq!(queue.due(), None);
        assert!(!complete(&mut queue, 4), "not armed");
        queue.arm(Arm::Any);
        assert!(!complete(&mut queue, 10));
        assert_eq!(queue.due(), Some(Instant(110)));
        assert_eq!(queue.release(Cq(0), Instant(109)), None);
        assert_eq!(
            queue.release(Cq(0), Instant(110)),
            Some(Event::Completion(Cq(0)))
        );
        assert_eq!(
            (queue.due(), queue.release(Cq(0), Instant(999))),
            (None, None)
        );
    }

    #[test]
    fn without_a_count_or_a_period_events_wait_for_nothing() {
        for (count, period) in [(0, 0), (5, 0), (0, 5), (1, 5)] {
            let mut queue = CompletionQueue::new(16);
            queue.moderate(Moderation {
                count,
                period: Nanos(period),
            });
            queue.arm(Arm::Any);
            assert!(complete(&mut queue, 1), "{count} {period}");
        }
    }
}
