//! What a fabric file says of switches and hosts whose facts were read: which one it is, what it is meant to
//! do, and what it is attached to.

use std::path::Path;

use fabric::file::Network;
use fabric::topology::Node;

use crate::doctor::{HostFacts, Planned, SwitchFacts};
use crate::from_fabric::{SourceError, switch_intent};

/// The name of a file without folder and ending.
fn stem(file: &str) -> &str {
    Path::new(file).file_stem().and_then(|stem| stem.to_str()).unwrap_or(file)
}

/// Says what a switch is meant to do: the one of this name, else that of the file's name, else the only one.
/// Whether the fabric file has it.
///
/// # Errors
/// A name that the fabric file does not have.
pub fn plan_switch(
    network: &Network,
    switch: &mut SwitchFacts,
    name: Option<&str>,
) -> Result<bool, SourceError> {
    let own = |wanted: &str| network.switches.iter().find(|switch| switch.name == wanted);
    let only = || network.switches.first().filter(|_| network.switches.len() == 1);
    let found = match name {
        Some(name) => name.to_owned(),
        None => match own(stem(&switch.file)).or_else(only) {
            Some(found) => found.name.clone(),
            None => return Ok(false),
        },
    };
    let intent = switch_intent(network, &found, switch.dialect)?;
    let (intent, _) = switch.dialect.fit(&intent);
    switch.planned = Some(Planned { name: found, intent });
    Ok(true)
}

/// Says which switches a host is attached to: the host of this name, else that of the file's name. Whether
/// the fabric file has it.
pub fn attach_host(network: &Network, host: &mut HostFacts, name: Option<&str>) -> bool {
    let wanted = name.unwrap_or_else(|| stem(&host.name));
    let Some(number) = network.hosts.iter().position(|own| own.name == wanted) else { return false };
    let mut attached = Vec::new();
    for link in network.topology.links() {
        if !link.ends.iter().any(|end| end.node == Node::Host(number as u32)) {
            continue;
        }
        let switches = link.ends.iter().filter_map(|end| match end.node {
            Node::Switch(switch) => network.switches.get(switch as usize),
            Node::Host(_) => None,
        });
        attached.extend(switches.map(|switch| switch.name.clone()));
    }
    host.attached = Some(attached);
    true
}
