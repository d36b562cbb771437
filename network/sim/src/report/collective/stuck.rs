//! Why collectives did not end: from rank to rank, to the one that no other rank holds up.

use super::super::layout::time;
use super::super::units::us;
use super::super::{Finding, Report, Severity};
use super::done;
use crate::experiment::Experiment;
use crate::world::{JobRank, Need, RankState, Results};
use fabric::Time;
use std::collections::BTreeSet;

/// Ranks of a chain that are named at most.
const NAMED_MAX: usize = 6;

/// Collectives that did not end, and that the end of the run is not the reason for.
pub(in crate::report) fn findings(
    experiment: &Experiment,
    results: &Results,
    report: &Report,
) -> Vec<Finding> {
    let at_end = experiment.scenario.end != Time::NEVER && results.end >= experiment.scenario.end;
    let stuck = report.collectives.iter().filter_map(|one| {
        let why = one.stuck.clone()?;
        let of = (one.repetitions, one.repeat);
        let seen = format!(
            "{} did not end: {} of {} repetitions are over",
            one.name, of.0, of.1
        );
        let (severity, instead) = match (at_end, report.partial) {
            (true, _) => (
                Severity::Note,
                "a longer duration, or none: the run then ends when all has",
            ),
            (false, true) => (Severity::Note, "let the run go on"),
            (false, false) => (
                Severity::Broken,
                "what failed first, which the other findings name",
            ),
        };
        Some(Finding {
            severity,
            seen,
            cause: why,
            instead: instead.to_owned(),
        })
    });
    stuck.collect()
}

/// Why a job did not end; nothing if it did.
pub(super) fn why(experiment: &Experiment, results: &Results, job: u32) -> Option<String> {
    let result = results.jobs.get(job as usize)?;
    if done(result) == result.ranks.len() {
        return None;
    }
    let mut ranks = result.ranks.iter();
    // A rank that runs says more than one that has not begun.
    let first = ranks
        .clone()
        .position(|rank| matches!(rank.state, RankState::Runs(_)))
        .or_else(|| ranks.position(|rank| rank.state != RankState::Done))?;
    let mut chain = Chain {
        experiment,
        results,
        seen: BTreeSet::new(),
        parts: Vec::new(),
        left_out: 0,
    };
    chain.follow(job, first);
    Some(chain.text())
}

/// Ranks, each of which waits for the next.
struct Chain<'a> {
    experiment: &'a Experiment,
    results: &'a Results,
    seen: BTreeSet<(u32, usize)>,
    parts: Vec<String>,
    left_out: usize,
}

impl Chain<'_> {
    fn follow(&mut self, job: u32, rank: usize) {
        let mut next = Some((job, rank));
        while let Some((job, rank)) = next.filter(|at| self.seen.insert(*at)) {
            let Some(here) = self.results.jobs[job as usize].ranks.get(rank) else {
                return;
            };
            let (text, after) = self.step(job, here);
            let is_last = after.is_none_or(|at| self.seen.contains(&at));
            if self.parts.len() < NAMED_MAX || is_last {
                self.parts.push(text);
            } else {
                self.left_out += 1;
            }
            next = after;
        }
    }

    /// What a rank waits for, and the rank that this leads to.
    fn step(&self, job: u32, rank: &JobRank) -> (String, Option<(u32, usize)>) {
        let host = self.host(rank.host);
        match &rank.state {
            RankState::Done => (
                format!("{host} is done, and what it sent is under way"),
                None,
            ),
            RankState::Starts(at) => (format!("{host} begins at {}", time(us(at.0))), None),
            RankState::Computes(at) => (format!("{host} computes until {}", time(us(at.0))), None),
            RankState::Waits(jobs) => self.other(&host, "waits for", rank.host, jobs.first()),
            RankState::Queued(before) => self.other(&host, "is still in", rank.host, Some(before)),
            RankState::Runs(strands) => {
                let failed = |need: &Need| matches!(need, Need::Failed(_));
                let worst = strands.iter().find(|strand| failed(&strand.need));
                let Some(strand) = worst.or(strands.first()) else {
                    return (format!("{host} is about to go on"), None);
                };
                let place = format!(
                    "channel {}, round {}, stage {} of {}",
                    strand.channel,
                    strand.round + 1,
                    strand.stage + 1,
                    strand.stages
                );
                let peers = &self.results.jobs[job as usize].ranks;
                let peer = |rank: u32| self.host(peers[rank as usize].host);
                match strand.need {
                    Need::Data(from) => (
                        format!("{host} waits for data of {} ({place})", peer(from)),
                        Some((job, from as usize)),
                    ),
                    Need::Room(to) => (
                        format!("{host} waits until {} has room ({place})", peer(to)),
                        Some((job, to as usize)),
                    ),
                    Need::Acknowledgement(to) => {
                        (format!("{host} is sending to {} ({place})", peer(to)), None)
                    }
                    Need::Failed(to) => (
                        format!(
                            "the queue pair of {host} with {} failed ({place})",
                            peer(to)
                        ),
                        None,
                    ),
                }
            }
        }
    }

    /// A rank that waits for another job at the same host.
    fn other(
        &self,
        host: &str,
        how: &str,
        number: u32,
        job: Option<&u32>,
    ) -> (String, Option<(u32, usize)>) {
        let Some(job) = job.copied() else {
            return (format!("{host} is about to begin"), None);
        };
        let mut named = self.experiment.collectives.iter();
        let name = named
            .find(|named| named.job == job)
            .map_or("", |named| named.name.as_str());
        let ranks = &self.results.jobs[job as usize].ranks;
        let rank = ranks.iter().position(|rank| rank.host == number);
        (format!("{host} {how} {name}"), rank.map(|rank| (job, rank)))
    }

    fn host(&self, number: u32) -> String {
        self.experiment.network.hosts[number as usize].name.clone()
    }

    fn text(mut self) -> String {
        if self.left_out > 0 {
            let last = self.parts.len() - 1;
            self.parts
                .insert(last, format!("… {} more …", self.left_out));
        }
        self.parts.join("; ")
    }
}
