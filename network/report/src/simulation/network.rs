//! The network of a run as a picture, links coloured by load.

use fabric::topology::Node;
use sim::experiment::Experiment;
use sim::report::{PortReport, Report};

use crate::{Drawing, DrawnLink, DrawnNode};

/// Links that are drawn at most; a larger network is a table.
const LINKS_MAX: usize = 6000;

/// The picture as SVG.
pub(super) fn picture(experiment: &Experiment, report: &Report) -> String {
    let links = experiment.network.topology.links().len();
    match links > LINKS_MAX {
        true => format!("<p class=\"soft\">{links} links are too many for a picture.</p>\n"),
        false => drawing(experiment, report).svg(),
    }
}

/// Hosts come first in the list of nodes.
fn drawing(experiment: &Experiment, report: &Report) -> Drawing {
    let network = &experiment.network;
    let node = |name: &String, is_host| DrawnNode {
        name: name.clone(),
        is_host,
        details: Vec::new(),
    };
    let hosts = network.hosts.iter().map(|host| node(&host.name, true));
    let switches = network
        .switches
        .iter()
        .map(|switch| node(&switch.name, false));
    let place = |node| match node {
        Node::Host(host) => host as usize,
        Node::Switch(switch) => network.hosts.len() + switch as usize,
    };
    let mut links: Vec<DrawnLink> = network
        .topology
        .links()
        .iter()
        .map(|link| DrawnLink {
            nodes: link.ends.map(|end| place(end.node)),
            load: Some(0.0),
            ..DrawnLink::default()
        })
        .collect();
    for port in &report.ports {
        let Some(link) = links.get_mut(port.link as usize) else {
            continue;
        };
        let said = sentence(port);
        link.load = Some(link.load.unwrap_or(0.0).max(port.load));
        if port.losses().next().is_some() {
            link.lost[usize::from(port.direction != 0)] = Some(said.clone());
        }
        if !link.said.is_empty() {
            link.said.push('\n');
        }
        link.said += &said;
    }
    Drawing {
        title: report.title.clone(),
        nodes: hosts.chain(switches).collect(),
        links,
    }
}

fn sentence(port: &PortReport) -> String {
    let dropped: u64 = port.losses().map(|(_, count)| count).sum();
    let trimmed = match port.trimmed {
        0 => String::new(),
        trimmed => format!(", {trimmed} trimmed"),
    };
    format!(
        "{} → {}: load {:.1} %, paused {:.0} µs, {} marked{trimmed}, {dropped} dropped on arrival",
        port.port,
        port.to,
        100.0 * port.load,
        port.paused_us,
        port.marked
    )
}
