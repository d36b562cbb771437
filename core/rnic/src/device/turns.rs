//! Turns of queue pairs: to send, or because of a timer.

use crate::qp::{Qp, Urgency};
use crate::time::Instant;
use alloc::collections::{BinaryHeap, VecDeque};
use core::cmp::Reverse;

/// Kind of the packets that wait to be transmitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pending {
    /// No packet waits to be sent.
    Nothing,
    /// Only positive acknowledgements: they may wait a little, to be sent together with data.
    Acknowledgements,
    /// Requests, READ responses, NAKs.
    Data,
}

/// Lists of queue pairs, by index.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Queue pairs with something to send; each is listed once.
    ready: VecDeque<usize>,
    /// Number of them that have more than an acknowledgement to send.
    urgent: u32,
    /// Reliable queue pairs that wait for acknowledgements.
    waiting: u32,
    timers: BinaryHeap<Reverse<(Instant, usize)>>,
    /// Queue pairs whose shared-memory channel, or whose driver, is full: first those that could send nothing
    /// in their turn, so that room for one packet at a time is shared by all.
    waiting_for_room: VecDeque<usize>,
    /// Number of them that could send nothing.
    unserved: usize,
}

impl Turns {
    /// Puts a queue pair that was changed on the ready list and the timer heap, where necessary.
    /// `was_waiting` is whether it waited for acknowledgements before, `blocked` whether it could not send.
    #[inline(always)]
    pub(super) fn schedule_qp(
        &mut self,
        index: usize,
        qp: &mut Qp,
        was_waiting: bool,
        blocked: bool,
    ) {
        match (was_waiting, qp.is_waiting()) {
            (false, true) => self.waiting += 1,
            (true, false) => self.waiting -= 1,
            _ => {}
        }
        let urgency = if blocked { Urgency::None } else { qp.urgency() };
        if urgency > qp.schedule.urgency {
            if qp.schedule.urgency == Urgency::None {
                self.ready.push_back(index);
            }
            if urgency == Urgency::Data {
                self.urgent += 1;
            }
            qp.schedule.urgency = urgency;
        }
        // One entry in the heap per queue pair, unless an earlier deadline appears; a later one is found when
        // the earlier fires. So an acknowledgement, which moves the deadline, costs nothing here. The entry
        // that an earlier one precedes is remembered, since pacing adds an earlier one per packet.
        let (at, before) = (qp.deadline(), qp.schedule.timer);
        if at < before {
            if before != Instant::NEVER {
                qp.schedule.later_timer = before;
            }
            qp.schedule.timer = at;
            self.timers.push(Reverse((at, index)));
        }
    }

    /// The queue pair whose turn it is to send, removed from the ready list. [`Self::begin`] follows.
    #[inline]
    pub(super) fn next_ready(&mut self) -> Option<usize> {
        self.ready.pop_front()
    }

    /// Begins the turn of a queue pair.
    #[inline]
    pub(super) fn begin(&mut self, qp: &mut Qp) {
        if core::mem::take(&mut qp.schedule.urgency) == Urgency::Data {
            self.urgent -= 1;
        }
    }

    /// Lists a queue pair that waits for room on its channel, or for a driver without room, and has sent so
    /// many packets in its turn.
    #[inline]
    pub(super) fn note_room(&mut self, index: usize, qp: &mut Qp, sent: usize) {
        if qp.waits_for_room() && !core::mem::replace(&mut qp.schedule.waits_for_room, true) {
            if sent > 0 {
                self.waiting_for_room.push_back(index);
            } else {
                self.waiting_for_room.insert(self.unserved, index);
                self.unserved += 1;
            }
        }
    }

    /// The next queue pair that waits for room, removed from that list.
    pub(super) fn next_for_room(&mut self) -> Option<usize> {
        self.unserved = self.unserved.saturating_sub(1);
        self.waiting_for_room.pop_front()
    }

    #[inline]
    pub(super) fn waits_for_room(&self) -> bool {
        !self.waiting_for_room.is_empty()
    }

    /// Removes a queue pair that is destroyed from the lists. Its timers are removed when they fire.
    pub(super) fn forget(&mut self, index: usize, qp: &Qp) {
        if qp.schedule.urgency == Urgency::Data {
            self.urgent -= 1;
        }
        self.ready.retain(|&ready| ready != index);
    }

    #[inline]
    pub(super) fn pending(&self) -> Pending {
        match (self.urgent, self.ready.len()) {
            (0, 0) => Pending::Nothing,
            (0, _) => Pending::Acknowledgements,
            _ => Pending::Data,
        }
    }

    /// Queue pairs that wait for acknowledgements.
    #[inline]
    pub(super) fn waiting(&self) -> u32 {
        self.waiting
    }

    /// Deadline of the next timer.
    #[inline]
    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.timers.peek().map(|Reverse((at, _))| *at)
    }

    /// The next timer that has fired: its time and its queue pair, which may be destroyed or have another
    /// timer.
    #[inline]
    pub(super) fn take_expired(&mut self, now: Instant) -> Option<(Instant, usize)> {
        let &Reverse((at, index)) = self.timers.peek()?;
        if at > now {
            return None;
        }
        self.timers.pop();
        Some((at, index))
    }

    /// The lines of the first entries of the lists.
    #[cfg(feature = "simulation")]
    pub(super) fn lines(&self, load: &impl Fn(*const u8)) {
        load(self.ready.as_slices().0.as_ptr().cast());
        load(self.timers.as_slice().as_ptr().cast());
    }

    /// The queue pairs whose turn to send, and whose timer, comes next.
    #[cfg(feature = "simulation")]
    pub(super) fn next(&self) -> impl Iterator<Item = usize> {
        let timer = self.timers.peek().map(|Reverse((_, index))| *index);
        self.ready.front().copied().into_iter().chain(timer)
    }
}
