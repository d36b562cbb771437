//! Fabric files of InfiniBand subnets that tools have printed, and the reverse.

use super::names::{NAME_BYTES_MAX, Names};
use super::network::Network;
use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Write as _;
use fabric::topology::{End, Node};
use vendors::infiniband::{Discovered, DiscoveredLink, DiscoveredNode, DiscoveredPort, NodeKind};

/// Bytes of a NodeDescription (IBTA 14.2.5.2).
const DESCRIPTION_BYTES_MAX: usize = 64;

/// Words in the description of the adapters inside switches that reduce messages (SHARP): no host has them.
const AGGREGATION: &str = "Aggregation Node";

/// A fabric file, and what it has not taken over as it was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImportedSubnet {
    /// The text of the fabric file.
    pub text: String,
    /// What was left out, assumed or renamed.
    pub notes: Vec<String>,
}

impl ImportedSubnet {
    /// Makes the fabric file of a subnet; the title is a text of one line. A host has one port, so that an
    /// adapter with several links becomes several hosts.
    pub fn of(title: &str, subnet: &Discovered) -> Self {
        let mut importer = Importer::new(subnet);
        importer.name_nodes();
        let mut text = format!(
            "title = \"{}\"\n\n[nic.default]\nlink-layer = \"infiniband\"\n",
            plain(title)
        );
        importer.hosts(&mut text);
        importer.switches(&mut text);
        importer.links(&mut text);
        Self {
            text,
            notes: importer.notes,
        }
    }
}

struct Importer<'a> {
    subnet: &'a Discovered,
    /// By node, its ports with a link.
    linked: Vec<BTreeSet<u8>>,
    /// The names of hosts and switches, by node and by port; port 0 is a switch.
    names: BTreeMap<(usize, u8), String>,
    notes: Vec<String>,
}

impl<'a> Importer<'a> {
    fn new(subnet: &'a Discovered) -> Self {
        let mut linked = alloc::vec![BTreeSet::new(); subnet.nodes.len()];
        for end in subnet.links.iter().flat_map(|link| link.ends) {
            linked[end.node].insert(end.port);
        }
        Self {
            subnet,
            linked,
            names: BTreeMap::new(),
            notes: Vec::new(),
        }
    }

    /// Gives each node the shortest name that no other one has.
    fn name_nodes(&mut self) {
        let candidates: Vec<[String; 3]> = self.subnet.nodes.iter().map(candidates).collect();
        let mut counts: [BTreeMap<&str, u32>; 2] = Default::default();
        for candidate in &candidates {
            for (count, name) in counts.iter_mut().zip(candidate) {
                *count.entry(name).or_default() += 1;
            }
        }
        let mut taken = Names::default();
        let mut take = |name: &str| {
            let stem: String = name.chars().take(NAME_BYTES_MAX / 8).collect();
            let numbered = (2..).map(|number| format!("{stem}-{number}"));
            let mut all = core::iter::once(stem.clone()).chain(numbered);
            all.find(|name| taken.add(name)).unwrap_or(stem)
        };
        for (index, node) in self.subnet.nodes.iter().enumerate() {
            let [short, full, with_guid] = &candidates[index];
            let is_only = |at: usize, name: &String| counts[at].get(name.as_str()) == Some(&1);
            let name = match () {
                () if is_only(0, short) => short,
                () if is_only(1, full) => full,
                () => with_guid,
            };
            if node.kind == NodeKind::Switch {
                self.names.insert((index, 0), take(name));
                continue;
            }
            for (place, port) in self.linked[index].iter().enumerate() {
                let name = match place {
                    0 => take(name),
                    _ => take(&format!("{name}-p{port}")),
                };
                self.names.insert((index, *port), name);
            }
        }
    }

    fn hosts(&mut self, text: &mut String) {
        let subnet = self.subnet;
        for (index, node) in subnet.nodes.iter().enumerate() {
            if node.kind == NodeKind::Switch {
                continue;
            }
            let ports: Vec<u8> = self.linked[index].iter().copied().collect();
            self.note_node(node, &ports);
            if node.description.contains(AGGREGATION) {
                continue;
            }
            for (place, port) in ports.iter().enumerate() {
                let name = self.names[&(index, *port)].clone();
                let port_guid = node.port_guids.get(port).copied();
                let guid = if place == 0 { node.guid } else { port_guid };
                let _ = write!(text, "\n[[host]]\nname = \"{name}\"\n");
                if let Some(guid) = guid {
                    let _ = writeln!(text, "guid = \"0x{guid:016x}\"");
                }
                let next = guid.map(|guid| guid.wrapping_add(1));
                if let Some(port_guid) = port_guid.filter(|port_guid| Some(*port_guid) != next) {
                    let _ = writeln!(text, "port-guid = \"0x{port_guid:016x}\"");
                }
                self.describe(text, node, &name);
            }
        }
    }

    /// Notes adapters that do not become one host.
    fn note_node(&mut self, node: &DiscoveredNode, ports: &[u8]) {
        let name = &node.description;
        if node.description.contains(AGGREGATION) {
            self.notes.push(format!(
                "{name}: an adapter inside a switch, which is left out"
            ));
        } else if ports.is_empty() {
            self.notes
                .push(format!("{name} has no link, and is left out"));
        } else if ports.len() > 1 {
            let count = ports.len();
            self.notes.push(format!(
                "{name} has {count} links, and becomes {count} hosts, since a host has one port"
            ));
        }
        if node.kind == NodeKind::Router {
            self.notes.push(format!(
                "{name} is a router between subnets, and becomes a host"
            ));
        }
    }

    fn switches(&mut self, text: &mut String) {
        let subnet = self.subnet;
        let switches = subnet.nodes.iter().enumerate();
        for (index, node) in switches.filter(|(_, node)| node.kind == NodeKind::Switch) {
            let name = self.names[&(index, 0)].clone();
            let _ = write!(text, "\n[[switch]]\nname = \"{name}\"\n");
            if let Some(guid) = node.guid {
                let _ = writeln!(text, "guid = \"0x{guid:016x}\"");
            }
            let _ = writeln!(text, "ports = {}", node.ports);
            self.describe(text, node, &name);
        }
    }

    fn links(&mut self, text: &mut String) {
        let mut without = 0;
        for link in &self.subnet.links {
            let nodes = link.ends.map(|end| &self.subnet.nodes[end.node]);
            if nodes
                .iter()
                .any(|node| node.description.contains(AGGREGATION))
            {
                continue;
            }
            let end = |end: DiscoveredPort| match self.names.get(&(end.node, 0)) {
                Some(switch) => format!("{switch}:{}", end.port),
                None => self.names[&(end.node, end.port)].clone(),
            };
            let [one, other] = link.ends.map(end);
            let _ = write!(text, "\n[[link]]\nbetween = [\"{one}\", \"{other}\"]\n");
            match link.speed {
                Some(speed) => {
                    let _ = writeln!(text, "infiniband = \"{speed}\"");
                }
                None => without += 1,
            }
        }
        if without > 0 {
            self.notes.push(format!(
                "{without} of the links have no width and speed in the file: 4x EDR is assumed"
            ));
        }
    }

    /// Writes the description, unless it is the name, without characters that it cannot have.
    fn describe(&mut self, text: &mut String, node: &DiscoveredNode, name: &str) {
        let mut description = plain(&node.description);
        while description.len() > DESCRIPTION_BYTES_MAX {
            description.pop();
        }
        if description != node.description {
            let own = node.description.escape_debug();
            self.notes
                .push(format!("{own}: written as \"{description}\""));
        }
        if description != name {
            let _ = writeln!(text, "description = \"{description}\"");
        }
    }
}

/// Names that a node may get: a short one, one of its whole description, and one with its GUID.
fn candidates(node: &DiscoveredNode) -> [String; 3] {
    let description = node.description.as_str();
    // Managed switches of Mellanox say "MF0;NAME:MODEL/U1".
    let managed = description.split_once(';').map(|(_, rest)| rest);
    let short = managed.and_then(|rest| rest.split_once(':'));
    let words: Vec<&str> = description.split_whitespace().collect();
    let short = match (short, &words[..]) {
        (Some((name, _)), _) => name,
        // Drivers of adapters say "HOST DEVICE".
        (None, [host, _device]) if node.kind != NodeKind::Switch => host,
        _ => description,
    };
    let full = name_of(managed.unwrap_or(description), node.kind);
    let short = name_of(short, node.kind);
    let guid = node
        .guid
        .or_else(|| node.port_guids.values().next().copied());
    let with_guid = guid.map_or_else(|| full.clone(), |guid| format!("{short}-{guid:016x}"));
    [short, full, with_guid]
}

/// A name of letters, digits, dots, dashes and underscores.
fn name_of(text: &str, kind: NodeKind) -> String {
    let letter = |letter: char| match letter {
        '-' | '_' | '.' => letter,
        letter if letter.is_alphanumeric() => letter,
        _ => '-',
    };
    let name: String = text.chars().map(letter).collect();
    let name = name.trim_matches(['-', '.']);
    match name {
        "" if kind == NodeKind::Switch => "switch".to_owned(),
        "" => "host".to_owned(),
        name => name.to_owned(),
    }
}

/// A text without quotes, backslashes and control characters.
fn plain(text: &str) -> String {
    let letter = |letter: char| match letter {
        '"' => '\'',
        '\\' => '/',
        letter if letter.is_control() => ' ',
        letter => letter,
    };
    text.chars().map(letter).collect()
}

impl Network {
    /// The InfiniBand subnet as tools print it, and the names of its nodes: hosts, then switches. `None` if
    /// the links are Ethernet.
    pub fn discovered(&self) -> Option<(Discovered, Vec<String>)> {
        let subnet = self.infiniband.as_ref()?;
        let hosts = subnet.hosts.iter().map(|host| DiscoveredNode {
            kind: NodeKind::ChannelAdapter,
            guid: Some(host.node_guid),
            description: host.description.clone(),
            ports: 1,
            port_guids: BTreeMap::from([(1, host.port_guid)]),
        });
        let switches = subnet.switches.iter().map(|switch| DiscoveredNode {
            kind: NodeKind::Switch,
            guid: Some(switch.guid),
            description: switch.description.clone(),
            ports: switch.ports,
            port_guids: BTreeMap::new(),
        });
        let number = |end: &End| match end.node {
            Node::Host(host) => host as usize,
            Node::Switch(switch) => self.hosts.len() + switch as usize,
        };
        let links = self.topology.links().iter().zip(&subnet.links);
        let links = links.map(|(link, subnet)| {
            let [one, other] = &link.ends;
            let port = |end: &End, port: u8| DiscoveredPort {
                node: number(end),
                port,
            };
            DiscoveredLink {
                ends: [port(one, subnet.ports[0]), port(other, subnet.ports[1])],
                speed: Some(subnet.speed),
                line: 0,
            }
        });
        let hosts_names = self.hosts.iter().map(|host| host.name.to_string());
        let switch_names = self.switches.iter().map(|switch| switch.name.to_string());
        let discovered = Discovered {
            nodes: hosts.chain(switches).collect(),
            links: links.collect(),
        };
        Some((discovered, hosts_names.chain(switch_names).collect()))
    }
}
