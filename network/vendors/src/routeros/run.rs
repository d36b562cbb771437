//! Applies the commands of a script to a configuration.

use super::config::{MAPS_BY_PROFILE, MapEntry};
use super::entries::{Entry, Refusal, chosen, entry, yes_or_no};
use super::menus::{SHOWING, other_menu};
use super::properties::*;
use super::script::{Script, ScriptCommand, script};
use super::{
    PfcProfile, QosProfile, QueueSchedule, RouterOsConfig, RouterOsPort, TxManager, TxQueue,
    WredThreshold,
};
use crate::import_error::ImportError;
use crate::outcome::{NotUnderstood, Outcomes};
use crate::text::{ReadError, check_ports};

const QOS: &str = "interface ethernet switch qos";

/// Menus of QoS that are supported.
const MENUS: &[&str] = &[
    "profile",
    "map",
    "map ip",
    "map vlan",
    "tx-manager",
    "tx-manager queue",
    "port",
    "priority-flow-control",
    "settings",
];

/// A name that a setting refers to: the line, the ports, the kind of its entry, and the name.
struct Reference {
    line: usize,
    ports: Vec<String>,
    kind: &'static str,
    name: String,
}

impl RouterOsConfig {
    /// Runs a script, called `file` in messages. Lines that are not understood are in `left` afterwards.
    ///
    /// # Errors
    /// A block that is not closed.
    pub fn run(&mut self, file: &str, text: &str) -> Result<(), ImportError> {
        let outcomes = self.run_with_outcomes(file, text).map_err(refused)?;
        self.left.extend(outcomes.left());
        Ok(())
    }

    /// Learns the ports and the version from a script that is run later.
    ///
    /// # Errors
    /// A block that is not closed.
    pub(crate) fn expect(&mut self, file: &str, text: &str) -> Result<(), ImportError> {
        let script = script(file, text).map_err(refused)?;
        self.know_ports(&script);
        check_ports(file, self.ports.len()).map_err(refused)?;
        self.version = self.version.or(script.version);
        Ok(())
    }

    /// Runs a script; the outcome of each of its lines.
    pub(crate) fn run_with_outcomes(
        &mut self,
        file: &str,
        text: &str,
    ) -> Result<Outcomes, ReadError> {
        let script = script(file, text)?;
        self.know_ports(&script);
        check_ports(file, self.ports.len())?;
        let Script {
            commands,
            mut outcomes,
            version,
            ..
        } = script;
        self.version = self.version.or(version);
        let mut references = Vec::new();
        for command in commands {
            let ports = self.ports_of(&command);
            outcomes.within(ports.clone());
            match self.apply(&command) {
                Ok(true) => outcomes.applied(command.line),
                Ok(false) => outcomes.irrelevant(command.line),
                Err((what, instead)) => {
                    let instead = instead.map(|text| format!("; {text}")).unwrap_or_default();
                    let what = format!("\"{}\": {what}{instead}", command.text());
                    outcomes.not_understood(&ReadError::new(file, command.line, what));
                }
            }
            self.say_not_simulated(file, &command);
            references.extend(references_of(&command, &ports));
        }
        self.map();
        for own in references
            .iter()
            .filter(|own| !self.has(own.kind, &own.name))
        {
            outcomes.within(own.ports.clone());
            let what = format!("there is no {} \"{}\"", own.kind, own.name);
            outcomes.not_understood(&ReadError::new(file, own.line, what));
        }
        outcomes.within(Vec::new());
        Ok(outcomes)
    }

    /// Applies a command; whether a setting of it is used.
    fn apply(&mut self, command: &ScriptCommand) -> Result<bool, Refusal> {
        if SHOWING.contains(&command.verb.as_str()) {
            return Ok(false);
        }
        match command.menu.as_str() {
            "interface ethernet switch" => self.switch(command).map(|()| true),
            "interface ethernet" => self.ethernet(command),
            "ip neighbor discovery-settings" => {
                for (name, value) in &command.properties {
                    if name == "lldp-dcbx" {
                        self.dcbx = yes(value)?;
                    }
                }
                Ok(true)
            }
            menu => match menu.strip_prefix(QOS) {
                Some(menu) if menu.is_empty() || menu.starts_with(' ') => {
                    self.qos(menu.trim_start(), command).map(|()| true)
                }
                _ => other_menu(menu, command),
            },
        }
    }

    fn switch(&mut self, command: &ScriptCommand) -> Result<(), Refusal> {
        for (name, value) in &command.properties {
            match name.as_str() {
                "qos-hw-offloading" => self.offloaded = yes(value)? || self.always_offloaded,
                "l3-hw-offloading"
                | "name"
                | "numbers"
                | "mirror-source"
                | "mirror-target"
                | "mirror-egress-target"
                | "cpu-flow-control"
                | "rspan"
                | "comment" => {}
                other => return Err(no_property(other, &["qos-hw-offloading"])),
            }
        }
        Ok(())
    }

    fn qos(&mut self, menu: &str, command: &ScriptCommand) -> Result<(), Refusal> {
        match menu {
            "profile" => self.profile_menu(command),
            "map" => Err(refuse(
                "only the map \"default\" is known",
                Some("use map ip and map vlan"),
            )),
            "map ip" => self.map_menu(command, true),
            "map vlan" => self.map_menu(command, false),
            "tx-manager" => self.tx_manager_menu(command),
            "tx-manager queue" => self.queue_menu(command),
            "port" => self.port_menu(command),
            "priority-flow-control" => self.pfc_menu(command),
            "settings" => self.settings_menu(command),
            other => {
                let meant = crate::text::nearest(other, MENUS.iter().copied());
                let instead = meant.map(|meant| format!("did you mean \"{meant}\"?"));
                Err((format!("the menu \"qos {other}\" is not known"), instead))
            }
        }
    }

    fn profile_menu(&mut self, command: &ScriptCommand) -> Result<(), Refusal> {
        let entries: Vec<Entry> = self
            .profiles
            .iter()
            .enumerate()
            .map(|(index, own)| profile_entry(index, own))
            .collect();
        match command.verb.as_str() {
            "add" => {
                room(self.profiles.len())?;
                let mut profile = QosProfile::named(&new_name(command, &entries)?);
                set_profile(&mut profile, &command.properties)?;
                self.profiles.push(profile);
            }
            "remove" => remove(&mut self.profiles, &chosen(command, &entries)?, 1)?,
            verb => {
                let properties = properties_of(command, verb)?;
                for index in chosen(command, &entries)? {
                    set_profile(&mut self.profiles[index], &properties)?;
                }
            }
        }
        Ok(())
    }

    fn map_menu(&mut self, command: &ScriptCommand, is_ip: bool) -> Result<(), Refusal> {
        let map = if is_ip {
            &mut self.map_ip
        } else {
            &mut self.map_vlan
        };
        let entries: Vec<Entry> = map.iter().map(|own| map_entry(own, is_ip)).collect();
        match command.verb.as_str() {
            "add" => {
                room(map.len())?;
                let mut new = MapEntry {
                    values: Vec::new(),
                    profile: String::new(),
                    disabled: false,
                    dei_only: false,
                };
                set_map(&mut new, &command.properties, is_ip)?;
                if new.profile.is_empty() {
                    return Err(refuse("a map entry needs profile=NAME", None));
                }
                map.push(new);
            }
            "remove" => remove(map, &chosen(command, &entries)?, 0)?,
            "move" => {
                let what =
                    "the order of entries is not changed here: the map of packets is unknown";
                return Err(refuse(what, None));
            }
            verb => {
                let properties = properties_of(command, verb)?;
                for index in chosen(command, &entries)? {
                    set_map(&mut map[index], &properties, is_ip)?;
                }
            }
        }
        Ok(())
    }

    /// Makes the profile of each DSCP and priority code point. The first entry of a value counts. From 7.23
    /// on the values that profiles name are mapped to them, unless an entry says otherwise.
    fn map(&mut self) {
        let maps_by_profile = self
            .version
            .is_some_and(|version| version >= MAPS_BY_PROFILE);
        self.dscp.clear();
        self.pcp.clear();
        for (map, entries) in [
            (&mut self.dscp, &self.map_ip),
            (&mut self.pcp, &self.map_vlan),
        ] {
            // Frames of RoCE do not have the drop eligible indicator.
            for own in entries.iter().filter(|own| !own.disabled && !own.dei_only) {
                for value in &own.values {
                    map.entry(*value).or_insert_with(|| own.profile.clone());
                }
            }
        }
        let named = self.profiles.iter().skip(1);
        for profile in named.filter(|own| maps_by_profile && own.automap && !own.disabled) {
            let (by_dscp, by_pcp) = profile.names;
            for (map, value, is_named) in [
                (&mut self.dscp, profile.dscp, by_dscp),
                (&mut self.pcp, profile.pcp, by_pcp),
            ] {
                if is_named {
                    map.entry(value).or_insert_with(|| profile.name.clone());
                }
            }
        }
    }

    fn tx_manager_menu(&mut self, command: &ScriptCommand) -> Result<(), Refusal> {
        let entries: Vec<Entry> = (0..)
            .zip(&self.tx_managers)
            .map(|(index, own)| {
                entry([
                    ("name", own.name.clone()),
                    ("ecn", yes_or_no(own.ecn)),
                    ("default", yes_or_no(index < 2)),
                ])
            })
            .collect();
        match command.verb.as_str() {
            "add" => {
                room(self.tx_managers.len())?;
                // Its queues are those of a new switch, whatever was set of the queues of others.
                let new = RouterOsConfig::default().tx_managers.into_iter().next();
                let queues = new.map(|new| new.queues);
                let mut manager = TxManager {
                    name: new_name(command, &entries)?,
                    ecn: false,
                    queues: queues.unwrap_or([TxQueue::new(QueueSchedule::Low, 1); 8]),
                };
                set_manager(&mut manager, &command.properties)?;
                self.tx_managers.push(manager);
            }
            "remove" => remove(&mut self.tx_managers, &chosen(command, &entries)?, 2)?,
            verb => {
                let properties = properties_of(command, verb)?;
                for index in chosen(command, &entries)? {
                    set_manager(&mut self.tx_managers[index], &properties)?;
                }
            }
        }
        Ok(())
    }

    fn queue_menu(&mut self, command: &ScriptCommand) -> Result<(), Refusal> {
        let queues: Vec<(usize, usize)> = (0..self.tx_managers.len())
            .flat_map(|manager| (0..8).map(move |queue| (manager, queue)))
            .collect();
        let one = |(manager, queue): &(usize, usize)| {
            let own = &self.tx_managers[*manager].queues[*queue];
            entry([
                ("tx-manager", self.tx_managers[*manager].name.clone()),
                ("traffic-class", queue.to_string()),
                ("ecn", yes_or_no(own.ecn)),
                ("wred", yes_or_no(own.wred)),
                ("use-shared-buffers", yes_or_no(own.shared)),
                ("weight", own.weight.to_string()),
                ("schedule", schedule_name(own.schedule).to_owned()),
            ])
        };
        let entries: Vec<Entry> = queues.iter().map(one).collect();
        if !matches!(command.verb.as_str(), "set" | "unset" | "comment") {
            return Err(refuse(
                "queues are set, and neither added nor removed",
                None,
            ));
        }
        let properties = properties_of(command, &command.verb)?;
        for index in chosen(command, &entries)? {
            let (manager, queue) = queues[index];
            let queue = &mut self.tx_managers[manager].queues[queue];
            for (name, value) in &properties {
                set_queue(queue, name, value)?;
            }
        }
        Ok(())
    }

    fn port_entries(&self) -> Vec<Entry> {
        let one = |(name, own): (&String, &RouterOsPort)| {
            let default = self.links.get(name).map(|link| link.default_name.clone());
            entry([
                ("name", name.clone()),
                ("default-name", default.unwrap_or_else(|| name.clone())),
                ("switch", "switch1".to_owned()),
                ("profile", own.profile.clone()),
                ("map", "default".to_owned()),
                ("trust-l2", own.trust_l2.name().to_owned()),
                ("trust-l3", own.trust_l3.name().to_owned()),
                ("tx-manager", own.tx_manager.clone()),
                ("pfc", own.pfc.clone()),
            ])
        };
        self.ports.iter().map(one).collect()
    }

    fn port_menu(&mut self, command: &ScriptCommand) -> Result<(), Refusal> {
        if !matches!(command.verb.as_str(), "set" | "unset" | "comment") {
            let what = "ports are set, and neither added nor removed: trust, pfc and tx-manager are unknown";
            return Err(refuse(what, None));
        }
        // `unset` names properties behind the port.
        let entries = self.port_entries();
        let properties = properties_of(command, &command.verb)?;
        let chosen = chosen(&selection(command), &entries)?;
        let by_name = |query: &String| query.starts_with('[') && query.contains("name");
        if chosen.is_empty() && command.entries.iter().any(by_name) {
            let what = "no port that is named here matches";
            let instead = "the export of the switch names its ports";
            return Err(refuse(what, Some(instead)));
        }
        // An odd property leaves the others, at each of the ports.
        let mut result = Ok(());
        for index in chosen {
            let name = entries[index].get("name").cloned().unwrap_or_default();
            let port = self.ports.entry(name).or_default();
            for (name, value) in &properties {
                result = result.and(set_port(port, name, value));
            }
        }
        result
    }

    fn pfc_menu(&mut self, command: &ScriptCommand) -> Result<(), Refusal> {
        let entries: Vec<Entry> = self
            .pfc
            .iter()
            .enumerate()
            .map(|(index, own)| pfc_entry(index, own))
            .collect();
        match command.verb.as_str() {
            "add" => {
                room(self.pfc.len())?;
                let mut profile = PfcProfile::named(&new_name(command, &entries)?);
                set_pfc(&mut profile, &command.properties)?;
                self.pfc.push(profile);
            }
            "remove" => remove(&mut self.pfc, &chosen(command, &entries)?, 1)?,
            verb => {
                let properties = properties_of(command, verb)?;
                for index in chosen(command, &entries)? {
                    if index == 0 {
                        return Err(refuse(
                            "the entry \"disabled\" cannot be changed",
                            Some("add one with a name"),
                        ));
                    }
                    set_pfc(&mut self.pfc[index], &properties)?;
                }
            }
        }
        Ok(())
    }

    fn settings_menu(&mut self, command: &ScriptCommand) -> Result<(), Refusal> {
        for (name, value) in &command.properties {
            match name.as_str() {
                "multicast-buffers" => self.settings.multicast_bytes = buffers(value)?,
                "shared-buffers" => self.settings.shared_bytes = buffers(value)?,
                "mirror-buffers" | "lossless-buffers" => {
                    buffers(value)?;
                }
                "mirror-profile" => {}
                "lossless-traffic-class" if value == "auto" => {}
                "lossless-traffic-class" => {
                    list(value, 7)?;
                }
                pool if pool.strip_prefix("shared-pool").is_some_and(is_digit) => {
                    buffers(value)?;
                }
                "wred-threshold" => {
                    self.settings.wred = match value.as_str() {
                        "low" => WredThreshold::Low,
                        "medium" => WredThreshold::Medium,
                        "high" => WredThreshold::High,
                        _ => return Err(not_a(value, "low, medium or high")),
                    }
                }
                other => {
                    let known = ["multicast-buffers", "shared-buffers", "wred-threshold"];
                    return Err(no_property(other, &known));
                }
            }
        }
        Ok(())
    }

    /// The ports that a command concerns; none where it concerns all.
    fn ports_of(&self, command: &ScriptCommand) -> Vec<String> {
        if command.menu != "interface ethernet switch qos port" {
            return Vec::new();
        }
        let entries = self.port_entries();
        let chosen = chosen(&selection(command), &entries).unwrap_or_default();
        let name = |index: usize| entries[index].get("name").cloned();
        let found: Vec<String> = chosen.into_iter().filter_map(name).collect();
        if found.len() == entries.len() {
            Vec::new()
        } else {
            found
        }
    }

    /// Whether there is an entry of this name.
    fn has(&self, kind: &str, name: &str) -> bool {
        match kind {
            "profile" => self.profiles.iter().any(|own| own.name == name),
            "tx-manager" => self.tx_managers.iter().any(|own| own.name == name),
            _ => self.pfc.iter().any(|own| own.name == name),
        }
    }

    /// Records settings that are understood and not simulated.
    fn say_not_simulated(&mut self, file: &str, command: &ScriptCommand) {
        let mut whys: Vec<String> = Vec::new();
        if command.menu == "interface ethernet" {
            let links = self.links.values();
            let pauses = command.properties.iter().any(|(name, value)| {
                matches!(name.as_str(), "rx-flow-control" | "tx-flow-control") && value == "on"
            });
            let why = links.filter_map(super::EthernetLink::not_simulated).next();
            whys.extend(why.filter(|_| pauses).map(str::to_owned));
            let is_off = command.verb == "disable"
                || command
                    .properties
                    .iter()
                    .any(|(name, value)| name == "disabled" && value == "yes");
            let what = "a port that is disabled is simulated as if it were not";
            whys.extend(is_off.then(|| what.to_owned()));
            let is_auto = command.properties.iter().any(|(name, value)| {
                matches!(name.as_str(), "rx-flow-control" | "tx-flow-control") && value == "auto"
            });
            let what =
                "whether pauses of the link (802.3x) are negotiated is unknown: off is taken";
            whys.extend(is_auto.then(|| what.to_owned()));
        }
        for (name, value) in &command.properties {
            let pool = name == "shared-pool-index" && value != "0";
            let lossless = name == "lossless-buffers" && value != "auto";
            if command.menu.starts_with(QOS) && (pool || lossless) {
                whys.push(format!("{name}={value}: one shared pool is simulated"));
            }
        }
        let line = |why| NotUnderstood {
            file: file.to_owned(),
            line: command.line,
            why,
            ports: Vec::new(),
            areas: Vec::new(),
        };
        self.not_simulated.extend(whys.into_iter().map(line));
    }
}

fn refused(error: ReadError) -> ImportError {
    ImportError {
        file: error.file,
        line: error.line,
        what: error.what,
        instead: None,
    }
}

/// Names that a command refers to.
fn references_of(command: &ScriptCommand, ports: &[String]) -> Vec<Reference> {
    let Some(menu) = command.menu.strip_prefix("interface ethernet switch qos ") else {
        return Vec::new();
    };
    let kind = |name: &str| match (menu, name) {
        ("port" | "map ip" | "map vlan", "profile") => Some("profile"),
        ("port", "tx-manager") => Some("tx-manager"),
        ("port", "pfc") => Some("pfc"),
        _ => None,
    };
    let one = |(name, value): &(String, String)| {
        let kind = kind(name).filter(|_| !value.is_empty())?;
        Some(Reference {
            line: command.line,
            ports: ports.to_vec(),
            kind,
            name: value.clone(),
        })
    };
    command.properties.iter().filter_map(one).collect()
}

/// The properties that a verb changes: those of `set`, or those that `unset`, `enable` and `disable` mean.
fn properties_of(command: &ScriptCommand, verb: &str) -> Result<Vec<(String, String)>, Refusal> {
    let one = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
    match verb {
        "set" => Ok(command.properties.clone()),
        "enable" => Ok(one("disabled", "no")),
        "disable" => Ok(one("disabled", "yes")),
        "comment" | "move" => Ok(Vec::new()),
        "unset" => {
            let by_name = command
                .properties
                .iter()
                .filter(|(name, _)| name == "value-name");
            let by_name = by_name.map(|(_, value)| value.as_str());
            let words = command.entries.iter().skip(1).map(String::as_str);
            let names = by_name.chain(words).flat_map(|text| text.split(','));
            Ok(names.map(|name| (name.to_owned(), String::new())).collect())
        }
        other => Err(refuse(
            &format!("the command {other} is not known here"),
            None,
        )),
    }
}

/// The command without the properties that `unset` names behind its entries.
fn selection(command: &ScriptCommand) -> ScriptCommand {
    let mut own = command.clone();
    if own.verb == "unset" {
        own.entries.truncate(1);
    }
    own
}

/// Removes entries; the first `fixed` ones are the system's own, and stay.
fn remove<T>(entries: &mut Vec<T>, chosen: &[usize], fixed: usize) -> Result<(), Refusal> {
    for index in chosen.iter().rev() {
        // `[find]` selects the system's entries as well, which RouterOS then keeps.
        if *index >= fixed {
            entries.remove(*index);
        }
    }
    match chosen {
        [only] if *only < fixed => Err(refuse("an entry of the system cannot be removed", None)),
        _ => Ok(()),
    }
}
