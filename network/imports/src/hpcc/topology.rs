//! The topology file: nodes, which of them are switches, and links.

use crate::graph::{Graph, Link};
use crate::lines::{Line, Lines};
use crate::{ImportError, Input, quantity};
use fabric::topology::{HOSTS_MAX, SWITCHES_MAX};
use std::collections::BTreeSet;

/// Links at most.
const LINKS_MAX: u64 = 1 << 20;

/// Chances are kept in billionths.
const BILLION: f64 = 1e9;

pub(super) fn read(input: Input<'_>) -> Result<Graph, ImportError> {
    let mut lines = Lines::of(input);
    let head = lines.expect("the numbers of nodes, switches and links")?;
    let nodes = head.number(
        0,
        "the number of nodes",
        u64::from(HOSTS_MAX + SWITCHES_MAX),
    )?;
    let switches = head.number(1, "the number of switches", u64::from(SWITCHES_MAX))?;
    let count = head.number(2, "the number of links", LINKS_MAX)?;
    let mut graph = Graph {
        is_switch: vec![false; nodes as usize],
        ..Graph::default()
    };
    for node in node_list(&mut lines, "switch", switches, nodes)? {
        graph.is_switch[node] = true;
    }
    graph.links = links(&mut lines, count, nodes)?;
    Ok(graph)
}

/// So many numbers of nodes, on as many lines as they take.
pub(crate) fn node_list(
    lines: &mut Lines<'_>,
    kind: &str,
    count: u64,
    nodes: u64,
) -> Result<Vec<usize>, ImportError> {
    let mut found = BTreeSet::new();
    while (found.len() as u64) < count {
        let line = lines.expect("the numbers of the switches")?;
        for index in 0..line.words.len() {
            let node = node(&line, index, kind, nodes)?;
            if !found.insert(node) {
                return Err(line.error(format!("{kind} {node} is listed twice")));
            }
        }
        if found.len() as u64 > count {
            let found = found.len();
            return Err(line.error(format!(
                "{found} switches are listed, and the first line says {count}"
            )));
        }
    }
    Ok(found.into_iter().collect())
}

/// The number of a node that there is.
pub(super) fn node(
    line: &Line<'_>,
    index: usize,
    what: &str,
    nodes: u64,
) -> Result<usize, ImportError> {
    let node = line.number(index, what, u64::MAX)?;
    if node >= nodes {
        return Err(line.error(format!("{what} {node}: there are {nodes} nodes, from 0 on")));
    }
    Ok(node as usize)
}

/// So many lines with two nodes, rate, delay and error rate. What is behind them is not read there either.
pub(crate) fn links(
    lines: &mut Lines<'_>,
    count: u64,
    nodes: u64,
) -> Result<Vec<Link>, ImportError> {
    let mut links = Vec::new();
    for index in 0..count {
        let line = lines.expect(&format!("link {} of {count}", index + 1))?;
        let ends = [
            node(&line, 0, "node", nodes)?,
            node(&line, 1, "node", nodes)?,
        ];
        if ends[0] == ends[1] {
            return Err(line.error("a link from a node to itself"));
        }
        let loss = match line.words.len() {
            ..5 => 0.0,
            _ => line.decimal(4, "the error rate")?,
        };
        if loss >= 1.0 {
            return Err(line.error("the error rate is the chance of a packet, below 1"));
        }
        links.push(Link {
            ends,
            rate: line.quantity(2, "a rate such as 100Gbps", quantity::rate)?,
            delay: line.quantity(3, "a delay such as 0.001ms", quantity::time)?,
            loss: (loss * BILLION).round() as u64,
            count: 1,
        });
    }
    Ok(links)
}
