//! The shortest path between two hosts without other traffic, with which completion times are compared.

use super::Experiment;
use crate::world::{Headers, UET_CONTROL_BYTES, UET_DATA_BYTES};
use fabric::Span;
use fabric::topology::{Link, Node};
use std::collections::VecDeque;

/// Bytes of an Ethernet frame around a RoCEv2 packet's payload: Ethernet 14, IPv4 20, UDP 8, BTH 12, ICRC 4,
/// frame check sequence 4.
const HEADERS_BYTES: u64 = 62;

/// Bytes of headers and checksums in InfiniBand: LRH 8, BTH 12, ICRC 4, VCRC 2.
const LOCAL_BYTES: u64 = 26;

/// The RETH, in the first packet of a WRITE or, with out-of-order receive, in each.
const RETH_BYTES: u64 = 16;

/// Immediate data, in the last packet of a message that has it.
const IMMEDIATE_BYTES: u64 = 4;

/// Longer than any run; sums of a few of these still fit.
const PS_MAX: u128 = 1 << 60;

/// The path between two hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    /// Links on it.
    pub links: u32,
    /// One way, over all of them.
    pub delay: Span,
    /// The slowest of them, in bits per second.
    pub rate_bps: u64,
}

/// The shortest paths in a network, found when they are needed.
#[derive(Debug)]
pub struct Paths {
    /// By node (hosts first): the links there, as (other node, index of link).
    neighbours: Vec<Vec<(u32, u32)>>,
    links: Vec<Link>,
    /// The paths of the last source: by node, the path to it.
    from: Option<(u32, Vec<Option<Path>>)>,
    hosts: u32,
}

impl Paths {
    /// Of an experiment's network.
    pub fn new(experiment: &Experiment) -> Self {
        let topology = &experiment.network.topology;
        let hosts = topology.hosts();
        let number = |node: Node| match node {
            Node::Host(host) => host,
            Node::Switch(switch) => hosts + switch,
        };
        let mut neighbours = vec![Vec::new(); (hosts + topology.switches()) as usize];
        for (link, index) in topology.links().iter().zip(0..) {
            let [one, other] = link.ends.map(|end| number(end.node));
            neighbours[one as usize].push((other, index));
            neighbours[other as usize].push((one, index));
        }
        Self {
            neighbours,
            links: topology.links().to_vec(),
            from: None,
            hosts,
        }
    }

    /// The shortest path between two hosts.
    pub fn between(&mut self, from: u32, to: u32) -> Option<Path> {
        if self.from.as_ref().is_none_or(|(last, _)| *last != from) {
            self.from = Some((from, self.all_from(from)));
        }
        self.from
            .as_ref()
            .and_then(|(_, paths)| paths.get(to as usize).copied().flatten())
    }

    fn all_from(&self, from: u32) -> Vec<Option<Path>> {
        let mut paths = vec![None; self.neighbours.len()];
        paths[from as usize] = Some(Path {
            links: 0,
            delay: Span::ZERO,
            rate_bps: u64::MAX,
        });
        let mut queue = VecDeque::from([from]);
        while let Some(node) = queue.pop_front() {
            let Some(here) = paths[node as usize].filter(|_| node == from || node >= self.hosts)
            else {
                continue;
            };
            for (next, link) in &self.neighbours[node as usize] {
                if paths[*next as usize].is_none() {
                    let config = self.links[*link as usize].config;
                    paths[*next as usize] = Some(Path {
                        links: here.links + 1,
                        delay: here.delay + config.delay,
                        rate_bps: here.rate_bps.min(config.rate.bps()),
                    });
                    queue.push_back(*next);
                }
            }
        }
        paths
    }
}

/// What surrounds the payload of a host's packets, and the rate of the slowest link on a path.
struct Framing {
    mtu: u64,
    /// In the first packet of a message besides, in each packet, and in an acknowledgement; with preamble and
    /// gap.
    first: u64,
    each: u64,
    control: u64,
    rate_bps: u64,
}

impl Framing {
    fn of(experiment: &Experiment, path: &Path, from: u32) -> Self {
        let host = &experiment.scenario.hosts[from as usize];
        let overhead = u64::from(host.gap_bytes() + host.telemetry_bytes());
        let (first, each, control) = match host.headers {
            Headers::Fixed { data, control } => (0, u64::from(data), u64::from(control)),
            Headers::Uet => (0, u64::from(UET_DATA_BYTES), u64::from(UET_CONTROL_BYTES)),
            Headers::Infiniband if host.out_of_order => {
                (0, LOCAL_BYTES + RETH_BYTES, LOCAL_BYTES + 4)
            }
            Headers::Infiniband => (RETH_BYTES, LOCAL_BYTES, LOCAL_BYTES + 4),
            Headers::RoceV2 if host.out_of_order => {
                (0, HEADERS_BYTES + RETH_BYTES, HEADERS_BYTES + 4)
            }
            Headers::RoceV2 => (RETH_BYTES, HEADERS_BYTES, HEADERS_BYTES + 4),
        };
        let rate = host
            .rate
            .map_or(path.rate_bps, |rate| rate.bps().min(path.rate_bps));
        Self {
            mtu: u64::from(host.mtu.bytes()),
            first,
            each: each + overhead,
            control: control + overhead,
            rate_bps: rate.max(1),
        }
    }

    /// How long so many bytes take on the slowest link.
    fn ps(&self, bytes: u64) -> u64 {
        (u128::from(bytes) * 8_000_000_000_000 / u128::from(self.rate_bps)).min(PS_MAX) as u64
    }
}

/// Messages of equal length on one queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Messages {
    /// How many messages there are.
    pub count: u64,
    /// Bytes of all messages together.
    pub bytes: u64,
    /// Messages that start while no other one is under way.
    pub idle_starts: u64,
}

impl Experiment {
    /// The time that a transfer of so many bytes takes when it is alone: its packets one behind the other on
    /// the slowest link, the last one stored and forwarded on the others, and the acknowledgement's return
    /// path.
    pub fn alone(&self, path: &Path, from: u32, bytes: u64) -> Span {
        let framing = Framing::of(self, path, from);
        let packets = bytes.div_ceil(framing.mtu).max(1);
        let all = framing.ps(bytes
            .saturating_add(framing.first)
            .saturating_add(packets.saturating_mul(framing.each)));
        let others = u64::from(path.links.saturating_sub(1));
        let last = framing.ps(bytes.min(framing.mtu) + framing.each) * others;
        let back = framing.ps(framing.control) * u64::from(path.links);
        Span(all + last + back) + path.delay.times(2)
    }

    /// The time until messages with immediate data have arrived that are alone: one behind the other on the
    /// slowest link, and those that find nothing under way over the rest of the path.
    pub fn messages_alone(&self, path: &Path, from: u32, messages: Messages) -> Span {
        let framing = Framing::of(self, path, from);
        let one = messages.bytes.div_ceil(messages.count.max(1));
        let packets = one.div_ceil(framing.mtu).max(1);
        let each = one + framing.first + IMMEDIATE_BYTES + packets * framing.each;
        let all = framing.ps(each.saturating_mul(messages.count));
        let others = u64::from(path.links.saturating_sub(1));
        let last = (one - (packets - 1) * framing.mtu.min(one)).max(1) + framing.each;
        let over_path = Span(framing.ps(last) * others) + path.delay;
        Span(all) + over_path.times(messages.idle_starts)
    }
}
