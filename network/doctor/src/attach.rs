//! Attaches a fabric file's plan to switches and hosts whose facts were read: the node of the file, its
//! planned settings, and its links.

use std::path::Path;

use fabric::topology::{Link, Node};
use fabric_file::Network;

use crate::from_fabric::{SourceError, port_names};
use crate::marks::{Marks, common};
use crate::switch_plan::{spread, switch_intent};
use crate::{Planned, SwitchFacts};
use vendors::facts::{HostFacts, PlannedHost, PlannedLink};
use vendors::intent::Intent;
use vendors::text::mask;
use vendors::{Dialect, Imported};

/// The name of a file without folder and ending.
fn stem(file: &str) -> &str {
    Path::new(file)
        .file_stem()
        .and_then(|stem| stem.to_str())
        .unwrap_or(file)
}

/// Attaches the plan to a switch: that of the switch with this name, else with the file's name, else of the
/// only one. Returns whether the fabric file has such a switch.
///
/// # Errors
/// A name that the fabric file does not have.
pub fn plan_switch(
    network: &Network,
    switch: &mut SwitchFacts,
    name: Option<&str>,
) -> Result<bool, SourceError> {
    let own = |wanted: &str| network.switches.iter().find(|switch| switch.name == wanted);
    let only = || {
        network
            .switches
            .first()
            .filter(|_| network.switches.len() == 1)
    };
    let found = match name {
        Some(name) => name.to_owned(),
        None => match own(stem(switch.first_file())).or_else(only) {
            Some(found) => found.name.clone(),
            None => return Ok(false),
        },
    };
    let intent = switch_intent(network, &found, switch.dialect)?;
    let of_file = Intent {
        spread: spread(network),
        ..Intent::default()
    };
    let (fitted, _) = switch.dialect.fit(&of_file);
    let (intent, _) = switch.dialect.fit(&intent);
    let number = network
        .switches
        .iter()
        .position(|switch| switch.name == found)
        .unwrap_or_default();
    let ports = network
        .switches
        .get(number)
        .map(|own| port_names(own, switch.dialect))
        .unwrap_or_default();
    let links = links_of(network, Node::Switch(number as u32));
    // A configuration of the same system that the file names is compared port by port.
    let named = network
        .switches
        .get(number)
        .and_then(|own| own.imported.as_ref());
    let groups = named
        .filter(|imported| imported.dialect() == switch.dialect)
        .map_or_else(Vec::new, Imported::intents);
    let marks = Marks {
        dscp: common(network.hosts.iter().map(|host| host.nic.dscp & 63)),
        cnp: common(network.hosts.iter().map(|host| host.nic.cnp_dscp & 63)),
    };
    switch.planned = Some(Planned {
        name: found,
        intent,
        groups,
        spread: fitted.spread,
        out_of_order: network.hosts.iter().all(|host| host.nic.out_of_order),
        marks,
        ports,
        links,
    });
    Ok(true)
}

/// Attaches the plan and the links to switches to a host: those of the host with this name, else with the
/// file's name. Returns whether the fabric file has such a host.
pub fn attach_host(network: &Network, host: &mut HostFacts, name: Option<&str>) -> bool {
    let wanted = name.unwrap_or_else(|| stem(&host.name));
    let Some(number) = network.hosts.iter().position(|own| own.name == wanted) else {
        return false;
    };
    let named = &network.hosts[number];
    let nic = &named.nic;
    // Hosts with functions are attached to the switch inside their adapter, which is attached to others.
    let inside = network
        .adapters
        .iter()
        .find(|adapter| adapter.host as usize == number);
    let links = match inside {
        Some(adapter) => links_of(network, Node::Switch(adapter.switch)),
        None => links_of(network, Node::Host(number as u32)),
    };
    let intent = links
        .first()
        .and_then(|link| switch_intent(network, &link.switch, Dialect::RouterOs).ok());
    let switch = Intent {
        spread: spread(network),
        ..intent.unwrap_or_default()
    };
    host.planned = Some(PlannedHost {
        name: named.name.clone(),
        rate: nic.rate.map(|rate| gigabits(rate.0.bps())),
        dscp: nic.dscp & 63,
        pcp: nic.pcp,
        ecn: nic.ecn,
        dcqcn: matches!(nic.congestion, fabric_file::congestion::Congestion::Dcqcn),
        priority: nic.priority & 7,
        pfc: mask(&nic.pfc),
        cnp_dscp: nic.cnp_dscp & 63,
        cnp_priority: nic.cnp_priority & 7,
        mtu: nic.mtu,
        out_of_order: nic.out_of_order,
        functions: nic
            .functions
            .as_ref()
            .map_or(0, |functions| functions.count),
        shares: Intent::percents(&switch),
        switch,
        links,
    });
    true
}

/// The links of a host or switch with switches of the file.
fn links_of(network: &Network, node: Node) -> Vec<PlannedLink> {
    let of = |link: &Link| {
        let [one, other] = &link.ends;
        let (own, peer) = if one.node == node {
            (one, other)
        } else {
            (other, one)
        };
        let Node::Switch(number) = peer.node else {
            return None;
        };
        let switch = network
            .switches
            .get(number as usize)
            .filter(|_| own.node == node)?;
        let gbps = gigabits(link.config.rate.bps());
        Some(PlannedLink {
            own_port: own.port,
            switch: switch.name.clone(),
            port: peer.port,
            gbps,
        })
    };
    network.topology.links().iter().filter_map(of).collect()
}

fn gigabits(bps: u64) -> u32 {
    (bps / 1_000_000_000) as u32
}
