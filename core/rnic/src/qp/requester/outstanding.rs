//! Packets that were sent and are not acknowledged, as the completer sees them.

use super::Requester;
use crate::qp::context::Context;
use crate::qp::identity::Common;
use crate::qp::send_queue::SendEntry;
use crate::qp::timer::Timer;
use crate::time::{Instant, Nanos};
use crate::work::Sge;
use wire::Psn;

impl Requester {
    /// Whether packets wait for acknowledgement.
    #[inline]
    pub(in crate::qp) fn is_waiting(&self) -> bool {
        self.unacknowledged.is_before(self.high)
    }

    /// Whether a packet with this PSN was sent and is not acknowledged.
    #[inline]
    pub(in crate::qp) fn is_outstanding(&self, psn: Psn) -> bool {
        !psn.is_before(self.unacknowledged) && psn.is_before(self.high)
    }

    /// Whether this is the oldest unacknowledged packet, and it is about to be retransmitted.
    pub(in crate::qp) fn is_about_to_resend(&self, psn: Psn) -> bool {
        psn == self.next && psn == self.unacknowledged
    }

    /// Whether a packet left within this time.
    pub(in crate::qp) fn has_sent_within(&self, span: Nanos, now: Instant) -> bool {
        now <= self.pace_at + span
    }

    /// Number of messages that the peer may have completed since its last answer, counting a READ as one
    /// message.
    pub(in crate::qp) fn messages_outstanding(&self, qp: &Common) -> u32 {
        if qp.write_only {
            // Each packet of a WRITE is a message.
            return self.high.distance_from(self.unacknowledged).max(0) as u32;
        }
        self.started as u32
    }

    /// Index of the begun entry that has a packet with this PSN.
    pub(super) fn find(&self, psn: Psn) -> Option<usize> {
        self.queue.find(psn, self.started)
    }

    /// Scatter/gather elements of a request.
    pub(in crate::qp) fn sges(&self, entry: &SendEntry) -> impl Iterator<Item = &Sge> {
        self.queue.sges(entry)
    }

    /// The begun entry that has a packet with this PSN.
    pub(in crate::qp) fn entry_of(&self, psn: Psn) -> Option<&SendEntry> {
        self.queue.entry(self.find(psn)?)
    }

    /// The first PSN before `end` that waits for a response. Derived from the requests themselves: after
    /// going back, a READ that is to be sent again is not outstanding, and a late acknowledgement must not
    /// pass it.
    pub(in crate::qp) fn unanswered_before(&self, end: Psn) -> Option<Psn> {
        let begun = (0..self.started).filter_map(|index| self.queue.entry(index));
        let unanswered = begun
            .take_while(|entry| entry.first_psn.is_before(end))
            .find(|entry| {
                entry.wants_response() && self.unacknowledged.is_before(entry.end_psn())
            })?;
        let partly = unanswered.first_psn.is_before(self.unacknowledged);
        Some(if partly {
            self.unacknowledged
        } else {
            unanswered.first_psn
        })
    }

    /// Moves the acknowledged edge to `end`. Returns by how many packets, 0 if it was there already.
    pub(in crate::qp) fn acknowledge_before(&mut self, end: Psn) -> u32 {
        let gained = end.distance_from(self.unacknowledged);
        if gained <= 0 {
            return 0;
        }
        self.unacknowledged = end;
        self.heard = true;
        if self.next.is_before(end) {
            // A late acknowledgement of packets that were to be retransmitted.
            self.seek(end);
        }
        gained as u32
    }

    /// Goes back to the oldest unacknowledged packet.
    pub(in crate::qp) fn go_back(&mut self) {
        self.resend.clear();
        // Detected again in its turn.
        self.fault = None;
        self.seek(self.unacknowledged);
    }

    /// Queues the retransmission of one packet, out of order (out-of-order mode).
    pub(in crate::qp) fn resend(&mut self, psn: Psn) {
        if !self.resend.contains(&psn) {
            self.resend.push_back(psn);
        }
    }

    /// Restarts the ACK timer, or stops it when nothing is outstanding.
    pub(in crate::qp) fn restart_ack_timer(&self, cx: &mut Context<'_>) {
        match cx
            .qp
            .transport
            .ack_timeout(cx.qp.attr.timeout)
            .filter(|_| self.is_waiting())
        {
            Some(timeout) => cx.qp.timers.set(Timer::Retransmit, cx.now + timeout),
            None => cx.qp.timers.stop(Timer::Retransmit),
        }
    }

    /// Moves the cursor to the packet with this PSN, among the entries that were begun.
    fn seek(&mut self, psn: Psn) {
        self.next = psn;
        match self.find(psn) {
            Some(index) => {
                self.cursor = index;
                let entry = self.queue.entry(index);
                self.packet = entry.map_or(0, |entry| psn.distance_from(entry.first_psn) as u32);
            }
            None => {
                self.cursor = self.started;
                self.packet = 0;
            }
        }
    }
}
