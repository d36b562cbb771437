//! Requests that are executed in the call that posts them: those to memory that the peer shares, where
//! nothing of their queue pair is before them. Such a request needs no entry in the send queue and no turn,
//! which would take longer than a copy of a page.

use super::{Requester, complete, wants_completion};
use crate::access::Access;
use crate::address::Path;
use crate::memory::{Gather, Piece};
use crate::qp::attr::{QpType, State};
use crate::qp::context::Context;
use crate::qp::timer::Timer;
use crate::qp::transport::Transport;
use crate::sink::Direct;
use crate::time::Instant;
use crate::work::{Data, Operation, SendRequest};
use core::slice;
use wire::{Qpn, Reth, Rkey};

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

impl Requester {
    /// Executes and completes a request, where `execute` can and the queue is idle. False where the request
    /// has to be posted; the contents of its range are undefined then. Never the first request of a
    /// connection, see [`Self::execute_directly`]; nor one with several elements.
    #[inline]
    pub(in crate::qp) fn execute_at_once(
        &mut self,
        cx: &mut Context<'_>,
        request: &SendRequest<'_>,
        now: impl FnOnce() -> Instant,
        execute: impl FnOnce(&Path, (Qpn, Qpn), &Reth, Direct<'_>) -> bool,
    ) -> bool {
        if !self.is_at_rest(cx) {
            return false;
        }
        let Some((address, rkey, need)) = target_of(&request.operation) else {
            return false;
        };
        let is_read = need.contains(Access::LOCAL_WRITE);
        if is_read && cx.qp.attr.max_rd_atomic == 0 {
            return false;
        }
        let (path, qpns) = (&cx.qp.path, (cx.qp.qpn, cx.qp.attr.destination));
        let (length, done) = match request.data {
            Data::Sges([sge]) if self.queue.takes_one(&request.operation, sge) => {
                let Some(piece) = cx.resources.regions.local(cx.qp.pd(), sge, need) else {
                    return false;
                };
                let reth = Reth {
                    address,
                    rkey,
                    length: sge.length,
                };
                let direct = direct_of(&request.operation, slice::from_ref(&piece));
                (sge.length, execute(path, qpns, &reth, direct))
            }
            Data::Inline(bytes) if !is_read && self.queue.takes_inline(bytes) => {
                let reth = Reth {
                    address,
                    rkey,
                    length: bytes.len() as u32,
                };
                (
                    reth.length,
                    execute(path, qpns, &reth, Direct::Write(Gather::Inline(bytes))),
                )
            }
            _ => return false,
        };
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

    /// Whether nothing is posted or outstanding, and the peer, at the other end of a shared-memory channel,
    /// is ready for requests.
    #[inline(always)]
    fn is_at_rest(&self, cx: &Context<'_>) -> bool {
        let qp = &*cx.qp;
        let may = qp.transport == Transport::SharedMemory
            && qp.kind == QpType::Rc
            && qp.state == State::ReadyToSend
            && !qp.timers.is_set(Timer::Resume);
        may && self.heard
            && self.queue.len() == 0
            && self.unacknowledged == self.high
            && self.resend.is_empty()
    }
}
