//! The network as a picture: switches in rows by their distance from the hosts, links coloured by load.

use std::collections::BTreeMap;
use std::fmt::Write;

use fabric::topology::{Node, Topology};
use sim::experiment::Experiment;
use sim::report::{PortReport, Report};

use crate::escape;

const WIDTH: f64 = 1000.0;
const ROW: f64 = 110.0;
const MARGIN: f64 = 30.0;

/// Nodes of one row that still get their names written.
const NAMED: usize = 32;

/// Links that are drawn at most; a larger network is a table.
const LINKS_MAX: usize = 6000;

/// A place in the picture.
#[derive(Clone, Copy)]
struct Point {
    x: f64,
    y: f64,
}

/// The picture as SVG.
pub(super) fn picture(experiment: &Experiment, report: &Report) -> String {
    let topology = &experiment.network.topology;
    if topology.links().len() > LINKS_MAX {
        return format!(
            "<p class=\"soft\">{} links are too many for a picture.</p>\n",
            topology.links().len()
        );
    }
    let rows = rows(topology);
    let height = MARGIN * 2.0 + ROW * (rows.len().saturating_sub(1)) as f64;
    let places = places(&rows, height);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"the \
        network\">\n"
    );
    links(&mut svg, topology, report, &places);
    for row in &rows {
        for node in row {
            self::node(
                &mut svg,
                experiment,
                *node,
                places[node],
                row.len() <= NAMED,
            );
        }
    }
    svg + "</svg>\n"
}

/// Nodes in rows, the hosts last.
fn rows(topology: &Topology) -> Vec<Vec<Node>> {
    let mut depth: BTreeMap<Node, usize> = (0..topology.hosts())
        .map(|host| (Node::Host(host), 0))
        .collect();
    // Each round reaches one row further up; there are no more rows than switches.
    for row in 1..=topology.switches() as usize {
        let mut found = Vec::new();
        for link in topology.links() {
            for (one, other) in [(0, 1), (1, 0)] {
                let (below, above) = (link.ends[one].node, link.ends[other].node);
                if depth.get(&below) == Some(&(row - 1)) && !depth.contains_key(&above) {
                    found.push(above);
                }
            }
        }
        if found.is_empty() {
            break;
        }
        found.into_iter().for_each(|node| {
            depth.insert(node, row);
        });
    }
    let deepest = depth.values().copied().max().unwrap_or(0);
    let mut rows = vec![Vec::new(); deepest + 1];
    depth
        .into_iter()
        .for_each(|(node, row)| rows[deepest - row].push(node));
    rows
}

fn places(rows: &[Vec<Node>], height: f64) -> BTreeMap<Node, Point> {
    let mut places = BTreeMap::new();
    let step = (height - 2.0 * MARGIN) / rows.len().saturating_sub(1).max(1) as f64;
    for (row, nodes) in rows.iter().enumerate() {
        for (index, node) in nodes.iter().enumerate() {
            let x = MARGIN + (WIDTH - 2.0 * MARGIN) * (index as f64 + 0.5) / nodes.len() as f64;
            let y = MARGIN + step * row as f64;
            places.insert(*node, Point { x, y });
        }
    }
    places
}

/// From grey over green and orange to red.
fn colour(load: f64) -> String {
    match load {
        load if load < 0.01 => "#9994".to_owned(),
        load => format!("hsl({:.0} 75% 42%)", 130.0 - 130.0 * load.min(1.0)),
    }
}

fn links(svg: &mut String, topology: &Topology, report: &Report, places: &BTreeMap<Node, Point>) {
    let mut by_link: BTreeMap<u32, Vec<&PortReport>> = BTreeMap::new();
    report
        .ports
        .iter()
        .for_each(|port| by_link.entry(port.link).or_default().push(port));
    for (link, number) in topology.links().iter().zip(0_u32..) {
        let ports = by_link.get(&number).map(Vec::as_slice).unwrap_or_default();
        let load = ports.iter().map(|port| port.load).fold(0.0, f64::max);
        let [Point { x: x1, y: y1 }, Point { x: x2, y: y2 }] =
            link.ends.map(|end| places[&end.node]);
        let said: Vec<String> = ports.iter().map(|port| sentence(port)).collect();
        let width = 1.0 + 2.0 * load;
        let _ = writeln!(
            svg,
            "<line data-link=\"{number}\" \
                x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{}\" \
                stroke-width=\"{width:.1}\">\
             <title>{}</title></line>",
            colour(load),
            escape(&said.join("\n"))
        );
        for (end, port) in ports
            .iter()
            .filter(|port| port.losses().next().is_some())
            .map(|port| (usize::from(port.direction), port))
        {
            let ((from_x, from_y), (to_x, to_y)) = if end == 0 {
                ((x1, y1), (x2, y2))
            } else {
                ((x2, y2), (x1, y1))
            };
            let (x, y) = (
                from_x + (to_x - from_x) * 0.15,
                from_y + (to_y - from_y) * 0.15,
            );
            let _ = writeln!(
                svg,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"#c62828\"><title>{}</title></circle>",
                escape(&sentence(port))
            );
        }
    }
}

fn sentence(port: &PortReport) -> String {
    let dropped: u64 = port.losses().map(|(_, count)| count).sum();
    format!(
        "{} → {}: load {:.1} %, paused {:.0} µs, {} marked, {dropped} dropped on arrival",
        port.port,
        port.to,
        100.0 * port.load,
        port.paused_us,
        port.marked
    )
}

fn node(svg: &mut String, experiment: &Experiment, node: Node, at: Point, named: bool) {
    let Point { x, y } = at;
    let (name, is_host) = match node {
        Node::Host(host) => (&experiment.network.hosts[host as usize].name, true),
        Node::Switch(switch) => (&experiment.network.switches[switch as usize].name, false),
    };
    let name = escape(name);
    let shape = if is_host {
        format!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"6\" \
            fill=\"#0072b2\"><title>{name}</title></circle>"
        )
    } else {
        let (left, top) = (x - 11.0, y - 7.0);
        format!(
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"22\" height=\"14\" rx=\"3\" \
                fill=\"#666\"><title>{name}</title></rect>"
        )
    };
    svg.push_str(&shape);
    if named {
        let below = if is_host { y + 20.0 } else { y - 12.0 };
        let _ = write!(
            svg,
            "<text x=\"{x:.1}\" y=\"{below:.1}\" text-anchor=\"middle\">{name}</text>"
        );
    }
    svg.push('\n');
}
