//! `ibnetdiscover`: the links with their speeds, and the LIDs of ports.

use super::super::discovered::NodeKind;
use super::super::pattern::pattern;
use super::super::ports_report::Ports;
use super::super::record::Record;
use super::{SubnetFacts, fact, is_message};
use crate::text::Line;
use regex::Regex;
use std::sync::LazyLock;

/// The LID of the port itself, in the line of an adapter's port.
static LID: LazyLock<Regex> = LazyLock::new(|| pattern(r"#\s*lid (\d+) lmc \d+"));

pub(super) fn is_one(text: &str) -> bool {
    Ports::is_one(text) || matches!(Record::parse(text), Ok(Record::Node(_)))
}

pub(super) fn read(facts: &mut SubnetFacts, output: &[Line<'_>]) {
    let mut text = String::new();
    let mut number = 1;
    for line in output {
        while number < line.number {
            text.push('\n');
            number += 1;
        }
        text += line.text;
    }
    let file = facts.file.clone();
    let found = match super::super::read(&file, &text) {
        Ok(found) => found,
        Err(error) => {
            for remark in error.0 {
                facts.not_understood(remark.line, remark.what);
            }
            return;
        }
    };
    let line_of = |number: usize| output.iter().find(|line| line.number == number);
    for link in &found.subnet.links {
        let Some(line) = line_of(link.line) else {
            continue;
        };
        for (own, other) in [(0, 1), (1, 0)] {
            let [own, other] = [link.ends[own], link.ends[other]];
            let [node, peer] = [own, other].map(|end| &found.subnet.nodes[end.node]);
            let port = facts.port(&node.description, Some(own.port));
            port.guid = port.guid.or(node.guid);
            port.is_switch = Some(node.kind == NodeKind::Switch);
            port.peer = Some((peer.description.clone(), other.port));
            if let Some(speed) = link.speed {
                port.speed = Some(fact(&file, line, speed));
            }
        }
    }
    lids(facts, output);
    for remark in found.remarks {
        if !output
            .iter()
            .any(|line| line.number == remark.line && is_message(line.text))
        {
            facts.not_understood(remark.line, remark.what);
        }
    }
}

/// Reads the LIDs of adapters' ports, which stand in their own lines.
fn lids(facts: &mut SubnetFacts, output: &[Line<'_>]) {
    let file = facts.file.clone();
    let mut node = String::new();
    for line in output {
        match Record::parse(line.text) {
            Ok(Record::Node(header)) => node = header.description.unwrap_or(header.id),
            Ok(Record::Port(port)) => {
                let lid = LID.captures(line.text).and_then(|lid| lid[1].parse().ok());
                if let (Some(lid), Ok(number)) = (lid, u8::try_from(port.port)) {
                    facts.port(&node, Some(number)).lid = Some(fact(&file, line, lid));
                }
            }
            _ => {}
        }
    }
}
