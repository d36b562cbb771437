//! The shortest path between two hosts without other traffic, with which completion times are compared.

use super::Experiment;
use crate::world::Headers;
use fabric::Span;
use fabric::topology::{Link, Node};
use std::collections::VecDeque;

/// Bytes of an Ethernet frame around a RoCEv2 packet's payload: Ethernet 14, IPv4 20, UDP 8, BTH 12, ICRC 4,
/// frame check sequence 4.
const HEADERS_BYTES: u64 = 62;

/// The same of InfiniBand: LRH 8, BTH 12, ICRC 4, VCRC 2.
const LOCAL_BYTES: u64 = 26;

/// The RETH, in the first packet of a WRITE or, with out-of-order receive, in each.
const RETH_BYTES: u64 = 16;

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

impl Experiment {
    /// The time that a transfer of so many bytes takes when it is alone: its packets one behind the other on
    /// the slowest link, the last one stored and forwarded on the others, and the acknowledgement's return
    /// path.
    pub fn alone(&self, path: &Path, from: u32, bytes: u64) -> Span {
        let host = &self.scenario.hosts[from as usize];
        let mtu = u64::from(host.mtu.bytes());
        let packets = bytes.div_ceil(mtu).max(1);
        let overhead = u64::from(host.gap_bytes() + host.telemetry_bytes());
        let (first, each, control) = match host.headers {
            Headers::Fixed { data, control } => (0, u64::from(data), u64::from(control)),
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
            .map_or(path.rate_bps, |rate| rate.bps().min(path.rate_bps))
            .max(1);
        let ps = |bytes: u64| {
            (u128::from(bytes) * 8_000_000_000_000 / u128::from(rate)).min(PS_MAX) as u64
        };
        let all = ps(bytes
            .saturating_add(first)
            .saturating_add(packets.saturating_mul(each + overhead)));
        let last = ps(bytes.min(mtu) + each + overhead) * u64::from(path.links.saturating_sub(1));
        let back = ps(control + overhead) * u64::from(path.links);
        Span(all + last + back) + path.delay.times(2)
    }
}
