//! From a fabric file to a [`Scenario`], with the names that results are reported by.

mod adapter;
mod arrivals;
mod collective;
mod congestion;
mod connections;
mod file_table;
mod flow_list;
mod listed;
pub mod model;
mod named_file;
mod path;
mod queue_pair;
mod replay;
mod run;
mod size_table;
mod station;
mod storage;
mod subnet;
mod uet;
mod workload;

pub use adapter::{pcie_bps, pcie_name};
pub use collective::{NamedExchange, NamedJob, NamedModel, kind_name};
pub use path::{Messages, Path, Paths};
pub use queue_pair::{NoQueuePair, QueuePairName};
pub use run::{Progress, Ran};
pub use station::Station;
pub use subnet::ManagedSubnet;

use self::file_table::FileTable;
use self::listed::Listed;
use crate::world::{AdapterFunction, Flow, Guard, Scenario, SriovAdapterConfig, Watch};
use fabric::topology::Node;
use fabric::{Rate, Time};
use fabric_file::uet::Transport;
use fabric_file::{
    Document, Effect, FabricFile, FileError, Mistake, Network, Origin, Point, Problem, ReadFile,
    SharedAdapter, Unused,
};
use std::sync::Arc;

/// Packets that are captured at most, over all ports.
pub const CAPTURED_MAX: usize = 1 << 20;

/// A fabric file, ready to run.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// The file's fields.
    pub file: FabricFile,
    /// Hosts and switches by name.
    pub network: Network,
    /// The input of the engine.
    pub scenario: Scenario,
    /// InfiniBand: the subnet as its manager has set it up, for a simulation.
    pub subnet: Option<ManagedSubnet>,
    /// Names of the workloads, by the number that flows have.
    pub workloads: Vec<String>,
    /// Collectives and transfers, in the order of the file.
    pub collectives: Vec<NamedJob>,
    /// Models that are trained, in the order of the file.
    pub models: Vec<NamedModel>,
    /// Fields with a value that has no effect.
    pub unused: Vec<Unused>,
    /// The keys of fields of adapters and switches that the file or a setting gives a value.
    pub written: Vec<Vec<String>>,
}

impl Experiment {
    /// Makes the experiment that a file describes. `files` reads the files that it names.
    ///
    /// # Errors
    /// The first error of the file, with its place; and settings of the command line that have no effect.
    pub fn new(document: &Document, files: &mut ReadFile<'_>) -> Result<Self, FileError> {
        let mut experiment = Self::with_paths(document, files)?;
        experiment.manage(document)?;
        if experiment.scenario.flows.is_empty() {
            let instead = "add [[workload]], [[collective]], [[model]] or [[storage]]";
            return Err(document.mistake(
                Mistake::Combination,
                "workload",
                "nothing is transferred".into(),
                instead,
            ));
        }
        Ok(experiment)
    }

    /// The same, of a file that may have no transfers: programs of a lab make them, by RoCEv2 or InfiniBand.
    ///
    /// # Errors
    /// As [`Experiment::new`], and adapters with another transport.
    pub fn idle(document: &Document, files: &mut ReadFile<'_>) -> Result<Self, FileError> {
        let experiment = Self::with_paths(document, files)?;
        let mut tables = experiment.file.nic.iter();
        match tables.find(|(_, nic)| nic.transport == Transport::Uet) {
            Some((name, _)) => Err(document.mistake(
                Mistake::Combination,
                &format!("nic.{name}.transport"),
                "programs of labs do not speak Ultra Ethernet's transport".into(),
                "leave it out, or simulate the file with 'rockery sim'",
            )),
            None => Ok(experiment),
        }
    }

    /// With what follows from the paths of flows.
    fn with_paths(document: &Document, files: &mut ReadFile<'_>) -> Result<Self, FileError> {
        let mut experiment = Self::unmeasured(document, files)?;
        experiment.measure_round_trips();
        congestion::check_ends(document, &experiment)?;
        Ok(experiment)
    }

    /// The same, without what follows from the paths of flows.
    fn unmeasured(document: &Document, files: &mut ReadFile<'_>) -> Result<Self, FileError> {
        let file = document.fields()?;
        let network = Network::build(document, &file, files)?;
        let unused = fabric_file::unused(document, &file, &network);
        refuse(&unused, |unused| unused.effect == Effect::None)?;
        let mut flows = Vec::new();
        let mut workloads = Vec::new();
        let mut traces = Vec::new();
        for (index, workload) in file.workload.iter().enumerate() {
            let field = format!("workload[{index}]");
            let recorded = replay::read(document, &field, workload, files)?;
            let table = FileTable {
                document,
                path: &field,
            };
            let sizes = size_table::read(table, workload, files)?;
            let listed = Listed {
                workload,
                number: index as u32,
                network: &network,
            };
            let mut made = match listed_flows(table, listed, files)? {
                Some(listed) => listed,
                None => workload::flows(table, workload, index, &network, &file, sizes)?,
            };
            if let Some(recorded) = recorded {
                made = replay::apply(document, &field, made, &recorded, &network, &mut traces)?;
            }
            let marks = table.marks(&network, workload.dscp, workload.priority)?;
            made.iter_mut().for_each(|flow| flow.marks = marks);
            flows.extend(made);
            check_count(document, &field, flows.len())?;
            let name = workload.name.clone();
            workloads.push(name.unwrap_or_else(|| workload::pattern_name(workload)));
        }
        for (index, storage) in file.storage.iter().enumerate() {
            let field = format!("storage[{index}]");
            let table = FileTable {
                document,
                path: &field,
            };
            flows.extend(storage::flows(table, storage, workloads.len(), &network)?);
            check_count(document, &field, flows.len())?;
            workloads.push(storage.name.clone());
        }
        let first = [flows.len(), workloads.len()];
        let planned = collective::planned(document, &file, &network, first)?;
        flows.extend(planned.flows);
        workloads.extend(planned.workloads);
        check_count(document, "collective", flows.len())?;
        check_end(document, &file, &flows)?;
        let scenario = Scenario {
            traces,
            flows,
            collectives: (!planned.named.is_empty()).then(|| Arc::new(planned.plan)),
            ..scenario_without_flows(&file, &network)
        };
        Ok(Self {
            file,
            network,
            scenario,
            subnet: None,
            workloads,
            collectives: planned.named,
            models: planned.models,
            unused,
            written: document.written_below(&["nic", "qos"]),
        })
    }

    /// Refuses settings of the command line that have an effect in labs alone.
    ///
    /// # Errors
    /// The settings without effect.
    pub fn refuse_settings_of_labs(&self) -> Result<(), FileError> {
        refuse(&self.unused, |_| true)
    }

    /// Leaves out flows that something else than the simulation carries out. Collectives depend on each
    /// other: they are left out where any flow of theirs is.
    pub fn retain_flows(&mut self, keep: impl Fn(&Flow) -> bool) {
        let all = std::mem::take(&mut self.scenario.flows);
        let are_kept = all
            .iter()
            .all(|flow| !flow.operation.is_collective() || keep(flow));
        if !are_kept {
            self.scenario.collectives = None;
            self.collectives.clear();
            self.models.clear();
        }
        let mut place = vec![0; all.len()];
        for (number, flow) in all.into_iter().enumerate() {
            let is_kept = if flow.operation.is_collective() {
                are_kept
            } else {
                keep(&flow)
            };
            if is_kept {
                place[number] = self.scenario.flows.len() as u32;
                self.scenario.flows.push(flow);
            }
        }
        if let Some(plan) = &mut self.scenario.collectives {
            let pipes = Arc::make_mut(plan).pipes.iter_mut();
            pipes.for_each(|pipe| pipe.flow = place[pipe.flow as usize]);
        }
    }

    /// Fields of the file with a value that has no effect, and lines of vendors' files that are left out.
    pub fn notes(&self) -> Vec<String> {
        let unused = self.unused.iter();
        let unused = unused
            .filter(|unused| unused.origin == Origin::File && unused.effect == Effect::None)
            .map(ToString::to_string);
        let vendors = self.network.switches.iter().filter_map(|switch| {
            let imported = switch.imported.as_ref()?;
            let left = imported
                .left()
                .iter()
                .map(|line| format!("{}: {line}: not understood, and not simulated", switch.name));
            let others = imported.not_simulated();
            let others = others.iter().map(|line| format!("{}: {line}", switch.name));
            Some(left.chain(others).collect::<Vec<_>>())
        });
        unused.chain(vendors.flatten()).collect()
    }

    /// Bytes that each packet takes on a link besides its own.
    pub fn gap_bytes(&self) -> u32 {
        let host = self.scenario.hosts.first();
        host.map_or(
            fabric::FRAME_OVERHEAD_BYTES,
            crate::world::HostConfig::gap_bytes,
        )
    }

    /// How fast each host sends: its link's rate, or its adapter's where that is slower.
    pub fn port_rates(&self) -> Vec<Rate> {
        let links = attached_rates(&self.network);
        let hosts = self.scenario.hosts.iter().zip(links);
        let slower = |(host, link): (&crate::world::HostConfig, Rate)| match host.rate {
            Some(own) if own.bps() < link.bps() => own,
            _ => link,
        };
        hosts.map(slower).collect()
    }

    /// The link and direction that a port sends in; ports are called `h0` or `sw0:3`.
    pub fn port(&self, name: &str) -> Option<(u32, u8)> {
        let links = self.network.topology.links().iter().zip(0_u32..);
        let mut ends = links.flat_map(|(link, number)| {
            link.ends
                .into_iter()
                .zip(0_u8..)
                .map(move |end| (number, end))
        });
        let found = ends.find(|(_, (end, _))| self.network.port_name(*end) == name);
        found.map(|(number, (_, direction))| (number, direction))
    }
}

/// The flows of a workload that a file lists.
fn listed_flows(
    table: FileTable<'_>,
    listed: Listed<'_>,
    files: &mut ReadFile<'_>,
) -> Result<Option<Vec<Flow>>, FileError> {
    match flow_list::read(table, listed, files)? {
        None => connections::read(table, listed, files),
        flows => Ok(flows),
    }
}

/// Refuses settings of the command line that have no effect.
fn refuse(unused: &[Unused], which: impl Fn(&Unused) -> bool) -> Result<(), FileError> {
    let set = unused
        .iter()
        .filter(|unused| matches!(unused.origin, Origin::Set(_)) && which(unused));
    let problems: Vec<Problem> = set.map(|unused| unused.problem.clone()).collect();
    if problems.is_empty() {
        Ok(())
    } else {
        Err(FileError(problems))
    }
}

/// Refuses a sweep with a field that has no effect in any of its runs.
///
/// # Errors
/// The first such field, and mistakes of the file.
pub fn check_sweep(
    document: &Document,
    points: &[Point],
    files: &mut ReadFile<'_>,
) -> Result<(), FileError> {
    let mut without: Option<Vec<Unused>> = None;
    for point in points.iter().filter(|point| !point.is_empty()) {
        let mut document = document.clone();
        for (path, value) in point {
            document.vary(path, value)?;
        }
        let file = document.fields()?;
        let network = Network::build(&document, &file, files)?;
        let mut here = fabric_file::unused(&document, &file, &network);
        here.retain(|unused| unused.origin == Origin::Sweep);
        let without = match &mut without {
            None => without.insert(here),
            Some(without) => {
                without.retain(|unused| here.iter().any(|here| here.keys == unused.keys));
                without
            }
        };
        if without.is_empty() {
            return Ok(());
        }
    }
    match without.and_then(|without| without.into_iter().next()) {
        None => Ok(()),
        Some(unused) => {
            let what = format!("{}, in no run of the sweep", unused.problem);
            Err(document.mistake(Mistake::Combination, "sweep", what, ""))
        }
    }
}

/// The scenario of a network in which nothing is transferred.
fn scenario_without_flows(file: &FabricFile, network: &Network) -> Scenario {
    let rates = attached_rates(network);
    let hosts = network.hosts.iter().zip(&rates);
    Scenario {
        topology: network.topology.clone(),
        switches: network
            .switches
            .iter()
            .map(|switch| switch.config.clone())
            .collect(),
        spread: network.spread,
        hash_seed: file.routing.hash_seed,
        reaction: file.routing.reaction.map(|reaction| reaction.0),
        hosts: hosts
            .zip(0..)
            .map(|((host, rate), number)| {
                let shares = network.adapter_of(number).is_some();
                adapter::host(host, !file.storage.is_empty(), *rate, shares)
            })
            .collect(),
        cards: network.adapters.iter().map(card).collect(),
        traces: Vec::new(),
        flows: Vec::new(),
        seed: file.seed,
        end: file
            .duration
            .map_or(Time::NEVER, |duration| Time(duration.0.0)),
        threads: 1,
        watch: Watch::default(),
        skip_steady: None,
        collectives: None,
    }
}

/// Flows of one workload at most.
const FLOWS_MAX: usize = 1 << 22;

/// Workloads and storage of one file have [`FLOWS_MAX`] queue pairs at most, all together.
fn check_count(document: &Document, field: &str, flows: usize) -> Result<(), FileError> {
    if flows <= FLOWS_MAX {
        return Ok(());
    }
    let what = format!(
        "more than {} queue pairs, all workloads together",
        FLOWS_MAX
    );
    Err(document.mistake(
        Mistake::Limit,
        field,
        what,
        "fewer workloads, or smaller ones",
    ))
}

/// A run without an end is refused beforehand.
fn check_end(document: &Document, file: &FabricFile, flows: &[Flow]) -> Result<(), FileError> {
    let endless = flows.iter().find(|flow| flow.messages == u64::MAX);
    if let Some(flow) = endless.filter(|_| file.duration.is_none()) {
        let (field, instead) = if flow.operation.is_storage() {
            let index = flow.workload as usize - file.workload.len();
            (
                format!("storage[{index}]"),
                "add ios, or duration = \"10ms\"",
            )
        } else {
            (
                format!("workload[{}]", flow.workload),
                "add messages, bytes, or duration = \"10ms\"",
            )
        };
        let what = "it has no end, and the file gives no duration".to_owned();
        return Err(document.mistake(Mistake::Combination, &field, what, instead));
    }
    Ok(())
}

/// An adapter with functions, as the engine takes it.
fn card(adapter: &SharedAdapter) -> SriovAdapterConfig {
    let weights = adapter.weights();
    let physical = AdapterFunction {
        host: adapter.host,
        weight: weights[0],
        rate: None,
        vlan: 0,
        guard: Guard::default(),
    };
    let functions = adapter
        .functions
        .iter()
        .zip(&weights[1..])
        .map(|(function, weight)| AdapterFunction {
            host: function.host,
            weight: *weight,
            rate: (function.settings.max_bps > 0)
                .then(|| Rate::from_bps(function.settings.max_bps)),
            vlan: function.settings.vlan,
            guard: Guard {
                spoof_check: function.settings.spoof_check,
                trust: function.settings.trust,
            },
        });
    SriovAdapterConfig {
        port: adapter.uplink,
        functions: std::iter::once(physical).chain(functions).collect(),
    }
}

/// The speed of each host's link, or of its adapter's, where that has functions.
fn attached_rates(network: &Network) -> Vec<fabric::Rate> {
    let mut rates = vec![fabric::Rate::from_gbps(1); network.hosts.len()];
    for link in network.topology.links() {
        for end in link.ends {
            if let Node::Host(host) = end.node {
                rates[host as usize] = link.config.rate;
            }
        }
    }
    for adapter in &network.adapters {
        rates[adapter.host as usize] = adapter.uplink;
        adapter
            .functions
            .iter()
            .for_each(|function| rates[function.host as usize] = adapter.uplink);
    }
    rates
}
