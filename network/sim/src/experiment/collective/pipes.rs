//! The queue pairs that the jobs of a plan use, and how many messages cross each.

use crate::experiment::FLOWS_MAX;
use crate::world::{
    CollectivePlan, Flow, FlowMarks, Forgery, IoLimits, LocalPipe, Pipe, Schedule, StrandId,
    Transfer,
};
use fabric::Time;
use std::collections::BTreeMap;

/// A queue pair: its group, channel, and ranks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct PipeKey {
    pub(super) group: u32,
    channel: u32,
    from: u32,
    to: u32,
}

/// What crosses it.
#[derive(Clone, Copy, Debug)]
pub(super) struct UsedPipe {
    pub(super) key: PipeKey,
    /// In one repetition of each job, and in all of them.
    pub(super) messages: u64,
    all_messages: u64,
    message_bytes: u32,
    credit: u32,
}

impl UsedPipe {
    /// The flow of the scenario.
    pub(super) fn flow(&self, plan: &CollectivePlan, workload: u32, marks: FlowMarks) -> Flow {
        let hosts = &plan.groups[self.key.group as usize].hosts;
        Flow {
            from: hosts[self.key.from as usize],
            to: hosts[self.key.to as usize],
            operation: Transfer::Collective,
            message_bytes: self.message_bytes,
            messages: self.all_messages,
            depth: self.credit,
            start: Time(0),
            workload,
            forgery: Forgery::None,
            trace: None,
            io: IoLimits::LINUX,
            marks,
        }
    }

    /// The way within a server.
    pub(super) fn local(&self) -> LocalPipe {
        let PipeKey {
            group,
            channel,
            from,
            to,
        } = self.key;
        LocalPipe {
            group,
            channel,
            from,
            to,
            messages: self.all_messages,
        }
    }

    pub(super) fn of_plan(&self, flow: u32) -> Pipe {
        let PipeKey {
            group,
            channel,
            from,
            to,
        } = self.key;
        Pipe {
            group,
            channel,
            from,
            to,
            flow,
            credit: self.credit,
        }
    }
}

/// Stages of all ranks and channels in one round of each job at most: some seconds of counting.
const STAGES_MAX: u64 = 1 << 28;

/// What the jobs of a plan use.
pub(super) struct UsedPipes {
    pub(super) pipes: Vec<UsedPipe>,
    /// Ways within servers.
    pub(super) local: Vec<UsedPipe>,
    /// Bytes that one repetition of each job sends over the network, and within servers.
    pub(super) job_bytes: Vec<[u64; 2]>,
}

/// The queue pairs of a plan; without them, a job with which they or the stages are too many.
pub(super) fn pipes(plan: &CollectivePlan) -> Result<UsedPipes, u32> {
    let mut found: BTreeMap<PipeKey, UsedPipe> = BTreeMap::new();
    let mut all_stages = 0;
    let mut job_bytes = vec![[0_u64; 2]; plan.jobs.len()];
    for (job, number) in plan.jobs.iter().zip(0..) {
        let ranks = plan.groups[job.group as usize].hosts.len() as u32;
        let schedule = Schedule::new(job, ranks);
        let strands = schedule.strands();
        let ids = (0..ranks).flat_map(|rank| {
            (0..job.channels * strands).map(move |number| StrandId {
                rank,
                channel: number / strands,
                strand: number % strands,
            })
        });
        for id in ids {
            let extent = schedule.extent(id);
            all_stages += u64::from(extent.stages);
            if all_stages > STAGES_MAX || found.len() > FLOWS_MAX {
                return Err(number);
            }
            for (stage, times) in schedule.stages(id) {
                let slices = schedule.slices(&stage)[1];
                let messages = u64::from(slices) * u64::from(times);
                let bytes = job.cut.message_bytes(stage.sent.bytes, 0);
                let sent = job.cut.all_bytes(stage.sent.bytes) * u64::from(times);
                for to in stage.send.ranks().iter().filter(|_| slices > 0) {
                    let key = PipeKey {
                        group: job.group,
                        channel: id.channel,
                        from: id.rank,
                        to: *to,
                    };
                    let sum = &mut job_bytes[number as usize][usize::from(is_local(plan, &key))];
                    *sum = sum.saturating_add(sent);
                    let pipe = found.entry(key).or_insert(UsedPipe {
                        key,
                        messages: 0,
                        all_messages: 0,
                        message_bytes: 1,
                        credit: 1,
                    });
                    pipe.messages = pipe.messages.saturating_add(messages);
                    let all = messages.saturating_mul(u64::from(job.repeat));
                    pipe.all_messages = pipe.all_messages.saturating_add(all);
                    pipe.message_bytes = pipe.message_bytes.max(bytes);
                    pipe.credit = pipe.credit.max(job.cut.credit);
                }
            }
        }
    }
    let is_local = |pipe: &UsedPipe| is_local(plan, &pipe.key);
    let (local, pipes) = found.into_values().partition(is_local);
    Ok(UsedPipes {
        pipes,
        local,
        job_bytes,
    })
}

/// Whether two ranks are in one server.
fn is_local(plan: &CollectivePlan, key: &PipeKey) -> bool {
    let within = plan.groups[key.group as usize].per_server;
    key.from / within == key.to / within
}
