//! LLDP and DCBX on the links between live hosts and switches (802.1AB, 802.1Q clause 38): what ports
//! advertise, and the operational settings of both ends of a link.
//!
//! The frames are those of a real link, but cross it outside of the simulated network: they take no time
//! there and are never lost. Times of LLDP are the machine's, whatever `--slow` is, because programs in hosts
//! that implement LLDP have clocks of their own.

mod agent;
mod ends;
mod findings;
mod settings;
mod sharing;
mod status;
mod table;

pub use ends::said;
pub use status::{DcbxEts, DcbxLink, DcbxPort, DcbxSettings};

use crate::functions::{cable_of, uplink_of};
use crate::network::{Network, Port};
use crate::plan::Plan;
use ends::{AgentLink, LinkPort};
use fabric::Time;
use fabric::config::SwitchConfig;
use fabric::topology::{End, Node};
use settings::settings;
use sim::report::Finding;
use sim::world::World;
use std::collections::BTreeSet;

/// A frame that crossed a link, for captures.
pub(crate) type Crossed = (u32, Time, Vec<u8>);

/// The links of a lab that have LLDP agents.
#[derive(Debug)]
pub(crate) struct Lldp {
    links: Vec<AgentLink>,
    /// Frames that crossed links, while captures run.
    crossed: Vec<Crossed>,
    /// When something is to be done next.
    due: u64,
    /// Operational settings of ports may have changed since they were last applied to the network.
    is_news: bool,
}

impl Lldp {
    /// The links of live hosts. A function of an adapter has none: the agent is that of its adapter's port.
    pub(crate) fn new(plan: &Plan, down: &BTreeSet<u32>, now: u64) -> Self {
        let hosts = (0..)
            .zip(&plan.hosts)
            .filter(|(_, host)| host.function.is_none());
        let links = hosts.filter_map(|(place, host)| {
            let network = &plan.experiment.network;
            let adapter = network
                .adapter_of(host.number)
                .filter(|adapter| adapter.host == host.number);
            let (link, own) = match adapter {
                Some(adapter) => (
                    uplink_of(&network.topology, adapter)?,
                    Node::Switch(adapter.switch),
                ),
                None => (
                    cable_of(&network.topology, host.number)?,
                    Node::Host(host.number),
                ),
            };
            let ends = network.topology.links().get(link as usize)?.ends;
            let adapter = ends.into_iter().find(|end| end.node == own)?;
            let switch = ends.into_iter().find(|end| end.node != own)?;
            let ports = [
                LinkPort::adapter(adapter, host, settings(plan, adapter)),
                LinkPort::switch(switch, network, settings(plan, switch)),
            ];
            Some(AgentLink::new(
                link,
                place,
                ports,
                !down.contains(&link),
                now,
            ))
        });
        Self {
            links: links.collect(),
            crossed: Vec::new(),
            due: now,
            is_news: false,
        }
    }

    /// Takes settings that have changed: their ports advertise them at once.
    pub(crate) fn update(&mut self, plan: &Plan, now: u64) {
        for port in self.links.iter_mut().flat_map(|link| &mut link.ports) {
            port.set(settings(plan, port.end), now);
        }
        (self.due, self.is_news) = (now, true);
    }

    /// Takes the state of links: an end of one that is down removes its neighbour.
    pub(crate) fn set_links(&mut self, down: &BTreeSet<u32>, now: u64) {
        self.links
            .iter_mut()
            .for_each(|link| link.set_up(!down.contains(&link.link), now));
        (self.due, self.is_news) = (now, true);
    }

    /// When something is to be done next.
    pub(crate) const fn next(&self) -> u64 {
        self.due
    }

    /// Passes frames between ports, and to and from the kernels of hosts.
    pub(crate) fn serve(&mut self, now: u64, network: &mut Network) {
        let has_frame = |port: &Port| port.tap.as_ref().is_some_and(|tap| !tap.lldp.is_empty());
        if now < self.due && !network.ports.iter().any(has_frame) {
            return;
        }
        let at = network.clock.now();
        for link in &mut self.links {
            let crossed = link.serve(now, network.ports[link.place].tap.as_mut());
            if network.keeps {
                self.crossed
                    .extend(crossed.into_iter().map(|frame| (link.link, at, frame)));
            }
        }
        // Functions have no port of their own.
        let functions = network
            .ports
            .iter_mut()
            .filter(|port| port.host.function.is_some());
        functions
            .filter_map(|port| port.tap.as_mut())
            .for_each(|tap| tap.lldp.clear());
        self.due = self
            .links
            .iter()
            .map(AgentLink::next)
            .min()
            .unwrap_or(u64::MAX);
        self.is_news = true;
    }

    /// Frames that crossed links since the last call.
    pub(crate) fn take_crossed(&mut self) -> Vec<Crossed> {
        std::mem::take(&mut self.crossed)
    }

    /// Applies to the network the settings that were agreed on since the last call; `all` also those of
    /// before, which a network that has begun anew does not have.
    pub(crate) fn apply(&mut self, plan: &Plan, world: &mut World, all: bool) {
        if !std::mem::take(&mut self.is_news) && !all {
            return;
        }
        let mut switches = BTreeSet::new();
        for port in self.links.iter_mut().flat_map(|link| &mut link.ports) {
            let operational = port.operational();
            if !port.is_news(operational, all) {
                continue;
            }
            match port.end.node {
                Node::Host(host) => {
                    let config = &plan.experiment.scenario.hosts[host as usize];
                    let queues = sharing::host_queues(config);
                    let queues = if port.takes_ets() {
                        operational.by_priority(queues)
                    } else {
                        queues
                    };
                    world.set_host_port(host, operational.pfc_of(config.pfc), queues);
                }
                Node::Switch(switch) => _ = switches.insert(switch),
            }
        }
        for switch in switches {
            // Reserves are those of before, so it fits.
            world.reconfigure(switch, &self.config_of(plan, switch));
        }
    }

    /// The configuration of a switch, with the operational settings of its ports.
    pub(crate) fn config_of(&self, plan: &Plan, switch: u32) -> SwitchConfig {
        let mut config = plan.experiment.scenario.switches[switch as usize].clone();
        let own = self.links.iter().flat_map(|link| &link.ports);
        for port in own.filter(|port| port.end.node == Node::Switch(switch) && port.takes_any()) {
            let number = usize::from(port.end.port);
            let mut profile = config.profiles[usize::from(config.ports[number].profile)].clone();
            let operational = port.operational();
            profile.pfc = operational.pfc_of(profile.pfc);
            if port.takes_ets() {
                profile.queues = operational.by_class(profile.queues);
            }
            let found = config.profiles.iter().position(|other| *other == profile);
            let index = found.unwrap_or(config.profiles.len());
            if index < fabric::config::PROFILES_MAX {
                config.ports[number].profile = index as u8;
                config.profiles.extend(found.is_none().then_some(profile));
            }
        }
        config
    }

    /// The state of all links, by their names.
    pub(crate) fn status(&self, plan: &Plan) -> Vec<DcbxLink> {
        let name = |end: End| plan.experiment.network.port_name(end);
        self.links
            .iter()
            .map(|link| status::of_link(link, &name))
            .collect()
    }

    /// The DCBX state of the ports of a switch, as a table; nothing for a switch without live hosts.
    pub(crate) fn table(&self, plan: &Plan, switch: &str) -> Option<String> {
        let network = &plan.experiment.network;
        let number = (0..)
            .zip(&network.switches)
            .find(|(_, other)| other.name == switch)?
            .0;
        let own = self
            .links
            .iter()
            .filter(|link| link.ports[1].end.node == Node::Switch(number));
        let own: Vec<DcbxLink> = own
            .map(|link| status::of_link(link, &|end| network.port_name(end)))
            .collect();
        (!own.is_empty()).then(|| table::text(&own))
    }

    /// Differences between the settings of both ends of a link.
    pub(crate) fn findings(&self, plan: &Plan) -> Vec<Finding> {
        findings::of(&self.status(plan))
    }
}
