//! Direct execution: on a shared-memory channel, the requester's side of requests that it executes on the
//! peer's memory itself.

use super::{Requester, Step};
use crate::access::Access;
use crate::memory::Gather;
use crate::qp::context::Context;
use crate::qp::send_queue::SendEntry;
use crate::qp::timer::Timer;
use crate::sink::{Channels, Direct, Execution, Sink};
use crate::work::Operation;
use wire::Reth;

impl Requester {
    /// Delays a long request where the driver wants it executed directly: until the requests before it, which
    /// are in the channel, are answered, or until the device's timers run next. `None` where it may begin.
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
        match sink.channels()?.execution(&cx.qp.path, is_read(entry), entry.length) {
            Execution::ByChannel => None,
            Execution::Direct if self.is_waiting() => {
                self.urge();
                Some(if self.resend.is_empty() { Step::Blocked } else { Step::Progressed })
            }
            Execution::Direct => None,
            Execution::Later => {
                cx.qp.timers.set(Timer::Pace, cx.now);
                Some(Step::Blocked)
            }
        }
    }

    /// Notifies the driver of a request that begins to go through the channel.
    #[inline]
    pub(super) fn begins_in_channel<S: Sink>(&self, cx: &Context<'_>, entry: &SendEntry, sink: &mut S) {
        if is_chosen::<S>(cx, entry)
            && let Some(channels) = sink.channels()
        {
            channels.begins(&cx.qp.path, is_read(entry), entry.length, self.is_waiting());
        }
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
        let Some(channels) = sink.channels() else { return false };
        let (address, rkey, need) = match entry.operation {
            Operation::Write { address, rkey, .. } => (address, rkey, Access::empty()),
            Operation::Read { address, rkey }
            | Operation::FetchAdd { address, rkey, .. }
            | Operation::CompareSwap { address, rkey, .. } => (address, rkey, Access::LOCAL_WRITE),
            _ => return false,
        };
        let (path, from, to) = (&cx.qp.path, cx.qp.qpn, cx.qp.attr.destination);
        let reth = Reth { address, rkey, length: entry.length };
        if let Some(bytes) = self.queue.inline(entry) {
            return channels.execute(path, from, to, &reth, Direct::Write(Gather::Inline(bytes)));
        }
        let resolved = cx.resources.resolve(cx.qp.pd(), self.queue.sges(entry), 0, entry.length, need);
        let Ok(pieces) = resolved.map(Gather::Pieces) else { return false };
        let direct = match entry.operation {
            Operation::Read { .. } => Direct::Read(pieces),
            Operation::FetchAdd { add, .. } => Direct::FetchAdd { add, into: pieces },
            Operation::CompareSwap { compare, swap, .. } => {
                Direct::CompareSwap { compare, swap, into: pieces }
            }
            _ => Direct::Write(pieces),
        };
        channels.execute(path, from, to, &reth, direct)
    }
}

/// Whether the driver chooses how the request is executed.
#[inline]
fn is_chosen<S: Sink>(cx: &Context<'_>, entry: &SendEntry) -> bool {
    entry.length >= S::Channels::CHOSEN_FROM && cx.qp.transport.may_execute(cx.qp.kind, entry)
}

fn is_read(entry: &SendEntry) -> bool {
    matches!(entry.operation, Operation::Read { .. })
}
