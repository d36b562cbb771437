//! The limit of each workload: the link, PCIe link, drive or processor that it keeps busy most of the time.

use super::Report;
use crate::experiment::{Experiment, pcie_name};
use crate::world::Results;
use fabric::topology::Node;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A resource that is busy for less than this part of the time limits no workload.
const FULL: f64 = 0.85;

/// The resource that limits a workload.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Bottleneck {
    /// The link, PCIe link, drive or processor.
    pub what: String,
    /// The part of the time that it was busy, in percent.
    pub busy_percent: f64,
}

/// The limits by workload; none where nothing is full, and transfers wait for round trips and for each other.
pub(super) fn limits(
    experiment: &Experiment,
    results: &Results,
    report: &Report,
) -> Vec<Option<Bottleneck>> {
    let one = |workload: usize| {
        let flows = experiment
            .scenario
            .flows
            .iter()
            .filter(|flow| flow.workload as usize == workload);
        let hosts: BTreeSet<u32> = flows.flat_map(|flow| [flow.from, flow.to]).collect();
        let candidates = links(experiment, report, &hosts)
            .into_iter()
            .chain(pcie_links(experiment, results, &hosts))
            .chain(stores(experiment, report, &hosts));
        let fullest =
            candidates.max_by(|one, other| one.busy_percent.total_cmp(&other.busy_percent));
        fullest.filter(|limit| limit.busy_percent >= 100.0 * FULL)
    };
    (0..experiment.workloads.len()).map(one).collect()
}

/// Links of these hosts, and those between switches.
fn links(experiment: &Experiment, report: &Report, hosts: &BTreeSet<u32>) -> Vec<Bottleneck> {
    let links = experiment.network.topology.links();
    let mine = report.ports.iter().filter(|port| {
        links.get(port.link as usize).is_some_and(|link| {
            link.ends.iter().all(|end| match end.node {
                Node::Host(host) => hosts.contains(&host),
                Node::Switch(_) => true,
            })
        })
    });
    let limit = |port: &super::PortReport| Bottleneck {
        what: format!("the link {} → {}", port.port, port.to),
        busy_percent: (100.0 * port.load).min(100.0),
    };
    mine.map(limit).collect()
}

fn pcie_links(
    experiment: &Experiment,
    results: &Results,
    hosts: &BTreeSet<u32>,
) -> Vec<Bottleneck> {
    let with_link = hosts.iter().filter_map(|host| {
        // Functions share the PCIe link of their adapter.
        let owner = experiment
            .network
            .adapter_of(*host)
            .map_or(*host, |adapter| adapter.host);
        let named = experiment.network.hosts.get(owner as usize)?;
        Some((
            named,
            named.nic.pcie.as_ref()?,
            results.hosts.get(*host as usize)?,
        ))
    });
    let limit =
        |(named, link, result): (&fabric_file::NamedHost, &_, &crate::world::HostResult)| {
            Bottleneck {
                what: format!("the PCIe link of {} ({})", named.name, pcie_name(link)),
                busy_percent: 100.0 * result.pcie_busy_ps as f64 / results.end.0.max(1) as f64,
            }
        };
    with_link.map(limit).collect()
}

fn stores(experiment: &Experiment, report: &Report, hosts: &BTreeSet<u32>) -> Vec<Bottleneck> {
    let names: BTreeSet<&str> = hosts
        .iter()
        .filter_map(|host| experiment.network.hosts.get(*host as usize))
        .map(|host| host.name.as_str())
        .collect();
    let mine = report
        .stores
        .iter()
        .filter(|store| names.contains(store.host.as_str()));
    let limits = |store: &super::StoreReport| {
        let host = &store.host;
        [
            (
                format!(
                    "the {} of {host}",
                    super::counted(store.cores as u64, "core", "cores")
                ),
                store.cores_busy_percent,
            ),
            (format!("the drives of {host}"), store.drives_busy_percent),
            (format!("the memory of {host}"), store.memory_busy_percent),
        ]
    };
    mine.flat_map(limits)
        .map(|(what, busy_percent)| Bottleneck { what, busy_percent })
        .collect()
}
