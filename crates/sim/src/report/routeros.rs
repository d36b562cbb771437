//! The tables of RouterOS for switches that have its configuration.

use crate::experiment::Experiment;
use crate::world::{PortResult, Results};
use fabric::config::CLASSES;
use fabric::topology::{Node, Topology};
use fabric::vendor::Imported;
use fabric::vendor::routeros::{PortCounters, SwitchCounters};

/// For each switch with a RouterOS configuration: its name, and what it would print.
pub fn routeros_tables(experiment: &Experiment, results: &Results) -> Vec<(String, String)> {
    let topology = &experiment.network.topology;
    let switches = experiment.network.switches.iter().zip(&results.switches).zip(0_u32..);
    let mut tables = Vec::new();
    for ((switch, result), number) in switches {
        let Some(Imported::RouterOs(config)) = &switch.imported else { continue };
        let named = switch.ports.iter().zip(&result.ports).zip(0_u16..);
        let ports =
            named.map(|((name, port), index)| counters(name, port, is_linked(topology, number, index)));
        let counters = SwitchCounters {
            total_bytes: u64::from(result.buffer_peak_bytes),
            shared_bytes: u64::from(result.buffer_peak_bytes.min(config.shared_bytes())),
            ports: ports.flatten().collect(),
        };
        tables.push((switch.name.clone(), config.print(&counters)));
    }
    tables
}

fn is_linked(topology: &Topology, switch: u32, port: u16) -> bool {
    let ends = topology.links().iter().flat_map(|link| link.ends);
    ends.into_iter().any(|end| end.node == Node::Switch(switch) && end.port == port)
}

fn counters(name: &str, port: &PortResult, linked: bool) -> Option<PortCounters> {
    let by_class = |of: fn(&fabric::QueueCounters) -> (u64, u64)| {
        let mut all = [(0, 0); CLASSES];
        all.iter_mut().zip(&port.queues).for_each(|(sum, queue)| *sum = of(queue));
        all
    };
    let mut peak_bytes = [0; CLASSES];
    peak_bytes.iter_mut().zip(&port.queues).for_each(|(peak, queue)| *peak = u64::from(queue.peak_bytes));
    linked.then(|| PortCounters {
        name: name.to_owned(),
        sent: by_class(|queue| (queue.sent_packets, queue.sent_bytes)),
        dropped_packets: port.ingress.dropped.iter().sum(),
        peak_bytes,
        pfc_received: port.ingress.pauses_received,
        pfc_sent: port.ingress.pauses_sent + port.ingress.resumes_sent,
    })
}
