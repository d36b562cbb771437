//! What an InfiniBand subnet has besides hosts, switches and links: GUIDs, node descriptions, numbers of
//! ports, widths and speeds.

use super::{NamedSwitch, NetworkBuilder};
use crate::error::Mistake;
use crate::schema::{Generator, LinkLayer};
use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use fabric::topology::{End, Node, Topology};
use infiniband::{LinkSpeed, Speed, Width};
use units::{Bandwidth, InfinibandSpeed};

/// GUIDs that rockery makes begin with a locally administered prefix. The second half has the number of the
/// node, and its last byte the port.
const GUID_OF_HOSTS: u64 = 0x0252_4b01_0000_0000;
const GUID_OF_SWITCHES: u64 = 0x0252_4b02_0000_0000;
const GUID_NODE_SHIFT: u32 = 8;

/// Ports of a switch at most: 255 stands for all ports (IBTA 14.2.5.6).
const PORTS_MAX: u8 = 254;

/// Bytes of a NodeDescription (IBTA 14.2.5.2).
const DESCRIPTION_BYTES_MAX: usize = 64;

/// The width and speed of links that name none.
const LINK_SPEED: LinkSpeed = LinkSpeed {
    width: Width::X4,
    speed: Speed::Edr,
};

/// An InfiniBand subnet, beside the [`Topology`] of its network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Subnet {
    /// The channel adapters of hosts, by number of host.
    pub hosts: Vec<ChannelAdapter>,
    /// Switches by number.
    pub switches: Vec<SubnetSwitch>,
    /// Links by number.
    pub links: Vec<SubnetLink>,
}

/// The channel adapter of a host; it has one port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChannelAdapter {
    /// The GUID of the node, not 0.
    pub node_guid: u64,
    /// The GUID of port 1, not 0.
    pub port_guid: u64,
    /// The node description, of 64 bytes at most.
    pub description: String,
}

/// A switch of a subnet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SubnetSwitch {
    /// The GUID of the node and of its port 0, not 0.
    pub guid: u64,
    /// The node description, of 64 bytes at most.
    pub description: String,
    /// The number of ports besides port 0; not all of them have a link.
    pub ports: u8,
}

/// A link of a subnet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubnetLink {
    /// Width and speed.
    pub speed: LinkSpeed,
    /// The numbers of the ports that the link connects, in the order of its ends.
    pub ports: [u8; 2],
}

impl Subnet {
    /// Gives the ports of switches their numbers as names.
    pub(super) fn name_ports(&self, topology: &Topology, switches: &mut [NamedSwitch]) {
        for (link, subnet) in topology.links().iter().zip(&self.links) {
            for (end, number) in link.ends.iter().zip(subnet.ports) {
                if let Node::Switch(switch) = end.node
                    && let Some(switch) = switches.get_mut(switch as usize)
                {
                    switch.ports[usize::from(end.port)] = number.to_string();
                }
            }
        }
    }
}

/// A GUID, the field that gives it, and the name of its node.
struct NamedGuid {
    guid: u64,
    field: String,
    name: String,
}

impl NetworkBuilder<'_> {
    /// Notes the link layer of the hosts, and that it is not the same for all.
    pub(super) fn find_link_layer(&mut self) {
        let file = self.file;
        let layer = |entry: Option<usize>| {
            let table = entry.map_or("default", |entry| file.host[entry].nic.as_str());
            let nic = file.nic.get(table);
            nic.map_or(LinkLayer::Ethernet, |nic| nic.link_layer)
        };
        let first = self.host_entry.first().copied().flatten();
        self.layer = layer(first);
        let other = |entry: &&Option<usize>| layer(**entry) != self.layer;
        if let Some(entry) = self.host_entry.iter().find(other) {
            let what = "some hosts have InfiniBand adapters and others Ethernet ones".to_owned();
            let instead = "give all hosts adapters of one link-layer";
            let field =
                entry.map_or_else(|| "nic".to_owned(), |entry| format!("host[{entry}].nic"));
            self.wrong(Mistake::Combination, &field, what, instead);
        }
        if let Some(generator) = &file.topology {
            self.check_generator(generator);
        }
    }

    fn check_generator(&mut self, generator: &Generator) {
        self.check_speed(
            "topology",
            &[
                ("rate", generator.rate),
                ("fabric-rate", generator.fabric_rate),
            ],
            &[
                ("infiniband", generator.infiniband),
                ("fabric-infiniband", generator.fabric_infiniband),
            ],
        );
    }

    /// Checks that links of Ethernet have rates, and links of InfiniBand widths and speeds.
    pub(super) fn check_speed(
        &mut self,
        table: &str,
        rates: &[(&str, Option<Bandwidth>)],
        speeds: &[(&str, Option<InfinibandSpeed>)],
    ) {
        if self.layer == LinkLayer::Ethernet {
            for (field, speed) in speeds {
                let Some(speed) = speed else { continue };
                let what = format!("{speed} on a link between Ethernet ports");
                let instead = "write rate, or link-layer = \"infiniband\" in [nic.default]";
                self.wrong(
                    Mistake::Combination,
                    &format!("{table}.{field}"),
                    what,
                    instead,
                );
            }
            return;
        }
        for ((field, rate), (infiniband, _)) in rates.iter().zip(speeds) {
            let Some(rate) = rate else { continue };
            let what = format!("a link of InfiniBand has a width and a speed, not {rate}");
            let instead = match speed_of(*rate) {
                Some(speed) => format!("write {infiniband} = \"{speed}\""),
                None => format!("write {infiniband} = \"4x QDR\", \"4x EDR\" or another one"),
            };
            self.wrong(
                Mistake::Combination,
                &format!("{table}.{field}"),
                what,
                &instead,
            );
        }
    }

    /// Whether an InfiniBand node has the port of this name; a mistake is noted if it does not. Ports
    /// without a name get numbers when all links are known.
    pub(super) fn has_port(&mut self, field: &str, node: Node, name: Option<&str>) -> bool {
        let Some(name) = name else { return true };
        let last = match node {
            Node::Host(_) => 1,
            Node::Switch(switch) => self.ports_of(switch).unwrap_or(PORTS_MAX),
        };
        if port_number(name).is_some_and(|number| number <= last) {
            return true;
        }
        let what = format!("there is no port \"{name}\"");
        let instead = match node {
            Node::Host(_) => "a host has port 1 only".to_owned(),
            Node::Switch(_) => {
                format!("ports of this InfiniBand switch are numbers from 1 to {last}")
            }
        };
        self.wrong(Mistake::Value, &format!("{field}.between"), what, &instead);
        false
    }

    /// The number of ports that the file gives a switch.
    fn ports_of(&self, switch: u32) -> Option<u8> {
        let entry = self.switch_entry[switch as usize]?;
        self.file.switch[entry].ports
    }

    /// The subnet, if the links are of InfiniBand.
    pub(super) fn subnet(&mut self) -> Option<Subnet> {
        if self.layer == LinkLayer::Ethernet {
            return None;
        }
        self.check_infiniband_tables();
        let numbers = self.port_numbers();
        let links = self.topology.links().iter().zip(&self.speeds);
        let number = |end: &End| match end.node {
            Node::Host(_) => 1,
            Node::Switch(switch) => {
                let numbers: &Vec<u8> = &numbers[switch as usize];
                numbers.get(usize::from(end.port)).copied().unwrap_or(0)
            }
        };
        let links = links.map(|(link, speed)| SubnetLink {
            speed: speed.unwrap_or(LINK_SPEED),
            ports: [number(&link.ends[0]), number(&link.ends[1])],
        });
        let links = links.collect();
        let switches = self.subnet_switches(&numbers);
        let hosts = self.channel_adapters();
        self.check_guids(&hosts, &switches);
        Some(Subnet {
            hosts,
            switches,
            links,
        })
    }

    /// Notes tables and files that only Ethernet has.
    fn check_infiniband_tables(&mut self) {
        let file = self.file;
        for (name, nic) in &file.nic {
            if nic.link_layer == LinkLayer::Infiniband && nic.functions.is_some() {
                let what = "adapters of InfiniBand have no virtual functions here".to_owned();
                let field = format!("nic.{name}.functions");
                self.wrong(Mistake::Combination, &field, what, "leave the table out");
            }
        }
        for (index, switch) in file.switch.iter().enumerate() {
            let files = [
                ("routeros", switch.routeros.is_some()),
                ("sonic", switch.sonic.is_some()),
            ];
            for (kind, _) in files.into_iter().filter(|(_, is_given)| *is_given) {
                let what = "the configuration of an Ethernet switch, and the links are InfiniBand";
                let field = format!("switch[{index}].{kind}");
                self.wrong(
                    Mistake::Combination,
                    &field,
                    what.to_owned(),
                    "leave it out",
                );
            }
            if switch
                .ports
                .is_some_and(|ports| !(1..=PORTS_MAX).contains(&ports))
            {
                let what = format!("{} ports", switch.ports.unwrap_or_default());
                let instead = format!("a number from 1 to {PORTS_MAX}");
                self.wrong(
                    Mistake::Value,
                    &format!("switch[{index}].ports"),
                    what,
                    &instead,
                );
            }
        }
    }

    /// By switch and by port in the order of connection: the numbers of ports. Ports without a name get the
    /// lowest numbers that no name has.
    fn port_numbers(&mut self) -> Vec<Vec<u8>> {
        let names = core::mem::take(&mut self.port_names);
        let mut all = Vec::with_capacity(names.len());
        for (switch, names) in (0..).zip(&names) {
            let given: Vec<Option<u8>> = names
                .iter()
                .map(|name| name.as_deref().and_then(port_number))
                .collect();
            let taken: BTreeSet<u8> = given.iter().flatten().copied().collect();
            let last = self.ports_of(switch).unwrap_or(PORTS_MAX);
            let mut free = (1..=last).filter(|number| !taken.contains(number));
            let numbers: Option<Vec<u8>> = given
                .into_iter()
                .map(|number| number.or_else(|| free.next()))
                .collect();
            if numbers.is_none() {
                let name = self
                    .switches
                    .iter()
                    .nth(switch as usize)
                    .unwrap_or_default();
                let what = format!("{name} has {last} ports and {} links", names.len());
                let entry = self.switch_entry[switch as usize];
                let field = entry.map_or_else(
                    || "topology".to_owned(),
                    |entry| format!("switch[{entry}].ports"),
                );
                let instead = format!("an InfiniBand switch has {PORTS_MAX} ports at most");
                self.wrong(Mistake::Limit, &field, what, &instead);
            }
            all.push(numbers.unwrap_or_default());
        }
        all
    }

    fn subnet_switches(&mut self, numbers: &[Vec<u8>]) -> Vec<SubnetSwitch> {
        let names: Vec<String> = self.switches.iter().map(str::to_owned).collect();
        let mut switches = Vec::with_capacity(names.len());
        for (number, name) in (0_u32..).zip(names) {
            let entry = self.switch_entry[number as usize];
            let table = entry.map(|entry| &self.file.switch[entry]);
            let connected = numbers[number as usize].iter().copied().max().unwrap_or(1);
            let made = GUID_OF_SWITCHES | u64::from(number) << GUID_NODE_SHIFT;
            let guid = table.and_then(|table| table.guid);
            let description = table.and_then(|table| table.description.clone());
            let ports = table.and_then(|table| table.ports);
            let field = entry.map_or_else(String::new, |entry| format!("switch[{entry}]"));
            switches.push(SubnetSwitch {
                guid: guid.map_or(made, |guid| guid.0),
                description: self.description(&field, description, name),
                ports: ports.unwrap_or(connected),
            });
        }
        switches
    }

    fn channel_adapters(&mut self) -> Vec<ChannelAdapter> {
        let names: Vec<String> = self.hosts.iter().map(str::to_owned).collect();
        let mut adapters = Vec::with_capacity(names.len());
        for (number, name) in (0_u32..).zip(names) {
            let entry = self.host_entry[number as usize];
            let table = entry.map(|entry| &self.file.host[entry]);
            let made = GUID_OF_HOSTS | u64::from(number) << GUID_NODE_SHIFT;
            let guid = table.and_then(|table| table.guid);
            let node_guid = guid.map_or(made, |guid| guid.0);
            let port = table.and_then(|table| table.port_guid);
            let description = table.and_then(|table| table.description.clone());
            let field = entry.map_or_else(String::new, |entry| format!("host[{entry}]"));
            adapters.push(ChannelAdapter {
                node_guid,
                // The last GUID has none after it: 0 is no GUID.
                port_guid: port.map_or(node_guid.wrapping_add(1).max(1), |guid| guid.0),
                description: self.description(&field, description, name),
            });
        }
        adapters
    }

    /// The description of a node: the one that its entry gives it, or its name.
    fn description(&mut self, table: &str, given: Option<String>, name: String) -> String {
        let is_given = given.is_some();
        let text = given.unwrap_or(name);
        let what = if text.len() > DESCRIPTION_BYTES_MAX {
            format!(
                "\"{text}\" has {} bytes, and {DESCRIPTION_BYTES_MAX} are the most of a node description",
                text.len()
            )
        } else if text.contains(['"', '\\']) || text.contains(char::is_control) {
            let shown = text.escape_debug();
            format!(
                "\"{shown}\": a node description has no quotes, backslashes and control characters"
            )
        } else {
            return text;
        };
        let (field, instead) = match is_given {
            true => (format!("{table}.description"), "write another one"),
            false => (
                format!("{table}.name"),
                "add a description, or write a shorter name",
            ),
        };
        self.wrong(Mistake::Value, &field, what, instead);
        text
    }

    /// Notes nodes with the same GUID, and ports with the same.
    fn check_guids(&mut self, hosts: &[ChannelAdapter], switches: &[SubnetSwitch]) {
        let field = |kind: &str, entry: Option<usize>, field: &str| {
            entry.map_or_else(String::new, |entry| format!("{kind}[{entry}].{field}"))
        };
        let of_hosts = |what: &str, guid: fn(&ChannelAdapter) -> u64| -> Vec<NamedGuid> {
            let named = self.hosts.iter().zip(hosts).zip(&self.host_entry);
            named
                .map(|((name, adapter), entry)| NamedGuid {
                    guid: guid(adapter),
                    field: field("host", *entry, what),
                    name: name.to_owned(),
                })
                .collect()
        };
        let of_switches = || {
            let named = self.switches.iter().zip(switches).zip(&self.switch_entry);
            named.map(|((name, switch), entry)| NamedGuid {
                guid: switch.guid,
                field: field("switch", *entry, "guid"),
                name: name.to_owned(),
            })
        };
        let nodes = of_hosts("guid", |adapter| adapter.node_guid);
        let ports = of_hosts("port-guid", |adapter| adapter.port_guid);
        let nodes: Vec<NamedGuid> = nodes.into_iter().chain(of_switches()).collect();
        let ports: Vec<NamedGuid> = ports.into_iter().chain(of_switches()).collect();
        let twice = self.note_twice("", &nodes);
        if !twice {
            self.note_twice("port ", &ports);
        }
    }

    /// Notes GUIDs that two of these have. Returns whether there are some.
    fn note_twice(&mut self, what: &str, guids: &[NamedGuid]) -> bool {
        let mut owners: BTreeMap<u64, &str> = BTreeMap::new();
        let mut is_twice = false;
        for NamedGuid { guid, field, name } in guids {
            if let Some(other) = owners.insert(*guid, name) {
                let what = format!("{other} and {name} have the same {what}GUID, 0x{guid:016x}");
                let instead = "give each an entry with a GUID of its own, or none";
                self.wrong(Mistake::Combination, field, what, instead);
                is_twice = true;
            }
        }
        is_twice
    }
}

/// The number that a port's name is, from 1 to [`PORTS_MAX`].
fn port_number(name: &str) -> Option<u8> {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_digit()) && !name.starts_with('0');
    let number = name.parse().ok().filter(|_| is_plain)?;
    (1..=PORTS_MAX).contains(&number).then_some(number)
}

/// The speed of four lanes that has a rate.
fn speed_of(rate: Bandwidth) -> Option<LinkSpeed> {
    let mut speeds = Speed::ALL.into_iter().map(|speed| LinkSpeed {
        width: Width::X4,
        speed,
    });
    speeds.find(|speed| speed.rate().bps() == rate.0.bps())
}
