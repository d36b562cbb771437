//! Context of the operations of a queue pair's roles.

use super::attr::State;
use super::identity::Common;
use super::log;
use super::transport::Origin;
use crate::completion::{Completion, CompletionKind, Status};
use crate::cq::Notice;
use crate::handle::Srq;
use crate::resources::{Resources, completion};
use crate::time::Instant;

/// Data that an operation of a role uses, besides the role itself.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub(super) qp: &'a mut Common,
    pub(super) resources: &'a mut Resources,
    pub(super) now: Instant,
    /// Origin of the current packet; [`Origin::Network`] where there is none.
    pub(super) origin: Origin,
}

impl Context<'_> {
    /// A completion of this queue pair, with the fields that all completions have.
    pub(super) fn completion(&self, id: u64, status: Status, kind: CompletionKind) -> Completion {
        completion(self.qp.qpn, id, status, kind, self.now)
    }

    pub(super) fn complete_send(&mut self, done: Completion, notice: Notice) {
        let cq = self.qp.send_cq();
        self.resources.complete(cq, done, notice);
    }

    /// Adds a receive completion. `srq` is the shared queue that the receive was taken from.
    pub(super) fn complete_receive(&mut self, srq: Option<Srq>, done: Completion, notice: Notice) {
        let cq = self.qp.receive_cq(self.resources, srq);
        self.resources.complete(cq, done, notice);
    }

    /// Enters the error state. The queue pair flushes its roles when the current operation ends.
    pub(super) fn fail(&mut self) {
        if matches!(self.qp.state, State::Error | State::Reset) {
            return;
        }
        log::state(self.qp, State::Error);
        self.qp.state = State::Error;
        self.qp.has_failed = true;
        self.resources.note_queue(self.qp.qpn);
    }

    #[inline(always)]
    pub(super) fn count_sent(&mut self, length: u32) {
        self.qp.counters.sent_packets += 1;
        self.qp.counters.sent_bytes += u64::from(length);
        self.resources.port.counters.sent_packets += 1;
        self.resources.port.counters.sent_bytes += u64::from(length);
    }

    pub(super) fn count_retransmitted(&mut self) {
        self.qp.counters.retransmitted_packets += 1;
        self.resources.port.counters.retransmitted_packets += 1;
    }

    pub(super) fn count_out_of_sequence(&mut self) {
        self.qp.counters.out_of_sequence += 1;
        self.resources.port.counters.out_of_sequence += 1;
    }

    pub(super) fn count_duplicate(&mut self) {
        self.qp.counters.duplicate_request += 1;
        self.resources.port.counters.duplicate_request += 1;
    }
}
