//! Where data waited, was marked, paused and lost: of single flows, and of a workload's flows added up by
//! port.

use super::units::us;
use super::{FlowReport, HopReport, Report};
use crate::experiment::Experiment;
use crate::world::FlowHop;

/// The counters of a workload's flows at one port, all together.
#[derive(Clone, PartialEq, Debug)]
pub struct PortShare {
    /// Flows that crossed it.
    pub flows: u64,
    /// Sums over these, and the longest wait.
    pub hop: HopReport,
}

pub(super) fn report(experiment: &Experiment, hop: &FlowHop) -> HopReport {
    let network = &experiment.network;
    let [near, far] = [hop.direction, 1 - hop.direction].map(|direction| {
        let links = network.topology.links();
        links
            .get(hop.link as usize)
            .map(|link| network.port_name(link.ends[usize::from(direction)]))
    });
    HopReport {
        port: near.unwrap_or_default(),
        to: far.unwrap_or_default(),
        packets: hop.packets,
        bytes: hop.bytes,
        marked: hop.marked,
        lost: hop.lost,
        waited_mean_us: us(hop.waited_mean().0),
        waited_max_us: us(hop.waited_max_ps),
        waited_us: us(hop.waited_ps),
        paused_us: us(hop.paused_ps),
    }
}

/// The ports that a workload's data crossed, those first where it waited, was paused or lost the most.
pub fn port_shares(report: &Report, workload: usize) -> Vec<PortShare> {
    let mut shares: Vec<PortShare> = Vec::new();
    let mut places = std::collections::BTreeMap::new();
    let flows = report.flows.iter().filter(|flow| flow.workload == workload);
    for hop in flows.flat_map(|flow| &flow.hops) {
        let place = *places.entry(hop.port.as_str()).or_insert(shares.len());
        match shares.get_mut(place) {
            Some(share) => share.add(hop),
            None => shares.push(PortShare {
                flows: 1,
                hop: hop.clone(),
            }),
        }
    }
    let weight = |share: &PortShare| {
        let hop = &share.hop;
        (hop.lost, hop.waited_us + hop.paused_us, hop.packets)
    };
    shares.sort_by(|one, other| {
        let (one, other) = (weight(one), weight(other));
        other
            .0
            .cmp(&one.0)
            .then(other.1.total_cmp(&one.1))
            .then(other.2.cmp(&one.2))
    });
    shares
}

/// A workload's flow whose data was on its way the longest for its size: by slowdown where it finished, else
/// by the time that it waited.
pub fn slowest(report: &Report, workload: usize) -> Option<&FlowReport> {
    let flows = report
        .flows
        .iter()
        .filter(|flow| flow.workload == workload && !flow.hops.is_empty());
    let waited = |flow: &FlowReport| {
        flow.hops
            .iter()
            .map(|hop| hop.waited_us + hop.paused_us)
            .sum::<f64>()
    };
    flows.max_by(|one, other| {
        let slowdown = |flow: &FlowReport| flow.slowdown.unwrap_or(f64::INFINITY);
        slowdown(one)
            .total_cmp(&slowdown(other))
            .then(waited(one).total_cmp(&waited(other)))
    })
}

impl PortShare {
    fn add(&mut self, hop: &HopReport) {
        self.flows += 1;
        let sum = &mut self.hop;
        sum.packets += hop.packets;
        sum.bytes += hop.bytes;
        sum.marked += hop.marked;
        sum.lost += hop.lost;
        sum.waited_us += hop.waited_us;
        sum.paused_us += hop.paused_us;
        sum.waited_max_us = sum.waited_max_us.max(hop.waited_max_us);
        sum.waited_mean_us = sum.waited_us / sum.packets.max(1) as f64;
    }
}
