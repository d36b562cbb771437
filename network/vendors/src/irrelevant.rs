//! Commands of switches that do not concern the treatment of traffic classes.

use crate::blocks::Block;
use crate::outcome::{Area, Outcomes};

/// Commands that are irrelevant whatever words follow, in configurations of the industry's usual form.
const ALWAYS: &[&str] = &[
    "description",
    "ip access-list",
    "ipv6 access-list",
    "mac access-list",
    "banner",
    "name",
    "alias",
    "bandwidth",
    "delay",
    "logging",
    "control-plane",
    "hostname",
    "username",
    "snmp-server",
    "policy-map type control-plane",
];

/// First words of commands that are irrelevant unless another word of theirs is about QoS.
const COMMANDS: &[&str] = &[
    "aaa",
    "agent",
    "arp",
    "address",
    "autoneg",
    "auto-negotiation",
    "beacon",
    "bfd",
    "boot",
    "bgp",
    "cdp",
    "channel-group",
    "cli",
    "clock",
    "copp",
    "crypto",
    "daemon",
    "default",
    "dns",
    "domain",
    "domain-name",
    "duplex",
    "enable",
    "encapsulation",
    "end",
    "errdisable",
    "error-correction",
    "event-handler",
    "event-monitor",
    "evpn",
    "exec-timeout",
    "exit",
    "feature",
    "fec",
    "fips",
    "hardware",
    "hsrp",
    "hw-module",
    "icam",
    "inband",
    "ip",
    "ipv6",
    "isis",
    "iscsi",
    "kernel",
    "key",
    "l2",
    "lacp",
    "license",
    "line",
    "link",
    "lldp",
    "load-interval",
    "mac",
    "mac-address",
    "management",
    "media-type",
    "medium",
    "mlag",
    "monitor",
    "multicast",
    "neighbor",
    "negotiate",
    "negotiation",
    "network",
    "ntp",
    "nv",
    "nxapi",
    "ospf",
    "password",
    "peer-link",
    "phone",
    "pim",
    "platform",
    "port-channel",
    "port-group",
    "power",
    "ptp",
    "queue-monitor",
    "radius",
    "radius-server",
    "redundancy-group",
    "rmon",
    "role",
    "route-map",
    "router",
    "router-id",
    "sampler",
    "scheduler",
    "service",
    "sflow",
    "shutdown",
    "snmp",
    "sntp",
    "spanning-tree",
    "speed",
    "ssh",
    "ssh-server",
    "storm-control",
    "support-assist",
    "switch",
    "switchport",
    "system",
    "tacacs",
    "tacacs-server",
    "telemetry",
    "template",
    "terminal",
    "track",
    "transceiver",
    "tunnel",
    "udld",
    "userrole",
    "uplink-state-group",
    "vdc",
    "version",
    "virtual-network",
    "vlan",
    "vlt-domain",
    "vpc",
    "vrf",
    "vrrp",
    "vxlan",
    "xcvr",
    "zone",
    "rest",
    "interface",
    "logout",
    "dhcp",
    "peer",
    "group",
    "community",
];

/// Whether a command does not concern the treatment of traffic classes.
pub(crate) fn is_irrelevant(text: &str) -> bool {
    let text = text.strip_prefix("no ").unwrap_or(text);
    let begins = |words: &str| {
        text.strip_prefix(words)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
    };
    if ALWAYS.iter().any(|words| begins(words)) {
        return true;
    }
    let about_qos = !Area::of(text).is_empty() || text.contains("qos");
    COMMANDS.iter().any(|words| begins(words)) && !about_qos
}

/// Marks a command as irrelevant, with the commands below it, if it is so; whether it is.
pub(crate) fn pass(block: &Block<'_>, outcomes: &mut Outcomes) -> bool {
    let is_irrelevant = is_irrelevant(block.line.text);
    if is_irrelevant {
        mark(block, outcomes);
    }
    is_irrelevant
}

fn mark(block: &Block<'_>, outcomes: &mut Outcomes) {
    outcomes.irrelevant(block.line.number);
    block.below.iter().for_each(|below| mark(below, outcomes));
}

#[cfg(test)]
mod tests {
    use super::is_irrelevant;

    #[test]
    fn commands_about_qos_are_never_irrelevant() {
        for text in [
            "description 400G to spine, pfc",
            "no shutdown",
            "switchport mode trunk",
            "router bgp 65000",
            "spanning-tree portfast edge",
        ] {
            assert!(is_irrelevant(text), "{text}");
        }
        for text in [
            "system qos",
            "hardware qos pfc",
            "priority-flow-control off",
            "no priority-flow-control",
            "platform trident mmu queue profile x",
            "ip dscp 3",
            "frobnicate",
        ] {
            assert!(!is_irrelevant(text), "{text}");
        }
    }
}
