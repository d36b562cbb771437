//! What limits each workload: the link, slot, drive or processor that it keeps busy most of the time.

use super::Report;
use crate::experiment::{Experiment, slot_name};
use crate::world::Results;
use fabric::topology::Node;
use serde::Serialize;
use std::collections::BTreeSet;

/// What is busy for less than this part of the time limits nobody.
const FULL: f64 = 0.85;

/// What a workload is limited by.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Limit {
    /// Which link, slot, drive or processor.
    pub what: String,
    /// Of a hundred, for how much of the time it was busy.
    pub busy_percent: f64,
}

/// By workload; none where nothing is full, and transfers wait for round trips and for each other.
pub(super) fn limits(experiment: &Experiment, results: &Results, report: &Report) -> Vec<Option<Limit>> {
    let one = |workload: usize| {
        let flows = experiment.scenario.flows.iter().filter(|flow| flow.workload as usize == workload);
        let hosts: BTreeSet<u32> = flows.flat_map(|flow| [flow.from, flow.to]).collect();
        let candidates = links(experiment, report, &hosts)
            .into_iter()
            .chain(slots(experiment, results, &hosts))
            .chain(stores(experiment, report, &hosts));
        let fullest = candidates.max_by(|one, other| one.busy_percent.total_cmp(&other.busy_percent));
        fullest.filter(|limit| limit.busy_percent >= 100.0 * FULL)
    };
    (0..experiment.workloads.len()).map(one).collect()
}

/// Links of these hosts, and those between switches.
fn links(experiment: &Experiment, report: &Report, hosts: &BTreeSet<u32>) -> Vec<Limit> {
    let links = experiment.network.topology.links();
    let mine = report.ports.iter().filter(|port| {
        links.get(port.link as usize).is_some_and(|link| {
            link.ends.iter().all(|end| match end.node {
                Node::Host(host) => hosts.contains(&host),
                Node::Switch(_) => true,
            })
        })
    });
    let limit = |port: &super::PortReport| Limit {
        what: format!("the link {} → {}", port.port, port.to),
        busy_percent: (100.0 * port.load).min(100.0),
    };
    mine.map(limit).collect()
}

fn slots(experiment: &Experiment, results: &Results, hosts: &BTreeSet<u32>) -> Vec<Limit> {
    let with_slot = hosts.iter().filter_map(|host| {
        let named = experiment.network.hosts.get(*host as usize)?;
        Some((named, named.nic.pcie.as_ref()?, results.hosts.get(*host as usize)?))
    });
    let limit = |(named, slot, result): (&fabric::file::Attached, &_, &crate::world::HostResult)| Limit {
        what: format!("the slot of {} ({})", named.name, slot_name(slot)),
        busy_percent: 100.0 * result.bus_busy_ps as f64 / results.end.0.max(1) as f64,
    };
    with_slot.map(limit).collect()
}

fn stores(experiment: &Experiment, report: &Report, hosts: &BTreeSet<u32>) -> Vec<Limit> {
    let names: BTreeSet<&str> = hosts
        .iter()
        .filter_map(|host| experiment.network.hosts.get(*host as usize))
        .map(|host| host.name.as_str())
        .collect();
    let mine = report.stores.iter().filter(|store| names.contains(store.host.as_str()));
    let limits = |store: &super::StoreReport| {
        let host = &store.host;
        [
            (format!("the {} cores of {host}", store.cores), store.cores_busy_percent),
            (format!("the drives of {host}"), store.drives_busy_percent),
            (format!("the memory of {host}"), store.memory_busy_percent),
        ]
    };
    mine.flat_map(limits).map(|(what, busy_percent)| Limit { what, busy_percent }).collect()
}
