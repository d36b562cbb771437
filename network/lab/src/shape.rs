//! The shape of a lab's network: its nodes and links, for pictures.

use std::collections::BTreeSet;

use fabric::topology::Node;
use serde::{Deserialize, Serialize};

use crate::plan::Plan;

/// Nodes and links of a lab.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Shape {
    /// The name of the lab.
    pub name: String,
    /// The title of its file.
    pub title: String,
    /// Hosts, then switches.
    pub nodes: Vec<ShapeNode>,
    /// Links, in the order of the file.
    pub links: Vec<ShapeLink>,
}

/// A host or a switch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ShapeNode {
    /// The name of the host or switch, as in the file.
    pub name: String,
    /// What it is.
    pub kind: ShapeKind,
    /// The addresses of a host in which programs run; none of a simulated one.
    pub addresses: Vec<String>,
}

/// What a node is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShapeKind {
    /// A host in which programs run.
    Live,
    /// A host whose traffic is simulated.
    Simulated,
    /// A switch, also one inside an adapter.
    Switch,
}

/// A link between two nodes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ShapeLink {
    /// Its two ends.
    pub ends: [ShapeEnd; 2],
    /// Bits per second.
    pub rate_bps: u64,
    /// Whether it is in operation.
    pub up: bool,
}

/// One end of a link.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ShapeEnd {
    /// The place of the node in the list.
    pub node: usize,
    /// The name of the port of a switch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
}

impl Shape {
    /// The shape of a plan, with these links out of operation.
    pub(crate) fn of(plan: &Plan, down: &BTreeSet<u32>) -> Self {
        let network = &plan.experiment.network;
        let hosts = (0..).zip(&network.hosts).map(|(number, host)| {
            let live = plan.hosts.iter().find(|live| live.number == number);
            ShapeNode {
                name: host.name.clone(),
                kind: live.map_or(ShapeKind::Simulated, |_| ShapeKind::Live),
                addresses: live
                    .map(|live| vec![live.v4.to_string(), live.v6.to_string()])
                    .unwrap_or_default(),
            }
        });
        let switches = network.switches.iter().map(|switch| ShapeNode {
            name: switch.name.clone(),
            kind: ShapeKind::Switch,
            addresses: Vec::new(),
        });
        let end = |end: fabric::topology::End| match end.node {
            Node::Host(host) => ShapeEnd {
                node: host as usize,
                port: None,
            },
            Node::Switch(switch) => ShapeEnd {
                node: network.hosts.len() + switch as usize,
                port: network.switches[switch as usize]
                    .ports
                    .get(usize::from(end.port))
                    .cloned(),
            },
        };
        let links = (0..)
            .zip(network.topology.links())
            .map(|(number, link)| ShapeLink {
                ends: link.ends.map(end),
                rate_bps: link.config.rate.bps(),
                up: !down.contains(&number),
            });
        Self {
            name: plan.name.clone(),
            title: plan.experiment.file.title.clone(),
            nodes: hosts.chain(switches).collect(),
            links: links.collect(),
        }
    }
}

impl Plan {
    /// The shape of the network that the file describes.
    pub fn shape(&self) -> Shape {
        Shape::of(self, &BTreeSet::new())
    }
}
