//! Requests for acknowledgements: which packets have AckReq set (IBTA 9.7.4), and the retransmission of one
//! that had it not.

use super::Requester;
use crate::qp::attr::State;
use crate::qp::identity::Common;
use crate::qp::send_queue::SendEntry;
use crate::work::SendFlags;

impl Requester {
    /// Whether to request an acknowledgement: at the end of a message that no other follows at once, at
    /// intervals, and when the window is about to close on packets without a request for one. On a
    /// shared-memory channel also for each short request with a completion: no system call is needed there.
    #[inline]
    pub(super) fn wants_acknowledgement(
        &self,
        qp: &Common,
        entry: &SendEntry,
        index: usize,
        packets: u32,
    ) -> bool {
        if !qp.is_reliable() {
            return false;
        }
        let silent = self.packets_since_ack_request;
        if silent + 1 >= qp.ack_interval {
            return true;
        }
        let is_last = self.packet + packets >= entry.packets;
        let ends = is_last && !(is_plain(entry) && self.continues(qp, index + 1));
        let (window, in_flight) = (qp.window_packets(), self.in_flight());
        let interval = (window / 4).clamp(1, qp.ack_interval);
        let asks_early = qp.transport.asks_early();
        let first = !self.heard && asks_early;
        let is_short = entry.packets == 1;
        let completes = is_short && asks_early && entry.flags.contains(SendFlags::SIGNALED);
        ends || first
            || completes
            || silent + 1 >= interval
            || (in_flight + packets >= window && silent >= in_flight)
    }

    /// Whether the entry at `index` is sent right after the one before it.
    fn continues(&self, qp: &Common, index: usize) -> bool {
        qp.state == State::ReadyToSend
            && !qp.congestion.is_pacing()
            && self.queue.entry(index).is_some_and(is_plain)
    }

    /// Retransmits the last packet with AckReq set, because the request that was to carry AckReq is not sent.
    pub(super) fn ask_late(&mut self, qp: &Common) {
        let waits = qp.is_reliable() && self.is_waiting();
        if waits && core::mem::take(&mut self.packets_since_ack_request) > 0 {
            self.resend.push_back(self.next.minus(1));
        }
    }

    /// Retransmits the last packet with AckReq set, once, even if it had it before: nothing is sent until the
    /// peer acknowledges it, and the acknowledgement may be delayed to be sent together with an answer. A
    /// response needs no such request.
    pub(super) fn urge(&mut self) {
        let last = self.next.minus(1);
        if self.urged != Some(last)
            && self
                .entry_of(last)
                .is_some_and(|entry| !entry.wants_response())
        {
            self.urged = Some(last);
            self.packets_since_ack_request = 0;
            self.resend.push_back(last);
        }
    }
}

/// Whether only the window can delay an entry, and only an acknowledgement completes it.
fn is_plain(entry: &SendEntry) -> bool {
    !entry.is_local() && !entry.wants_response() && !entry.flags.contains(SendFlags::FENCE)
}
