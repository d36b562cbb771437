//! The topology: processors, NVSwitches, switches and links.

use crate::graph::{Graph, Link};
use crate::hpcc::{links, node_list};
use crate::job::Local;
use crate::lines::Lines;
use crate::{ImportError, Input};
use fabric::topology::{HOSTS_MAX, SWITCHES_MAX};

/// Processors in servers, and the network between these.
#[derive(Debug)]
pub(super) struct Servers {
    /// Nodes keep their numbers. NVSwitches have none of the links, and are no nodes of the fabric file.
    pub graph: Graph,
    pub processors: usize,
    pub per_server: u32,
    pub local: Option<Local>,
}

pub(super) fn read(input: Input<'_>, notes: &mut Vec<String>) -> Result<Servers, ImportError> {
    const NODES_MAX: u64 = (HOSTS_MAX + SWITCHES_MAX) as u64;
    let mut lines = Lines::of(input);
    let head = lines.expect("the numbers of nodes")?;
    let nodes = head.number(0, "the number of nodes", NODES_MAX)?;
    let per_server = head.number(1, "processors of a server", u64::from(u16::MAX))?;
    let nv_switches = head.number(2, "the number of NVSwitches", nodes)?;
    let switches = head.number(3, "the number of switches", nodes)?;
    let count = head.number(4, "the number of links", 1 << 20)?;
    let all = nv_switches + switches;
    let listed = node_list(&mut lines, "switch", all, nodes)?;
    let processors = (nodes - all) as usize;
    // Ranks are the numbers of processors.
    if listed.first().is_some_and(|first| *first != processors) {
        return Err(head.error(format!(
            "the switches are not behind the {processors} processors, whose numbers are ranks"
        )));
    }
    if per_server == 0 || !(processors as u64).is_multiple_of(per_server) {
        return Err(head.error(format!(
            "{processors} processors are no whole number of servers of {per_server}"
        )));
    }
    let inner = processors..processors + nv_switches as usize;
    let (local, outer): (Vec<Link>, Vec<Link>) = links(&mut lines, count, nodes)?
        .into_iter()
        .partition(|link| link.ends.iter().any(|end| inner.contains(end)));
    let mut graph = Graph {
        is_switch: (0..nodes as usize).map(|node| node >= processors).collect(),
        links: outer,
        left_out: inner,
        ..Graph::default()
    };
    let second = graph.take_second_links();
    if second > 0 {
        notes.push(format!(
            "{second} links of processors to a second switch are left out: a host has one link"
        ));
    }
    Ok(Servers {
        graph,
        processors,
        per_server: per_server as u32,
        local: local.first().map(|link| Local {
            rate: link.rate,
            // Into the switch and out of it.
            delay: link.delay + link.delay,
        }),
    })
}
