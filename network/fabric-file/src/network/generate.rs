//! Generated topologies: their sizes, from a `topology` table, and the names of their hosts and switches.

use super::NetworkBuilder;
use crate::error::Mistake;
use crate::schema::{Generator, Shape};
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use fabric::topology::{self, End, LinkError, Node, Topology};
use infiniband::LinkSpeed;

/// Names of hosts and of switches, in the order of their numbers.
type NodeNames = (Vec<String>, Vec<String>);

/// A generated topology.
struct Generated {
    topology: Result<Topology, LinkError>,
    sizes: [u32; 3],
    /// Names the nodes, from the sizes. Called last, because a topology that is too large has none.
    names: fn([u32; 3]) -> NodeNames,
}

/// Reads the sizes of a topology, and collects the names of those that are missing or out of range.
#[derive(Default)]
struct Sizes {
    missing: Vec<&'static str>,
}

impl Sizes {
    fn number(&mut self, name: &'static str, value: Option<u32>) -> u32 {
        value
            .filter(|value| (1..=u32::from(u16::MAX)).contains(value))
            .unwrap_or_else(|| {
                self.missing.push(name);
                1
            })
    }
}

impl Generated {
    fn of(generator: &Generator, sizes: &mut Sizes) -> Self {
        let speeds = generator.speeds();
        match generator.kind {
            Shape::Star => {
                let hosts = sizes.number("hosts", generator.hosts);
                Self {
                    topology: topology::star(hosts, speeds.hosts),
                    sizes: [hosts, 0, 0],
                    names: star_names,
                }
            }
            Shape::LeafSpine => {
                let leaves = sizes.number("leaves", generator.leaves);
                let spines = sizes.number("spines", generator.spines);
                let hosts = sizes.number("hosts", generator.hosts);
                Self {
                    topology: topology::leaf_spine(leaves, spines, hosts, speeds),
                    sizes: [leaves, spines, hosts],
                    names: leaf_spine_names,
                }
            }
            Shape::FatTree => {
                let k = sizes.number("k", generator.k.filter(|k| k % 2 == 0 && *k <= 64));
                Self {
                    topology: topology::fat_tree(k, speeds),
                    sizes: [k, 0, 0],
                    names: fat_tree_names,
                }
            }
            Shape::Rail => {
                let servers = sizes.number("servers", generator.servers);
                let rails = sizes.number("rails", generator.rails);
                let spines = sizes.number("spines", generator.spines);
                Self {
                    topology: topology::rail_optimised(servers, rails, spines, speeds),
                    sizes: [servers, rails, spines],
                    names: rail_names,
                }
            }
            Shape::Dragonfly => {
                let groups = sizes.number("groups", generator.groups);
                let routers = sizes.number("routers", generator.routers);
                let hosts = sizes.number("hosts", generator.hosts);
                Self {
                    topology: topology::dragonfly(groups, routers, hosts, speeds),
                    sizes: [groups, routers, hosts],
                    names: dragonfly_names,
                }
            }
        }
    }
}

impl NetworkBuilder<'_> {
    /// Adds the hosts, switches and links of a generated topology.
    pub(super) fn generate(&mut self, generator: &Generator) {
        let mut sizes = Sizes::default();
        let generated = Generated::of(generator, &mut sizes);
        if !sizes.missing.is_empty() {
            let what = format!("this kind needs {}", sizes.missing.join(", "));
            let instead = "numbers from 1 to 65535; k of a fat-tree is even and at most 64";
            return self.wrong(Mistake::Combination, "topology", what, instead);
        }
        match generated.topology {
            Ok(topology) => {
                self.speeds = speeds_of(generator, &topology);
                self.topology = topology;
                let (hosts, switches) = (generated.names)(generated.sizes);
                hosts.iter().for_each(|name| {
                    self.hosts.add(name);
                });
                switches.iter().for_each(|name| {
                    self.switches.add(name);
                });
                self.host_entry = alloc::vec![None; hosts.len()];
                self.switch_entry = alloc::vec![None; switches.len()];
                let ports = (0..self.topology.switches()).map(|switch| self.topology.ports(switch));
                self.port_names = ports
                    .map(|count| alloc::vec![None; usize::from(count)])
                    .collect();
            }
            Err(error) => self.wrong(
                Mistake::Limit,
                "topology",
                error.to_string(),
                "make it smaller",
            ),
        }
    }
}

/// The speeds of InfiniBand by link: a link of a host has one host.
fn speeds_of(generator: &Generator, topology: &Topology) -> Vec<Option<LinkSpeed>> {
    let hosts = generator.infiniband.map(|speed| speed.0);
    let fabric = generator.fabric_infiniband.map(|speed| speed.0).or(hosts);
    let is_of_host = |end: &End| matches!(end.node, Node::Host(_));
    let links = topology.links().iter();
    links
        .map(|link| match link.ends.iter().any(is_of_host) {
            true => hosts,
            false => fabric,
        })
        .collect()
}

fn numbered(stem: &str, count: u32) -> Vec<String> {
    (0..count).map(|number| format!("{stem}{number}")).collect()
}

/// Of one size: hosts.
fn star_names([hosts, ..]: [u32; 3]) -> NodeNames {
    (numbered("h", hosts), alloc::vec!["s0".to_owned()])
}

fn leaf_spine_names([leaves, spines, hosts]: [u32; 3]) -> NodeNames {
    (
        numbered("h", leaves * hosts),
        [numbered("leaf", leaves), numbered("spine", spines)].concat(),
    )
}

/// Of one size: ports per switch.
fn fat_tree_names([k, ..]: [u32; 3]) -> NodeNames {
    let half = k / 2;
    let switches = [
        numbered("edge", k * half),
        numbered("agg", k * half),
        numbered("core", half * half),
    ];
    (numbered("h", k * half * half), switches.concat())
}

fn rail_names([servers, rails, spines]: [u32; 3]) -> NodeNames {
    let hosts =
        (0..servers).flat_map(|server| (0..rails).map(move |rail| format!("n{server}r{rail}")));
    (
        hosts.collect(),
        [numbered("rail", rails), numbered("spine", spines)].concat(),
    )
}

fn dragonfly_names([groups, routers, hosts]: [u32; 3]) -> NodeNames {
    let switches =
        (0..groups).flat_map(|group| (0..routers).map(move |router| format!("g{group}r{router}")));
    (numbered("h", groups * routers * hosts), switches.collect())
}
