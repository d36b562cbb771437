//! Direct execution: on a shared-memory channel, the requester's side of requests that it executes on the
//! peer's memory itself.

use super::at_once::{direct_of, direct_path, target_of};
use super::way::{Moment, Situation, Way, choose_way};
use super::{Requester, Step};
use crate::access::Access;
use crate::memory::{Backing, Gather, Piece};
use crate::qp::attr::QpType;
use crate::qp::context::Context;
use crate::qp::send_queue::SendEntry;
use crate::qp::transport::Transport;
use crate::sink::{
    Advice, Decision, Direct, DirectExecution, DirectRequest, DirectWork, RUN_MAX, RunRequest,
    Sink, StreamStatistics, Streamed, StreamedRequest,
};
use crate::work::Operation;
use wire::{Reth, Rkey};

impl Requester {
    /// The way of the request at the cursor, which is `fresh` where nothing of it was sent yet.
    #[inline(always)]
    pub(super) fn way_in_turn<S: Sink>(
        &self,
        cx: &Context<'_>,
        entry: &SendEntry,
        fresh: bool,
        sink: &mut S,
    ) -> Way {
        let qp = &*cx.qp;
        let begins = fresh && self.packet == 0;
        let request = Situation {
            transport: qp.transport,
            moment: if begins {
                Moment::Turn
            } else {
                Moment::Repetition
            },
            is_executable: qp.transport.may_execute(qp.kind, entry),
            is_idle: self.is_idle_before(self.cursor),
            is_heard: self.heard,
            follows: self.is_waiting(),
            leads: self.queue.len() > 1,
            is_measured: entry.length >= S::Channels::MEASURED_FROM,
        };
        choose_way(&request, || {
            sink.channels().map_or(Advice::BY_CHANNEL, |channels| {
                channels.advice(&qp.path, self.streamed(entry))
            })
        })
    }

    /// The request for the driver's statistics.
    fn streamed(&self, entry: &SendEntry) -> StreamedRequest {
        StreamedRequest {
            kind: match entry.operation {
                Operation::Read { .. } => Streamed::Read,
                Operation::Send(_) => Streamed::Send,
                _ => Streamed::Write,
            },
            length: entry.length,
            is_heard: self.heard,
        }
    }

    /// Delays a request that waits for its way; `None` for one that does not.
    #[inline]
    pub(super) fn wait_for_way(
        &mut self,
        cx: &mut Context<'_>,
        entry: &SendEntry,
        way: Way,
        sink: &mut impl Sink,
    ) -> Option<Step> {
        match way {
            Way::AfterFirstAnswer => Some(Step::Blocked),
            Way::AfterAnswers => {
                self.urge();
                Some(if self.resend.is_empty() {
                    Step::Blocked
                } else {
                    Step::Progressed
                })
            }
            Way::NextRound => {
                if let Some(channels) = sink.channels() {
                    channels.record(&cx.qp.path, self.streamed(entry), Decision::Later);
                }
                Some(cx.qp.wait_for_room())
            }
            Way::AtOnce | Way::Run | Way::Direct | Way::Ring | Way::Packets => None,
        }
    }

    /// Records for the driver's statistics that a request begins to go through the channel.
    #[inline]
    pub(super) fn record_in_channel<S: Sink>(
        &self,
        cx: &Context<'_>,
        entry: &SendEntry,
        sink: &mut S,
    ) {
        let is_measured = entry.length >= S::Channels::MEASURED_FROM
            && cx.qp.transport == Transport::SharedMemory
            && cx.qp.kind == QpType::Rc
            && matches!(
                entry.operation,
                Operation::Write {
                    immediate: None,
                    ..
                } | Operation::Read { .. }
                    | Operation::Send(_)
            );
        if is_measured && let Some(channels) = sink.channels() {
            let follows = self.is_waiting();
            let decision = Decision::ByChannel { follows };
            channels.record(&cx.qp.path, self.streamed(entry), decision);
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
        let Some(channels) = sink.channels() else {
            return false;
        };
        let is_read = matches!(first.operation, Operation::Read { .. });
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
        let work = DirectWork::Run {
            is_read,
            requests: &run[..count],
        };
        let done = channels.execute(&direct_path(cx.qp), work);
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

    /// Executes the request here and now, if the peer grants it.
    pub(super) fn execute_directly(
        &self,
        cx: &mut Context<'_>,
        entry: &SendEntry,
        sink: &mut impl Sink,
    ) -> bool {
        let Some(channels) = sink.channels() else {
            return false;
        };
        let Some((address, rkey, need)) = target_of(&entry.operation) else {
            return false;
        };
        let reth = Reth {
            address,
            rkey,
            length: entry.length,
        };
        if let Some(bytes) = self.queue.inline(entry) {
            let direct = Direct::Write(Gather::Inline(bytes));
            let work = DirectWork::One(DirectRequest { reth, direct });
            return channels.execute(&direct_path(cx.qp), work) > 0;
        }
        let Context { qp, resources, .. } = cx;
        let resolved = resources.resolve(qp.pd(), self.queue.sges(entry), 0, entry.length, need);
        let Ok(pieces) = resolved else { return false };
        let direct = direct_of(&entry.operation, pieces);
        let work = DirectWork::One(DirectRequest { reth, direct });
        channels.execute(&direct_path(qp), work) > 0
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
