//! Applies the commands of a script to a configuration.

use super::script::{ScriptCommand, commands};
use super::{
    PfcProfile, QosProfile, QueueSchedule, RouterOsConfig, RouterOsPort, TrustMode, TxManager,
    TxQueue, WredThreshold,
};
use crate::import_error::ImportError;
use units::{Bandwidth, Quantity};

/// Entries of one menu at most, a limit of the chips.
const ENTRIES_MAX: usize = 1024;

/// Why a command is not understood, and what to write instead.
type Refusal = (String, Option<String>);

const QOS: &str = "interface ethernet switch qos ";

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

impl RouterOsConfig {
    /// Runs a script, called `file` in messages.
    ///
    /// # Errors
    /// The first line that is not understood. Menus that do not concern QoS are skipped.
    pub fn run(&mut self, file: &str, text: &str) -> Result<(), ImportError> {
        for command in commands(file, text)? {
            self.apply(&command).map_err(|(what, instead)| {
                let line = command.line;
                ImportError {
                    file: file.to_owned(),
                    line,
                    what,
                    instead,
                }
            })?;
        }
        self.check().map_err(|what| ImportError {
            file: file.to_owned(),
            line: text.lines().count(),
            what,
            instead: None,
        })
    }

    fn apply(&mut self, command: &ScriptCommand) -> Result<(), Refusal> {
        if matches!(command.verb.as_str(), "print" | "export" | "monitor") {
            return Ok(());
        }
        match command.menu.as_str() {
            "interface ethernet switch" => self.switch(command),
            "interface ethernet" => {
                for (_, value) in command
                    .properties
                    .iter()
                    .filter(|(name, _)| name == "l2mtu")
                {
                    let bytes = value
                        .parse::<u32>()
                        .map_err(|_| not_a(value, "a number of bytes"))?;
                    self.l2mtu = Some(self.l2mtu.map_or(bytes, |other| other.max(bytes)));
                }
                Ok(())
            }
            "ip neighbor discovery-settings" => {
                for (name, value) in &command.properties {
                    if name == "lldp-dcbx" {
                        self.dcbx = yes(value)?;
                    }
                }
                Ok(())
            }
            menu => match menu.strip_prefix(QOS.trim_end()) {
                Some(menu) => self.qos(menu.trim_start(), command),
                None => Ok(()),
            },
        }
    }

    fn switch(&mut self, command: &ScriptCommand) -> Result<(), Refusal> {
        for (name, value) in &command.properties {
            match name.as_str() {
                "qos-hw-offloading" => self.offloaded = yes(value)?,
                "l3-hw-offloading" | "name" | "numbers" | "mirror-source" | "mirror-target" => {}
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
        let names: Vec<String> = self
            .profiles
            .iter()
            .map(|profile| profile.name.clone())
            .collect();
        let chosen = match command.verb.as_str() {
            "add" => {
                room(self.profiles.len())?;
                let name = new_name(command, &names)?;
                self.profiles.push(QosProfile {
                    name,
                    pcp: 0,
                    dscp: 0,
                    traffic_class: 0,
                });
                vec![self.profiles.len() - 1]
            }
            _ => chosen(command, &names)?,
        };
        for index in chosen {
            let profile = &mut self.profiles[index];
            for (name, value) in &command.properties {
                match name.as_str() {
                    "name" | "numbers" => {}
                    "color" | "automap" | "disabled" | "comment" => {}
                    "pcp" => profile.pcp = number(value, 7)?,
                    "dscp" => profile.dscp = number(value, 63)?,
                    "traffic-class" => profile.traffic_class = number(value, 7)?,
                    other => {
                        return Err(no_property(
                            other,
                            &["name", "pcp", "dscp", "traffic-class", "color"],
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    fn map_menu(&mut self, command: &ScriptCommand, ip: bool) -> Result<(), Refusal> {
        let key = if ip { "dscp" } else { "pcp" };
        let (mut values, mut profile) = (Vec::new(), None);
        for (name, value) in &command.properties {
            match name.as_str() {
                "map" if value == "default" => {}
                "map" => return Err(refuse("only the map \"default\" is known", None)),
                "profile" => profile = Some(value.clone()),
                "dei-only" | "comment" | "disabled" => {}
                name if name == key => values = list(value, if ip { 63 } else { 7 })?,
                other => return Err(no_property(other, &[key, "profile", "map"])),
            }
        }
        let profile = profile.ok_or_else(|| refuse("a map entry needs profile=NAME", None))?;
        if command.verb != "add" {
            return Err(refuse(
                "entries of a map are added, not set",
                Some("remove it and add it again"),
            ));
        }
        let map = if ip { &mut self.dscp } else { &mut self.pcp };
        values.into_iter().for_each(|value| {
            map.insert(value, profile.clone());
        });
        Ok(())
    }

    fn tx_manager_menu(&mut self, command: &ScriptCommand) -> Result<(), Refusal> {
        let names: Vec<String> = self
            .tx_managers
            .iter()
            .map(|manager| manager.name.clone())
            .collect();
        let chosen = match command.verb.as_str() {
            "add" => {
                room(self.tx_managers.len())?;
                let fresh = self
                    .tx_managers
                    .first()
                    .map_or([TxQueue::new(QueueSchedule::Low, 1); 8], |first| {
                        first.queues
                    });
                let manager = TxManager {
                    name: new_name(command, &names)?,
                    ecn: false,
                    queues: fresh,
                };
                self.tx_managers.push(manager);
                vec![self.tx_managers.len() - 1]
            }
            _ => chosen(command, &names)?,
        };
        for index in chosen {
            let manager = &mut self.tx_managers[index];
            for (name, value) in &command.properties {
                match name.as_str() {
                    "name" | "numbers" | "comment" => {}
                    "ecn" => manager.ecn = yes(value)?,
                    "queue-buffers" => {
                        let each = buffers(value)?.map(|bytes| bytes / 8);
                        manager
                            .queues
                            .iter_mut()
                            .for_each(|queue| queue.buffers = each);
                    }
                    other => return Err(no_property(other, &["name", "ecn", "queue-buffers"])),
                }
            }
        }
        Ok(())
    }

    fn queue_menu(&mut self, command: &ScriptCommand) -> Result<(), Refusal> {
        let queues: Vec<(usize, usize)> = (0..self.tx_managers.len())
            .flat_map(|manager| (0..8).map(move |queue| (manager, queue)))
            .collect();
        let labels: Vec<String> = (0..queues.len()).map(|index| index.to_string()).collect();
        let chosen = match query(command) {
            Some(conditions) => queues
                .iter()
                .filter(|(manager, queue)| {
                    conditions.iter().all(|(name, value)| match name.as_str() {
                        "tx-manager" => self.tx_managers[*manager].name == *value,
                        "traffic-class" => queue.to_string() == *value,
                        _ => false,
                    })
                })
                .copied()
                .collect(),
            None => chosen(command, &labels)?
                .into_iter()
                .map(|index| queues[index])
                .collect::<Vec<_>>(),
        };
        if chosen.is_empty() {
            return Err(refuse(
                "no queue matches",
                Some("queues are numbered from 0, eight per tx-manager"),
            ));
        }
        for (manager, queue) in chosen {
            let queue = &mut self.tx_managers[manager].queues[queue];
            for (name, value) in &command.properties {
                set_queue(queue, name, value)?;
            }
        }
        Ok(())
    }

    fn port_menu(&mut self, command: &ScriptCommand) -> Result<(), Refusal> {
        let names: Vec<String> = self.ports.keys().cloned().collect();
        for index in chosen(command, &names)? {
            let Some(port) = self.ports.get_mut(&names[index]) else {
                continue;
            };
            for (name, value) in &command.properties {
                set_port(port, name, value)?;
            }
        }
        Ok(())
    }

    fn pfc_menu(&mut self, command: &ScriptCommand) -> Result<(), Refusal> {
        let names: Vec<String> = self
            .pfc
            .iter()
            .map(|profile| profile.name.clone())
            .collect();
        let chosen = match command.verb.as_str() {
            "add" => {
                room(self.pfc.len())?;
                self.pfc
                    .push(PfcProfile::named(&new_name(command, &names)?));
                vec![self.pfc.len() - 1]
            }
            _ => chosen(command, &names)?,
        };
        for index in chosen {
            if index == 0 {
                return Err(refuse(
                    "the entry \"disabled\" cannot be changed",
                    Some("add one with a name"),
                ));
            }
            let profile = &mut self.pfc[index];
            for (name, value) in &command.properties {
                match name.as_str() {
                    "name" | "numbers" | "comment" => {}
                    "traffic-class" => {
                        let classes = list(value, 7)?;
                        profile.traffic_classes =
                            classes.iter().fold(0, |mask, class| mask | 1 << class);
                    }
                    "rx" => profile.rx = yes(value)?,
                    "tx" => profile.tx = yes(value)?,
                    "pause-threshold" => profile.pause_threshold = buffers(value)?,
                    "resume-threshold" => profile.resume_threshold = buffers(value)?,
                    other => {
                        let known = [
                            "name",
                            "traffic-class",
                            "rx",
                            "tx",
                            "pause-threshold",
                            "resume-threshold",
                        ];
                        return Err(no_property(other, &known));
                    }
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

    /// Checks that all referenced names exist.
    fn check(&self) -> Result<(), String> {
        let profile = |name: &String| self.profiles.iter().any(|profile| profile.name == *name);
        for (value, name) in self.dscp.iter().chain(&self.pcp) {
            if !profile(name) {
                return Err(format!(
                    "the map's entry for {value} names profile \"{name}\", which there is not"
                ));
            }
        }
        for (port, config) in &self.ports {
            let manager = self
                .tx_managers
                .iter()
                .any(|manager| manager.name == config.tx_manager);
            let pfc = self.pfc.iter().any(|pfc| pfc.name == config.pfc);
            for (there, kind, name) in [
                (profile(&config.profile), "profile", &config.profile),
                (manager, "tx-manager", &config.tx_manager),
                (pfc, "pfc", &config.pfc),
            ] {
                if !there {
                    return Err(format!(
                        "port {port} names {kind} \"{name}\", which there is not"
                    ));
                }
            }
        }
        Ok(())
    }
}

fn set_queue(queue: &mut TxQueue, name: &str, value: &str) -> Result<(), Refusal> {
    match name {
        "numbers" | "comment" => {}
        "schedule" => {
            queue.schedule = match value {
                "strict-priority" => QueueSchedule::Strict,
                "high-priority-group" => QueueSchedule::High,
                "low-priority-group" => QueueSchedule::Low,
                _ => {
                    return Err(not_a(
                        value,
                        "strict-priority, high-priority-group or low-priority-group",
                    ));
                }
            }
        }
        "weight" => queue.weight = number(value, 255)?,
        "queue-buffers" => queue.buffers = buffers(value)?,
        "use-shared-buffers" => queue.shared = yes(value)?,
        "wred" => queue.wred = yes(value)?,
        "ecn" => queue.ecn = yes(value)?,
        other => {
            let known = [
                "schedule",
                "weight",
                "queue-buffers",
                "use-shared-buffers",
                "wred",
                "ecn",
            ];
            return Err(no_property(other, &known));
        }
    }
    Ok(())
}

fn set_port(port: &mut RouterOsPort, name: &str, value: &str) -> Result<(), Refusal> {
    let trust = || match value {
        "ignore" => Ok(TrustMode::Ignore),
        "trust" => Ok(TrustMode::Trust),
        "keep" => Ok(TrustMode::Keep),
        _ => Err(not_a(value, "ignore, trust or keep")),
    };
    match name {
        "numbers" | "comment" => {}
        "profile" => port.profile = value.to_owned(),
        "map" if value == "default" => {}
        "map" => return Err(refuse("only the map \"default\" is known", None)),
        "trust-l2" => port.trust_l2 = trust()?,
        "trust-l3" => port.trust_l3 = trust()?,
        "tx-manager" => port.tx_manager = value.to_owned(),
        "pfc" => port.pfc = value.to_owned(),
        name => {
            let queue = name
                .strip_prefix("egress-rate-queue")
                .and_then(|queue| queue.parse::<usize>().ok());
            let Some(rate) = queue.and_then(|queue| port.egress_rates.get_mut(queue)) else {
                let known = [
                    "profile",
                    "trust-l2",
                    "trust-l3",
                    "tx-manager",
                    "pfc",
                    "egress-rate-queue3",
                ];
                return Err(no_property(name, &known));
            };
            *rate = match value {
                "" => None,
                value => Some(
                    Bandwidth::parse(value)
                        .ok_or_else(|| not_a(value, "a rate: 100.0Gbps"))?
                        .0
                        .bps(),
                ),
            };
        }
    }
    Ok(())
}

/// The entries that a `set` selects: by numbers, names, `numbers=`, or a query.
fn chosen(command: &ScriptCommand, names: &[String]) -> Result<Vec<usize>, Refusal> {
    if let Some(conditions) = query(command) {
        let matches = |name: &String| {
            conditions.iter().all(|(key, value)| {
                matches!(key.as_str(), "name" | "default-name") && name == value
            })
        };
        return Ok(names
            .iter()
            .enumerate()
            .filter(|(_, name)| matches(name))
            .map(|(index, _)| index)
            .collect());
    }
    let numbers = command
        .properties
        .iter()
        .find(|(name, _)| name == "numbers")
        .map(|(_, value)| value.as_str());
    let texts = command.entries.iter().map(String::as_str).chain(numbers);
    let mut indices = Vec::new();
    for text in texts.flat_map(|text| text.split(',')) {
        let by_name = names.iter().position(|name| name == text);
        let by_number = text
            .parse::<usize>()
            .ok()
            .filter(|index| *index < names.len());
        let index = by_name.or(by_number).ok_or_else(|| {
            let meant = crate::text::nearest(text, names.iter().map(String::as_str));
            let instead = match meant {
                Some(meant) => format!("did you mean \"{meant}\"?"),
                None => format!("there are {}", names.join(", ")),
            };
            (format!("there is no entry \"{text}\""), Some(instead))
        })?;
        indices.push(index);
    }
    if indices.is_empty() {
        return Err(refuse(
            "set needs an entry",
            Some("its name, its number, or [find]"),
        ));
    }
    Ok(indices)
}

/// The conditions of `[ find … ]`; none match everything.
fn query(command: &ScriptCommand) -> Option<Vec<(String, String)>> {
    let text = command
        .entries
        .first()?
        .strip_prefix('[')?
        .strip_suffix(']')?
        .trim();
    let text = text
        .strip_prefix("find")?
        .trim()
        .trim_start_matches("where")
        .trim();
    let conditions = text
        .split_whitespace()
        .filter_map(|part| part.split_once('='));
    Some(
        conditions
            .map(|(name, value)| (name.to_owned(), value.trim_matches('"').to_owned()))
            .collect(),
    )
}

fn new_name(command: &ScriptCommand, names: &[String]) -> Result<String, Refusal> {
    let name = command
        .properties
        .iter()
        .find(|(name, _)| name == "name")
        .map(|(_, value)| value.clone());
    let name = name.ok_or_else(|| refuse("add needs name=NAME", None))?;
    if names.contains(&name) {
        return Err(refuse(
            &format!("there is an entry \"{name}\" already"),
            Some("set it"),
        ));
    }
    Ok(name)
}

fn room(count: usize) -> Result<(), Refusal> {
    if count < ENTRIES_MAX {
        Ok(())
    } else {
        Err(refuse("the chip has no room for more entries", None))
    }
}

fn refuse(what: &str, instead: Option<&str>) -> Refusal {
    (what.to_owned(), instead.map(str::to_owned))
}

fn not_a(value: &str, grammar: &str) -> Refusal {
    (
        format!("\"{value}\" is not understood"),
        Some(format!("write {grammar}")),
    )
}

fn no_property(name: &str, known: &[&str]) -> Refusal {
    let instead = match crate::text::nearest(name, known.iter().copied()) {
        Some(meant) => format!("did you mean \"{meant}\"?"),
        None => format!("there are {}", known.join(", ")),
    };
    (
        format!("there is no property \"{name}\" here"),
        Some(instead),
    )
}

fn yes(value: &str) -> Result<bool, Refusal> {
    match value {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(not_a(value, "yes or no")),
    }
}

fn number(value: &str, max: u8) -> Result<u8, Refusal> {
    let found = value.parse().ok().filter(|number| *number <= max);
    found.ok_or_else(|| not_a(value, &format!("a number from 0 to {max}")))
}

/// Numbers and ranges, such as `1,3-4`.
fn list(value: &str, max: u8) -> Result<Vec<u8>, Refusal> {
    let mut values = Vec::new();
    for part in value.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        values.extend(number(from, max)?..=number(to, max)?);
    }
    Ok(values)
}

/// `auto`, a percentage of the packet memory, or bytes.
fn buffers(value: &str) -> Result<Option<u32>, Refusal> {
    if value == "auto" {
        return Ok(None);
    }
    if let Some(percent) = value.strip_suffix('%') {
        let percent = number(percent, 100)?;
        return Ok(Some(
            (u64::from(super::model::MEMORY_BYTES) * u64::from(percent) / 100) as u32,
        ));
    }
    let plain = value.parse::<u64>().ok();
    let with_unit = || units::Size::parse(value).map(|size| size.0);
    let bytes = plain
        .or_else(with_unit)
        .and_then(|bytes| u32::try_from(bytes).ok());
    bytes
        .map(Some)
        .ok_or_else(|| not_a(value, "auto, a percentage, or bytes such as 256KiB"))
}
