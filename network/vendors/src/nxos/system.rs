//! The policies that NX-OS has itself. A configuration names them where they are attached, and does not print
//! their lines.

use std::collections::BTreeMap;

use super::policies::{NetworkQos, Queuing};
use crate::intent::{Queue, Schedule};

/// Policies of type qos that put every packet into group 0.
const INPUT: [&str; 1] = ["default-in-policy"];

/// The classes of such a policy: what no other class takes.
const ALL_DEFAULT: &[(&str, u8)] = &[("class-default", 0)];

/// Policies of type network-qos without a lossless class, with the MTU of a port without configuration.
const NETWORK: [&str; 2] = ["default-nq-policy", "default-8q-nq-policy"];

/// Policies of type queuing with queue 7 strict and the default queue for all other packets (`show
/// policy-map interface` of Nexus 9000).
const OUTPUT: [&str; 1] = ["default-8q-out-policy"];

/// Whether a name is of a policy of the device: sites copy such a policy before they change it.
pub(crate) fn is_system(name: &str) -> bool {
    name.starts_with("default-") || name.starts_with("fcoe-default-")
}

/// The message about a policy that the configuration attaches and does not define.
pub(super) fn missing(kind: &str, name: &str) -> String {
    match is_system(name) {
        true => format!(
            "the policy of type {kind} \"{name}\" is the device's own, and is not in its configuration: \
             `show policy-map type {kind} {name}` prints it"
        ),
        false => format!("there is no policy of type {kind} \"{name}\""),
    }
}

/// The group of all packets by a system policy of type qos.
pub(super) fn input(name: &str) -> Option<&'static [(&'static str, u8)]> {
    INPUT.contains(&name).then_some(ALL_DEFAULT)
}

/// A system policy of type network-qos.
pub(super) fn network(name: &str) -> Option<NetworkQos> {
    NETWORK.contains(&name).then(NetworkQos::default)
}

/// A system policy of type queuing for leaving packets.
pub(super) fn output(name: &str) -> Option<Queuing> {
    let mut queues = [Queue::WEIGHTED; 8];
    queues[0].schedule = Schedule::Weighted(100);
    queues[7].schedule = Schedule::Strict;
    let policy = Queuing {
        queues,
        buffers: BTreeMap::new(),
    };
    OUTPUT.contains(&name).then_some(policy)
}
