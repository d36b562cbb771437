//! What a workload waits for that fills no link: its window, its depth, its congestion control, pauses, or
//! queues that are there for a part of the time.

use super::layout::size;
use super::{PortReport, Report};
use crate::experiment::{Experiment, Paths};
use crate::world::{Flow, Results};
use fabric::Span;
use fabric::topology::{End, Node};
use rnic::{CongestionConfig, Signal};
use std::collections::BTreeSet;

/// A sender that can have this part of its link's rate is not held back by its window.
const FULL: u64 = 90;
/// A port that is paused for this part of the time holds its host's workloads up.
const PAUSED: f64 = 0.25;
/// A queue of so many bytes delays more than the packets that happen to meet.
const QUEUED: u32 = 64 << 10;

/// What the flows of a workload wait for, where windows, depths and notifications say it.
pub(super) fn waits(experiment: &Experiment, results: &Results, workload: usize) -> Option<String> {
    let all = experiment.scenario.flows.iter().zip(&results.flows);
    let own = || {
        all.clone()
            .filter(|(flow, _)| flow.workload as usize == workload)
    };
    let (first, _) = own().next()?;
    let depends = first.operation.is_storage() || first.operation.is_collective();
    if depends || first.trace.is_some() {
        return None;
    }
    let flows = own().filter(|(flow, _)| (flow.from, flow.to) == (first.from, first.to));
    let sender = Sender::of(experiment, first, flows.count() as u64)?;
    if let Some(why) = sender.held_back(experiment) {
        return Some(why);
    }
    let control = &experiment.scenario.hosts[first.from as usize].congestion;
    if *control == CongestionConfig::Off {
        return None;
    }
    let name = control.name();
    let notifications: u64 = own().map(|(_, result)| result.sender.rp_cnp_handled).sum();
    match (control.signal(), notifications) {
        (Signal::Delay | Signal::Telemetry | Signal::Echoes, _) => {
            Some(format!("its congestion control, {name}, slows it down"))
        }
        (_, 0) => None,
        (_, count) => Some(format!(
            "its congestion control, {name}, slowed it down at {}",
            super::counted(count, "notification", "notifications")
        )),
    }
}

/// Where the packets of a workload that fills nothing stood at ports: before a paused port of its own hosts,
/// or in a queue.
pub(super) fn at_ports(
    experiment: &Experiment,
    report: &Report,
    workload: usize,
) -> Option<String> {
    let flows = experiment.scenario.flows.iter();
    let own = flows.filter(|flow| flow.workload as usize == workload);
    let (from, to): (BTreeSet<u32>, BTreeSet<u32>) = own.map(|flow| (flow.from, flow.to)).unzip();
    let sends = |end: &End| matches!(end.node, Node::Host(host) if from.contains(&host));
    let receives = |end: &End| matches!(end.node, Node::Host(host) if to.contains(&host));
    let is_switch = |end: &End| matches!(end.node, Node::Switch(_));
    let ends = |port: &PortReport| {
        let links = experiment.network.topology.links();
        let ends = links.get(port.link as usize)?.ends;
        Some([
            ends[usize::from(port.direction)],
            ends[1 - usize::from(port.direction)],
        ])
    };
    let total_us = 1e6 * report.end_s;
    let paused = report
        .ports
        .iter()
        .filter(|port| ends(port).is_some_and(|[near, _]| sends(&near)))
        .max_by(|one, other| one.paused_us.total_cmp(&other.paused_us))
        .filter(|port| port.paused_us >= PAUSED * total_us);
    if let Some(port) = paused {
        let part = 100.0 * port.paused_us / total_us;
        return Some(format!(
            "{} is paused for {part:.0} % of the time",
            port.port
        ));
    }
    let queue = report
        .ports
        .iter()
        .filter(|port| {
            ends(port).is_some_and(|[near, far]| {
                (is_switch(&near) || sends(&near)) && (is_switch(&far) || receives(&far))
            })
        })
        .max_by_key(|port| port.peak_queue_bytes)
        .filter(|port| port.peak_queue_bytes >= QUEUED)?;
    Some(format!(
        "packets queue for a part of the time, most of all at {} → {}: {}, where the link is busy for \
         {:.0} % of it all",
        queue.port,
        queue.to,
        size(f64::from(queue.peak_queue_bytes)),
        100.0 * queue.load
    ))
}

/// The queue pairs from one host to another, without other traffic.
struct Sender<'a> {
    flow: &'a Flow,
    /// How many there are.
    count: u64,
    /// Bytes that one of them may have on the way, by its window and by its messages.
    window: u64,
    posted: u64,
    /// From a packet's departure until its acknowledgement arrives.
    round_trip: Span,
    /// The rate of the slowest link.
    rate_bps: u64,
}

impl<'a> Sender<'a> {
    fn of(experiment: &Experiment, flow: &'a Flow, count: u64) -> Option<Self> {
        let host = &experiment.scenario.hosts[flow.from as usize];
        let path = Paths::new(experiment).between(flow.from, flow.to)?;
        let own = host.rate.map_or(u64::MAX, |rate| rate.bps());
        let packet = u64::from(host.mtu.bytes());
        Some(Self {
            flow,
            count,
            window: u64::from(host.window_bytes),
            posted: u64::from(flow.message_bytes) * u64::from(flow.depth),
            round_trip: experiment.alone(&path, flow.from, packet),
            rate_bps: path.rate_bps.min(own),
        })
    }

    /// Bytes that are on the way while the link is full.
    fn needed(&self) -> u64 {
        let bits = u128::from(self.rate_bps) * u128::from(self.round_trip.0) / 1_000_000_000_000;
        u64::try_from(bits / 8).unwrap_or(u64::MAX)
    }

    /// The field that keeps the link from being full even without other traffic, and a value that would not.
    fn held_back(&self, experiment: &Experiment) -> Option<String> {
        let each = self.needed().div_ceil(self.count.max(1));
        let least = self.window.min(self.posted);
        if least >= each.saturating_mul(FULL) / 100 {
            return None;
        }
        let full = "the link would be full";
        if self.window <= self.posted {
            let nic = experiment
                .network
                .tables
                .nic_of
                .get(self.flow.from as usize)?;
            let wanted = size(each.next_power_of_two() as f64);
            let window = size(self.window as f64);
            return Some(format!(
                "its window of {window} ends before the round trip: with nic.{nic}.window = \
                 \"{wanted}\" {full}"
            ));
        }
        let depth = each.div_ceil(u64::from(self.flow.message_bytes.max(1)));
        Some(format!(
            "its depth of {} ends before the round trip: with depth = {depth} {full}",
            self.flow.depth
        ))
    }
}
