//! Menus that do not concern QoS of the switch, and commands that change no setting.

use super::entries::Refusal;
use super::script::ScriptCommand;

/// Menus that do not concern QoS of the switch, by their first words.
const IRRELEVANT: &[&str] = &[
    "caps-man",
    "certificate",
    "console",
    "container",
    "disk",
    "file",
    "interface 6to4",
    "interface bonding",
    "interface bridge",
    "interface detect-internet",
    "interface dot1x",
    "interface eoip",
    "interface ethernet poe",
    "interface ethernet switch host",
    "interface ethernet switch l3hw-settings",
    "interface ethernet switch port-isolation",
    "interface ethernet switch vlan",
    "interface gre",
    "interface list",
    "interface loopback",
    "interface l2tp-server",
    "interface lte",
    "interface macsec",
    "interface ovpn-server",
    "interface pppoe-client",
    "interface veth",
    "interface vlan",
    "interface vrrp",
    "interface vxlan",
    "interface wireguard",
    "interface wireless",
    "ip",
    "ipv6",
    "iot",
    "lcd",
    "log",
    "mpls",
    "password",
    "port",
    "ppp",
    "queue",
    "quit",
    "radius",
    "routing",
    "snmp",
    "system",
    "tool",
    "tr069-client",
    "user",
    "user-manager",
    "zerotier",
];

/// Commands that change no setting.
pub(super) const SHOWING: &[&str] = &[
    "print",
    "export",
    "monitor",
    "find",
    "get",
    "reset-counters",
];

/// A menu outside QoS: it is irrelevant, or not known.
pub(super) fn other_menu(menu: &str, command: &ScriptCommand) -> Result<bool, Refusal> {
    let begins = |name: &str| {
        let rest = menu.strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    };
    if IRRELEVANT.iter().any(|name| begins(name)) {
        return Ok(false);
    }
    // Rules and rates of ports may change classes and shares.
    let is_of_switch = matches!(
        menu,
        "interface ethernet switch port" | "interface ethernet switch rule"
    );
    let about_qos = [
        "qos",
        "rate",
        "priority",
        "dscp",
        "profile",
        "traffic-class",
    ];
    let mut names = command.properties.iter().map(|(name, _)| name);
    let is_about_qos = names.any(|name| about_qos.iter().any(|word| name.contains(word)));
    if is_of_switch && !is_about_qos {
        return Ok(false);
    }
    if is_of_switch {
        let what = "rules and rates of the switch are not evaluated: they may give packets another profile \
                    (traffic-class) or rate (queue)";
        return Err((what.to_owned(), None));
    }
    Err((format!("the menu \"{menu}\" is not known"), None))
}
