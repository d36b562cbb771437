//! Ranks of one server: what they send to each other without the network. No packets are on these ways, and
//! nothing waits on them but for the sender's own data.

use super::message::{LocalKind, LocalMessage};
use super::pipe::{LocalEnd, Seen};
use crate::world::host::{Context, Host};
use fabric::Time;

impl Host {
    pub(super) fn local_end(&self, pipe: u32) -> Option<LocalEnd> {
        self.worker.as_ref()?.pipes[pipe as usize].local
    }

    /// Sends a slice, behind those before.
    pub(super) fn send_locally(
        &mut self,
        now: Time,
        end: LocalEnd,
        bytes: u32,
        context: &mut Context<'_>,
    ) {
        let Some(worker) = &mut self.worker else {
            return;
        };
        let left = worker.local_until.max(now) + end.links.rate.time_of(bytes);
        worker.local_until = left;
        let pipe = end.pipe;
        let message = |at: Time, kind: LocalKind| LocalMessage { at, pipe, kind };
        let sent = message(left, LocalKind::Sent);
        context.links.send_local(self.number, sent);
        let data = message(left + end.links.delay, LocalKind::Data);
        context.links.send_local(end.peer_host, data);
    }

    /// Tells the sender that there is room for a slice.
    pub(super) fn clear_locally(
        &mut self,
        now: Time,
        pipe: u32,
        end: LocalEnd,
        context: &mut Context<'_>,
    ) {
        if let Some(worker) = &mut self.worker {
            worker.record_sent(pipe);
        }
        let message = LocalMessage {
            at: now + end.links.delay,
            pipe: end.pipe,
            kind: LocalKind::Clear,
        };
        context.links.send_local(end.peer_host, message);
    }

    /// What other ranks of the server have sent.
    pub(in crate::world) fn handle_local(&mut self, now: Time, context: &mut Context<'_>) {
        while let Some(message) = context.links.take_local(self.number, now) {
            let LocalMessage { pipe, kind, .. } = message;
            let sends = kind != LocalKind::Data;
            let worker = self.worker.as_ref();
            let Some(pipe) = worker.and_then(|worker| worker.local_pipe(pipe, sends)) else {
                continue;
            };
            self.with_worker(now, context, |worker| match kind {
                LocalKind::Data => worker.arrived(now, pipe),
                LocalKind::Clear => worker.cleared(now, pipe),
                LocalKind::Sent => worker.acknowledged(now, pipe, Seen::default()),
            });
        }
        self.pump(now, context);
    }
}
