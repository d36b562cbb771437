//! Forms in which switches have layers: the distance from the nearest adapter.

use super::discovered::{Discovered, NodeKind};
use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write as _;

/// For each node the number of links to the nearest adapter; `None` where there is no path.
fn layers(subnet: &Discovered) -> Vec<Option<u32>> {
    let neighbours = neighbours(subnet);
    let mut layers = vec![None; subnet.nodes.len()];
    let mut queue = VecDeque::new();
    for (index, node) in subnet.nodes.iter().enumerate() {
        if node.kind != NodeKind::Switch {
            layers[index] = Some(0);
            queue.push_back(index);
        }
    }
    while let Some(index) = queue.pop_front() {
        for other in &neighbours[index] {
            if layers[*other].is_none() {
                layers[*other] = layers[index].map(|layer| layer + 1);
                queue.push_back(*other);
            }
        }
    }
    layers
}

/// For each node the nodes that it has links with.
fn neighbours(subnet: &Discovered) -> Vec<BTreeSet<usize>> {
    let mut neighbours = vec![BTreeSet::new(); subnet.nodes.len()];
    for link in &subnet.links {
        let [one, other] = link.ends.map(|end| end.node);
        neighbours[one].insert(other);
        neighbours[other].insert(one);
    }
    neighbours
}

/// `topology.conf`: each switch with its hosts and with the switches one layer below it.
pub(super) fn slurm(subnet: &Discovered, names: &[String]) -> String {
    let (layers, neighbours) = (layers(subnet), neighbours(subnet));
    let mut switches: Vec<usize> = (0..subnet.nodes.len())
        .filter(|index| subnet.nodes[*index].kind == NodeKind::Switch)
        .collect();
    switches.sort_by_key(|index| (layers[*index], *index));
    let mut text = String::from("# topology.conf of Slurm, for TopologyPlugin=topology/tree\n");
    for index in switches {
        let list = |is_below: &dyn Fn(usize) -> bool| {
            let below = neighbours[index].iter().filter(|other| is_below(**other));
            let names: Vec<&str> = below.map(|other| names[*other].as_str()).collect();
            names.join(",")
        };
        let hosts = list(&|other| subnet.nodes[other].kind == NodeKind::ChannelAdapter);
        let below = list(&|other| {
            subnet.nodes[other].kind == NodeKind::Switch && layers[other] < layers[index]
        });
        if hosts.is_empty() && below.is_empty() {
            let _ = writeln!(
                text,
                "# {} has neither hosts nor switches below it",
                names[index]
            );
            continue;
        }
        let _ = write!(text, "SwitchName={}", names[index]);
        for (field, list) in [("Switches", below), ("Nodes", hosts)] {
            if !list.is_empty() {
                let _ = write!(text, " {field}={list}");
            }
        }
        text.push('\n');
    }
    text
}

/// A graph in which nodes of one layer are in one row.
pub(super) fn dot(subnet: &Discovered, names: &[String]) -> String {
    let layers = layers(subnet);
    let mut text = String::from("graph subnet {\n  node [fontname=\"sans-serif\"];\n");
    for (index, node) in subnet.nodes.iter().enumerate() {
        let shape = match node.kind {
            NodeKind::Switch => "box",
            NodeKind::ChannelAdapter => "ellipse",
            NodeKind::Router => "diamond",
        };
        let (name, description) = (escaped(&names[index]), escaped(&node.description));
        let _ = writeln!(
            text,
            "  \"{name}\" [shape={shape}, tooltip=\"{description}\"];"
        );
    }
    let rows: BTreeSet<u32> = layers.iter().flatten().copied().collect();
    for row in rows {
        let _ = write!(text, "  {{ rank=same;");
        for (index, _) in layers
            .iter()
            .enumerate()
            .filter(|(_, layer)| **layer == Some(row))
        {
            let _ = write!(text, " \"{}\";", escaped(&names[index]));
        }
        text += " }\n";
    }
    for link in &subnet.links {
        let [one, other] = link.ends.map(|end| (escaped(&names[end.node]), end.port));
        let _ = write!(
            text,
            "  \"{}\" -- \"{}\" [taillabel=\"{}\", headlabel=\"{}\"",
            one.0, other.0, one.1, other.1
        );
        if let Some(speed) = link.speed {
            let _ = write!(text, ", label=\"{speed}\"");
        }
        text += "];\n";
    }
    text + "}\n"
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}
