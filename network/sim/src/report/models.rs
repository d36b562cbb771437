//! Models in reports: how long a step takes, and what ranks wait for in it.

use super::Report;
use super::layout::{Rows, time};
use super::units::us;
use crate::experiment::{Experiment, NamedExchange, NamedModel, kind_name};
use crate::world::{ProgramResult, Results};
use fabric::{Span, Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A model that is trained.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ModelReport {
    /// The name that the fabric file gives.
    pub name: String,
    /// How many ranks it has.
    pub ranks: u64,
    /// How many parameters it has.
    pub parameters: u64,
    /// Steps that ended at all ranks.
    pub steps: u64,
    /// Steps that the file asks for.
    pub steps_asked: u64,
    /// How long each step took: from the end of the one before it, at the rank that ended last, in
    /// microseconds.
    pub steps_us: Vec<f64>,
    /// The mean of these.
    pub step_us: Option<f64>,
    /// Operations of the model in a step, and of each rank in a second of it; recomputing is not counted.
    pub flops_per_second: Option<f64>,
    /// How long a rank computes in a step, on average over ranks.
    pub compute_us: f64,
    /// The rank that waits least for others, which so holds them up.
    pub slowest: Option<String>,
    /// How long ranks wait for what they exchange: communication that no computing hides.
    pub exposed: Vec<ExposedReport>,
    /// What ranks exchange.
    pub exchanges: Vec<ExchangeReport>,
}

/// Communication of one kind that no computing hides.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ExposedReport {
    /// The kind of parallelism.
    pub dimension: String,
    /// How long a rank waits for it in a step, on average over ranks, in microseconds.
    pub mean_us: f64,
    /// The same of the rank that waits longest.
    pub most_us: f64,
    /// The rank that waits longest.
    pub most: String,
}

/// What the ranks of a model exchange.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ExchangeReport {
    /// Its name: `NAME/0` and so on are its groups, among the collectives.
    pub name: String,
    /// The operation as the fabric file has it, or `transfer`.
    pub kind: String,
    /// The kind of parallelism.
    pub dimension: String,
    /// How many groups do it at once.
    pub groups: u64,
    /// Ranks of a group.
    pub ranks: u64,
    /// Bytes as nccl-tests count them.
    pub bytes: u64,
    /// How often each group does it in a step.
    pub per_step: u64,
    /// The group that takes longest on average.
    pub slowest: Option<String>,
    /// How long it takes this group, in microseconds.
    pub time_us: Option<f64>,
    /// Bus bandwidth of this group, as nccl-tests counts it.
    pub busbw_bytes_per_s: Option<f64>,
}

/// The reports of all models, in the order of the file.
pub(super) fn reports(
    experiment: &Experiment,
    results: &Results,
    report: &Report,
) -> Vec<ModelReport> {
    let programs: BTreeMap<u32, &ProgramResult> = results
        .programs
        .iter()
        .map(|(host, program)| (*host, program))
        .collect();
    let models = experiment.models.iter();
    models
        .map(|model| {
            let found = model.hosts.iter().filter_map(|host| {
                let program = programs.get(host)?;
                Some((*host, *program))
            });
            Followed {
                experiment,
                model,
                ranks: found.collect(),
            }
            .report(report)
        })
        .collect()
}

/// A model with what became of its ranks' programs.
struct Followed<'a> {
    experiment: &'a Experiment,
    model: &'a NamedModel,
    ranks: Vec<(u32, &'a ProgramResult)>,
}

impl Followed<'_> {
    fn report(&self, report: &Report) -> ModelReport {
        let plan = &self.model.plan;
        let steps = self.steps();
        let per_step = |span: Span| us(span.0) / steps.len().max(1) as f64;
        let count = self.ranks.len().max(1) as f64;
        let computed = self.ranks.iter().map(|(_, rank)| per_step(rank.computed));
        let step_us = (!steps.is_empty()).then(|| steps.iter().sum::<f64>() / steps.len() as f64);
        let sequences = plan.micro_batch * u64::from(plan.micro_batches);
        let flops = plan.transformer.training_flops(sequences) as f64;
        let replicas = f64::from(plan.layout.data);
        ModelReport {
            name: self.model.name.clone(),
            ranks: self.model.hosts.len() as u64,
            parameters: plan.transformer.parameters(),
            steps: steps.len() as u64,
            steps_asked: u64::from(plan.steps),
            step_us,
            flops_per_second: step_us.map(|time| flops * replicas / count / (time / 1e6)),
            compute_us: computed.sum::<f64>() / count,
            slowest: self.slowest(),
            exposed: self.exposed(&per_step),
            exchanges: self.exchanges(report),
            steps_us: steps,
        }
    }

    /// How long each step took that has ended at all ranks.
    fn steps(&self) -> Vec<f64> {
        let ranks = self.ranks.iter();
        let all = ranks.clone().map(|(_, rank)| rank.steps.len()).min();
        let ends = (0..all.unwrap_or(0)).map(|step| {
            let ends = ranks.clone().map(|(_, rank)| rank.steps[step]);
            ends.max().unwrap_or(Time(0))
        });
        let mut before = self.model.start;
        ends.map(|end| us((end - std::mem::replace(&mut before, end)).0))
            .collect()
    }

    fn host(&self, number: u32) -> String {
        self.experiment.network.hosts[number as usize].name.clone()
    }

    /// The rank that waits least; of several, the first.
    fn slowest(&self) -> Option<String> {
        let waited = |rank: &ProgramResult| rank.waited.iter().map(|span| span.0).sum::<u64>();
        let ended = self.ranks.iter().filter(|(_, rank)| !rank.steps.is_empty());
        let least = ended.min_by_key(|(_, rank)| waited(rank));
        least.map(|(host, _)| self.host(*host))
    }

    fn exposed(&self, per_step: &impl Fn(Span) -> f64) -> Vec<ExposedReport> {
        let all = self.model.slots.iter().flatten();
        let mut kinds: Vec<&str> = all.map(|exchange| exchange.within.word()).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let count = self.ranks.len().max(1) as f64;
        let kinds = kinds.into_iter().filter_map(|kind| {
            let ranks = self.ranks.iter().zip(0_u32..);
            let all =
                ranks.map(|((host, program), rank)| (*host, self.waited(program, rank, kind)));
            let mean = all.clone().map(|(_, span)| per_step(span)).sum::<f64>() / count;
            // Of several, the first.
            let most = all.reduce(|one, other| if other.1 > one.1 { other } else { one })?;
            Some(ExposedReport {
                dimension: kind.to_owned(),
                mean_us: mean,
                most_us: per_step(most.1),
                most: self.host(most.0),
            })
        });
        kinds.collect()
    }

    /// How long a rank waited for one kind of parallelism.
    fn waited(&self, program: &ProgramResult, rank: u32, kind: &str) -> Span {
        let stage = self.model.plan.layout.stage(rank) as usize;
        let slots = self.model.slots[stage].iter().zip(&program.waited);
        let own = slots.filter(|(exchange, _)| exchange.within.word() == kind);
        Span(own.map(|(_, span)| span.0).sum())
    }

    fn exchanges(&self, report: &Report) -> Vec<ExchangeReport> {
        let all = self.model.exchanges.iter();
        all.map(|one| self.exchange(one, report)).collect()
    }

    fn exchange(&self, named: &NamedExchange, report: &Report) -> ExchangeReport {
        let exchange = &named.exchange;
        let collectives = self.experiment.collectives.iter().zip(&report.collectives);
        let own =
            collectives.filter(|(job, one)| named.jobs.contains(&job.job) && one.time_us.is_some());
        let slowest = own.map(|(_, one)| one).reduce(|one, other| {
            if other.time_us > one.time_us {
                other
            } else {
                one
            }
        });
        ExchangeReport {
            name: format!("{}/{}", self.model.name, exchange.name),
            kind: exchange.kind.map_or("transfer", kind_name).to_owned(),
            dimension: exchange.within.word().to_owned(),
            groups: named.jobs.len() as u64,
            ranks: u64::from(self.model.plan.layout.size(exchange.within)),
            bytes: exchange.bytes,
            per_step: named.times / u64::from(self.model.plan.steps),
            slowest: slowest.map(|one| one.name.clone()),
            time_us: slowest.and_then(|one| one.time_us),
            busbw_bytes_per_s: slowest.and_then(|one| one.busbw_bytes_per_s),
        }
    }
}

/// The tables of models: steps, and what they consist of.
pub(super) fn models(report: &Report) -> String {
    if report.models.is_empty() {
        return String::new();
    }
    let dash = || "-".to_owned();
    let mut rows = Rows::new(&[
        "model",
        "ranks",
        "steps",
        "step",
        "TFLOP/s a rank",
        "slowest",
    ]);
    let mut parts = Rows::new(&["step of", "part", "mean", "of a step", "most", "at"]);
    let mut exchanges = Rows::new(&[
        "exchange",
        "operation",
        "groups",
        "ranks",
        "size",
        "a step",
        "time",
        "busbw GB/s",
    ]);
    for one in &report.models {
        rows.0.push(vec![
            one.name.clone(),
            one.ranks.to_string(),
            format!("{}/{}", one.steps, one.steps_asked),
            one.step_us.map_or_else(dash, time),
            one.flops_per_second
                .map_or_else(dash, |rate| format!("{:.1}", rate / 1e12)),
            one.slowest.clone().unwrap_or_else(dash),
        ]);
        let share = |part: f64| match one.step_us {
            Some(whole) if whole > 0.0 => format!("{:.1} %", 100.0 * part / whole),
            _ => dash(),
        };
        parts.0.push(vec![
            one.name.clone(),
            "computing".to_owned(),
            time(one.compute_us),
            share(one.compute_us),
            dash(),
            dash(),
        ]);
        for exposed in &one.exposed {
            parts.0.push(vec![
                one.name.clone(),
                format!("{} exposed", exposed.dimension),
                time(exposed.mean_us),
                share(exposed.mean_us),
                time(exposed.most_us),
                exposed.most.clone(),
            ]);
        }
        exchanges.0.extend(one.exchanges.iter().map(exchange_row));
    }
    format!("\n{}\n{}\n{}", rows.text(), parts.text(), exchanges.text())
}

fn exchange_row(one: &ExchangeReport) -> Vec<String> {
    vec![
        one.name.clone(),
        one.kind.clone(),
        one.groups.to_string(),
        one.ranks.to_string(),
        super::layout::size(one.bytes as f64),
        one.per_step.to_string(),
        one.time_us.map_or_else(|| "-".to_owned(), time),
        one.busbw_bytes_per_s
            .map_or_else(|| "-".to_owned(), |rate| format!("{:.3}", rate / 1e9)),
    ]
}
