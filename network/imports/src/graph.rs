//! A network of nodes and links, and the fabric file's tables of it.

use crate::text::{FabricText, list};
use fabric::{Rate, Span};
use std::collections::BTreeMap;

/// A link between two nodes, by their numbers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Link {
    pub ends: [usize; 2],
    pub rate: Rate,
    pub delay: Span,
    /// The chance that a packet is lost, in billionths.
    pub loss: u64,
    /// Links side by side between these two nodes.
    pub count: u32,
}

/// Nodes, the first of which are not always the hosts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Graph {
    /// By node, whether it is a switch.
    pub is_switch: Vec<bool>,
    pub links: Vec<Link>,
    /// Nodes that are not of the network.
    pub left_out: std::ops::Range<usize>,
    /// Links that go down for good, and when.
    pub fails: BTreeMap<usize, Span>,
}

/// The longest round trip of a network without traffic.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RoundTrip {
    pub time: Span,
    /// What is on the way at the rate of the path, at most.
    pub bytes: u64,
}

/// What is known of the way from one host to a node.
#[derive(Clone, Copy, Debug)]
struct Way {
    delay: Span,
    /// The time of a packet on each of the links.
    sending: Span,
    rate: Rate,
}

/// An outage that lasts longer than any run.
const FOR_GOOD: &str = "1000s";

/// Hosts from which round trips are looked for: networks are regular, and each takes a walk over all links.
const WALKS: usize = 512;

impl Graph {
    /// The name of a node.
    pub(crate) fn name(&self, node: usize) -> String {
        let letter = if self.is_switch[node] { 's' } else { 'h' };
        format!("{letter}{node}")
    }

    pub(crate) fn hosts(&self) -> impl Iterator<Item = usize> {
        let nodes = self.is_switch.iter().enumerate();
        nodes
            .filter(|(_, is_switch)| !**is_switch)
            .map(|(node, _)| node)
    }

    /// The rates of links, the most frequent first.
    pub(crate) fn rates(&self) -> Vec<Rate> {
        let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
        for link in &self.links {
            *counts.entry(link.rate.bps()).or_default() += 1;
        }
        let mut rates: Vec<(u64, usize)> = counts.into_iter().collect();
        rates.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let rates = rates.into_iter().map(|(bps, _)| Rate::from_bps(bps));
        rates.collect()
    }

    /// What all ports of the largest switch forward, in bits per second.
    pub(crate) fn largest_switch_bps(&self) -> u64 {
        let mut rates = vec![0_u64; self.is_switch.len()];
        for link in &self.links {
            for end in link.ends {
                rates[end] += link.rate.bps() * u64::from(link.count);
            }
        }
        let switches = rates.into_iter().zip(&self.is_switch);
        switches
            .filter(|(_, is_switch)| **is_switch)
            .map(|(rate, _)| rate)
            .max()
            .unwrap_or(0)
    }

    /// Links of hosts beyond their first one.
    pub(crate) fn take_second_links(&mut self) -> usize {
        let mut has_link = vec![false; self.is_switch.len()];
        let before = self.links.len();
        let is_switch = &self.is_switch;
        self.links.retain(|link| {
            let mut is_first = true;
            for end in link.ends.into_iter().filter(|end| !is_switch[*end]) {
                is_first &= !std::mem::replace(&mut has_link[end], true);
            }
            is_first
        });
        before - self.links.len()
    }

    /// The longest round trip between two hosts: both delays, and the time of a packet on each link.
    pub(crate) fn longest_round_trip(&self, packet_bytes: u32) -> RoundTrip {
        let mut neighbours: Vec<Vec<(usize, &Link)>> = vec![Vec::new(); self.is_switch.len()];
        for link in &self.links {
            let [one, other] = link.ends;
            neighbours[one].push((other, link));
            neighbours[other].push((one, link));
        }
        let mut longest = RoundTrip::default();
        for host in self.hosts().take(WALKS) {
            for way in self.ways_from(host, &neighbours, packet_bytes) {
                let time = way.delay + way.delay + way.sending;
                longest.time = longest.time.max(time);
                longest.bytes = longest.bytes.max(way.rate.bytes_in(time));
            }
        }
        longest
    }

    /// The ways to all other hosts, over the fewest links.
    fn ways_from(
        &self,
        host: usize,
        neighbours: &[Vec<(usize, &Link)>],
        packet_bytes: u32,
    ) -> Vec<Way> {
        let mut ways: Vec<Option<Way>> = vec![None; self.is_switch.len()];
        ways[host] = Some(Way {
            delay: Span::ZERO,
            sending: Span::ZERO,
            rate: Rate::from_bps(u64::MAX),
        });
        let mut queue = std::collections::VecDeque::from([host]);
        while let Some(node) = queue.pop_front() {
            let Some(way) = ways[node] else { continue };
            for (next, link) in &neighbours[node] {
                if ways[*next].is_some() {
                    continue;
                }
                ways[*next] = Some(Way {
                    delay: way.delay + link.delay,
                    sending: way.sending + link.rate.time_of(packet_bytes),
                    rate: match link.rate.bps() < way.rate.bps() {
                        true => link.rate,
                        false => way.rate,
                    },
                });
                // Hosts forward nothing.
                if self.is_switch[*next] {
                    queue.push_back(*next);
                }
            }
        }
        let others = self.hosts().filter(|other| *other != host);
        others.filter_map(|other| ways[other]).collect()
    }

    /// Writes hosts, switches and links.
    pub(crate) fn write(&self, text: &mut FabricText) {
        let nodes = self.is_switch.iter().enumerate();
        for (node, is_switch) in nodes.filter(|(node, _)| !self.left_out.contains(node)) {
            text.element(if *is_switch { "switch" } else { "host" });
            text.quoted("name", self.name(node));
        }
        for (index, link) in self.links.iter().enumerate() {
            text.element("link");
            text.field("between", list(link.ends.map(|end| self.name(end))));
            text.quoted("rate", units::Bandwidth(link.rate));
            text.quoted("delay", units::Timespan(link.delay));
            if link.loss > 0 {
                text.field("loss", format_args!("{}e-9", link.loss));
            }
            if link.count > 1 {
                text.field("count", link.count);
            }
            if let Some(at) = self.fails.get(&index) {
                let at = units::Timespan(*at);
                text.field(
                    "down",
                    format_args!("[{{ at = \"{at}\", lasts = \"{FOR_GOOD}\" }}]"),
                );
            }
        }
    }
}
