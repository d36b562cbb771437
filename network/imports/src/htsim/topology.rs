//! Topologies: fat trees of two or three tiers.

use crate::graph::{Graph, Link};
use crate::lines::{Line, Lines};
use crate::{ImportError, Input};
use fabric::topology::{HOSTS_MAX, SWITCHES_MAX};
use fabric::{Rate, Span};

/// Ports of a switch at most, in one direction.
const RADIX_MAX: u64 = 1 << 16;

/// The switches of one level.
#[derive(Clone, Copy, Debug)]
struct Tier {
    down: u64,
    up: u64,
    rate: Rate,
    delay: Span,
    /// Parallel links downwards.
    bundle: u64,
}

impl Default for Tier {
    fn default() -> Self {
        Self {
            down: 0,
            up: 0,
            rate: Rate::from_gbps(100),
            delay: Span::from_us(1),
            bundle: 1,
        }
    }
}

/// A fat tree.
#[derive(Debug)]
pub(super) struct Topology {
    pub hosts: u64,
    tiers: Vec<Tier>,
    /// Switches of each tier, and how many of them a pod has.
    switches: [u64; 3],
    tops_per_pod: [u64; 2],
}

impl Topology {
    pub(super) fn read(input: Input<'_>, notes: &mut Vec<String>) -> Result<Self, ImportError> {
        let error = |what: String| ImportError {
            file: input.name.to_owned(),
            line: None,
            what,
        };
        let mut values = Values::default();
        for line in Lines::of(input) {
            if !line.words[0].starts_with('#') {
                values.line(&line)?;
            }
        }
        if values.has_queues {
            notes.push(
                "Queue_Up and Queue_Down are left out: [qos.default] has buffer, limits and \
                 thresholds"
                    .to_owned(),
            );
        }
        if values.has_switch_latency {
            notes.push(
                "Switch_Latency_ns is left out: switches take the time of a packet".to_owned(),
            );
        }
        values.fitted().map_err(error)
    }

    /// Hosts, then the switches of all tiers.
    pub(super) fn graph(&self) -> Graph {
        let [leaves, aggregations, cores] = self.switches.map(|count| count as usize);
        let hosts = self.hosts as usize;
        let all = hosts + leaves + aggregations + cores;
        let mut graph = Graph {
            is_switch: (0..all).map(|node| node >= hosts).collect(),
            ..Graph::default()
        };
        let link = |one: usize, other: usize, tier: &Tier| Link {
            ends: [one, other],
            rate: tier.rate,
            delay: tier.delay,
            loss: 0,
            count: tier.bundle as u32,
        };
        let per_leaf = self.tiers[0].down as usize;
        graph
            .links
            .extend((0..hosts).map(|host| link(host, hosts + host / per_leaf, &self.tiers[0])));
        let [leaves_of_pod, aggregations_of_pod] = self.tops_per_pod.map(|count| count as usize);
        let first_aggregation = hosts + leaves;
        for leaf in 0..leaves {
            let pod = leaf / leaves_of_pod;
            for place in 0..aggregations_of_pod {
                let aggregation = first_aggregation + pod * aggregations_of_pod + place;
                graph
                    .links
                    .push(link(hosts + leaf, aggregation, &self.tiers[1]));
            }
        }
        if let Some(tier) = self.tiers.get(2) {
            let first_core = first_aggregation + aggregations;
            for aggregation in 0..aggregations {
                let place = aggregation % aggregations_of_pod;
                for core in (place..cores).step_by(aggregations_of_pod) {
                    graph.links.push(link(
                        first_aggregation + aggregation,
                        first_core + core,
                        tier,
                    ));
                }
            }
        }
        graph
    }
}

/// What the lines say.
#[derive(Debug, Default)]
struct Values {
    nodes: u64,
    tiers: u64,
    pod: u64,
    each: [Tier; 3],
    current: Option<usize>,
    has_queues: bool,
    has_switch_latency: bool,
}

impl Values {
    fn line(&mut self, line: &Line<'_>) -> Result<(), ImportError> {
        let key = line.words[0].to_ascii_lowercase();
        let value = |most: u64| line.number(1, "the value", most);
        match &*key {
            "nodes" => self.nodes = value(u64::from(HOSTS_MAX))?,
            "tiers" => self.tiers = value(3)?,
            "podsize" => self.pod = value(u64::from(HOSTS_MAX))?,
            "tier" => self.current = Some(value(2)? as usize),
            _ => {
                let current = self.current.ok_or_else(|| {
                    line.error(format!(
                        "\"{}\" stands before a line such as Tier 0",
                        line.words[0]
                    ))
                })?;
                let tier = &mut self.each[current];
                match &*key {
                    "downlink_speed_gbps" => tier.rate = Rate::from_gbps(value(1_000_000)?.max(1)),
                    "radix_down" => tier.down = value(RADIX_MAX)?,
                    "radix_up" => tier.up = value(RADIX_MAX)?,
                    "downlink_latency_ns" => tier.delay = Span::from_ns(value(1_000_000_000)?),
                    "bundle" => tier.bundle = value(RADIX_MAX)?.max(1),
                    "queue_up" | "queue_down" => {
                        value(u64::MAX)?;
                        self.has_queues = true;
                    }
                    "switch_latency_ns" => self.has_switch_latency |= value(u64::MAX)? > 0,
                    // The ratio of radices and rates, which say the same.
                    "oversubscribed" => _ = value(u64::MAX)?,
                    _ => return Err(line.error(format!("\"{}\" is not understood", line.words[0]))),
                }
            }
        }
        Ok(())
    }

    /// The numbers of switches, as the radices have it.
    fn fitted(self) -> Result<Topology, String> {
        let [leaf, aggregation, core] = self.each;
        let parts = |whole: u64, part: u64, what: &str| match whole.checked_div(part) {
            Some(count) if whole > 0 && whole.is_multiple_of(part) => Ok(count),
            _ => Err(format!("{what}: {whole} is no multiple of {part}")),
        };
        if !(2..=3).contains(&self.tiers) {
            return Err(format!("Tiers is {}: 2 and 3 are read", self.tiers));
        }
        let pod = if self.tiers == 2 {
            self.nodes
        } else {
            self.pod
        };
        let pods = parts(self.nodes, pod, "Nodes and Podsize")?;
        let leaves_of_pod = parts(pod, leaf.down, "Podsize and Radix_Down of tier 0")?;
        let aggregations_of_pod = parts(
            leaf.up,
            aggregation.bundle,
            "Radix_Up of tier 0 and Bundle of tier 1",
        )?;
        if leaves_of_pod * aggregation.bundle != aggregation.down {
            return Err(format!(
                "Radix_Down of tier 1 is {}, and {leaves_of_pod} switches of tier 0 have {} links to each",
                aggregation.down, aggregation.bundle
            ));
        }
        let aggregations = aggregations_of_pod * pods;
        let cores = match self.tiers {
            2 => 0,
            _ => {
                let each = parts(
                    aggregation.up,
                    core.bundle,
                    "Radix_Up of tier 1 and Bundle of tier 2",
                )?;
                if pods * core.bundle != core.down {
                    return Err(format!(
                        "Radix_Down of tier 2 is {}, and {pods} pods have {} links to each",
                        core.down, core.bundle
                    ));
                }
                each * aggregations_of_pod
            }
        };
        let switches = [leaves_of_pod * pods, aggregations, cores];
        let count: u64 = switches.iter().sum();
        if count > u64::from(SWITCHES_MAX) {
            return Err(format!("{count} switches, and {SWITCHES_MAX} are the most"));
        }
        Ok(Topology {
            hosts: self.nodes,
            tiers: self.each[..self.tiers as usize].to_vec(),
            switches,
            tops_per_pod: [leaves_of_pod, aggregations_of_pod],
        })
    }
}
