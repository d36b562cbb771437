//! The settings that the ports of a fabric file advertise.

use super::sharing::{Sharing, applications_of};
use crate::plan::Plan;
use fabric::config::CLASSES;
use fabric::topology::{End, Node};
use sim::world::HostConfig;
use std::collections::BTreeMap;
use wire::lldp::Application;

/// The settings that a port advertises.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PortSettings {
    pub(super) willing: bool,
    pub(super) sharing: Sharing,
    pub(super) applications: Vec<Application>,
}

/// The settings that the file gives a port.
pub(super) fn settings(plan: &Plan, end: End) -> PortSettings {
    let network = &plan.experiment.network;
    match end.node {
        Node::Host(number) => {
            let config = &plan.experiment.scenario.hosts[number as usize];
            PortSettings {
                willing: network.hosts[number as usize].nic.willing,
                sharing: Sharing::of_host(config),
                applications: applications_of(&marked(config)),
            }
        }
        Node::Switch(number) => {
            let config = &plan.experiment.scenario.switches[number as usize];
            let profile =
                &config.profiles[usize::from(config.ports[usize::from(end.port)].profile)];
            let map = &profile.map;
            let classes = (0..64_u8).map(|dscp| (dscp, map.dscp[usize::from(dscp)].class));
            let own = classes.filter(|(_, class)| map.trust_dscp && *class != map.default.class);
            PortSettings {
                willing: network.switches[number as usize].willing,
                sharing: Sharing::of_switch(profile),
                applications: applications_of(&own.collect()),
            }
        }
    }
}

/// Priorities by the DSCP that an adapter marks with.
fn marked(config: &HostConfig) -> BTreeMap<u8, u8> {
    let marks = [config.notifications, config.acknowledgements, config.data];
    marks
        .iter()
        .filter(|mark| mark.dscp != 0)
        .map(|mark| (mark.dscp, mark.class % CLASSES as u8))
        .collect()
}
