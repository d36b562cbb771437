//! Requests that are executed in the call that posts them: those to memory that the peer shares, where
//! nothing of their queue pair is before them. Such a request needs no entry in the send queue and no turn,
//! which would take longer than a copy of a page.

use super::way::{Moment, Situation, Way, choose_way};
use super::{Requester, complete, wants_completion};
use crate::access::Access;
use crate::memory::{Gather, Piece};
use crate::qp::attr::{QpType, State};
use crate::qp::context::Context;
use crate::qp::identity::Common;
use crate::qp::timer::Timer;
use crate::sink::{Advice, Direct, DirectExecution, DirectPath, DirectRequest, DirectWork};
use crate::time::Instant;
use crate::work::{Data, Operation, SendRequest};
use core::slice;
use wire::{Reth, Rkey};

/// The range of the peer's memory that an operation names, and the right to local memory that it needs;
/// `None` for operations that do not only read or write the peer's memory.
#[inline(always)]
pub(super) fn target_of(operation: &Operation) -> Option<(u64, Rkey, Access)> {
    match *operation {
        Operation::Write {
            address,
            rkey,
            immediate: None,
        } => Some((address, rkey, Access::empty())),
        Operation::Read { address, rkey }
        | Operation::FetchAdd { address, rkey, .. }
        | Operation::CompareSwap { address, rkey, .. } => {
            Some((address, rkey, Access::LOCAL_WRITE))
        }
        _ => None,
    }
}

/// The operation as the driver executes it, with local memory.
#[inline(always)]
pub(super) fn direct_of<'a>(operation: &Operation, pieces: &'a [Piece]) -> Direct<'a> {
    let pieces = Gather::Pieces(pieces);
    match *operation {
        Operation::Read { .. } => Direct::Read(pieces),
        Operation::FetchAdd { add, .. } => Direct::FetchAdd { add, into: pieces },
        Operation::CompareSwap { compare, swap, .. } => Direct::CompareSwap {
            compare,
            swap,
            into: pieces,
        },
        _ => Direct::Write(pieces),
    }
}

/// The connection of a queue pair.
#[inline(always)]
pub(super) fn direct_path(qp: &Common) -> DirectPath<'_> {
    DirectPath {
        path: &qp.path,
        from: qp.qpn,
        to: qp.attr.destination,
    }
}

impl Requester {
    /// Executes and completes a request, where `peer` can and the queue is idle. False where the request has
    /// to be posted; the contents of its range are undefined then. Never one with several elements.
    #[inline]
    pub(in crate::qp) fn execute_at_once(
        &mut self,
        cx: &mut Context<'_>,
        request: &SendRequest<'_>,
        now: impl FnOnce() -> Instant,
        peer: &mut impl DirectExecution,
    ) -> bool {
        if self.way_at_post(cx) != Way::AtOnce {
            return false;
        }
        let Some((address, rkey, need)) = target_of(&request.operation) else {
            return false;
        };
        let is_read = need.contains(Access::LOCAL_WRITE);
        if is_read && cx.qp.attr.max_rd_atomic == 0 {
            return false;
        }
        let piece;
        let (length, direct) = match request.data {
            Data::Sges([sge]) if self.queue.takes_one(&request.operation, sge) => {
                let Some(local) = cx.resources.regions.local(cx.qp.pd(), sge, need) else {
                    return false;
                };
                piece = local;
                let direct = direct_of(&request.operation, slice::from_ref(&piece));
                (sge.length, direct)
            }
            Data::Inline(bytes) if !is_read && self.queue.takes_inline(bytes) => {
                (bytes.len() as u32, Direct::Write(Gather::Inline(bytes)))
            }
            _ => return false,
        };
        let reth = Reth {
            address,
            rkey,
            length,
        };
        let work = DirectWork::One(DirectRequest { reth, direct });
        let done = peer.execute(&direct_path(cx.qp), work) > 0;
        if done {
            cx.count_sent(if is_read { 0 } else { length });
            let mtu = cx.qp.mtu();
            self.posted = self.posted.plus(if length <= mtu {
                1
            } else {
                length.div_ceil(mtu)
            });
            (self.next, self.high, self.unacknowledged) = (self.posted, self.posted, self.posted);
            if wants_completion(cx, request.flags) {
                cx.now = now();
                complete(cx, request.id, &request.operation, length);
            }
        }
        done
    }

    /// The way of a request that is posted now, if it only reads or writes the peer's memory.
    #[inline(always)]
    fn way_at_post(&self, cx: &Context<'_>) -> Way {
        let qp = &*cx.qp;
        let is_idle = qp.state == State::ReadyToSend
            && !qp.timers.is_set(Timer::Resume)
            && self.queue.len() == 0
            && self.unacknowledged == self.high
            && self.resend.is_empty();
        let request = Situation {
            transport: qp.transport,
            moment: Moment::Post,
            is_executable: qp.kind == QpType::Rc,
            is_idle,
            is_heard: self.heard,
            follows: !is_idle,
            leads: false,
            is_measured: false,
        };
        choose_way(&request, || Advice::BY_CHANNEL)
    }
}
