//! Collectives and dependent transfers in reports: times, bandwidths as nccl-tests gives them, critical
//! paths, and why those that did not end are stuck.

mod path;
mod rows;
mod stuck;
mod text;

pub use path::{LegReport, PathReport};
pub use rows::{collective_columns, collective_sweep_rows, collectives_csv, links_csv};
pub(super) use stuck::findings;
pub(super) use text::collectives;

use super::units::us;
use crate::experiment::{Experiment, NamedJob, kind_name};
use crate::world::{EndedRepetition, JobLink, JobRank, JobResult, RankState, Results};
use fabric_file::schema::CollectiveKind;
use path::Splitter;
use serde::{Deserialize, Serialize};

/// A collective or a transfer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CollectiveReport {
    /// The name that the fabric file gives.
    pub name: String,
    /// The operation as the fabric file has it, or `transfer`.
    pub kind: String,
    /// How its data travels.
    pub algorithm: String,
    /// The group; empty for a transfer.
    pub group: String,
    /// How many ranks take part.
    pub ranks: u64,
    /// Bytes as nccl-tests count them.
    pub bytes: u64,
    /// Bytes of one rank's part, for operations whose data consists of parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part_bytes: Option<u64>,
    /// Payload that one repetition puts on the network, over all ranks: protocols with flags have more than
    /// data.
    pub network_bytes: u64,
    /// Bytes that the collective moves within servers.
    pub local_bytes: u64,
    /// Repetitions that ended at all ranks.
    pub repetitions: u64,
    /// Repetitions that the file asks for.
    pub repeat: u64,
    /// When the first rank began, after computing, and when the last ended; nothing where none did.
    pub interval_us: Option<[f64; 2]>,
    /// How long each repetition took the rank that took longest, in microseconds.
    pub times_us: Vec<f64>,
    /// The mean of a repetition, of the rank whose mean is longest. It computes before that.
    pub time_us: Option<f64>,
    /// Host of the slowest rank.
    pub slowest: Option<String>,
    /// `bytes` over `time_us`, in bytes per second.
    pub algbw_bytes_per_s: Option<f64>,
    /// The same times the factor of nccl-tests, which makes it comparable with the rate of a link.
    pub busbw_bytes_per_s: Option<f64>,
    /// What the last repetition waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathReport>,
    /// Why it did not end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stuck: Option<String>,
    /// What it sent over each link in all repetitions, records included, if hops were requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<CollectiveLink>,
}

/// What a collective sent in one direction of a link. Acknowledgements are left out.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CollectiveLink {
    /// The port that sends.
    pub port: String,
    /// The port at the other end.
    pub to: String,
    /// Packets, those that were sent again included.
    pub packets: u64,
    /// Bytes of these, headers included.
    pub bytes: u64,
}

/// The reports of all of them, in the order of the file.
pub(super) fn reports(experiment: &Experiment, results: &Results) -> Vec<CollectiveReport> {
    let mut splitter = Splitter::new(experiment);
    let one = |named: &NamedJob| {
        let result = results.jobs.get(named.job as usize)?;
        let plan = experiment.scenario.collectives.as_ref()?;
        let job = plan.jobs.get(named.job as usize)?;
        let ranks = result.ranks.len() as u64;
        let slowest = slowest(&result.ranks);
        let time_us = slowest.map(|(_, time)| time);
        let bandwidths = time_us.and_then(|time| bandwidths(named.kind, ranks, job.bytes, time));
        let begun = result.ranks.iter().filter_map(|rank| rank.times.first());
        let begin = begun.map(|times| times[0]).min();
        let host = |rank: &JobRank| experiment.network.hosts[rank.host as usize].name.clone();
        Some(CollectiveReport {
            name: named.name.clone(),
            kind: named.kind.map_or("transfer", kind_name).to_owned(),
            algorithm: named.algorithm.to_owned(),
            group: named.group.clone().unwrap_or_default(),
            ranks,
            bytes: job.bytes,
            part_bytes: has_parts(named.kind).then(|| job.bytes.div_ceil(ranks.max(1))),
            network_bytes: named.network_bytes,
            local_bytes: named.local_bytes,
            repetitions: ended(&result.ranks),
            repeat: u64::from(job.repeat),
            interval_us: begin
                .zip(result.end())
                .map(|(begin, end)| [us(begin.0), us(end.0)]),
            times_us: times(&result.ranks),
            time_us,
            slowest: slowest.map(|(rank, _)| host(rank)),
            algbw_bytes_per_s: bandwidths.map(|[of_algorithm, _]| of_algorithm),
            busbw_bytes_per_s: bandwidths.map(|[_, of_bus]| of_bus),
            path: splitter.path(&result.path),
            stuck: stuck::why(experiment, results, named.job),
            links: links(experiment, &result.links),
        })
    };
    experiment.collectives.iter().filter_map(one).collect()
}

/// A repetition of a collective, as soon as it has ended at all ranks.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RepetitionReport {
    /// The name that the fabric file gives.
    pub collective: String,
    /// Which of the repetitions, from 1 on.
    pub repetition: u64,
    /// How many the file asks for.
    pub repeat: u64,
    /// When the last rank ended, in microseconds.
    pub end_us: f64,
    /// How long it took the rank that took longest.
    pub time_us: f64,
    /// [`CollectiveReport::algbw_bytes_per_s`] of this repetition.
    pub algbw_bytes_per_s: Option<f64>,
    /// [`CollectiveReport::busbw_bytes_per_s`] of this repetition.
    pub busbw_bytes_per_s: Option<f64>,
}

impl RepetitionReport {
    /// Of a repetition in an experiment; none of one that the experiment does not have.
    pub fn new(experiment: &Experiment, ended: EndedRepetition) -> Option<Self> {
        let plan = experiment.scenario.collectives.as_ref()?;
        let job = plan.jobs.get(ended.job as usize)?;
        let mut named = experiment.collectives.iter();
        let named = named.find(|named| named.job == ended.job)?;
        let ranks = plan.groups[job.group as usize].hosts.len() as u64;
        let time_us = us(ended.time.0);
        let bandwidths = bandwidths(named.kind, ranks, job.bytes, time_us);
        Some(Self {
            collective: named.name.clone(),
            repetition: u64::from(ended.repetition) + 1,
            repeat: u64::from(job.repeat),
            end_us: us(ended.end.0),
            time_us,
            algbw_bytes_per_s: bandwidths.map(|[of_algorithm, _]| of_algorithm),
            busbw_bytes_per_s: bandwidths.map(|[_, of_bus]| of_bus),
        })
    }
}

fn links(experiment: &Experiment, links: &[JobLink]) -> Vec<CollectiveLink> {
    let network = &experiment.network;
    let named = |one: &JobLink| {
        let ends = network.topology.links().get(one.link as usize)?.ends;
        let (from, to) = match one.direction {
            0 => (ends[0], ends[1]),
            _ => (ends[1], ends[0]),
        };
        Some(CollectiveLink {
            port: network.port_name(from),
            to: network.port_name(to),
            packets: one.packets,
            bytes: one.bytes,
        })
    };
    links.iter().filter_map(named).collect()
}

/// Whether the data consists of the ranks' parts.
const fn has_parts(kind: Option<CollectiveKind>) -> bool {
    matches!(
        kind,
        Some(CollectiveKind::ReduceScatter | CollectiveKind::AllGather | CollectiveKind::AllToAll)
    )
}

/// The algorithm bandwidth and the bus bandwidth in bytes per second, of what moves data.
fn bandwidths(
    kind: Option<CollectiveKind>,
    ranks: u64,
    bytes: u64,
    time_us: f64,
) -> Option<[f64; 2]> {
    let of_algorithm = bytes as f64 / time_us.max(1e-6) * 1e6;
    (bytes > 0).then(|| [of_algorithm, of_algorithm * factor(kind, ranks as f64)])
}

/// The bus bandwidth as a multiple of the algorithm bandwidth (nccl-tests 2.19.6, `doc/PERFORMANCE.md`).
fn factor(kind: Option<CollectiveKind>, ranks: f64) -> f64 {
    match kind {
        Some(CollectiveKind::AllReduce) => 2.0 * (ranks - 1.0) / ranks,
        Some(
            CollectiveKind::ReduceScatter | CollectiveKind::AllGather | CollectiveKind::AllToAll,
        ) => (ranks - 1.0) / ranks,
        None
        | Some(
            CollectiveKind::Broadcast
            | CollectiveKind::Reduce
            | CollectiveKind::Send
            | CollectiveKind::Barrier,
        ) => 1.0,
    }
}

/// The rank whose repetitions took longest on average, and how long, in microseconds.
fn slowest(ranks: &[JobRank]) -> Option<(&JobRank, f64)> {
    let mean = |rank: &JobRank| {
        let spans = rank.times.iter().map(|times| us((times[1] - times[0]).0));
        spans.sum::<f64>() / rank.times.len().max(1) as f64
    };
    let all = ranks.iter().filter(|rank| !rank.times.is_empty());
    let all = all.map(|rank| (rank, mean(rank)));
    // Of several, the first.
    all.reduce(|one, other| if other.1 > one.1 { other } else { one })
}

/// Repetitions that ended at all ranks.
fn ended(ranks: &[JobRank]) -> u64 {
    let counts = ranks.iter().map(|rank| rank.times.len());
    counts.min().unwrap_or(0) as u64
}

fn times(ranks: &[JobRank]) -> Vec<f64> {
    let longest = |at: usize| {
        let spans = ranks
            .iter()
            .map(|rank| rank.times[at][1] - rank.times[at][0]);
        spans.max().map_or(0.0, |span| us(span.0))
    };
    (0..ended(ranks) as usize).map(longest).collect()
}

/// Ranks that have done all of their repetitions.
fn done(result: &JobResult) -> usize {
    let ranks = result.ranks.iter();
    ranks.filter(|rank| rank.state == RankState::Done).count()
}
