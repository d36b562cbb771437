//! From lines to nodes and links. Both ends of a link have a line: the ends must agree.

use super::discovered::{Discovered, DiscoveredLink, DiscoveredNode, DiscoveredPort, NodeKind};
use super::ports_report::{Ports, Side};
use super::record::{NodeLine, PortLine, Record, ShownSpeed, identified};
use crate::text::{lines, shortened};
use ::infiniband::LinkSpeed;
use std::collections::BTreeMap;
use std::fmt;

/// Ports of a node at most: 255 stands for all ports (IBTA 14.2.5.6).
const PORTS_MAX: u32 = 254;

/// Remarks and mistakes that are reported at most.
const REMARKS_MAX: usize = 100;

/// A line of a file, and what is to be said about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Remark {
    /// The name of the file.
    pub file: String,
    /// The number of the line, from 1.
    pub line: usize,
    /// What is wrong, or what was assumed.
    pub what: String,
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.what)
    }
}

/// The mistakes of a file that is no topology, or contradicts itself.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct Unreadable(pub Vec<Remark>);

/// A file that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Read {
    /// Nodes and links.
    pub subnet: Discovered,
    /// Lines with something missing, and what was assumed.
    pub remarks: Vec<Remark>,
}

/// Reads the output of `ibnetdiscover`, plain or with `--ports`, or a net file of ibsim.
///
/// # Errors
/// All lines that cannot be, up to 100: unknown ones, GUIDs and ports that are there twice, ports that a node
/// does not have, and links whose ends name different peers.
pub fn read(file: &str, text: &str) -> Result<Read, Unreadable> {
    let mut reader = Reader::new(file);
    match lines(file, text, &['#']) {
        Ok(lines) => lines
            .iter()
            .for_each(|line| reader.line(line.number, line.text)),
        Err(error) => reader.wrong(error.line, error.what),
    }
    if reader.nodes.is_empty() && reader.mistakes.is_empty() {
        reader.wrong(
            1,
            "neither a node of ibnetdiscover nor one of a net file is in it",
        );
    }
    let links = reader.links();
    if !reader.mistakes.is_empty() {
        return Err(Unreadable(reader.mistakes));
    }
    Ok(Read {
        subnet: Discovered {
            nodes: reader.nodes.into_iter().map(|node| node.node).collect(),
            links,
        },
        remarks: reader.remarks,
    })
}

/// A node, and the lines about it.
struct NodeOfFile {
    node: DiscoveredNode,
    /// Whether the file has a header for it.
    has_record: bool,
    links: BTreeMap<u8, LinkOfPort>,
}

/// The other end of a port's link, as the port's line names it.
#[derive(Clone, Debug)]
struct LinkOfPort {
    line: usize,
    peer: DiscoveredPort,
    speed: ShownSpeed,
}

/// What is known about a peer from the line of a port.
struct Peer<'a> {
    id: &'a str,
    known: Option<(NodeKind, Option<u64>)>,
    port: u8,
    port_guid: Option<u64>,
    description: &'a str,
}

struct Reader<'a> {
    file: &'a str,
    nodes: Vec<NodeOfFile>,
    by_id: BTreeMap<String, usize>,
    by_guid: BTreeMap<u64, usize>,
    /// The GUID that stands before a header.
    guid: Option<u64>,
    /// The node whose ports follow.
    current: Option<usize>,
    remarks: Vec<Remark>,
    mistakes: Vec<Remark>,
}

impl<'a> Reader<'a> {
    const fn new(file: &'a str) -> Self {
        Self {
            file,
            nodes: Vec::new(),
            by_id: BTreeMap::new(),
            by_guid: BTreeMap::new(),
            guid: None,
            current: None,
            remarks: Vec::new(),
            mistakes: Vec::new(),
        }
    }

    fn wrong(&mut self, line: usize, what: impl Into<String>) {
        push(&mut self.mistakes, self.file, line, what.into());
    }

    fn remark(&mut self, line: usize, what: impl Into<String>) {
        push(&mut self.remarks, self.file, line, what.into());
    }

    fn line(&mut self, line: usize, text: &str) {
        if Ports::is_one(text) {
            match Ports::parse(text) {
                Ok(ports) => self.ports(line, &ports),
                Err(what) => self.wrong(line, what),
            }
            return;
        }
        match Record::parse(text) {
            Ok(Record::Nothing) => {}
            Ok(Record::Message) => {
                let text = shortened(text);
                self.remark(
                    line,
                    format!("a node may be missing: the tool printed \"{text}\""),
                );
            }
            Ok(Record::Guid(guid)) => self.guid = Some(guid),
            Ok(Record::Node(node)) => self.node(line, node),
            Ok(Record::Port(port)) => self.port(line, &port),
            Err(what) => self.wrong(line, format!("\"{}\": {what}", shortened(text))),
        }
    }

    fn node(&mut self, line: usize, header: NodeLine) {
        let guid = self
            .guid
            .take()
            .or_else(|| identified(&header.id).map(|(_, guid)| guid));
        self.current = None;
        let Some(ports) = port_number(header.ports) else {
            let what = format!("{} ports: a node has from 1 to {PORTS_MAX}", header.ports);
            return self.wrong(line, what);
        };
        let index = self.by_id.get(&header.id).copied();
        if index.is_some_and(|index| self.nodes[index].has_record) {
            return self.wrong(line, format!("\"{}\" is there twice", header.id));
        }
        let twice = guid.and_then(|guid| self.by_guid.get(&guid).copied());
        if let Some((guid, _)) = guid.zip(twice.filter(|twice| Some(*twice) != index)) {
            return self.wrong(line, format!("GUID 0x{guid:016x} is there twice"));
        }
        let node = DiscoveredNode {
            kind: header.kind,
            guid,
            description: header.description.unwrap_or_else(|| header.id.clone()),
            ports,
            port_guids: BTreeMap::new(),
        };
        let index = match index {
            Some(index) => {
                // Lines of other nodes have named it before: what they say about its ports stays.
                let before = std::mem::replace(&mut self.nodes[index].node, node);
                self.nodes[index].node.port_guids = before.port_guids;
                self.nodes[index].has_record = true;
                if before.ports > ports {
                    let what = format!("{ports} ports, and a link leads to port {}", before.ports);
                    self.wrong(line, what);
                }
                index
            }
            None => self.add(header.id, node, true),
        };
        if let Some(guid) = guid {
            self.by_guid.insert(guid, index);
        }
        self.current = Some(index);
    }

    fn add(&mut self, id: String, node: DiscoveredNode, has_record: bool) -> usize {
        let index = self.nodes.len();
        if let Some(guid) = node.guid {
            self.by_guid.insert(guid, index);
        }
        self.nodes.push(NodeOfFile {
            node,
            has_record,
            links: BTreeMap::new(),
        });
        self.by_id.insert(id, index);
        index
    }

    fn port(&mut self, line: usize, port: &PortLine) {
        let Some(own) = self.current else {
            return self.wrong(line, "a port without a node before it");
        };
        let ports = self.nodes[own].node.ports;
        let Some(number) = port_number(port.port).filter(|number| *number <= ports) else {
            let what = format!("there is no port {}: the node has {ports}", port.port);
            return self.wrong(line, what);
        };
        let Some(peer_port) = port.peer_port else {
            let what = format!("the port of \"{}\" is missing: write \"{0}\"[1]", port.peer);
            return self.wrong(line, what);
        };
        let Some(peer_port) = port_number(peer_port) else {
            return self.wrong(line, format!("{peer_port} is no port"));
        };
        if let Some(guid) = port.guid
            && self.nodes[own].node.kind != NodeKind::Switch
        {
            self.nodes[own].node.port_guids.insert(number, guid);
        }
        let peer = Peer {
            id: &port.peer,
            known: identified(&port.peer).map(|(kind, guid)| (kind, Some(guid))),
            port: peer_port,
            port_guid: port.peer_guid,
            description: port.peer_description.as_deref().unwrap_or(&port.peer),
        };
        let own = DiscoveredPort {
            node: own,
            port: number,
        };
        self.link(line, own, &peer, &port.speed);
    }

    /// Notes one end of a link.
    fn link(&mut self, line: usize, own: DiscoveredPort, peer: &Peer<'_>, speed: &ShownSpeed) {
        let index = match self.by_id.get(peer.id) {
            Some(index) => *index,
            None => {
                let kind = peer.known.map(|(kind, _)| kind);
                let node = DiscoveredNode {
                    // The header, if there is one, has the type. A name without one is a mistake.
                    kind: kind.unwrap_or(NodeKind::ChannelAdapter),
                    guid: peer.known.and_then(|(_, guid)| guid),
                    description: peer.description.to_owned(),
                    ports: peer.port,
                    port_guids: BTreeMap::new(),
                };
                self.add(peer.id.to_owned(), node, false)
            }
        };
        let other = &mut self.nodes[index];
        if other.has_record && peer.port > other.node.ports {
            let what = format!(
                "\"{}\" has {} ports, and the link leads to port {}",
                peer.id, other.node.ports, peer.port
            );
            return self.wrong(line, what);
        }
        other.node.ports = other.node.ports.max(peer.port);
        if let Some(guid) = peer.port_guid
            && other.node.kind != NodeKind::Switch
        {
            other.node.port_guids.entry(peer.port).or_insert(guid);
        }
        let link = LinkOfPort {
            line,
            peer: DiscoveredPort {
                node: index,
                port: peer.port,
            },
            speed: speed.clone(),
        };
        if let Some(before) = self.nodes[own.node].links.insert(own.port, link) {
            let what = format!("port {} is in line {} already", own.port, before.line);
            self.wrong(line, what);
        }
    }

    /// A line of `--ports`. Nodes are known by the GUIDs of their ports there: each port of an adapter is a
    /// node of its own.
    fn ports(&mut self, line: usize, ports: &Ports) {
        let Some(number) = port_number(ports.own.port) else {
            return self.wrong(line, format!("{} is no port", ports.own.port));
        };
        let id = id_of(&ports.own);
        let index = match self.by_id.get(&id) {
            Some(index) => *index,
            None => {
                let node = node_of(&ports.own, number);
                self.add(id, node, true)
            }
        };
        self.nodes[index].has_record = true;
        let node = &mut self.nodes[index].node;
        node.ports = node.ports.max(number);
        let Some(side) = &ports.peer else { return };
        let Some(peer_port) = port_number(side.port) else {
            return self.wrong(line, format!("{} is no port", side.port));
        };
        let peer = node_of(side, peer_port);
        let other = self.by_id.get(&id_of(side));
        if let Some(other) = other {
            let node = &mut self.nodes[*other].node;
            node.ports = node.ports.max(peer_port);
        }
        let peer = Peer {
            id: &id_of(side),
            known: Some((side.kind, peer.guid)),
            port: peer_port,
            port_guid: Some(side.guid),
            description: &side.description,
        };
        let own = DiscoveredPort {
            node: index,
            port: number,
        };
        self.link(line, own, &peer, &ports.speed);
    }

    /// The links, after a comparison of their ends.
    fn links(&mut self) -> Vec<DiscoveredLink> {
        let mut ends = Vec::new();
        for (node, of_node) in self.nodes.iter().enumerate() {
            let of_ports = of_node.links.iter();
            ends.extend(
                of_ports.map(|(port, link)| (DiscoveredPort { node, port: *port }, link.clone())),
            );
        }
        ends.sort_by_key(|(_, link)| link.line);
        let mut links = Vec::new();
        for (own, link) in ends {
            let LinkOfPort { line, peer, speed } = link;
            let other = self.nodes[peer.node].links.get(&peer.port).cloned();
            let known = self.known(line, &speed);
            match other {
                Some(_) if peer == own => self.wrong(line, "the link leads to its own port"),
                Some(other) if other.peer != own => {
                    let names = [own, other.peer].map(|end| self.name(end));
                    let what = format!(
                        "{} leads to {} here, which leads to {} in line {}",
                        names[0],
                        self.name(peer),
                        names[1],
                        other.line
                    );
                    self.wrong(line, what);
                }
                Some(other) => {
                    // The end that comes first makes the link.
                    if (line, own) < (other.line, peer) {
                        let speed = self.slower(&other, known);
                        links.push(DiscoveredLink {
                            ends: [own, peer],
                            speed,
                            line,
                        });
                    }
                }
                None => {
                    self.remark_one_end(line, peer);
                    links.push(DiscoveredLink {
                        ends: [own, peer],
                        speed: known,
                        line,
                    });
                }
            }
        }
        links
    }

    /// The width and speed of a line, and a remark where it has a text that is none.
    fn known(&mut self, line: usize, speed: &ShownSpeed) -> Option<LinkSpeed> {
        match speed {
            ShownSpeed::Known(speed) => Some(*speed),
            ShownSpeed::Unknown(text) => {
                self.remark(
                    line,
                    format!("\"{text}\" is no width and speed: the default is assumed"),
                );
                None
            }
            ShownSpeed::Missing => None,
        }
    }

    /// The slower speed of both ends.
    fn slower(&mut self, other: &LinkOfPort, own: Option<LinkSpeed>) -> Option<LinkSpeed> {
        let ShownSpeed::Known(theirs) = other.speed else {
            return own;
        };
        let Some(own) = own else { return Some(theirs) };
        if own != theirs {
            let what =
                format!("{theirs} at this end, {own} at the other: the slower one is assumed");
            self.remark(other.line, what);
        }
        let is_slower = own.rate().bps() < theirs.rate().bps();
        Some(if is_slower { own } else { theirs })
    }

    /// Notes a link that only one line has.
    fn remark_one_end(&mut self, line: usize, peer: DiscoveredPort) {
        let node = &self.nodes[peer.node];
        let name = self.name(peer);
        if node.has_record {
            self.remark(line, format!("{name} has no line for this link"));
        } else if node.node.guid.is_some() || !node.node.port_guids.is_empty() {
            self.remark(
                line,
                format!("{name} has no record of its own: made from this line"),
            );
        } else {
            self.wrong(line, format!("{name} has no record: its type is unknown"));
        }
    }

    fn name(&self, end: DiscoveredPort) -> String {
        format!(
            "\"{}\"[{}]",
            self.nodes[end.node].node.description, end.port
        )
    }
}

fn push(remarks: &mut Vec<Remark>, file: &str, line: usize, what: String) {
    if remarks.len() < REMARKS_MAX {
        let file = file.to_owned();
        remarks.push(Remark { file, line, what });
    }
}

fn port_number(number: u32) -> Option<u8> {
    (1..=PORTS_MAX).contains(&number).then_some(number as u8)
}

fn id_of(side: &Side) -> String {
    format!("{}-{:016x}", side.kind.letter(), side.guid)
}

/// A node of `--ports`. The GUID of an adapter's port is not that of the adapter.
fn node_of(side: &Side, port: u8) -> DiscoveredNode {
    let is_switch = side.kind == NodeKind::Switch;
    let port_guids = (!is_switch).then_some((port, side.guid));
    DiscoveredNode {
        kind: side.kind,
        guid: is_switch.then_some(side.guid),
        description: side.description.clone(),
        ports: port,
        port_guids: port_guids.into_iter().collect(),
    }
}
