//! Findings about several paths: packets that overtake each other, and paths of equal cost that carry uneven
//! load.

use super::super::{Finding, PortReport, Severity, counted};
use super::{FREE_LOAD, FULL_LOAD, View, finding};
use fabric::Spread;
use fabric::topology::{End, Node};
use std::collections::BTreeMap;

/// A full path that had no longer queue than this, some packets, slows nothing down: what it carries comes
/// from one source, which sends no faster.
const QUEUED: u32 = 16 << 10;

impl View<'_> {
    /// Packets out of order and sent again although none was lost.
    pub(super) fn reordering(&self) -> Vec<Finding> {
        let lost: u64 = self
            .report
            .switches
            .iter()
            .map(|switch| switch.dropped)
            .sum::<u64>()
            + self.report.damaged;
        let again = self.total(|workload| workload.retransmitted);
        let order = self
            .report
            .workloads
            .iter()
            .map(|workload| workload.swapped_percent)
            .fold(0.0, f64::max);
        let Some(sender) = self
            .sender()
            .filter(|_| lost == 0 && again > 0 && order > 0.0)
        else {
            return Vec::new();
        };
        let seen = format!(
            "{} again and none was lost: {order:.1} % arrived before their predecessor",
            counted(again, "packet was sent", "packets were sent")
        );
        let (cause, instead) = if sender.out_of_order {
            let cause = format!(
                "packets overtake each other by more than the reorder window of {}",
                sender.reorder_window
            );
            (
                cause,
                "nic.NAME.reorder-window, or paths of more equal length",
            )
        } else {
            let cause = "packets take several paths, and the receiver accepts them in order only \
                    (go-back-N)"
                .to_owned();
            (
                cause,
                "nic.NAME.out-of-order = true at both ends, or routing.spread = \"hash\"",
            )
        };
        vec![finding(Severity::Slow, seen, cause, instead)]
    }

    /// Switches that have several paths of equal cost to a destination, of which one is full, with a queue,
    /// and another one is not: for each switch the paths with the widest gap.
    pub(super) fn uneven_paths(&self) -> Vec<Finding> {
        let network = &self.experiment.network;
        let why = match network.spread {
            Spread::Hash => "a hash puts each queue pair on one of them",
            Spread::Flowlet(_) => {
                "packets follow each other without gaps that would let the switch choose again"
            }
            // These choose for each packet: another finding has their effects.
            Spread::Random | Spread::RoundRobin | Spread::Adaptive => return Vec::new(),
        };
        let full = |port: &PortReport| port.load >= FULL_LOAD;
        if !self.report.ports.iter().any(full) {
            return Vec::new();
        }
        let exits = self.exits();
        let next_hops = network.topology.next_hops();
        let by_switch = (0_u32..).zip(&next_hops);
        let found = by_switch.filter_map(|(switch, hops)| {
            let groups = hops.groups().filter(|group| group.len() > 1);
            let paths = groups.filter_map(|group| Paths::of(switch, group, &exits));
            let worst = paths.max_by(|one, other| one.gap().total_cmp(&other.gap()))?;
            worst
                .is_uneven()
                .then(|| self.uneven(&self.switch(switch).name, &worst, why))
        });
        found.collect()
    }

    fn uneven(&self, name: &str, paths: &Paths, why: &str) -> Finding {
        let Paths {
            count,
            fullest,
            freest,
        } = paths;
        let seen = format!(
            "{name}: of {} of equal cost that to {} is full ({:.0} %) and that to {} is not ({:.0} %)",
            counted(*count, "path", "paths"),
            self.name(fullest.to),
            100.0 * fullest.load,
            self.name(freest.to),
            100.0 * freest.load
        );
        let cause = format!("{name}: {why}");
        let instead = "more queue pairs for the same data, or routing.spread = \"adaptive\" with adapters \
            that take packets out of order";
        finding(Severity::Slow, seen, cause, instead)
    }

    /// All ports of switches by switch and number, with their load: ports that nothing left are in no report.
    fn exits(&self) -> BTreeMap<(u32, u16), Exit> {
        let network = &self.experiment.network;
        let mut ports: BTreeMap<(u32, u8), &PortReport> = BTreeMap::new();
        for port in &self.report.ports {
            ports.insert((port.link, port.direction), port);
        }
        let mut exits = BTreeMap::new();
        for (number, link) in (0_u32..).zip(network.topology.links()) {
            for (direction, [from, to]) in [link.ends, [link.ends[1], link.ends[0]]]
                .into_iter()
                .enumerate()
            {
                if let Node::Switch(switch) = from.node {
                    let port = ports.get(&(number, direction as u8));
                    let exit = Exit {
                        to,
                        load: port.map_or(0.0, |port| port.load),
                        queued: port.map_or(0, |port| port.peak_queue_bytes),
                    };
                    exits.insert((switch, from.port), exit);
                }
            }
        }
        exits
    }
}

/// A port of a switch: where it leads to, the part of the time that it was sending, and the most bytes that
/// waited for it.
#[derive(Clone, Copy)]
struct Exit {
    to: End,
    load: f64,
    queued: u32,
}

/// The paths of equal cost from a switch to some destination.
struct Paths {
    count: u64,
    fullest: Exit,
    freest: Exit,
}

impl Paths {
    fn of(switch: u32, group: &[u16], exits: &BTreeMap<(u32, u16), Exit>) -> Option<Self> {
        let own = group
            .iter()
            .filter_map(|port| exits.get(&(switch, *port)).copied());
        let by_load = |one: &Exit, other: &Exit| one.load.total_cmp(&other.load);
        Some(Self {
            count: own.clone().count() as u64,
            fullest: own.clone().max_by(by_load)?,
            freest: own.min_by(by_load)?,
        })
    }

    fn gap(&self) -> f64 {
        self.fullest.load - self.freest.load
    }

    fn is_uneven(&self) -> bool {
        self.fullest.load >= FULL_LOAD
            && self.fullest.queued > QUEUED
            && self.freest.load < FREE_LOAD
    }
}
