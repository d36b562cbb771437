//! What became of collectives.

use super::critical::{Leg, critical_path};
use super::program::{ProgramResult, ProgramState};
use super::schedule::{Schedule, Stage};
use super::worker::{PartState, Worker};
use fabric::{Span, Time};
use std::collections::BTreeMap;

/// A job, at all of its ranks.
#[derive(Clone, PartialEq, Debug)]
pub struct JobResult {
    /// The job at each of its ranks.
    pub ranks: Vec<JobRank>,
    /// What its last repetition waited for, from its end back to its begin; empty where it did not end, or
    /// where too much was sent to be recorded.
    pub path: Vec<Leg>,
    /// What it sent over each link, if the scenario watches hops ([`super::super::Watch::hops`]).
    pub links: Vec<JobLink>,
}

/// The data and records of a job in one direction of a link, acknowledgements left out.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct JobLink {
    /// Link in the topology.
    pub link: u32,
    /// Direction in the link: 0 from its first end, 1 from its second.
    pub direction: u8,
    /// Packets, those that were sent again included.
    pub packets: u64,
    /// Bytes of these, headers included.
    pub bytes: u64,
}

impl JobResult {
    /// When its last repetition so far ended.
    pub fn end(&self) -> Option<Time> {
        let ends = self.ranks.iter().filter_map(|rank| rank.times.last());
        ends.map(|times| times[1]).max()
    }
}

/// A job at one rank.
#[derive(Clone, PartialEq, Debug)]
pub struct JobRank {
    /// The rank's host.
    pub host: u32,
    /// When each repetition began, after computing, and ended.
    pub times: Vec<[Time; 2]>,
    /// Where it is at the end of the run.
    pub state: RankState,
}

/// Where a rank is in a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RankState {
    /// All repetitions are over.
    Done,
    /// The rank waits for other jobs.
    Waits(Vec<u32>),
    /// The start time of the job has not come.
    Starts(Time),
    /// The rank computes until this time.
    Computes(Time),
    /// Another job of the group is not over.
    Queued(u32),
    /// The rank exchanges data: what each of its strands waits for.
    Runs(Vec<StrandWait>),
}

/// A repetition of a job that has ended at all of its ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndedRepetition {
    /// The job, by its number in the plan.
    pub job: u32,
    /// Which of its repetitions, from 0 on.
    pub repetition: u32,
    /// How long it took the rank that took longest.
    pub time: Span,
    /// When the last rank ended.
    pub end: Time,
}

/// The repetitions that have ended at all ranks, and that are not among the first `told` of their job: these
/// are counted on. In the order of their ends.
pub(in crate::world) fn ended<'a>(
    workers: impl Iterator<Item = &'a Worker> + Clone,
    told: &mut [u32],
) -> Vec<EndedRepetition> {
    let mut all = vec![u32::MAX; told.len()];
    for part in workers.clone().flat_map(|worker| &worker.parts) {
        let least = &mut all[part.job as usize];
        *least = (*least).min(part.times.len() as u32);
    }
    let mut found: BTreeMap<(u32, u32), EndedRepetition> = BTreeMap::new();
    for part in workers.flat_map(|worker| &worker.parts) {
        let job = part.job as usize;
        for repetition in told[job]..all[job] {
            let [begin, end] = part.times[repetition as usize];
            let one = EndedRepetition {
                job: part.job,
                repetition,
                time: end - begin,
                end,
            };
            let most = found.entry((part.job, repetition)).or_insert(one);
            most.time = most.time.max(one.time);
            most.end = most.end.max(end);
        }
    }
    for (told, all) in told.iter_mut().zip(all).filter(|(_, all)| *all != u32::MAX) {
        *told = all;
    }
    let mut found: Vec<EndedRepetition> = found.into_values().collect();
    found.sort_by_key(|one| one.end);
    found
}

/// What a strand waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StrandWait {
    /// The channel that the strand is of.
    pub channel: u32,
    /// The round and the stage that it is in, and how many stages a round has.
    pub round: u32,
    /// The stage that it is in.
    pub stage: u32,
    /// Stages of a round.
    pub stages: u32,
    /// What it waits for.
    pub need: Need,
}

/// What is missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// Data from this rank.
    Data(u32),
    /// Room in the buffers of this rank.
    Room(u32),
    /// The acknowledgement of this rank.
    Acknowledgement(u32),
    /// Nothing: the queue pair to this rank has failed.
    Failed(u32),
}

impl JobRank {
    /// The part that a host has in a job.
    pub(super) fn of(worker: &Worker, number: u32) -> Self {
        let part = &worker.parts[number as usize];
        let state = match part.state {
            PartState::Done => RankState::Done,
            PartState::Waits if part.is_programmed => worker.program_state(),
            PartState::Waits => RankState::Waits(worker.waits_for(number)),
            PartState::Starts(at) => RankState::Starts(at),
            PartState::Computes(until) => RankState::Computes(until),
            PartState::Queued => {
                let seat = &worker.seats[part.seat as usize];
                let before = seat.first().unwrap_or(number);
                RankState::Queued(worker.parts[before as usize].job)
            }
            PartState::Runs => RankState::Runs(worker.needs(number)),
        };
        Self {
            host: worker.host,
            times: part.times.clone(),
            state,
        }
    }
}

/// The result of a job, given the workers of its ranks and the number of its part at each.
pub(in crate::world) fn job_result(workers: &[(&Worker, usize)], links: Vec<JobLink>) -> JobResult {
    let ranks: Vec<JobRank> = workers
        .iter()
        .map(|(worker, part)| JobRank::of(worker, *part as u32))
        .collect();
    let is_done = ranks.iter().all(|rank| rank.state == RankState::Done);
    let path = if is_done {
        critical_path(workers)
    } else {
        Vec::new()
    };
    JobResult { ranks, path, links }
}

impl Worker {
    /// What became of the program of the host.
    pub(in crate::world) fn program_result(&self) -> Option<(u32, ProgramResult)> {
        let follower = self.follower.as_ref()?;
        Some((self.host, follower.result.clone()))
    }

    /// Where the program is that is to begin a repetition.
    fn program_state(&self) -> RankState {
        let Some(follower) = &self.follower else {
            return RankState::Waits(Vec::new());
        };
        match follower.state {
            ProgramState::Starts(at) => RankState::Starts(at),
            ProgramState::Computes(at) => RankState::Computes(at),
            _ => {
                let part = follower.waits_for();
                let job = part.map(|part| self.parts[part as usize].job);
                RankState::Waits(job.into_iter().collect())
            }
        }
    }

    /// Jobs that a part waits for, and that are not over here.
    fn waits_for(&self, part: u32) -> Vec<u32> {
        let here = |job: &&u32| {
            let mut parts = self.parts.iter();
            parts.any(|part| part.job == **job && part.state != PartState::Done)
        };
        self.job(part).after.iter().filter(here).copied().collect()
    }

    /// What each strand of a part waits for that is not over.
    fn needs(&self, part: u32) -> Vec<StrandWait> {
        let seat = self.parts[part as usize].seat;
        let schedule = Schedule::new(self.job(part), self.ranks(seat));
        let strands = self.seats[seat as usize].strands.iter().zip(0..);
        let running = strands.filter(|(strand, _)| !strand.is_over());
        running
            .filter_map(|(strand, number)| {
                let id = self.strand_id(seat, part, number);
                let extent = schedule.extent(id);
                let (is_in, last) = (strand.at.is_in(extent), extent.rounds.checked_sub(1)?);
                let [round, at] = match is_in {
                    true => [strand.at.round, strand.at.stage],
                    false => [last, extent.stages - 1],
                };
                let stage = schedule.stage(id, round, at);
                let takes = is_in && strand.taken < schedule.slices(&stage)[0];
                Some(StrandWait {
                    channel: id.channel,
                    round,
                    stage: at,
                    stages: extent.stages,
                    need: self.need(seat, id.channel, &stage, takes)?,
                })
            })
            .collect()
    }

    fn need(&self, seat: u32, channel: u32, stage: &Stage, takes: bool) -> Option<Need> {
        let pipe = |peer: u32, sends: bool| {
            let pipe = self.pipe_to(seat, channel, peer, sends)?;
            Some(&self.pipes[pipe as usize])
        };
        let mut from = stage.receive.ranks().iter().filter(|_| takes);
        let missing = from.find(|peer| pipe(**peer, false).is_some_and(|pipe| !pipe.has_arrived()));
        let mut to = stage.send.ranks().iter();
        let failed = to.find(|peer| pipe(**peer, true).is_some_and(|pipe| pipe.failed));
        if let Some(peer) = failed {
            return Some(Need::Failed(*peer));
        }
        if let Some(peer) = missing {
            let is_broken = pipe(*peer, false).is_some_and(|pipe| pipe.failed);
            return Some(match is_broken {
                true => Need::Failed(*peer),
                false => Need::Data(*peer),
            });
        }
        let peer = *stage.send.ranks().first()?;
        let lacks_room = pipe(peer, true).is_some_and(|pipe| pipe.lacks_room());
        Some(match lacks_room {
            true => Need::Room(peer),
            false => Need::Acknowledgement(peer),
        })
    }
}
