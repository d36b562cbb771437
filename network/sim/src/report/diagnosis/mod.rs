//! Findings: the settings that cause an observation. Each rule looks at counters first: a setting without a
//! measurable effect is no finding.

mod io_timeouts;
mod losses;
mod paths;
mod subnet;
mod victims;

use super::alike::{grouped, listed};
use super::{Finding, Report, Severity, WorkloadReport, counted};
use crate::experiment::Experiment;
use crate::world::Results;
use crate::world::{HostConfig, Marking};
use fabric::config::{CLASSES, ClassMap, Profile};
use fabric::topology::{End, Node};
use fabric_file::NamedSwitch;
use rnic::Signal;

/// The part of the time that a port is paused from which on it is a storm.
const STORM_PART: f64 = 0.25;

/// A port that is busy for less than this is not full.
const FREE_LOAD: f64 = 0.5;

/// A port that is busy for more than this is full.
const FULL_LOAD: f64 = 0.85;

pub(super) fn findings(
    experiment: &Experiment,
    results: &Results,
    report: &Report,
) -> Vec<Finding> {
    let view = View {
        experiment,
        results,
        report,
    };
    let of_ethernet: [Rule<'_>; 12] = [
        View::deadlocks,
        View::losses,
        View::damaged,
        View::failures,
        View::storms,
        View::victims,
        View::reordering,
        View::uneven_paths,
        View::io_timeouts,
        View::pcie_links,
        View::notifications,
        View::without_effect,
    ];
    let rules = match experiment.subnet {
        Some(_) => subnet::rules().to_vec(),
        None => of_ethernet.to_vec(),
    };
    let mut findings: Vec<Finding> = Vec::new();
    let switches = experiment.network.switches.iter();
    let names = switches.map(|switch| switch.name.as_str()).collect();
    for rule in rules {
        let mut found = rule(&view);
        found.dedup();
        findings.extend(grouped(found, &names));
    }
    findings.sort_by_key(|finding| finding.severity);
    findings
}

/// A rule: what it found.
type Rule<'a> = fn(&View<'a>) -> Vec<Finding>;

struct View<'a> {
    experiment: &'a Experiment,
    results: &'a Results,
    report: &'a Report,
}

fn finding(severity: Severity, seen: String, cause: String, instead: impl Into<String>) -> Finding {
    Finding {
        severity,
        seen,
        cause,
        instead: instead.into(),
    }
}

/// That the PCIe links of these hosts were busy for these parts of the time.
fn busy_links(names: &[String], parts: &[f64]) -> String {
    let percent = |part: f64| format!("{:.0}", 100.0 * part);
    let least = percent(parts.iter().copied().fold(1.0, f64::min));
    let most = percent(parts.iter().copied().fold(0.0, f64::max));
    let links = match names {
        [one] => format!("the PCIe link of {one} was"),
        several => format!("the PCIe links of {} were", listed(several)),
    };
    let part = match least == most {
        true => least,
        false => format!("{least} to {most}"),
    };
    format!("{links} busy for {part} % of the time")
}

/// The class that a switch puts a host's packets into.
fn class_of(map: &ClassMap, marking: &Marking) -> u8 {
    match marking.pcp {
        _ if map.trust_dscp => map.dscp[usize::from(marking.dscp & 63)].class,
        Some(pcp) if map.trust_pcp => map.pcp[usize::from(pcp & 7)].class,
        _ => map.default.class,
    }
}

impl View<'_> {
    fn switch(&self, number: u32) -> &NamedSwitch {
        &self.experiment.network.switches[number as usize]
    }

    fn profile(&self, switch: u32, port: u16) -> &Profile {
        let config = &self.switch(switch).config;
        &config.profiles[usize::from(config.ports[usize::from(port)].profile)]
    }

    fn host(&self, number: u32) -> &HostConfig {
        &self.experiment.scenario.hosts[number as usize]
    }

    /// The sum of a counter of all workloads.
    fn total(&self, counter: impl Fn(&WorkloadReport) -> u64) -> u64 {
        self.report.workloads.iter().map(counter).sum()
    }

    fn name(&self, end: End) -> String {
        self.experiment.network.port_name(end)
    }

    /// The far end of the link at a switch's port.
    fn peer(&self, switch: u32, port: u16) -> Option<End> {
        let here = End {
            node: Node::Switch(switch),
            port,
        };
        let links = self.experiment.network.topology.links();
        let link = links.iter().find(|link| link.ends.contains(&here))?;
        link.ends.into_iter().find(|end| *end != here)
    }

    /// Some host whose data enters the network, for checks of markings: that of the first flow.
    fn sender(&self) -> Option<&HostConfig> {
        let hosts = &self.experiment.scenario.hosts;
        // Programs of live hosts send without flows.
        self.experiment
            .scenario
            .flows
            .first()
            .map(|flow| self.host(flow.from))
            .or(hosts.first())
    }

    fn deadlocks(&self) -> Vec<Finding> {
        let one = |deadlock: &crate::world::Deadlock| {
            let name = |(switch, port): &(u32, u16)| {
                self.name(End {
                    node: Node::Switch(*switch),
                    port: *port,
                })
            };
            let circle = deadlock
                .circle
                .iter()
                .map(name)
                .collect::<Vec<_>>()
                .join(" → ");
            finding(
                Severity::Broken,
                format!(
                    "PFC deadlock at {:.1} us: {circle} pause each other, and none can send again",
                    deadlock.at.0 as f64 / 1e6
                ),
                format!(
                    "traffic class {} is lossless in a circle of links",
                    deadlock.class
                ),
                "routes without a circle (up, then down), another class after each turn, or a PFC watchdog",
            )
        };
        self.results.deadlocks.iter().map(one).collect()
    }

    fn failures(&self) -> Vec<Finding> {
        let failed = self.total(|workload| workload.failed);
        if failed == 0 {
            return Vec::new();
        }
        vec![finding(
            Severity::Broken,
            counted(failed, "queue pair failed", "queue pairs failed"),
            "their retries were used up: packets or acknowledgements were lost again and again"
                .to_owned(),
            "see the losses; retries = 7 and a longer timeout only hide them",
        )]
    }

    /// Ports that are paused much of the time, and the setting that would have slowed senders down instead.
    fn storms(&self) -> Vec<Finding> {
        if !self.results.deadlocks.is_empty() {
            // Whatever is paused is so because of that.
            return Vec::new();
        }
        let end_us = self.results.end.0 as f64 / 1e6;
        let paused = |port: &&super::PortReport| {
            port.queues
                .iter()
                .any(|queue| queue.paused_us > STORM_PART * end_us)
        };
        let outside = |port: &&super::PortReport| !self.is_inside(port.link);
        let stormy: Vec<_> = self
            .report
            .ports
            .iter()
            .filter(outside)
            .filter(paused)
            .collect();
        let Some(worst) = stormy
            .iter()
            .max_by(|one, other| one.paused_us.total_cmp(&other.paused_us))
        else {
            return Vec::new();
        };
        let pauses: u64 = self
            .report
            .switches
            .iter()
            .map(|switch| switch.pauses_sent)
            .sum();
        let all = self.report.ports.len();
        let part = 100.0
            * worst
                .queues
                .iter()
                .map(|queue| queue.paused_us)
                .fold(0.0, f64::max)
            / end_us;
        let seen = format!(
            "{} paused more than {:.0} % of the time ({}: {part:.0} %); {}",
            counted(
                stormy.len() as u64,
                &format!("of {all} ports was"),
                &format!("of {all} ports were")
            ),
            100.0 * STORM_PART,
            worst.port,
            counted(pauses, "pause", "pauses")
        );
        let Some((cause, instead)) = self.why_storm() else {
            return Vec::new();
        };
        vec![finding(Severity::Slow, seen, cause, instead)]
    }

    /// Whether a link is inside an adapter with functions: its switch stops functions in their turn.
    fn is_inside(&self, link: u32) -> bool {
        let network = &self.experiment.network;
        let link = network.topology.links().get(link as usize);
        link.is_some_and(|link| {
            link.ends.iter().any(|end| match end.node {
                Node::Host(host) => network.adapter_of(host).is_some(),
                Node::Switch(_) => false,
            })
        })
    }

    fn why_storm(&self) -> Option<(String, String)> {
        let sender = self.sender()?;
        // The PCIe link of a receiver may cause the pauses of the switch.
        let hosts = self
            .results
            .hosts
            .iter()
            .zip(&self.experiment.network.hosts);
        if let Some((_, host)) = hosts
            .max_by_key(|(result, _)| result.pauses_sent)
            .filter(|(result, _)| result.pauses_sent > 0)
        {
            let cause = format!(
                "the PCIe link of {} is slower than what arrives, and its adapter pauses the switch",
                host.name
            );
            return Some((
                cause,
                "a wider or newer PCIe link: see nic.NAME.pcie".to_owned(),
            ));
        }
        for (number, switch) in (0_u32..).zip(&self.experiment.network.switches) {
            let Some(profile) = switch.config.profiles.first() else {
                continue;
            };
            let class = class_of(&profile.map, &sender.data);
            if profile.queues[usize::from(class)]
                .red
                .is_none_or(|red| !red.mark)
            {
                let cause = format!(
                    "{}: ECN is off for class {class}: senders get no congestion notifications, and only \
                        pauses slow them down",
                    switch.name
                );
                let instead = match &self.switch(number).imported {
                    Some(imported) => imported.ecn_setting().to_owned(),
                    None => format!("[qos.NAME.queue.{class}] ecn = {{}}"),
                };
                return Some((cause, instead));
            }
        }
        if !sender.data.ecn {
            let cause =
                "adapters do not mark data as ECN-capable: switches may not mark it".to_owned();
            return Some((
                cause,
                "nic.NAME.ecn = true (ToS 106 for DSCP 26)".to_owned(),
            ));
        }
        if sender.congestion.signal() == Signal::Loss {
            let cause =
                "switches mark, and adapters have no congestion control that reacts to marks"
                    .to_owned();
            return Some((cause, "nic.NAME.congestion = \"dcqcn\"".to_owned()));
        }
        let cause =
            "switches begin to mark at a longer queue than that at which they begin to pause"
                .to_owned();
        Some((
            cause,
            "lower ecn.min and ecn.max, or raise pfc.xoff".to_owned(),
        ))
    }

    fn pcie_links(&self) -> Vec<Finding> {
        // Hosts, and the parts of the time that their links were busy, by what the links are.
        let mut alike: Vec<(String, Vec<String>, Vec<f64>)> = Vec::new();
        let hosts = self
            .experiment
            .network
            .hosts
            .iter()
            .zip(&self.experiment.scenario.hosts)
            .zip(0_u32..);
        for ((host, config), number) in hosts {
            let (Some(pcie_table), Some(pcie)) = (&host.nic.pcie, &config.pcie) else {
                continue;
            };
            if self.experiment.network.function(number).is_some() {
                // The slot is named once, as the adapter's.
                continue;
            }
            let link = self.link_bps(number);
            let busy = self
                .results
                .hosts
                .get(number as usize)
                .map_or(0, |result| result.pcie_busy_ps);
            let part = busy as f64 / self.results.end.0.max(1) as f64;
            if pcie.rate.bps() >= link || part < FREE_LOAD {
                continue;
            }
            let cause = format!(
                "{}: {:.1} Gb/s, {:.1} without packet headers, and the link has {:.0}",
                crate::experiment::pcie_name(pcie_table),
                crate::experiment::pcie_bps(pcie_table) as f64 / 1e9,
                pcie.rate.bps() as f64 / 1e9,
                link as f64 / 1e9
            );
            match alike.iter_mut().find(|(known, ..)| *known == cause) {
                Some((_, names, parts)) => {
                    names.push(host.name.clone());
                    parts.push(part);
                }
                None => alike.push((cause, vec![host.name.clone()], vec![part])),
            }
        }
        let one = |(cause, names, parts): (String, Vec<String>, Vec<f64>)| {
            finding(
                Severity::Slow,
                busy_links(&names, &parts),
                cause,
                "lspci -vvv: LnkSta below LnkCap is a riser, a slot or a setting; else a wider slot",
            )
        };
        alike.into_iter().map(one).collect()
    }

    fn link_bps(&self, host: u32) -> u64 {
        if let Some(adapter) = self.experiment.network.adapter_of(host) {
            return adapter.uplink.bps();
        }
        let links = self.experiment.network.topology.links();
        let own = links
            .iter()
            .find(|link| link.ends.iter().any(|end| end.node == Node::Host(host)));
        own.map_or(0, |link| link.config.rate.bps())
    }

    /// Notifications that wait behind the data that they are about.
    fn notifications(&self) -> Vec<Finding> {
        let sent = self.total(|workload| workload.notifications);
        let Some(sender) = self.sender().filter(|_| sent > 0) else {
            return Vec::new();
        };
        let mut findings = Vec::new();
        for switch in &self.experiment.network.switches {
            let Some(profile) = switch.config.profiles.first() else {
                continue;
            };
            let (data, note) = (
                class_of(&profile.map, &sender.data),
                class_of(&profile.map, &sender.notifications),
            );
            if data == note && profile.pfc.send >> data & 1 == 1 {
                findings.push(finding(
                    Severity::Note,
                    format!(
                        "{}: notifications (DSCP {}) are in class {note}, as data is",
                        switch.name, sender.notifications.dscp
                    ),
                    "they wait in the queues, and are paused, with the data that they are about"
                        .to_owned(),
                    format!(
                        "map DSCP {} to a class of its own with strict priority",
                        sender.notifications.dscp
                    ),
                ));
            }
        }
        findings
    }

    /// Findings on vendors' configurations in which a setting makes the rest have no effect.
    fn without_effect(&self) -> Vec<Finding> {
        let one = |switch: &NamedSwitch| {
            let advice = switch.imported.as_ref()?.without_effect()?;
            let seen = format!(
                "{}: the switch chip knows nothing of the QoS configuration",
                switch.name
            );
            Some(finding(
                Severity::Broken,
                seen,
                advice.cause,
                advice.instead,
            ))
        };
        self.experiment
            .network
            .switches
            .iter()
            .filter_map(one)
            .collect()
    }
}

const _: () = assert!(CLASSES == 8, "masks of classes are bytes");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_with_equal_links_are_one_finding() {
        let names = |count: usize| {
            (0..count)
                .map(|host| format!("h{host}"))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            busy_links(&names(1), &[0.931]),
            "the PCIe link of h0 was busy for 93 % of the time"
        );
        assert_eq!(
            busy_links(&names(5), &[0.9, 0.93, 0.95, 0.9, 0.9]),
            "the PCIe links of h0, h1, h2, h3 and 1 more were busy for 90 to 95 % of the time"
        );
    }
}
