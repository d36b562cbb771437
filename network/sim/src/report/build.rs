//! From results to the report.

use super::units::us;
use super::{
    FlowReport, FunctionReport, GroupReport, Percentiles, PortReport, PortSamples, QueueReport,
    QueueSeries, Report, Series, Skipped, StoreReport, SwitchReport, WorkloadReport, diagnosis,
};
use crate::experiment::{Experiment, Paths};
use crate::world::{Flow, FlowResult, FunctionDrops, Latency, Order, Results, Sample};
use fabric::config::CLASSES;
use fabric::topology::{End, Node};
use fabric::{
    Drop, GroupCounters, Incidents, LinkCounters, PortCounters, QueueCounters, Rate, Time,
};
use std::collections::BTreeMap;

impl Report {
    /// Makes the report of an experiment's results. `partial`: the run was stopped before its end.
    pub fn new(experiment: &Experiment, results: &Results, partial: bool) -> Self {
        let flows = flows(experiment, results);
        let mut report = Self {
            title: experiment.file.title.clone(),
            seed: experiment.file.seed,
            settings: Vec::new(),
            numbers: Vec::new(),
            end_s: results.end.0 as f64 / 1e12,
            skipped: skipped(experiment, results),
            partial,
            hops: results.hops,
            events: results.events,
            workloads: workloads(experiment, results, &flows),
            collectives: super::collective::reports(experiment, results),
            models: Vec::new(),
            flows,
            ports: port_reports(experiment, results),
            stores: stores(experiment, results),
            functions: functions(experiment, results),
            switches: switches(experiment, results),
            findings: Vec::new(),
            notes: super::notes::notes(experiment, results),
            series: series(experiment, &results.samples),
            damaged: results.damaged,
            left: results.left,
        };
        report.models = super::models::reports(experiment, results, &report);
        let limits = super::limits::limits(experiment, results, &report);
        report
            .workloads
            .iter_mut()
            .zip(limits)
            .for_each(|(workload, limit)| workload.limit = limit);
        for number in 0..report.workloads.len() {
            if report.workloads[number].limit.is_none() {
                report.workloads[number].waits_for =
                    super::waits::waits(experiment, results, number)
                        .or_else(|| super::waits::at_ports(experiment, &report, number));
            }
        }
        report.findings = diagnosis::findings(experiment, results, &report);
        let stuck = super::collective::findings(experiment, results, &report);
        report.findings.extend(stuck);
        report.findings.sort_by_key(|finding| finding.severity);
        report
    }
}

fn skipped(experiment: &Experiment, results: &Results) -> Option<Skipped> {
    experiment.scenario.skip_steady?;
    let ps: u64 = results.skips.iter().map(|skip| skip.span.0).sum();
    Some(Skipped {
        seconds: ps as f64 / 1e12,
        times: results.skips.len() as u64,
    })
}

fn flows(experiment: &Experiment, results: &Results) -> Vec<FlowReport> {
    let mut paths = Paths::new(experiment);
    let name = |host: u32| experiment.network.hosts[host as usize].name.clone();
    let report = |(flow, result): (&Flow, &FlowResult)| {
        let completion = result.completion_ps();
        let path = paths.between(flow.from, flow.to);
        let alone = path.map(|path| experiment.alone(&path, flow.from, result.bytes));
        // Packets of an unreliable connection can be lost: only received bytes count.
        let unreliable = flow.operation.is_unreliable();
        let bytes = if unreliable {
            result.receiver.received_bytes
        } else {
            result.bytes
        };
        let interval = interval([(flow, result)], results.end);
        FlowReport {
            workload: flow.workload as usize,
            from: name(flow.from),
            to: name(flow.to),
            bytes,
            start_us: us(flow.start.0),
            completion_us: completion.map(us),
            slowdown: completion
                .zip(alone)
                .filter(|_| !flow.operation.is_storage() && !flow.operation.is_collective())
                .map(|(took, alone)| took as f64 / alone.0.max(1) as f64),
            goodput_bps: interval.map(|interval| rate(delivered(flow, result), interval)),
            retransmitted: result.sender.retransmitted_packets,
            notifications: result.sender.rp_cnp_handled,
            failed: result.failed,
            hops: result
                .hops
                .iter()
                .map(|hop| super::hops::report(experiment, hop))
                .collect(),
        }
    };
    experiment
        .scenario
        .flows
        .iter()
        .zip(&results.flows)
        .map(report)
        .collect()
}

/// From the first post of some flows to the last completion, or to the end of the run where one of them does
/// not finish. All of their payload crosses the network in this time, so that its rate is never above that of
/// a link that all of it crosses.
fn interval<'a>(
    flows: impl IntoIterator<Item = (&'a Flow, &'a FlowResult)>,
    end: Time,
) -> Option<[Time; 2]> {
    let one = |(flow, result): (&Flow, &FlowResult)| {
        // A message on an unreliable connection completes when it is sent, not when it arrives.
        let is_over = result.finished != Time::NEVER && !flow.operation.is_unreliable();
        (result.started != Time::NEVER)
            .then_some([flow.start, if is_over { result.finished } else { end }])
    };
    flows
        .into_iter()
        .filter_map(one)
        .reduce(|all, one| [all[0].min(one[0]), all[1].max(one[1])])
}

/// Payload that arrived. Storage counts blocks: commands and responses are no payload; nor are the records
/// that clear the way for messages of collectives.
fn delivered(flow: &Flow, result: &FlowResult) -> u64 {
    if flow.operation.is_storage() || flow.operation.is_collective() {
        result.bytes
    } else {
        result.delivered_bytes
    }
}

/// Bits per second.
fn rate(bytes: u64, [from, until]: [Time; 2]) -> f64 {
    bytes as f64 * 8e12 / (until - from).0.max(1) as f64
}

/// Counts of all flows by powers of two, up to the last count that is not zero.
fn by_powers(results: &[&FlowResult], counts: impl Fn(&Order) -> [u64; 16]) -> Vec<u64> {
    let mut distances = vec![0_u64; 16];
    for result in results {
        distances
            .iter_mut()
            .zip(counts(&result.order))
            .for_each(|(sum, count)| *sum += count);
    }
    let used = distances
        .iter()
        .rposition(|count| *count > 0)
        .map_or(0, |last| last + 1);
    distances.truncate(used);
    distances
}

fn workloads(
    experiment: &Experiment,
    results: &Results,
    flows: &[FlowReport],
) -> Vec<WorkloadReport> {
    let one = |(index, name): (usize, &String)| {
        let of = |flow: &&FlowReport| flow.workload == index;
        let of_scenario = experiment.scenario.flows.iter().zip(&results.flows);
        let own = of_scenario.filter(|(flow, _)| flow.workload as usize == index);
        let interval = interval(own.clone(), results.end);
        let delivered: u64 = own
            .clone()
            .map(|(flow, result)| delivered(flow, result))
            .sum();
        let raw: Vec<&FlowResult> = own.map(|(_, result)| result).collect();
        let mine: Vec<&FlowReport> = flows.iter().filter(of).collect();
        let mut latency = Latency::default();
        raw.iter().for_each(|result| latency.merge(&result.latency));
        let distances = by_powers(&raw, |order| order.distances);
        let packets: u64 = raw.iter().map(|result| result.order.packets).sum();
        let percent = |count: u64| 100.0 * count as f64 / packets.max(1) as f64;
        let rates: Vec<f64> = mine
            .iter()
            .map(|flow| flow.goodput_bps.unwrap_or(0.0))
            .collect();
        WorkloadReport {
            name: name.clone(),
            flows: mine.len() as u64,
            finished: mine
                .iter()
                .filter(|flow| flow.completion_us.is_some())
                .count() as u64,
            failed: mine.iter().filter(|flow| flow.failed).count() as u64,
            bytes: mine.iter().map(|flow| flow.bytes).sum(),
            delivered_bytes: delivered,
            interval_us: interval.map(|interval| interval.map(|at| us(at.0))),
            goodput_bps: interval.map_or(0.0, |interval| rate(delivered, interval)),
            fairness: fairness(&rates),
            completion_us: Percentiles::of(mine.iter().filter_map(|flow| flow.completion_us)),
            slowdown: Percentiles::of(mine.iter().filter_map(|flow| flow.slowdown)),
            latency_us: Percentiles::of_latency(&latency),
            ios_per_s: ios_per_s(&raw, experiment, index, interval),
            retransmitted: mine.iter().map(|flow| flow.retransmitted).sum(),
            timeouts: raw
                .iter()
                .map(|result| result.sender.local_ack_timeout_err)
                .sum(),
            notifications: mine.iter().map(|flow| flow.notifications).sum(),
            swapped_percent: percent(raw.iter().map(|result| result.order.swapped).sum()),
            late_percent: percent(distances.iter().sum()),
            limit: None,
            waits_for: None,
            reorder_distances: distances,
            reorder_distance_max: raw
                .iter()
                .map(|result| result.order.distance_max)
                .max()
                .unwrap_or(0),
            swap_steps: by_powers(&raw, |order| order.swap_steps),
            swap_step_max: raw
                .iter()
                .map(|result| result.order.swap_step_max)
                .max()
                .unwrap_or(0),
        }
    };
    experiment.workloads.iter().enumerate().map(one).collect()
}

/// I/Os per second of a storage workload, over the same interval as its bytes.
fn ios_per_s(
    results: &[&FlowResult],
    experiment: &Experiment,
    workload: usize,
    interval: Option<[Time; 2]>,
) -> Option<f64> {
    let flows = &experiment.scenario.flows;
    let is_storage =
        |flow: &&Flow| flow.workload as usize == workload && flow.operation.is_storage();
    flows.iter().find(is_storage)?;
    let ios = results.iter().map(|result| result.messages).sum::<u64>();
    Some(interval.map_or(0.0, |interval| rate(ios, interval) / 8.0))
}

fn stores(experiment: &Experiment, results: &Results) -> Vec<StoreReport> {
    let percent = |busy: &[u64]| {
        let all = busy.len() as f64 * results.end.0.max(1) as f64;
        100.0 * busy.iter().sum::<u64>() as f64 / all.max(1.0)
    };
    let hosts = experiment.network.hosts.iter().zip(&results.hosts);
    let taking_part = hosts.filter(|(_, result)| !result.cores_busy_ps.is_empty());
    let report =
        |(host, result): (&fabric_file::NamedHost, &crate::world::HostResult)| StoreReport {
            host: host.name.clone(),
            cores: result.cores_busy_ps.len(),
            cores_busy_percent: percent(&result.cores_busy_ps),
            drives_busy_percent: percent(&result.drives_busy_ps),
            memory_busy_percent: percent(&[result.memory_busy_ps]),
            io_timeouts: result.io_timeouts,
        };
    taking_part.map(report).collect()
}

fn functions(experiment: &Experiment, results: &Results) -> Vec<FunctionReport> {
    let hosts = experiment.network.hosts.iter().zip(&results.hosts);
    let any = hosts.filter(|(_, result)| result.function_drops != FunctionDrops::default());
    any.map(|(host, result)| FunctionReport {
        function: host.name.clone(),
        dropped: result.function_drops,
    })
    .collect()
}

/// Jain, Chiu and Hawe, 1984; of one there is none.
fn fairness(rates: &[f64]) -> Option<f64> {
    let (sum, squares): (f64, f64) = (
        rates.iter().sum(),
        rates.iter().map(|rate| rate * rate).sum(),
    );
    (rates.len() > 1 && squares > 0.0).then(|| sum * sum / (rates.len() as f64 * squares))
}

impl Percentiles {
    /// Of exact values; `None` of none.
    pub fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        // The smallest value that so many are not above.
        let at = |of_hundred: usize| {
            values
                .get((values.len() * of_hundred).div_ceil(100).max(1) - 1)
                .copied()
        };
        Some(Self {
            p50: at(50)?,
            p90: at(90)?,
            p99: at(99)?,
            max: *values.last()?,
            mean: values.iter().sum::<f64>() / values.len() as f64,
        })
    }

    fn of_latency(latency: &Latency) -> Option<Self> {
        let at = |per_million| latency.quantile_ns(per_million) as f64 / 1e3;
        (latency.count > 0).then(|| Self {
            p50: at(500_000),
            p90: at(900_000),
            p99: at(990_000),
            max: latency.max_ns as f64 / 1e3,
            mean: latency.sum_ns as f64 / latency.count as f64 / 1e3,
        })
    }
}

/// The counters of a port, of a switch or of a host.
struct Counted<'a> {
    queues: &'a [QueueCounters],
    /// Of a switch's port.
    port: Option<&'a PortCounters>,
    link: LinkCounters,
    incidents: Option<&'a Incidents>,
    pauses_sent: u64,
}

/// The ports of a run that sent or received anything: [`Report::ports`] without the rest of the report.
pub fn port_reports(experiment: &Experiment, results: &Results) -> Vec<PortReport> {
    let mut reports = Vec::new();
    for (link, number) in experiment.network.topology.links().iter().zip(0_u32..) {
        for (direction, end) in (0_u8..).zip(link.ends) {
            let Some(counted) = counted(results, end) else {
                continue;
            };
            let other = link.ends[usize::from(1 - direction)];
            let rate = link.config.rate;
            let gap = experiment.gap_bytes();
            let mut report = port(&counted, rate, gap, results.end);
            report.port = experiment.network.port_name(end);
            report.to = experiment.network.port_name(other);
            (report.link, report.direction) = (number, direction);
            let silent =
                report.packets == 0 && report.pauses_sent == 0 && report.losses().next().is_none();
            if !silent {
                reports.push((end.node, end.port, report));
            }
        }
    }
    reports.sort_by_key(|(node, port, _)| (*node, *port));
    reports.into_iter().map(|(_, _, report)| report).collect()
}

fn counted(results: &Results, end: End) -> Option<Counted<'_>> {
    match end.node {
        Node::Host(host) => results.hosts.get(host as usize).map(|host| Counted {
            queues: &host.queues,
            port: None,
            link: host.link,
            incidents: host.incidents.as_deref(),
            pauses_sent: host.pauses_sent,
        }),
        Node::Switch(switch) => {
            let port = results
                .switches
                .get(switch as usize)?
                .ports
                .get(usize::from(end.port))?;
            Some(Counted {
                queues: &port.queues,
                port: Some(port),
                link: port.link,
                incidents: port.incidents.as_deref(),
                pauses_sent: port.ingress.pauses_sent,
            })
        }
    }
}

/// Reasons for which anything was dropped.
fn reasons(counts: impl Fn(Drop) -> u64) -> Vec<(&'static str, u64)> {
    let all = Drop::ALL.into_iter().map(|why| (why.name(), counts(why)));
    all.filter(|(_, count)| *count > 0).collect()
}

fn queues(counted: &Counted<'_>) -> Vec<QueueReport> {
    let report = |(queue, class): (&QueueCounters, u8)| {
        let index = usize::from(class);
        let dropped = |why: Drop| {
            counted
                .port
                .map_or(0, |port| port.dropped(index, |is| is == why).packets)
        };
        QueueReport {
            class,
            packets: queue.sent_packets,
            bytes: queue.sent_bytes,
            marked: queue.marked_packets,
            trimmed: counted
                .incidents
                .map_or(0, |incidents| incidents.trimmed[index].packets),
            peak_bytes: queue.peak_bytes,
            paused_us: us(queue.paused_ps),
            dropped: reasons(dropped),
            storms: counted
                .incidents
                .map_or(0, |incidents| incidents.storms_detected[index]),
        }
    };
    let used = |queue: &QueueReport| {
        let idle = queue.packets == 0 && queue.paused_us <= 0.0;
        !idle || queue.trimmed > 0 || !queue.dropped.is_empty()
    };
    counted
        .queues
        .iter()
        .zip(0_u8..)
        .map(report)
        .filter(used)
        .collect()
}

fn groups(counted: &Counted<'_>) -> Vec<GroupReport> {
    let all = counted
        .port
        .into_iter()
        .flat_map(|port| (0_u8..).zip(port.groups));
    let report = |(group, peaks): (u8, GroupCounters)| GroupReport {
        group,
        shared_peak_bytes: peaks.shared_peak_bytes,
        headroom_peak_bytes: peaks.headroom_peak_bytes,
        dropped: counted
            .incidents
            .map_or(0, |incidents| incidents.refused[usize::from(group)].packets),
    };
    let used = |group: &GroupReport| {
        group.shared_peak_bytes > 0 || group.headroom_peak_bytes > 0 || group.dropped > 0
    };
    all.map(report).filter(used).collect()
}

/// By priority, if there were any.
fn by_priority(counted: &Counted<'_>, of: fn(&Incidents) -> [u64; CLASSES]) -> Vec<u64> {
    let counts = counted.incidents.map(of).unwrap_or_default();
    if counts == [0; CLASSES] {
        Vec::new()
    } else {
        counts.to_vec()
    }
}

fn port(counted: &Counted<'_>, rate: Rate, gap: u32, end: Time) -> PortReport {
    let queues = queues(counted);
    let packets: u64 = queues.iter().map(|queue| queue.packets).sum();
    let bytes: u64 = queues.iter().map(|queue| queue.bytes).sum();
    let on_wire = (bytes + packets * u64::from(gap)) as f64 * 8.0;
    let capacity = rate.bps() as f64 * end.0 as f64 / 1e12;
    PortReport {
        port: String::new(),
        to: String::new(),
        link: 0,
        direction: 0,
        rate_bps: rate.bps(),
        load: if capacity > 0.0 {
            on_wire / capacity
        } else {
            0.0
        },
        packets,
        bytes,
        marked: queues.iter().map(|queue| queue.marked).sum(),
        trimmed: queues.iter().map(|queue| queue.trimmed).sum(),
        dropped: reasons(|why| {
            counted
                .port
                .map_or(0, |port| port.ingress.dropped[why as usize])
        }),
        fcs_errors: counted.link.damaged,
        lost_link_down: counted.link.lost,
        pauses_sent: counted.pauses_sent,
        pfc_sent: by_priority(counted, |incidents| incidents.pfc_sent),
        pfc_received: by_priority(counted, |incidents| incidents.pfc_received),
        groups: groups(counted),
        paused_us: queues.iter().map(|queue| queue.paused_us).sum(),
        peak_queue_bytes: queues
            .iter()
            .map(|queue| queue.peak_bytes)
            .max()
            .unwrap_or(0),
        queues,
    }
}

fn switches(experiment: &Experiment, results: &Results) -> Vec<SwitchReport> {
    let named = experiment.network.switches.iter().zip(&results.switches);
    let report = |(named, result): (&fabric_file::NamedSwitch, &crate::world::SwitchResult)| {
        let ports = || result.ports.iter();
        SwitchReport {
            name: named.name.clone(),
            buffer_bytes: named.config.buffer.total_bytes,
            buffer_peak_bytes: result.buffer.peak_bytes,
            dropped: ports().flat_map(|port| port.ingress.dropped).sum(),
            marked: ports()
                .flat_map(|port| port.queues)
                .map(|queue| queue.marked_packets)
                .sum(),
            trimmed: ports()
                .filter_map(|port| port.incidents.as_deref())
                .flat_map(|incidents| incidents.trimmed)
                .map(|tally| tally.packets)
                .sum(),
            pauses_sent: ports().map(|port| port.ingress.pauses_sent).sum(),
        }
    };
    named.map(report).collect()
}

fn series(experiment: &Experiment, samples: &[Sample]) -> Vec<Series> {
    let mut by_port: BTreeMap<(u32, u8), PortSamples<'_>> = BTreeMap::new();
    for sample in samples {
        by_port
            .entry((sample.link, sample.direction))
            .or_default()
            .push(sample);
    }
    let one = |((link, direction), samples): ((u32, u8), PortSamples<'_>)| {
        let end = experiment.network.topology.links()[link as usize].ends[usize::from(direction)];
        let rate = |pair: &[&Sample]| {
            let span = (pair[1].at - pair[0].at).0;
            (pair[1].sent_bytes - pair[0].sent_bytes) as f64 * 8e12 / span.max(1) as f64
        };
        let rates = samples.windows(2).map(rate);
        Series {
            port: experiment.network.port_name(end),
            at_us: samples.iter().map(|sample| us(sample.at.0)).collect(),
            queued_bytes: samples.iter().map(|sample| sample.queued_bytes).collect(),
            queues: queue_series(&samples),
            rate_bps: std::iter::once(0.0).chain(rates).collect(),
            paused: samples.iter().map(|sample| sample.paused != 0).collect(),
        }
    };
    by_port.into_iter().map(one).collect()
}

fn queue_series(samples: &PortSamples<'_>) -> Vec<QueueSeries> {
    let of = |class: u8| QueueSeries {
        class,
        queued_bytes: samples
            .iter()
            .map(|sample| sample.class_bytes[usize::from(class)])
            .collect(),
    };
    let used = |series: &QueueSeries| series.queued_bytes.iter().any(|bytes| *bytes > 0);
    (0..CLASSES as u8).map(of).filter(used).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_there() {
        let spread = Percentiles::of((1..=200).map(f64::from)).unwrap();
        assert_eq!(
            (spread.p50, spread.p90, spread.p99, spread.max, spread.mean),
            (100.0, 180.0, 198.0, 200.0, 100.5)
        );
        assert_eq!(Percentiles::of(std::iter::empty()), None);
        assert_eq!(Percentiles::of(std::iter::once(7.0)).unwrap().p99, 7.0);
    }

    #[test]
    fn equal_shares_are_fair() {
        assert_eq!(fairness(&[5.0, 5.0, 5.0]), Some(1.0));
        assert_eq!(fairness(&[1.0, 0.0]), Some(0.5));
        assert_eq!(fairness(&[1.0]), None);
    }
}
