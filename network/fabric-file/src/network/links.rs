//! `[[link]]`: connected ports, delay, faults, and outages.

use super::NetworkBuilder;
use crate::error::Mistake;
use crate::names::matches;
use crate::schema::{LinkLayer, LinkTable};
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use fabric::topology::{Extra, HOSTS_MAX, LinkConfig, LinkError, Node};
use fabric::{Operations, Span, Time};
use vendors::text::nearest;
use wire::opcode::{OPERATIONS, Operation};

/// Links of one file at most: four for each host.
const LINKS_MAX: usize = 4 * HOSTS_MAX as usize;

/// How often one entry takes a link down at most, and how often all entries together do.
const OUTAGES_MAX: u32 = 10_000;
const ALL_OUTAGES_MAX: usize = 1 << 20;

const fn is_host(node: Node) -> bool {
    matches!(node, Node::Host(_))
}

impl NetworkBuilder<'_> {
    /// Connects the ports of one entry.
    pub(super) fn link(&mut self, index: usize, link: &LinkTable) {
        let field = format!("link[{index}]");
        let delay = match (link.delay, link.length) {
            (Some(_), Some(_)) => {
                let what = "a delay and a length contradict each other".to_owned();
                return self.wrong(Mistake::Combination, &field, what, "give one of them");
            }
            (Some(delay), None) => delay.0,
            (None, Some(length)) => length.delay(),
            (None, None) => Span::from_us(1),
        };
        let config = LinkConfig {
            rate: link.rate_of_packets(),
            delay,
            loss: link.loss.chance(),
            bit_errors: link.bit_errors.0,
        };
        self.check_speed(
            &field,
            &[("rate", link.rate)],
            &[("infiniband", link.infiniband)],
        );
        let chance = match link.chance() {
            Ok(chance) => chance,
            Err((name, what, instead)) => {
                return self.wrong(Mistake::Value, &format!("{field}.{name}"), what, instead);
            }
        };
        let extra = Extra {
            chance,
            ..Extra::of(link.extra_delay.0)
        };
        let from = self.ends(&format!("{field}.between[0]"), &link.between[0]);
        let to = self.ends(&format!("{field}.between[1]"), &link.between[1]);
        if to.len() > 1 {
            let what = format!("\"{}\" stands for {} ends", link.between[1], to.len());
            let field = format!("{field}.between[1]");
            return self.wrong(Mistake::Value, &field, what, "only the first may");
        }
        let Some((to, to_port)) = to.into_iter().next() else {
            return;
        };
        let has_host = is_host(to) || from.iter().any(|(node, _)| is_host(*node));
        let operations = self.operations(&format!("{field}.opcodes"), link, has_host);
        for (from, from_port) in from {
            for _ in 0..link.count {
                if self.topology.links().len() >= LINKS_MAX {
                    let what = format!("more than {LINKS_MAX} links");
                    return self.wrong(Mistake::Limit, &field, what, "make the network smaller");
                }
                if let Err(error) = self.topology.connect(from, to, config) {
                    let what = self.with_host_name(error);
                    return self.wrong(Mistake::Limit, &field, what, "");
                }
                self.speeds.push(link.infiniband.map(|speed| speed.0));
                let number = self.topology.links().len() as u32 - 1;
                if extra != Extra::default() {
                    self.topology.slow_down(number, 0, extra.clone());
                }
                if !operations.is_empty() {
                    self.topology.reserve(number, operations);
                }
                self.take_down(&field, link);
                self.name_port(&field, from, from_port.as_deref());
                self.name_port(&field, to, to_port.as_deref());
            }
        }
    }

    /// The operations whose packets a link is for; none where it is for all.
    fn operations(&mut self, field: &str, link: &LinkTable, has_host: bool) -> Operations {
        let mut all = Operations::default();
        if has_host && !link.opcodes.is_empty() {
            let what = "a host has one link, which all of its packets take".to_owned();
            let instead = "give opcodes to links between switches";
            self.wrong(Mistake::Combination, field, what, instead);
        }
        for (index, pattern) in link.opcodes.iter().enumerate() {
            let named: Vec<Operation> = OPERATIONS
                .iter()
                .map(|row| row.operation)
                .filter(|operation| matches(pattern, operation.name()))
                .collect();
            if named.is_empty() {
                let names = OPERATIONS.iter().map(|row| row.operation.name());
                let instead = match nearest(pattern, names) {
                    Some(meant) => format!("did you mean \"{meant}\"?"),
                    None => "for example \"write-only\", \"read-*\" or \"acknowledge\"".to_owned(),
                };
                let field = format!("{field}[{index}]");
                let what = format!("no opcode is called \"{pattern}\"");
                self.wrong(Mistake::UnknownName, &field, what, &instead);
            }
            let numbers = named.into_iter().map(Operation::number);
            all = numbers.fold(all, Operations::with);
        }
        all
    }

    /// The error of a link as a sentence. The topology knows hosts by their numbers, the file by their names.
    fn with_host_name(&self, error: LinkError) -> String {
        match error {
            LinkError::HostConnected(host) => {
                let name = self.hosts.iter().nth(host as usize).unwrap_or_default();
                format!("host {name} has a link already, and a host has one port")
            }
            other => other.to_string(),
        }
    }

    /// The times when the last link is down.
    fn take_down(&mut self, field: &str, link: &LinkTable) {
        let number = self.topology.links().len() as u32 - 1;
        for (index, down) in link.down.iter().enumerate() {
            let field = format!("{field}.down[{index}]");
            if down.times > OUTAGES_MAX || (down.times > 1 && down.every.0 <= down.lasts.0) {
                let what = format!("{} times, one every {}", down.times, down.every);
                let instead = format!(
                    "at most {OUTAGES_MAX} times, and longer from one to the next than each"
                );
                return self.wrong(Mistake::Value, &field, what, &instead);
            }
            self.outages += down.times as usize;
            if self.outages > ALL_OUTAGES_MAX {
                let what = format!("links go down more than {ALL_OUTAGES_MAX} times altogether");
                return self.wrong(
                    Mistake::Limit,
                    &field,
                    what,
                    "fewer times, or on fewer links",
                );
            }
            for time in 0..u64::from(down.times) {
                let from = Time(0) + down.at.0 + down.every.0.times(time);
                self.topology.take_down(number, from, from + down.lasts.0);
            }
        }
    }

    fn name_port(&mut self, field: &str, node: Node, name: Option<&str>) {
        if self.layer == LinkLayer::Infiniband && !self.has_port(field, node, name) {
            return;
        }
        let Node::Switch(switch) = node else { return };
        let ports = &mut self.port_names[switch as usize];
        if name.is_some_and(|name| ports.iter().flatten().any(|other| other == name)) {
            let what = format!("port {} has a link already", name.unwrap_or_default());
            return self.wrong(Mistake::Combination, &format!("{field}.between"), what, "");
        }
        ports.push(name.map(str::to_owned));
    }

    fn ends(&mut self, field: &str, text: &str) -> Vec<(Node, Option<String>)> {
        let (name, port) = text
            .split_once(':')
            .map_or((text, None), |(name, port)| (name, Some(port)));
        let hosts = self.hosts.matching(name).into_iter().map(Node::Host);
        let switches = self.switches.matching(name).into_iter().map(Node::Switch);
        let ends: Vec<_> = hosts
            .chain(switches)
            .map(|node| (node, port.map(str::to_owned)))
            .collect();
        if ends.is_empty() {
            let names = self.hosts.iter().chain(self.switches.iter());
            let instead = match nearest(name, names) {
                Some(meant) => format!("did you mean \"{meant}\"?"),
                None => "names come from [[host]], [[switch]] and the topology".to_owned(),
            };
            let what = format!("no host and no switch is called \"{name}\"");
            self.wrong(Mistake::UnknownName, field, what, &instead);
        }
        ends
    }
}
