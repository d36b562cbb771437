//! The menu `interface ethernet`: names of ports, and what of their links concerns QoS.

use super::config::{is_of_crs504, is_of_newer_chip, is_port_name};
use super::entries::{Entry, Refusal, chosen, entry, yes_or_no};
use super::properties::yes;
use super::script::{Script, ScriptCommand};
use super::{EthernetLink, RouterOsConfig};

/// Properties of an interface that do not concern QoS.
const IRRELEVANT: &[&str] = &[
    "advertise",
    "arp",
    "arp-timeout",
    "auto-negotiation",
    "bandwidth",
    "cable-settings",
    "combo-mode",
    "comment",
    "disable-running-check",
    "fec-mode",
    "full-duplex",
    "loop-protect",
    "loop-protect-disable-time",
    "loop-protect-send-interval",
    "mac-address",
    "mdix-enable",
    "numbers",
    "passthrough-interface",
    "poe-out",
    "poe-priority",
    "sfp-ignore-rx-los",
    "sfp-rate-select",
    "sfp-shutdown-temperature",
    "speed",
    "switch",
];

impl RouterOsConfig {
    /// Learns the ports of the switch from the names in a script. Unless it names ports that a CRS504 does
    /// not have, the switch is one.
    pub(crate) fn know_ports(&mut self, script: &Script) {
        let is_crs504 = script
            .model
            .as_deref()
            .is_some_and(|model| model.starts_with("CRS504"));
        let of_ports = |command: &&ScriptCommand| {
            matches!(
                command.menu.as_str(),
                "interface ethernet"
                    | "interface ethernet switch qos port"
                    | "interface ethernet switch port"
            )
        };
        let mut named: Vec<String> = Vec::new();
        for command in script.commands.iter().filter(of_ports) {
            let values = command.properties.iter().map(|(_, value)| value.as_str());
            let texts = command.entries.iter().map(String::as_str).chain(values);
            let words = texts.flat_map(|text| {
                text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '-'))
            });
            named.extend(words.filter(|word| is_port_name(word)).map(str::to_owned));
        }
        let is_newer = |model: &str| model.starts_with("CRS8");
        self.always_offloaded |= script.model.as_deref().is_some_and(is_newer)
            || named.iter().any(|name| is_of_newer_chip(name));
        self.offloaded |= self.always_offloaded;
        let has_others = named.iter().any(|name| !is_of_crs504(name));
        if has_others && self.assumes_ports && !is_crs504 {
            self.assumes_ports = false;
            self.ports.clear();
        }
        if !self.assumes_ports {
            for name in named {
                self.ports.entry(name).or_default();
            }
        }
    }

    /// The interfaces as `find` sees them: ports of the switch, and those that the menu has named.
    fn interfaces(&self) -> Vec<Entry> {
        let others = self
            .links
            .keys()
            .filter(|name| !self.ports.contains_key(*name));
        let names = self.ports.keys().chain(others);
        let one = |name: &String| {
            let link = self.links.get(name);
            let is_disabled = link.is_some_and(|link| link.disabled.is_some());
            let default = link.map_or(name, |link| match link.default_name.is_empty() {
                true => name,
                false => &link.default_name,
            });
            entry([
                ("name", name.clone()),
                ("default-name", default.clone()),
                ("switch", "switch1".to_owned()),
                ("disabled", yes_or_no(is_disabled)),
            ])
        };
        names.map(one).collect()
    }

    /// A command of `interface ethernet`; whether a setting of it is used.
    pub(super) fn ethernet(&mut self, command: &ScriptCommand) -> Result<bool, Refusal> {
        // Management ports have no QoS, but are interfaces of this menu.
        for word in &command.entries {
            let ether = word.split(|letter: char| !letter.is_ascii_alphanumeric());
            for name in ether.filter(|word| word.starts_with("ether") && *word != "ethernet") {
                self.links.entry(name.to_owned()).or_default();
            }
        }
        let interfaces = self.interfaces();
        let chosen = chosen(command, &interfaces)?;
        let mut is_used = false;
        for index in chosen {
            let name = interfaces[index].get("name").cloned().unwrap_or_default();
            is_used |= self.interface(&name, command)?;
        }
        Ok(is_used)
    }

    fn interface(&mut self, name: &str, command: &ScriptCommand) -> Result<bool, Refusal> {
        let mut link = self.links.remove(name).unwrap_or_default();
        if link.default_name.is_empty() {
            name.clone_into(&mut link.default_name);
        }
        let (mut is_used, mut result) = (false, Ok(()));
        let mut own = name.to_owned();
        let of_verb = match command.verb.as_str() {
            "enable" => Some(None),
            "disable" => Some(Some(command.line)),
            _ => None,
        };
        if let Some(disabled) = of_verb {
            (link.disabled, is_used) = (disabled, true);
        }
        for (property, value) in &command.properties {
            match property.as_str() {
                "l2mtu" => match value.parse::<u32>() {
                    Ok(bytes) => link.l2mtu = Some(bytes),
                    Err(_) => result = Err(super::properties::not_a(value, "a number of bytes")),
                },
                "mtu" if value == "auto" => {}
                "mtu" => match value.parse::<u32>() {
                    Ok(bytes) => link.mtu = Some(bytes),
                    Err(_) => result = Err(super::properties::not_a(value, "a number of bytes")),
                },
                "rx-flow-control" | "tx-flow-control" => match value.as_str() {
                    "on" => link.pause = true,
                    "off" | "auto" => {}
                    _ => result = Err(super::properties::not_a(value, "on, off or auto")),
                },
                "disabled" => match yes(value) {
                    Ok(disabled) => link.disabled = disabled.then_some(command.line),
                    Err(refusal) => result = Err(refusal),
                },
                "name" => own.clone_from(value),
                other if IRRELEVANT.contains(&other) => continue,
                other => result = Err(super::properties::no_property(other, IRRELEVANT)),
            }
            is_used = true;
        }
        if own != name
            && let Some(port) = self.ports.remove(name)
        {
            self.ports.insert(own.clone(), port);
        }
        self.links.insert(own, link);
        result.map(|()| is_used)
    }
}

impl EthernetLink {
    /// Why pauses of the link are not simulated, if it has them.
    pub(super) fn not_simulated(&self) -> Option<&'static str> {
        self.pause.then_some(
            "802.3x pause (rx-flow-control, tx-flow-control) stops all classes of the link, and is not \
             simulated",
        )
    }
}
