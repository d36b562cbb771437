//! The jobs of models: each exchange of each group of ranks.

use super::FileTable;
use super::groups::Groups;
use super::jobs::{self, Described};
use crate::experiment::model::{self, Exchange, TrainingPlan, Within, Written, explanation};
use crate::world::{ProgrammedHost, RankProgram};
use fabric::{Span, Time};
use fabric_file::schema::{Collective, CollectiveKind, ModelTable, TransferTable};
use fabric_file::{Document, FabricFile, FileError, Mistake};
use std::collections::BTreeMap;

/// Models of a file at most.
const MODELS_MAX: usize = 64;

/// Repetitions of a job at most.
const REPEAT_MAX: u64 = 1 << 24;

/// What all ranks compute, begin and wait for at most, over the whole run.
const INSTRUCTIONS_MAX: u64 = 1 << 32;

/// A model of a file, for reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamedModel {
    /// The name that the fabric file gives.
    pub name: String,
    /// The plan of its training.
    pub plan: TrainingPlan,
    /// The host of each rank.
    pub hosts: Vec<u32>,
    /// When it begins.
    pub start: Time,
    /// What its ranks exchange.
    pub exchanges: Vec<NamedExchange>,
    /// What the slots of each stage's program stand for.
    pub slots: Vec<Vec<Exchange>>,
    /// Its formulas with its numbers.
    pub explanation: String,
}

/// What ranks of a model exchange, in groups of one kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamedExchange {
    /// What it is.
    pub exchange: Exchange,
    /// How often the group that does it most often does it, in all steps.
    pub times: u64,
    /// The jobs of the plan.
    pub jobs: Vec<u32>,
}

/// The models of a file, and their programs.
#[derive(Default)]
pub(super) struct DescribedModels {
    pub(super) named: Vec<NamedModel>,
    pub(super) programs: Vec<RankProgram>,
    pub(super) programmed: Vec<ProgrammedHost>,
}

impl DescribedModels {
    /// Numbers of jobs become their places in the plan.
    pub(super) fn place_jobs(&mut self, places: &[u32]) {
        let exchanges = self.named.iter_mut().flat_map(|model| &mut model.exchanges);
        let named = exchanges.map(|exchange| &mut exchange.jobs);
        let hosts = self.programmed.iter_mut().map(|host| &mut host.jobs);
        for job in named.chain(hosts).flatten() {
            *job = places[*job as usize];
        }
        self.programmed.sort_by_key(|host| host.host);
    }
}

/// The models of a file. Their jobs come behind those that are there.
pub(super) fn described(
    document: &Document,
    file: &FabricFile,
    groups: &mut Groups<'_>,
    all: &mut Vec<Described>,
) -> Result<DescribedModels, FileError> {
    let mut models = DescribedModels::default();
    if file.model.len() > MODELS_MAX {
        let what = format!("{} models, and {MODELS_MAX} are the most", file.model.len());
        return Err(document.mistake(Mistake::Limit, "model", what, "write several files"));
    }
    for (index, one) in file.model.iter().enumerate() {
        let path = format!("model[{index}]");
        let table = FileTable {
            document,
            path: &path,
        };
        check_name(table, one, &models)?;
        let group = groups.named(table, &one.group)?;
        let hosts = groups.hosts(group).to_vec();
        check_hosts(table, &hosts, groups, &models)?;
        let plan = model::plan(table, one, hosts.len())?;
        if plan.longest() > super::COMPUTE_MAX {
            let what = "a rank computes for more than an hour at once".to_owned();
            let instead = "smaller batches, or a faster rank";
            return Err(table.mistake(Mistake::Limit, "micro-batch", what, instead));
        }
        let mut expansion = Expansion {
            table,
            one,
            plan,
            group,
            made: BTreeMap::new(),
            jobs: BTreeMap::new(),
            exchanges: Vec::new(),
        };
        expansion.add(&hosts, groups, all, &mut models)?;
    }
    Ok(models)
}

/// The groups of one kind.
struct MadeGroups {
    /// Numbers of the groups, in the order of the layout.
    numbers: Vec<u32>,
    /// By rank, and its place in its group: the group.
    places: BTreeMap<(u32, usize), usize>,
}

/// A model on its way to jobs.
struct Expansion<'a> {
    table: FileTable<'a>,
    one: &'a ModelTable,
    plan: TrainingPlan,
    /// The group of all its ranks.
    group: u32,
    made: BTreeMap<Within, MadeGroups>,
    /// By name of what is exchanged, and group of its kind.
    jobs: BTreeMap<(&'static str, Within, usize), u32>,
    exchanges: Vec<NamedExchange>,
}

impl Expansion<'_> {
    fn add(
        &mut self,
        hosts: &[u32],
        groups: &mut Groups<'_>,
        all: &mut Vec<Described>,
        models: &mut DescribedModels,
    ) -> Result<(), FileError> {
        let start = Time(self.one.start.0.0);
        let of_stage = self.plan.layout.of_stage() as usize;
        let mut slots = Vec::new();
        for (stage, ranks) in hosts.chunks(of_stage).enumerate() {
            let written = self.plan.written(stage as u32);
            self.check_length(hosts.len(), &written)?;
            let number = models.programs.len() as u32;
            for (place, host) in ranks.iter().enumerate() {
                let rank = (stage * of_stage + place) as u32;
                let jobs = written.exchanges.iter();
                let jobs: Result<Vec<u32>, FileError> = jobs
                    .map(|(exchange, times)| self.job(rank, exchange, *times, groups, all))
                    .collect();
                models.programmed.push(ProgrammedHost {
                    host: *host,
                    program: number,
                    jobs: jobs?,
                    start,
                });
            }
            slots.push(written.exchanges.iter().map(|(one, _)| *one).collect());
            models.programs.push(written.program);
        }
        let name = self.one.name.clone();
        let exchanges = std::mem::take(&mut self.exchanges);
        let listed: Vec<(Exchange, u64)> = exchanges
            .iter()
            .map(|one| (one.exchange, one.times))
            .collect();
        models.named.push(NamedModel {
            explanation: explanation(&name, &self.plan, &listed),
            name,
            plan: self.plan,
            hosts: hosts.to_vec(),
            start,
            exchanges,
            slots,
        });
        Ok(())
    }

    /// The job of a rank's exchange: that of its group, which the first of the group's ranks makes.
    fn job(
        &mut self,
        rank: u32,
        exchange: &Exchange,
        times: u64,
        groups: &mut Groups<'_>,
        all: &mut Vec<Described>,
    ) -> Result<u32, FileError> {
        self.make_groups(exchange.within, groups)?;
        let made = &self.made[&exchange.within];
        let places = (0..).take_while(|place| *place < self.plan.layout.size(exchange.within));
        let mut found = places
            .filter(|place| exchange.end.is_at(*place as usize))
            .filter_map(|place| made.places.get(&(rank, place as usize)).copied());
        let Some(place) = found.next() else {
            let what = format!("no rank exchanges {} with rank {rank}", exchange.name);
            return Err(self.mistake("parallel", what, "another number of ranks"));
        };
        let key = (exchange.name, exchange.within, place);
        if let Some(job) = self.jobs.get(&key) {
            return Ok(*job);
        }
        let name = format!("{}/{}/{place}", self.one.name, exchange.name);
        let number = made.numbers[place];
        let job = all.len() as u32;
        all.push(self.described(name, exchange, times, groups, number)?);
        self.jobs.insert(key, job);
        let same = |one: &&mut NamedExchange| one.exchange.is_same(exchange);
        match self.exchanges.iter_mut().find(same) {
            Some(found) => {
                found.jobs.push(job);
                found.times = found.times.max(times);
            }
            None => self.exchanges.push(NamedExchange {
                exchange: *exchange,
                times,
                jobs: vec![job],
            }),
        }
        Ok(job)
    }

    fn make_groups(&mut self, within: Within, groups: &mut Groups<'_>) -> Result<(), FileError> {
        if self.made.contains_key(&within) {
            return Ok(());
        }
        let parts = self.plan.layout.groups(within);
        let word = within.group_word();
        let name = format!("{}/{word}", self.one.name);
        let numbers = groups.parts(self.table, self.group, &parts, &name, word)?;
        let places = parts.iter().enumerate().flat_map(|(number, ranks)| {
            let ranks = ranks.iter().enumerate();
            ranks.map(move |(place, rank)| ((*rank, place), number))
        });
        let made = MadeGroups {
            numbers,
            places: places.collect(),
        };
        self.made.insert(within, made);
        Ok(())
    }

    /// The collective or the transfer of a group.
    fn described(
        &self,
        name: String,
        exchange: &Exchange,
        times: u64,
        groups: &mut Groups<'_>,
        group: u32,
    ) -> Result<Described, FileError> {
        let one = self.one;
        if times > REPEAT_MAX {
            let what = format!("{} is repeated {times} times", exchange.name);
            let instead = format!("fewer steps: {REPEAT_MAX} repetitions are the most");
            return Err(self.mistake("steps", what, &instead));
        }
        let at_once = units::Timespan(Span::ZERO);
        let Some(kind) = exchange.kind else {
            let transfer = TransferTable {
                name,
                from: String::new(),
                to: String::new(),
                bytes: units::Size(exchange.bytes),
                chunk: None,
                credit: 8,
                after: Vec::new(),
                compute: at_once,
                start: at_once,
                repeat: times as u32,
                dscp: None,
                priority: None,
            };
            return jobs::of_pair(self.table, &transfer, group);
        };
        let adds_up = kind == CollectiveKind::AllReduce
            && matches!(exchange.within, Within::Data | Within::ExpertData);
        let collective = Collective {
            name,
            kind,
            algorithm: one.algorithm.filter(|_| adds_up),
            group: format!("{}/{}", one.name, exchange.within.group_word()),
            bytes: Some(units::Size(exchange.bytes)),
            root: None,
            channels: Some(one.channels),
            protocol: one.protocol,
            chunk: None,
            slices: None,
            credit: None,
            after: Vec::new(),
            compute: at_once,
            start: at_once,
            start_jitter: at_once,
            repeat: times as u32,
        };
        jobs::of_group(self.table, &collective, groups, group)
    }

    /// Refuses what would run for days.
    fn check_length(&self, ranks: usize, written: &Written) -> Result<(), FileError> {
        let all = written.carried_out.saturating_mul(ranks as u64);
        let what = if written.computing > super::COMPUTE_ALL_MAX {
            "each rank computes for more than ten days".to_owned()
        } else if all > INSTRUCTIONS_MAX {
            format!("ranks do {all} things, and {INSTRUCTIONS_MAX} are the most")
        } else {
            return Ok(());
        };
        let instead = "fewer steps or micro-batches: one is like the other";
        Err(self.mistake("steps", what, instead))
    }

    fn mistake(&self, field: &str, what: String, instead: &str) -> FileError {
        self.table.mistake(Mistake::Limit, field, what, instead)
    }
}
fn check_name(
    table: FileTable<'_>,
    one: &ModelTable,
    models: &DescribedModels,
) -> Result<(), FileError> {
    let (what, instead) = match one.name.as_str() {
        "" => ("a name is empty".to_owned(), "write one"),
        name if name.contains('/') => (
            format!("\"{name}\" has a slash, which stands between a model and its parts"),
            "a name without one",
        ),
        name if models.named.iter().any(|model| model.name == name) => (
            format!("another model is called \"{name}\""),
            "results need a name for each",
        ),
        _ => return Ok(()),
    };
    Err(table.mistake(Mistake::Value, "name", what, instead))
}

/// A host follows one program.
fn check_hosts(
    table: FileTable<'_>,
    hosts: &[u32],
    groups: &Groups<'_>,
    models: &DescribedModels,
) -> Result<(), FileError> {
    let others = models.named.iter();
    let mut shared = others.filter_map(|other| {
        let host = hosts.iter().find(|host| other.hosts.contains(host))?;
        Some((host, &other.name))
    });
    let Some((host, other)) = shared.next() else {
        return Ok(());
    };
    let host = &groups.network.hosts[*host as usize].name;
    let what = format!("{host} is a rank of the model \"{other}\" already");
    Err(table.mistake(
        Mistake::Combination,
        "group",
        what,
        "a group of other hosts",
    ))
}
