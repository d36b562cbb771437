//! The InfiniBand subnet of a lab: its nodes and links, and the agents of programs in hosts, on the clock of
//! the lab.

mod connections;
mod counted;
mod data;
mod interfaces;
mod status;
mod sysfs;

pub(crate) use connections::{Connections, Greeted};
pub(crate) use interfaces::NAME as IP_INTERFACE;
pub use status::InfinibandPort;

use crate::plan::LiveHost;
use counted::Counted;
use data::Told;
use fabric::Time;
use fabric::topology::Node as Place;
use fabric_file::{Network, Subnet as Description};
use infiniband::agents::Agents;
use infiniband::ipoib;
use infiniband::node::{Identity, Node};
use infiniband::subnet::{Cable, Crossed, End, Output, Subnet, unhandled};
use infiniband::{LinkSpeed, Speed, Width};
use interfaces::Interfaces;
use std::collections::BTreeMap;

/// The only port of a host's adapter.
const PORT: u8 = 1;

/// A subnet with the agents of its hosts.
pub(crate) struct LiveSubnet {
    subnet: Subnet,
    /// By the numbers of live hosts. Others have no programs, and answer so.
    agents: BTreeMap<usize, Agents>,
    /// How many of its nodes are hosts; switches come after them.
    hosts: usize,
    /// The port of the simulated switch for each port of a switch that has a link.
    ports: BTreeMap<End, u16>,
    told: Told,
    counted: Counted,
    interfaces: Interfaces,
}

impl LiveSubnet {
    /// The subnet of a network; `None` for one of Ethernet.
    pub(crate) fn new(network: &Network, live: &[LiveHost]) -> Option<Self> {
        let description = network.infiniband.as_ref()?;
        let subnet = Subnet::new(
            nodes_of(network, description),
            &cables_of(network, description),
        );
        Some(Self {
            subnet,
            agents: live
                .iter()
                .map(|host| (host.number as usize, Agents::default()))
                .collect(),
            hosts: description.hosts.len(),
            ports: ports_of(network, description),
            told: Told::default(),
            counted: Counted::new(network, description),
            interfaces: Interfaces::new(live),
        })
    }

    /// The agents of a host.
    pub(crate) fn agents(&mut self, host: usize) -> &mut Agents {
        self.agents.entry(host).or_default()
    }

    /// The files of a host's device in `/sys`: lines of path, tab and value.
    pub(crate) fn describe(&self, host: usize) -> String {
        let node = self.subnet.node(host);
        let p_key = node.ports[usize::from(PORT)].partitions.0[0];
        let interface = self.interfaces.of(host);
        let interface =
            interface.map(|one| sysfs::describe_interface(one.hardware(), p_key, one.link()));
        sysfs::describe(node, PORT) + &interface.unwrap_or_default()
    }

    /// A program of a host writes a record.
    pub(crate) fn write(
        &mut self,
        now: Time,
        host: usize,
        file: infiniband::agents::FileId,
        record: &[u8],
    ) {
        let port = &self.subnet.node(host).ports[usize::from(PORT)];
        // Linux says why a record is refused in the call. A socket has no such way back, so it is dropped.
        if let Some(agents) = self.agents.get_mut(&host) {
            let _ = agents.write(now, file, record, port);
        }
    }

    /// A program of a host shows that it manages the subnet, or has ended.
    pub(crate) fn set_is_manager(&mut self, now: Time, host: usize, is_manager: bool) {
        self.subnet.set_is_manager(
            now,
            End {
                node: host,
                port: PORT,
            },
            is_manager,
        );
    }

    /// A cable is plugged in, or pulled.
    pub(crate) fn set_cable(&mut self, now: Time, link: u32, is_plugged: bool) {
        self.subnet.set_cable(now, link as usize, is_plugged);
    }

    /// Begins or ends the capture of management packets on a link.
    pub(crate) fn set_capture(&mut self, link: u32, on: bool) {
        self.subnet.set_capture(link as usize, on);
    }

    /// Takes the management packets that have crossed captured links.
    pub(crate) fn take_crossed(&mut self, now: Time) -> Vec<Crossed> {
        self.subnet.take_crossed(now)
    }

    /// The time of the next event.
    pub(crate) fn next_event(&self) -> Time {
        let agents = self.agents.values().map(Agents::next_event);
        let next = agents.fold(self.subnet.next_event(), Time::min);
        next.min(self.interfaces.next_event())
    }

    /// Runs up to a time.
    pub(crate) fn run(&mut self, until: Time) {
        loop {
            self.send_packets(until);
            let next = self.next_event();
            if next > until {
                break;
            }
            self.subnet.run(next);
            self.agents.values_mut().for_each(|agents| agents.run(next));
            self.deliver(next);
            self.run_interfaces(next);
        }
        self.subnet.run(until);
    }

    fn send_packets(&mut self, now: Time) {
        for (node, agents) in &mut self.agents {
            let from = End {
                node: *node,
                port: PORT,
            };
            for packet in agents.take_packets() {
                self.subnet.send(now, from, packet);
            }
        }
    }

    fn deliver(&mut self, now: Time) {
        let mut answers = Vec::new();
        for output in self.subnet.take_outputs() {
            match output {
                Output::Received { at, packet } if ipoib::is_answer(&packet.mad) => {
                    self.interfaces.answered(at.node, now, &packet.mad);
                }
                Output::Received { at, packet } => {
                    let port = &self.subnet.node(at.node).ports[usize::from(at.port)];
                    match self.agents.get_mut(&at.node) {
                        Some(agents) => agents.receive(now, packet, port),
                        None => answers.extend(unhandled(&packet).map(|packet| (at, packet))),
                    }
                }
                Output::Event { at, event } => {
                    self.interfaces.note_event(at.node, now, event);
                    self.told.add(at.node, event);
                }
            }
        }
        for (from, packet) in answers {
            self.subnet.send(now, from, packet);
        }
        self.send_packets(now);
    }
}

fn nodes_of(network: &Network, description: &Description) -> Vec<Node> {
    let topology = &network.topology;
    // What a port supports is the speed of its link; ports without one have the slowest.
    let idle = LinkSpeed {
        width: Width::X4,
        speed: Speed::Sdr,
    };
    let speed_at = |place: Place, port: u8| {
        let links = topology.links().iter().zip(&description.links);
        let mut found = links.filter_map(|(link, subnet)| {
            let mut ends = link.ends.iter().zip(subnet.ports);
            ends.any(|(end, number)| end.node == place && number == port)
                .then_some(subnet.speed)
        });
        found.next().unwrap_or(idle)
    };
    let hosts = (0..).zip(&description.hosts).map(|(number, adapter)| {
        let identity = Identity {
            guid: adapter.node_guid,
            port_guid: adapter.port_guid,
            description: adapter.description.clone(),
        };
        Node::adapter(identity, speed_at(Place::Host(number), PORT))
    });
    let switches = (0..).zip(&description.switches).map(|(number, switch)| {
        let identity = Identity {
            guid: switch.guid,
            port_guid: switch.guid,
            description: switch.description.clone(),
        };
        let ports = (1..=switch.ports).map(|port| speed_at(Place::Switch(number), port));
        Node::switch(identity, &ports.collect::<Vec<_>>())
    });
    hosts.chain(switches).collect()
}

/// The ports of simulated switches, by node and number.
fn ports_of(network: &Network, description: &Description) -> BTreeMap<End, u16> {
    let links = network.topology.links().iter().zip(&description.links);
    let ends = links.flat_map(|(link, subnet)| link.ends.into_iter().zip(subnet.ports));
    ends.filter_map(|(end, port)| match end.node {
        Place::Host(_) => None,
        Place::Switch(number) => {
            let node = description.hosts.len() + number as usize;
            Some((End { node, port }, end.port))
        }
    })
    .collect()
}

fn cables_of(network: &Network, description: &Description) -> Vec<Cable> {
    let hosts = description.hosts.len();
    let node = |place: Place| match place {
        Place::Host(number) => number as usize,
        Place::Switch(number) => hosts + number as usize,
    };
    let links = network.topology.links().iter().zip(&description.links);
    links
        .map(|(link, subnet)| Cable {
            ends: [0, 1].map(|side| End {
                node: node(link.ends[side].node),
                port: subnet.ports[side],
            }),
            delay: link.config.delay,
        })
        .collect()
}
