//! The host's side of collectives: their messages go through the device, and come from it.

use super::pipe::{PipeEnd, Seen};
use super::worker::{Order, Worker};
use super::{CLEAR_BYTES, OF_WORKER};
use crate::world::host::{BUFFER_ADDRESS, Context, Host};
use fabric::Time;
use rnic::{
    Completion, CompletionKind, Data, Instant, Operation, SendFlags, SendRequest, Sge, Status,
};

/// The identifier of a record's work request: no flow has this number.
const RECORD_ID: u64 = u64::MAX - 1;

impl Host {
    /// Takes an end of a pipe.
    pub(in crate::world) fn add_pipe(&mut self, end: PipeEnd) {
        if let Some(worker) = &mut self.worker {
            worker.add_pipe(end);
        }
    }

    /// A time that a job planned has come.
    pub(in crate::world) fn go_on(&mut self, now: Time, part: u32, context: &mut Context<'_>) {
        self.with_worker(now, context, |worker| worker.planned(now, part));
    }

    /// The pipe of the queue pair of a completion.
    pub(in crate::world) fn pipe_of(&self, completion: &Completion) -> Option<u32> {
        self.worker.as_ref()?.pipe_of(completion.qpn)
    }

    /// A completion of a pipe's queue pair.
    pub(in crate::world) fn completed_collective(
        &mut self,
        now: Time,
        pipe: u32,
        completion: &Completion,
        context: &mut Context<'_>,
    ) {
        let Some(worker) = &self.worker else { return };
        let sends = worker.pipes[pipe as usize].sends;
        if completion.status != Status::Success {
            return self.fail_pipe(now, pipe, completion, context);
        }
        let receives = matches!(
            completion.kind,
            CompletionKind::Receive | CompletionKind::ReceiveWriteImmediate
        );
        if receives {
            self.post_receive(now, completion.qpn);
        } else if sends {
            self.completed(
                now,
                completion.id,
                completion.status,
                completion.qpn,
                context,
            );
        }
        let seen = self.seen(now, pipe, context);
        self.with_worker(now, context, |worker| match (receives, sends) {
            (true, true) => worker.cleared(now, pipe),
            (true, false) => worker.arrived(now, pipe),
            (false, true) => worker.acknowledged(now, pipe, seen),
            (false, false) => worker.record_acknowledged(pipe),
        });
    }

    /// The queue pair has failed: what it was to move never will be.
    fn fail_pipe(
        &mut self,
        now: Time,
        pipe: u32,
        completion: &Completion,
        context: &mut Context<'_>,
    ) {
        let Some(worker) = &mut self.worker else {
            return;
        };
        let this = &mut worker.pipes[pipe as usize];
        this.failed = true;
        if this.sends {
            let flow = u64::from(this.flow);
            self.completed(now, flow, completion.status, completion.qpn, context);
        }
    }

    /// Has the worker do something, and does what it then asks for.
    pub(super) fn with_worker(
        &mut self,
        now: Time,
        context: &mut Context<'_>,
        act: impl FnOnce(&mut Worker),
    ) {
        let Some(mut worker) = self.worker.take() else {
            return;
        };
        let was_done = worker.is_done();
        act(&mut worker);
        if worker.is_done() && !was_done {
            *context.unfinished -= 1;
        }
        self.worker = Some(worker);
        while let Some(order) = self.worker.as_mut().and_then(|worker| worker.next_order()) {
            match order {
                Order::Plan { part, at } => self.think_at(at, OF_WORKER | part),
                Order::Post { pipe, bytes } => match self.local_end(pipe) {
                    Some(end) => self.send_locally(now, end, bytes, context),
                    None => self.post_slice(now, pipe, bytes, context),
                },
                Order::Clear { pipe } => match self.local_end(pipe) {
                    Some(end) => self.clear_locally(now, pipe, end, context),
                    None => self.post_by_pcie(now, pipe, None),
                },
            }
        }
    }

    fn post_slice(&mut self, now: Time, pipe: u32, bytes: u32, context: &mut Context<'_>) {
        let seen = self.seen(now, pipe, context);
        let Some(worker) = &mut self.worker else {
            return;
        };
        worker.posted(pipe, seen);
        let flow = worker.pipes[pipe as usize].flow;
        let poster = &mut self.posters[context.poster_of_flow[flow as usize] as usize];
        if poster.posted == 0 {
            poster.started = now;
        }
        poster.posted += 1;
        poster.posts.push_back(now);
        self.post_by_pcie(now, pipe, Some(bytes));
    }

    /// Posts a slice, or without bytes a record, when the adapter gets it.
    fn post_by_pcie(&mut self, now: Time, pipe: u32, bytes: Option<u32>) {
        let Some(worker) = &mut self.worker else {
            return;
        };
        worker.pipes[pipe as usize].handed.push_back(bytes);
        let waits = self
            .pcie
            .as_mut()
            .is_some_and(|pcie| pcie.post(now, OF_WORKER | pipe));
        if !waits {
            self.post_pipe(now, pipe);
        }
    }

    /// The device gets the next work request of a pipe.
    pub(in crate::world) fn post_pipe(&mut self, now: Time, pipe: u32) {
        let Some(worker) = &mut self.worker else {
            return;
        };
        let this = &mut worker.pipes[pipe as usize];
        let Some(bytes) = this.handed.pop_front() else {
            return;
        };
        let Some(keys) = this.keys else { return };
        let sges = [Sge {
            address: BUFFER_ADDRESS,
            length: bytes.unwrap_or(CLEAR_BYTES),
            lkey: self.keys.lkey,
        }];
        let request = SendRequest {
            id: bytes.map_or(RECORD_ID, |_| u64::from(this.flow)),
            operation: Operation::Write {
                address: BUFFER_ADDRESS,
                rkey: keys.rkey,
                immediate: Some([0; 4]),
            },
            flags: SendFlags::SIGNALED,
            data: Data::Sges(&sges),
            destination: None,
            xrc_srq: None,
        };
        let posted = self.device.post_send(this.qpn, &request, Instant(now.ns()));
        this.failed |= posted.is_err();
    }

    /// What the port and the queue pair of a pipe have counted.
    fn seen(&self, now: Time, pipe: u32, context: &Context<'_>) -> Seen {
        let Some(worker) = &self.worker else {
            return Seen::default();
        };
        let flow = worker.pipes[pipe as usize].flow;
        let class = usize::from(self.class_of(flow, context));
        let counters = self
            .device
            .qp_counters(worker.pipes[pipe as usize].qpn)
            .unwrap_or_default();
        let port = self.egress.counters(class, now);
        let config = &context.kinds[usize::from(self.kind)].config;
        let gaps = u64::from(config.gap_bytes()) * port.sent_packets;
        Seen {
            paused_ps: port.paused_ps,
            sent_bytes: port.sent_bytes + gaps,
            resent_packets: counters.retransmitted_packets,
        }
    }
}
