//! Direct execution: on a shared-memory channel, the requester's side of requests that it executes on the
//! peer's memory itself.

use super::at_once::{direct_of, target_of};
use super::{Requester, Step};
use crate::access::Access;
use crate::memory::{Backing, Gather, Piece};
use crate::qp::attr::QpType;
use crate::qp::context::Context;
use crate::qp::send_queue::SendEntry;
use crate::qp::transport::Transport;
use crate::sink::{Channels, Direct, Execution, RUN_MAX, RunRequest, Sink, Streamed};
use crate::work::Operation;
use wire::{Reth, Rkey};

impl Requester {
    /// Delays a long request where the driver wants it executed directly: until the requests before it, which
    /// are in the channel, are answered, or until the driver resumes the queue pair. `None` where it may
    /// begin.
    #[inline]
    pub(super) fn wait_for_direct_execution<S: Sink>(
        &mut self,
        cx: &mut Context<'_>,
        entry: &SendEntry,
        sink: &mut S,
    ) -> Option<Step> {
        if !self.heard || !is_chosen::<S>(cx, entry) {
            return None;
        }
        match sink
            .channels()?
            .execution(&cx.qp.path, is_read(entry), entry.length)
        {
            Execution::ByChannel => None,
            Execution::Direct if self.is_waiting() => {
                self.urge();
                Some(if self.resend.is_empty() {
                    Step::Blocked
                } else {
                    Step::Progressed
                })
            }
            Execution::Direct => None,
            Execution::Later => Some(cx.qp.wait_for_room()),
        }
    }

    /// Notifies the driver of a request that begins to go through the channel.
    #[inline]
    pub(super) fn begins_in_channel<S: Sink>(
        &self,
        cx: &Context<'_>,
        entry: &SendEntry,
        sink: &mut S,
    ) {
        if entry.length < S::Channels::CHOSEN_FROM || cx.qp.transport != Transport::SharedMemory {
            return;
        }
        let kind = match entry.operation {
            Operation::Write {
                immediate: None, ..
            } => Streamed::Write,
            Operation::Read { .. } => Streamed::Read,
            Operation::Send(_) => Streamed::Send,
            _ => return,
        };
        if cx.qp.kind == QpType::Rc
            && let Some(channels) = sink.channels()
        {
            channels.begins(&cx.qp.path, kind, entry.length, self.is_waiting());
        }
    }

    /// Executes the requests at the front of the queue together, as [`Self::execute_directly`] would one by
    /// one: WRITEs only, or READs only, each with one piece of our memory. False where there are no two of
    /// them, or the driver executed none.
    pub(super) fn execute_run(
        &mut self,
        cx: &mut Context<'_>,
        first: &SendEntry,
        sink: &mut impl Sink,
    ) -> bool {
        let several = self.queue.len() > 1 && cx.qp.transport.may_execute(cx.qp.kind, first);
        if !several || !self.is_idle_before(self.cursor) {
            return false;
        }
        let (is_read, path) = (is_read(first), &cx.qp.path);
        let Some(channels) = sink.channels() else {
            return false;
        };
        if !channels.takes_runs(path, is_read, first.length) {
            return false;
        }
        let mut run = [NO_REQUEST; RUN_MAX];
        let mut count = 0;
        for (place, entry) in run.iter_mut().zip(self.queue.iter()) {
            if !self.fill_run_request(cx, entry, is_read, place) {
                break;
            }
            count += 1;
        }
        if count < 2 {
            return false;
        }
        let (from, to) = (cx.qp.qpn, cx.qp.attr.destination);
        let done = channels.execute_run(path, from, to, is_read, &run[..count]);
        let Some(last) = done
            .checked_sub(1)
            .and_then(|last| self.queue.entry(last))
            .copied()
        else {
            return false;
        };
        for request in &run[..done] {
            cx.count_sent(if is_read { 0 } else { request.reth.length });
        }
        self.begin(done - 1);
        self.executed(cx, &last, done);
        true
    }

    /// Fills the request of an entry in, if it can be part of a run. (Field by field: a request that is
    /// returned and then stored is read in other widths than it was written, and that waits.)
    #[inline(always)]
    fn fill_run_request(
        &self,
        cx: &Context<'_>,
        entry: &SendEntry,
        is_read: bool,
        place: &mut RunRequest,
    ) -> bool {
        let (address, rkey, need) = match entry.operation {
            Operation::Write {
                address,
                rkey,
                immediate: None,
            } if !is_read => (address, rkey, Access::empty()),
            Operation::Read { address, rkey } if is_read => (address, rkey, Access::LOCAL_WRITE),
            _ => return false,
        };
        let sge = self.queue.only_sge(entry);
        let Some(piece) = sge.and_then(|sge| cx.resources.regions.local(cx.qp.pd(), sge, need))
        else {
            return false;
        };
        (place.reth.address, place.reth.rkey, place.reth.length) = (address, rkey, entry.length);
        (place.piece.address, place.piece.length, place.piece.backing) =
            (piece.address, piece.length, piece.backing);
        piece.backing == Backing::Pinned && entry.length > 0
    }

    /// Executes the request here and now, if the send queue is empty before it and the peer grants it. Never
    /// the first request of a connection: a request that the peer dropped because it was not ready could not
    /// be distinguished from one that was executed directly.
    pub(super) fn execute_directly(
        &self,
        cx: &mut Context<'_>,
        index: usize,
        entry: &SendEntry,
        sink: &mut impl Sink,
    ) -> bool {
        if !cx.qp.transport.may_execute(cx.qp.kind, entry) || !self.is_idle_before(index) {
            return false;
        }
        let Some(channels) = sink.channels() else {
            return false;
        };
        let Some((address, rkey, need)) = target_of(&entry.operation) else {
            return false;
        };
        let (path, from, to) = (&cx.qp.path, cx.qp.qpn, cx.qp.attr.destination);
        let reth = Reth {
            address,
            rkey,
            length: entry.length,
        };
        if let Some(bytes) = self.queue.inline(entry) {
            return channels.execute(path, from, to, &reth, Direct::Write(Gather::Inline(bytes)));
        }
        let resolved =
            cx.resources
                .resolve(cx.qp.pd(), self.queue.sges(entry), 0, entry.length, need);
        let Ok(pieces) = resolved else { return false };
        let direct = direct_of(&entry.operation, pieces);
        channels.execute(path, from, to, &reth, direct)
    }
}

const NO_REQUEST: RunRequest = RunRequest {
    reth: Reth {
        address: 0,
        rkey: Rkey(0),
        length: 0,
    },
    piece: Piece {
        address: 0,
        length: 0,
        backing: Backing::Null,
    },
};

/// Whether the driver chooses how the request is executed.
#[inline]
fn is_chosen<S: Sink>(cx: &Context<'_>, entry: &SendEntry) -> bool {
    entry.length >= S::Channels::CHOSEN_FROM && cx.qp.transport.may_execute(cx.qp.kind, entry)
}

fn is_read(entry: &SendEntry) -> bool {
    matches!(entry.operation, Operation::Read { .. })
}
