//! From the groups, collectives and transfers of a fabric file to the plan of a scenario.

mod algorithm;
mod cut;
mod groups;
mod jobs;
mod models;
mod order;
mod pipes;

use super::file_table::FileTable;
use crate::world::{CollectivePlan, Flow, Job};
pub use algorithm::kind_name;
use fabric::Span;
use fabric_file::schema::CollectiveKind;
use fabric_file::{Document, FabricFile, FileError, Mistake, Network};
use groups::Groups;
use jobs::Described;
pub use models::{NamedExchange, NamedModel};
use pipes::UsedPipe;

/// Repetitions of all collectives at all of their ranks at most: 256 MiB of times.
const TIMES_MAX: u64 = 1 << 24;

/// Messages in one repetition of all collectives up to which they are logged for the critical path: 100 MiB.
const LOGGED_MAX: u64 = 1 << 20;

/// A collective or a transfer, for reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamedJob {
    /// The name that the fabric file gives.
    pub name: String,
    /// The operation; a transfer has none.
    pub kind: Option<CollectiveKind>,
    /// How its data travels.
    pub algorithm: &'static str,
    /// The group; none of a transfer.
    pub group: Option<String>,
    /// Its number in the plan.
    pub job: u32,
    /// Bytes that one repetition sends over the network, and within servers, over all ranks.
    pub network_bytes: u64,
    /// Bytes that one repetition sends within servers.
    pub local_bytes: u64,
}

/// What the file describes.
#[derive(Default)]
pub(super) struct Planned {
    /// In the order of the file: collectives first, then transfers.
    pub(super) named: Vec<NamedJob>,
    pub(super) models: Vec<NamedModel>,
    pub(super) plan: CollectivePlan,
    pub(super) flows: Vec<Flow>,
    /// Names of the groups that have queue pairs, by the workload that these are in results.
    pub(super) workloads: Vec<String>,
}

/// The collectives of a file; none if it has none. Their flows get numbers from `first_flow` on, and their
/// groups those of workloads from `first_workload` on.
pub(super) fn planned(
    document: &Document,
    file: &FabricFile,
    network: &Network,
    [first_flow, first_workload]: [usize; 2],
) -> Result<Planned, FileError> {
    if file.collective.is_empty() && file.transfer.is_empty() && file.model.is_empty() {
        return Ok(Planned::default());
    }
    let mut groups = Groups::new(document, file, network);
    let mut described = jobs::described(document, file, &mut groups)?;
    let mut models = models::described(document, file, &mut groups, &mut described)?;
    check_times(document, &described, &groups)?;
    let order = order::order(document, &described)?;
    order::check_hosts(document, &described, &groups)?;
    let mut place = vec![0_u32; described.len()];
    for (index, at) in order.iter().zip(0..) {
        place[*index] = at;
    }
    models.place_jobs(&place);
    let jobs = ordered(&described, &order, &place);
    let marks = groups.marks();
    let (ranks, workload_of, workloads) = groups.into_ranks(first_workload, &jobs);
    let mut plan = CollectivePlan {
        groups: ranks,
        jobs,
        pipes: Vec::new(),
        local_pipes: Vec::new(),
        programs: models.programs,
        programmed: models.programmed,
        seed: file.seed,
        is_logged: false,
    };
    let found = pipes::pipes(&plan).map_err(|job| {
        let index = place.iter().position(|at| *at == job).unwrap_or(0);
        let what = "too many queue pairs or messages, with those before it".to_owned();
        let instead = "fewer ranks, or fewer channels";
        document.mistake(Mistake::Limit, &described[index].path, what, instead)
    })?;
    let all = found.pipes.iter().chain(&found.local);
    let messages = all.fold(0_u64, |sum, pipe| sum.saturating_add(pipe.messages));
    let flows = found
        .pipes
        .iter()
        .map(|pipe| {
            let group = pipe.key.group as usize;
            pipe.flow(&plan, workload_of[group], marks[group])
        })
        .collect();
    plan.pipes = found
        .pipes
        .iter()
        .zip(first_flow as u32..)
        .map(|(pipe, flow)| pipe.of_plan(flow))
        .collect();
    plan.is_logged = messages <= LOGGED_MAX;
    plan.local_pipes = found.local.iter().map(UsedPipe::local).collect();
    let named = described.into_iter().zip(place).map(|(one, job)| NamedJob {
        name: one.name,
        kind: one.kind,
        algorithm: one.algorithm,
        group: one.group,
        job,
        network_bytes: found.job_bytes[job as usize][0],
        local_bytes: found.job_bytes[job as usize][1],
    });
    Ok(Planned {
        named: named.collect(),
        models: models.named,
        plan,
        flows,
        workloads,
    })
}

/// The jobs in their order, each of which waits for others by their places in it.
fn ordered(described: &[Described], order: &[usize], place: &[u32]) -> Vec<Job> {
    let jobs = order.iter().map(|index| {
        let one = &described[*index];
        let after = one.after.iter().map(|before| place[*before]).collect();
        Job {
            after,
            ..one.job.clone()
        }
    });
    jobs.collect()
}

fn check_times(
    document: &Document,
    described: &[Described],
    groups: &Groups<'_>,
) -> Result<(), FileError> {
    let mut times = 0_u64;
    let mut computing = Span::ZERO;
    for one in described {
        let each = one.job.compute.0.saturating_add(one.job.jitter.0);
        let own = each.saturating_mul(u64::from(one.job.repeat));
        computing = Span(computing.0.saturating_add(own));
        if computing > COMPUTE_ALL_MAX || one.job.start.0 > COMPUTE_ALL_MAX.0 {
            let what =
                "with those before it, it computes or waits for more than ten days".to_owned();
            let instead = "shorter times, or fewer repetitions";
            return Err(document.mistake(Mistake::Limit, &one.path, what, instead));
        }
        let ranks = groups.ranks(one.job.group) as u64;
        times = times.saturating_add(ranks.saturating_mul(u64::from(one.job.repeat)));
        if times > TIMES_MAX {
            let field = format!("{}.repeat", one.path);
            let what = format!("more than {TIMES_MAX} repetitions, over all ranks");
            let instead = "repeat fewer times: one time is like the other";
            return Err(document.mistake(Mistake::Limit, &field, what, instead));
        }
    }
    Ok(())
}

/// Longest time that a rank computes at once, and that all compute together or wait before they begin.
const COMPUTE_MAX: Span = Span(1 << 52);
const COMPUTE_ALL_MAX: Span = Span(1 << 60);
