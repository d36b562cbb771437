//! Generated topologies: their sizes, from a `topology` table, and the names of their hosts and switches.

use super::NetworkBuilder;
use crate::error::Mistake;
use crate::schema::{Generator, Shape};
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use fabric::topology::{self, LinkError, Topology};

/// Names of hosts and of switches, in the order of their numbers.
type NodeNames = (Vec<String>, Vec<String>);

/// A topology, and the function that names its nodes by its sizes. Names are made last, because a topology
/// that is too large has none.
type Generated = (Result<Topology, LinkError>, fn([u32; 3]) -> NodeNames);

impl NetworkBuilder<'_> {
    /// Adds the hosts, switches and links of a generated topology.
    pub(super) fn generate(&mut self, generator: &Generator) {
        let speeds = generator.speeds();
        let mut missing = Vec::new();
        let mut number = |name: &'static str, value: Option<u32>| {
            value
                .filter(|value| (1..=u32::from(u16::MAX)).contains(value))
                .unwrap_or_else(|| {
                    missing.push(name);
                    1
                })
        };
        let (made, names): Generated;
        let sizes: [u32; 3];
        match generator.kind {
            Shape::Star => {
                sizes = [number("hosts", generator.hosts), 0, 0];
                (made, names) = (topology::star(sizes[0], speeds.hosts), star_names);
            }
            Shape::LeafSpine => {
                let [leaves, spines] = [("leaves", generator.leaves), ("spines", generator.spines)]
                    .map(|(name, value)| number(name, value));
                sizes = [leaves, spines, number("hosts", generator.hosts)];
                (made, names) = (
                    topology::leaf_spine(leaves, spines, sizes[2], speeds),
                    leaf_spine_names,
                );
            }
            Shape::FatTree => {
                let k = number("k", generator.k.filter(|k| k % 2 == 0 && *k <= 64));
                sizes = [k, 0, 0];
                (made, names) = (topology::fat_tree(k, speeds), fat_tree_names);
            }
            Shape::Rail => {
                let [servers, rails] = [("servers", generator.servers), ("rails", generator.rails)]
                    .map(|(name, value)| number(name, value));
                sizes = [servers, rails, number("spines", generator.spines)];
                (made, names) = (
                    topology::rail_optimised(servers, rails, sizes[2], speeds),
                    rail_names,
                );
            }
            Shape::Dragonfly => {
                let [groups, routers] =
                    [("groups", generator.groups), ("routers", generator.routers)]
                        .map(|(name, value)| number(name, value));
                sizes = [groups, routers, number("hosts", generator.hosts)];
                (made, names) = (
                    topology::dragonfly(groups, routers, sizes[2], speeds),
                    dragonfly_names,
                );
            }
        }
        if !missing.is_empty() {
            let what = format!("this kind needs {}", missing.join(", "));
            let instead = "numbers from 1 to 65535; k of a fat-tree is even and at most 64";
            return self.wrong(Mistake::Combination, "topology", what, instead);
        }
        match made {
            Ok(made) => {
                self.topology = made;
                let (hosts, switches) = names(sizes);
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
