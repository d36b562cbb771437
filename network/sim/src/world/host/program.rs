//! The program of a host: posts messages, and takes completions.

use super::{BUFFER_ADDRESS, Context, Host};
use crate::world::results::Latency;
use crate::world::scenario::{Action, Flow, Step, Transfer};
use fabric::Time;
use rnic::{
    Completion, Data, Destination, Instant, Operation, ReceiveRequest, RegionKeys, SendFlags,
    SendRequest, Sge, Status,
};
use std::collections::VecDeque;
use std::sync::Arc;
use wire::{Qpn, Tail};

/// Completions that are taken at once.
const POLL_MAX: usize = 64;

/// Completions of receives have it; those of sends have the flow's number.
pub(in crate::world) const RECEIVE_ID: u64 = u64::MAX;

/// The program's side of a flow, where its work is posted.
#[derive(Debug)]
pub(in crate::world) struct Poster {
    pub(in crate::world) flow: Flow,
    pub(in crate::world) number: u32,
    pub(in crate::world) qpn: Qpn,
    pub(in crate::world) peer_qpn: Qpn,
    /// Where datagrams go.
    pub(in crate::world) datagram: Option<Box<Destination>>,
    pub(in crate::world) peer: RegionKeys,
    pub(in crate::world) posted: u64,
    pub(in crate::world) completed: u64,
    /// Storage: I/Os that ended with an error.
    pub(in crate::world) errors: u64,
    pub(in crate::world) failed: bool,
    /// When each message that is under way was posted.
    pub(in crate::world) posts: VecDeque<Time>,
    pub(in crate::world) started: Time,
    pub(in crate::world) first_completion: Time,
    pub(in crate::world) last_completion: Time,
    pub(in crate::world) latency: Latency,
    /// The recorded work requests that it posts in place of messages that are all alike; how many of them the
    /// device has, and when the next is posted.
    pub(in crate::world) trace: Option<Arc<[Step]>>,
    pub(in crate::world) handed: u64,
    pub(in crate::world) ready_at: Time,
}

impl Host {
    /// The program takes completions, when it sees any; whether it did.
    #[inline]
    pub(super) fn look(&mut self, now: Time, context: &mut Context<'_>) -> bool {
        let there = self.device.cqs().has_completions(self.cq);
        let sees = there && self.pcie.as_mut().is_none_or(|pcie| pcie.sees(now));
        if sees {
            self.take_completions(now, context);
        }
        sees
    }

    /// The host's clock.
    pub(in crate::world) fn handle_clock(&mut self, now: Time, context: &mut Context<'_>) {
        if self.clocks.pop_if(|at| *at == now).is_none() {
            return;
        }
        if self.is_live {
            self.handle_pcie(now, context);
            return self.pump_live(now, context);
        }
        let starts = |host: &Self| {
            host.starts
                .last()
                .map(|index| host.posters[*index as usize].flow.start)
        };
        while starts(self).is_some_and(|start| start <= now) {
            if let Some(index) = self.starts.pop() {
                self.posters[index as usize].started = now;
                self.post(now, index as usize);
            }
        }
        self.think(now, context);
        self.device.handle_timeout(Instant(now.ns()));
        if self.uet.is_some() {
            self.handle_uet(now, context);
        }
        self.handle_pcie(now, context);
        self.handle_store(now, context);
        self.look(now, context);
        self.pump(now, context);
    }

    pub(super) fn take_completions(&mut self, now: Time, context: &mut Context<'_>) {
        if self.store.is_some() || self.worker.is_some() {
            self.take_whole_completions(now, context);
        }
        loop {
            let mut done = [(0, Status::Success, 0); POLL_MAX];
            let mut count = 0;
            let took = self
                .device
                .cqs_mut()
                .poll(self.cq, POLL_MAX, |completion: &Completion| {
                    done[count] = (completion.id, completion.status, completion.qpn.value());
                    count += 1;
                });
            for (id, status, qpn) in &done[..took] {
                self.completed(now, *id, *status, Qpn::new(*qpn), context);
            }
            if took < POLL_MAX {
                return;
            }
        }
    }

    /// Takes completions of hosts whose programs look at all of their fields.
    fn take_whole_completions(&mut self, now: Time, context: &mut Context<'_>) {
        loop {
            let mut done: Vec<Completion> = Vec::with_capacity(POLL_MAX);
            let took = self
                .device
                .cqs_mut()
                .poll(self.cq, POLL_MAX, |completion| done.push(*completion));
            for completion in &done {
                if let Some(session) = self.session_of(completion) {
                    self.completed_storage(now, session, completion, context);
                } else if let Some(pipe) = self.pipe_of(completion) {
                    self.completed_collective(now, pipe, completion, context);
                } else {
                    let (id, status) = (completion.id, completion.status);
                    self.completed(now, id, status, completion.qpn, context);
                }
            }
            if took < POLL_MAX {
                return;
            }
        }
    }

    pub(in crate::world) fn completed(
        &mut self,
        now: Time,
        id: u64,
        status: Status,
        qpn: Qpn,
        context: &mut Context<'_>,
    ) {
        if id == RECEIVE_ID {
            if status == Status::Success {
                self.post_receive(now, qpn);
            }
            return;
        }
        let index = context.poster_of_flow[id as usize] as usize;
        let poster = &mut self.posters[index];
        let posted = poster.posts.pop_front();
        if status != Status::Success {
            if !std::mem::replace(&mut poster.failed, true) {
                *context.unfinished -= 1;
            }
            return;
        }
        if poster.completed == 0 {
            poster.first_completion = now;
        }
        poster.completed += 1;
        poster.last_completion = now;
        poster
            .latency
            .add(posted.map_or(0, |posted| (now - posted).0 / 1000));
        if poster.completed == poster.flow.messages {
            *context.unfinished -= 1;
        } else if poster.posted < poster.flow.messages {
            self.post(now, index);
        }
    }

    /// Posts as many messages as the flow's depth allows.
    pub(super) fn post(&mut self, now: Time, index: usize) {
        let flow = self.posters[index].flow;
        if flow.operation.is_storage() {
            return self.begin_storage(now, index);
        }
        if flow.operation.is_collective() {
            return;
        }
        if flow.trace.is_some() {
            return self.replay(now, index);
        }
        loop {
            let poster = &mut self.posters[index];
            if poster.posts.len() >= flow.depth as usize
                || poster.posted >= flow.messages
                || poster.failed
            {
                return;
            }
            poster.posted += 1;
            poster.posts.push_back(now);
            if !self
                .pcie
                .as_mut()
                .is_some_and(|pcie| pcie.post(now, index as u32))
            {
                self.post_to_device(now, index);
            }
        }
    }

    pub(super) fn post_to_device(&mut self, now: Time, index: usize) {
        let poster = &mut self.posters[index];
        let flow = poster.flow;
        let (address, rkey) = (BUFFER_ADDRESS, poster.peer.rkey);
        let step = poster.next_step();
        let length = step.map_or(flow.message_bytes, |step| step.bytes);
        if let Some(endpoint) = &mut self.uet {
            return endpoint.post(poster.number, u64::from(length));
        }
        let operation = match flow.operation {
            _ if step.is_some_and(|step| step.action == Action::Write) => Operation::Write {
                address,
                rkey,
                immediate: None,
            },
            _ if step.is_some_and(|step| step.action == Action::Read) => {
                Operation::Read { address, rkey }
            }
            Transfer::Write | Transfer::UnreliableWrite => Operation::Write {
                address,
                rkey,
                immediate: None,
            },
            Transfer::Send | Transfer::Datagram => Operation::Send(Tail::None),
            Transfer::Read => Operation::Read { address, rkey },
            Transfer::StorageRead | Transfer::StorageWrite | Transfer::Collective => return,
        };
        let sges = [Sge {
            address,
            length,
            lkey: self.keys.lkey,
        }];
        let request = SendRequest {
            id: u64::from(poster.number),
            operation,
            flags: SendFlags::SIGNALED,
            data: Data::Sges(&sges),
            destination: poster.datagram.as_deref().copied(),
            xrc_srq: None,
        };
        if self
            .device
            .post_send(poster.qpn, &request, Instant(now.ns()))
            .is_err()
        {
            poster.failed = true;
        }
    }

    pub(in crate::world) fn post_receive(&mut self, now: Time, qpn: Qpn) {
        let sges = [Sge {
            address: BUFFER_ADDRESS,
            length: u32::MAX >> 1,
            lkey: self.keys.lkey,
        }];
        let request = ReceiveRequest {
            id: RECEIVE_ID,
            sges: &sges,
        };
        // A full receive queue is no harm: it is filled again with the next completion.
        let _full = self.device.post_receive(qpn, &request, Instant(now.ns()));
    }
}
