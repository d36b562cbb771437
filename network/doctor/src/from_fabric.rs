//! The intent of a switch or host in a fabric file.

use fabric::config::Profile;
use fabric::topology::Node;
use fabric_file::{NamedSwitch, Network};

use vendors::Dialect;
use vendors::intent::{HostSettings, Intent, Port, Trust};
use vendors::profile;
use vendors::text::mask;

/// The MTU of hosts: it carries RoCE's largest MTU, and adapters and drivers have it in common.
const HOST_MTU: u32 = 9000;

/// Why a fabric file gives no intent.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SourceError {
    /// No switch or host of this name.
    #[error("the fabric file has no {kind} \"{name}\"; there are: {there}")]
    NoSuchNode {
        /// The kind of the missing node: switch or host.
        kind: &'static str,
        /// The name that does not exist.
        name: String,
        /// Some of the existing names.
        there: String,
    },
    /// Marks that are not in different classes.
    #[error(
        "DSCP {0} and {1} are in one class of the fabric file, so that neither has a share of its own"
    )]
    OneClass(u8, u8),
    /// Ports that give classes different shares, and no name of a host that chooses one.
    #[error(
        "the ports of the fabric file's switches have different shares: name this machine's host"
    )]
    DifferentShares,
    /// Strict queues in an order that devices do not have.
    #[error("switch \"{0}\": {1}; give strict queues levels that rise with their class")]
    Order(String, String),
    /// A vendor's configuration that covers no port.
    #[error("the configuration of \"{0}\" names no port of the switch")]
    NoPorts(String),
}

/// Weights of the classes of some DSCPs on the switch port towards a host, or on every port towards a host
/// where none is named. A class below a strict one has the weight 0.
///
/// # Errors
/// When there is no such host, when two DSCPs are in one class, and when no host is named and ports differ.
pub fn class_weights(
    network: &Network,
    host: Option<&str>,
    dscps: &[u8],
) -> Result<Vec<(u8, u32)>, SourceError> {
    let number = host.map(|name| host_number(network, name)).transpose()?;
    let mut found: Option<Vec<(u8, u32)>> = None;
    for link in network.topology.links() {
        let is_wanted = |node: Node| match (node, number) {
            (Node::Host(own), Some(number)) => own as usize == number,
            (Node::Host(_), None) => true,
            _ => false,
        };
        if !link.ends.iter().any(|end| is_wanted(end.node)) {
            continue;
        }
        for end in &link.ends {
            let Node::Switch(switch) = end.node else {
                continue;
            };
            let Some(config) = network
                .switches
                .get(switch as usize)
                .map(|switch| &switch.config)
            else {
                continue;
            };
            let profile = config
                .ports
                .get(usize::from(end.port))
                .map(|port| usize::from(port.profile));
            let Some(profile) = profile.and_then(|profile| config.profiles.get(profile)) else {
                continue;
            };
            let own = weights_of(profile, dscps)?;
            if found.as_ref().is_some_and(|other| *other != own) {
                return Err(SourceError::DifferentShares);
            }
            found = Some(own);
        }
    }
    found.ok_or_else(|| SourceError::NoPorts(host.unwrap_or("every switch").to_owned()))
}

fn weights_of(profile: &Profile, dscps: &[u8]) -> Result<Vec<(u8, u32)>, SourceError> {
    let class = |dscp: u8| match profile.map.trust_dscp {
        true => profile.map.dscp[usize::from(dscp & 63)].class,
        false => profile.map.default.class,
    };
    for (index, dscp) in dscps.iter().enumerate() {
        if let Some(other) = dscps[..index]
            .iter()
            .find(|other| class(**other) == class(*dscp))
        {
            return Err(SourceError::OneClass(*other, *dscp));
        }
    }
    let queue = |dscp: u8| &profile.queues[usize::from(class(dscp) & 7)];
    let highest = dscps
        .iter()
        .map(|dscp| queue(*dscp).level)
        .max()
        .unwrap_or(0);
    let weight = |dscp: u8| match queue(dscp).level == highest {
        true => u32::from(queue(dscp).weight.max(1)),
        false => 0,
    };
    Ok(dscps.iter().map(|dscp| (*dscp, weight(*dscp))).collect())
}

/// Names of a switch's ports by number, as a configuration of its system names them.
pub(crate) fn port_names(switch: &NamedSwitch, dialect: Dialect) -> Vec<String> {
    let own = switch.imported.is_some() && matches!(dialect, Dialect::Sonic | Dialect::RouterOs);
    let name = |(index, name): (usize, &String)| {
        if own {
            name.clone()
        } else {
            dialect.port_name(index)
        }
    };
    switch.ports.iter().enumerate().map(name).collect()
}

/// The number of a host.
fn host_number(network: &Network, name: &str) -> Result<usize, SourceError> {
    let names = || {
        network
            .hosts
            .iter()
            .take(8)
            .map(|host| host.name.clone())
            .collect::<Vec<_>>()
    };
    let found = network.hosts.iter().position(|host| host.name == name);
    found.ok_or_else(|| SourceError::NoSuchNode {
        kind: "host",
        name: name.to_owned(),
        there: names().join(", "),
    })
}

/// The intent of a host of the fabric file.
///
/// # Errors
/// When there is no such host.
pub fn host_intent(network: &Network, name: &str, dialect: Dialect) -> Result<Intent, SourceError> {
    let number = host_number(network, name)?;
    let nic = &network.hosts[number].nic;
    let mut intent = Intent {
        dscp: [0; 64],
        mtu: HOST_MTU,
        dcbx: false,
        ..Intent::default()
    };
    intent.dscp[usize::from(nic.dscp & 63)] = nic.priority & 7;
    intent.dscp[usize::from(nic.cnp_dscp & 63)] = nic.cnp_priority & 7;
    intent.trust = Trust::of(true, nic.pcp.is_some());
    intent.pcp = [0, 1, 2, 3, 4, 5, 6, 7];
    let pfc = mask(&nic.pfc);
    (intent.pfc_send, intent.pfc_obey) = (pfc, pfc);
    // Shares are those of the switch at the other end.
    let switch = network.topology.links().iter().find_map(|link| {
        let own = link
            .ends
            .iter()
            .any(|end| end.node == Node::Host(number as u32));
        link.ends.iter().find_map(|end| match end.node {
            Node::Switch(switch) if own => network.switches.get(switch as usize),
            _ => None,
        })
    });
    let profile = switch.and_then(|switch| switch.config.profiles.first());
    if let Some(profile) = profile {
        for (queue, own) in intent
            .queues
            .iter_mut()
            .zip(&profile::intent_of(profile).queues)
        {
            queue.schedule = own.schedule;
        }
    }
    let port = dialect.port_name(0);
    intent.ports.push(Port {
        name: port,
        mbps: None,
        metres: None,
    });
    intent.host = Some(HostSettings {
        dscp: nic.dscp & 63,
        ecn: nic.ecn,
        cnp_dscp: nic.cnp_dscp & 63,
        cnp_priority: nic.cnp_priority & 7,
        smb_priority: nic.priority & 7,
        willing: nic.willing,
        out_of_order: nic.out_of_order,
        ..HostSettings::default()
    });
    Ok(intent.normal())
}
