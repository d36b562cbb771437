//! Corrections in the names that a site has given its classes, policies and profiles.

use std::collections::{BTreeMap, HashMap};

use crate::blocks::{Block, blocks, interfaces, with_channels};
use crate::dialect::Dialect;
use crate::nvue::read::PROFILE;
use crate::nxos::system::is_system;
use crate::remedy::Remedy;
use crate::shell::quoted;
use crate::text::{dscp_named, list};

/// A command of a configuration, and the commands below it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Command {
    text: String,
    below: Vec<Command>,
}

impl Command {
    fn of(block: &Block<'_>) -> Self {
        Self {
            text: block.line.text.to_owned(),
            below: block.below.iter().map(Self::of).collect(),
        }
    }

    /// The rest of the command after some words at its beginning.
    fn after(&self, words: &str) -> Option<&str> {
        let rest = self.text.strip_prefix(words)?;
        let is_word = rest.is_empty() || rest.starts_with(char::is_whitespace);
        is_word.then_some(rest.trim())
    }
}

/// Classes, policies and profiles of a configuration, and the ports that they are attached to.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct OwnNames {
    dialect: Option<Dialect>,
    /// The commands that define classes, policies and profiles, and those of the whole switch.
    commands: Vec<Command>,
    /// What is attached to each port.
    of_ports: HashMap<String, Vec<Command>>,
    /// The profiles of each port of NVUE, by area.
    profiles: BTreeMap<String, BTreeMap<&'static str, String>>,
    /// The traffic class of each switch priority of NVUE, by port.
    queues: BTreeMap<String, [u8; 8]>,
}

/// Commands at an interface that attach something to it.
const ATTACHES: [&str; 3] = ["service-policy", "service-profile", "trust-map"];

/// Commands that define something, or are of the whole switch.
const DEFINES: [&str; 4] = ["class-map", "policy-map", "qos profile", "system qos"];

/// The queue of EOS that a profile has settings of: chips differ in its word.
const EOS_QUEUES: [&str; 2] = ["uc-tx-queue", "tx-queue"];

/// The names that concern one port.
struct Site<'a> {
    names: &'a OwnNames,
    port: &'a str,
}

impl OwnNames {
    /// The names in a configuration of a system that has them.
    pub fn of(dialect: Dialect, text: &str) -> Self {
        let mut names = Self::default();
        if dialect == Dialect::Nvue {
            names.dialect = Some(dialect);
            let own = crate::nvue::read::names(text);
            (names.profiles, names.queues) = (own.profiles, own.queues);
            return names;
        }
        if !matches!(dialect, Dialect::NxOs | Dialect::Os10 | Dialect::Eos) {
            return names;
        }
        let Ok((blocks, mut outcomes)) = blocks("", text) else {
            return names;
        };
        let blocks = with_channels(blocks, &mut outcomes);
        names.dialect = Some(dialect);
        for block in &blocks {
            let begins = |words: &&str| block.after(words).is_some();
            if DEFINES.iter().any(begins) {
                names.commands.push(Command::of(block));
            }
            for port in block.after("interface").map(interfaces).unwrap_or_default() {
                let attaches =
                    |line: &&Block<'_>| ATTACHES.iter().any(|words| line.after(words).is_some());
                let own = block.below.iter().filter(attaches).map(Command::of);
                names.of_ports.entry(port).or_default().extend(own);
            }
        }
        names
    }

    /// The correction of a setting of a port, in the names of its configuration; none where it names nothing
    /// that the correction needs.
    pub fn remedy(&self, remedy: &Remedy<'_>, port: &str) -> Option<String> {
        let site = Site { names: self, port };
        match self.dialect? {
            Dialect::NxOs => site.nxos(remedy),
            Dialect::Os10 => site.os10(remedy),
            Dialect::Eos => site.eos(remedy),
            Dialect::Nvue => site.nvue(remedy),
            _ => None,
        }
    }
}

impl<'a> Site<'a> {
    /// The name behind some words at the interface, else in `system qos`.
    fn attached(&self, words: &str) -> Option<&'a str> {
        let of_port = self.names.of_ports.get(self.port);
        let system = self.names.commands.iter();
        let system = system.filter(|command| command.text == "system qos");
        // Of a channel's commands and a member's own ones the last counts.
        let of_port = of_port.into_iter().flatten().rev();
        let mut lines = of_port.chain(system.flat_map(|command| &command.below));
        let found = lines.find_map(|line| line.after(words))?;
        found.split_whitespace().next()
    }

    /// The commands below a policy or a profile.
    fn below(&self, head: &str, name: &str) -> &'a [Command] {
        let mut commands = self.names.commands.iter();
        let found = commands.find(|command| command.after(head) == Some(name));
        found.map_or(&[], |command| &command.below)
    }

    /// The class of a policy whose class map has such a line, or whose name is the system's own of the class.
    fn class(&self, policy: &'a [Command], kind: &str, wanted: (&str, u8)) -> Option<&'a str> {
        let (header, number) = wanted;
        let words = format!("match {header} {number}");
        let names = policy.iter().filter_map(|class| {
            let name = class.after("class")?;
            Some(
                name.strip_prefix(kind)
                    .map_or(name, |rest| rest.trim_start_matches(' ')),
            )
        });
        let head = format!("class-map {kind}");
        let is_mapped = |name: &&str| {
            self.names.commands.iter().any(|block| {
                let own = block
                    .after(&head)
                    .and_then(|rest| rest.split_whitespace().last());
                own == Some(*name) && block.below.iter().any(|line| line.text == words)
            })
        };
        let is_system = |name: &&str| {
            let system = name.starts_with("c-")
                && !self
                    .names
                    .commands
                    .iter()
                    .any(|block| block.after(&head).is_some_and(|rest| rest.ends_with(name)));
            system && name.ends_with(&format!("q{number}"))
        };
        let mut names = names.filter(|name| is_mapped(name) || is_system(name));
        names.next()
    }

    fn nxos(&self, remedy: &Remedy<'_>) -> Option<String> {
        match *remedy {
            Remedy::MapDscp { dscp, class, .. } => {
                let own = self.attached("service-policy type qos input");
                match own.filter(|name| !is_system(name)) {
                    Some(name) => Some(self.nxos_input(name, dscp, class)),
                    None => self.nxos_attached(dscp, class),
                }
            }
            Remedy::MarkEcn { class } => {
                let own = self.attached("service-policy type queuing output");
                let name = own.filter(|name| !is_system(name))?;
                let policy = self.below("policy-map type queuing", name);
                let own = self.class(policy, "type queuing", ("qos-group", class))?;
                Some(format!(
                    "policy-map type queuing {name}\n  class type queuing {own}\n    random-detect \
                     minimum-threshold 150 kbytes maximum-threshold 1500 kbytes drop-probability \
                     100 weight 0 \
                     ecn"
                ))
            }
            Remedy::Pfc { class } => {
                let name = self.attached("service-policy type network-qos")?;
                if is_system(name) {
                    // A policy of the device cannot be changed: another one takes its place.
                    return Some(format!(
                        "policy-map type network-qos ROCE\n  class type network-qos c-8q-nq{class}\n    \
                         pause pfc-cos {class}\nsystem qos\n  service-policy type network-qos \
                         ROCE\ninterface {}\n  priority-flow-control mode on",
                        self.port
                    ));
                }
                let policy = self.below("policy-map type network-qos", name);
                let own = self.class(policy, "type network-qos", ("qos-group", class));
                let own = own.map_or_else(|| format!("c-8q-nq{class}"), str::to_owned);
                Some(format!(
                    "policy-map type network-qos {name}\n  class type network-qos {own}\n    pause pfc-cos \
                     {class}\ninterface {}\n  priority-flow-control mode on",
                    self.port
                ))
            }
            _ => None,
        }
    }

    /// A policy that the site has for other ports, where one puts packets of a DSCP into this class.
    fn nxos_attached(&self, dscp: u8, group: u8) -> Option<String> {
        let set = format!("set qos-group {group}");
        let has_map = |class: &str| {
            self.names.commands.iter().any(|map| {
                let own = map.after("class-map type qos").or(map.after("class-map"));
                own.and_then(|rest| rest.split_whitespace().last()) == Some(class)
                    && map
                        .below
                        .iter()
                        .any(|line| line.after("match dscp").is_some_and(|list| has(list, dscp)))
            })
        };
        let mut policies = self.names.commands.iter().filter(|policy| {
            policy.below.iter().any(|class| {
                let own = class
                    .after("class")
                    .map(|own| own.strip_prefix("type qos ").unwrap_or(own));
                own.is_some_and(has_map) && class.below.iter().any(|line| line.text == set)
            })
        });
        let name = policies.find_map(|policy| policy.after("policy-map type qos"))?;
        let port = self.port;
        Some(format!(
            "interface {port}\n  service-policy type qos input {name}"
        ))
    }

    /// Packets of a DSCP in a class, by the policy of this name: in the class whose map has the DSCP, else in
    /// one of the group whose map takes any of its matches, else in a new one.
    fn nxos_input(&self, name: &str, dscp: u8, group: u8) -> String {
        let policy = self.below("policy-map type qos", name);
        let maps = self.names.commands.iter().filter_map(|block| {
            let rest = block
                .after("class-map type qos")
                .or(block.after("class-map"))?;
            Some((rest, rest.split_whitespace().last()?, &block.below))
        });
        let of_class = |wanted: &str| maps.clone().find(|(_, own, _)| *own == wanted);
        let has_dscp = |class: &str| {
            of_class(class).is_some_and(|(_, _, below)| {
                below.iter().any(|line| {
                    let values = line.after("match dscp").or(line.after("match ip dscp"));
                    values.is_some_and(|values| has(values, dscp))
                })
            })
        };
        let set = format!("set qos-group {group}");
        let classes = policy.iter().filter_map(|class| {
            let own = class.after("class")?;
            let own = own.strip_prefix("type qos ").unwrap_or(own);
            Some((own, class.below.iter().any(|line| line.text == set)))
        });
        if let Some((class, _)) = classes.clone().find(|(class, _)| has_dscp(class)) {
            return format!("policy-map type qos {name}\n  class {class}\n    {set}");
        }
        let takes_any = |class: &str| {
            of_class(class).is_some_and(|(head, _, below)| {
                head.starts_with("match-any")
                    && below.iter().all(|line| line.after("match dscp").is_some())
            })
        };
        match classes
            .clone()
            .find(|(class, is_own)| *is_own && takes_any(class))
        {
            Some((class, _)) => {
                format!("class-map type qos match-any {class}\n  match dscp {dscp}")
            }
            None => format!(
                "class-map type qos match-any ROCE\n  match dscp {dscp}\npolicy-map type qos {name}\n  class \
                 ROCE\n    {set}"
            ),
        }
    }

    fn os10(&self, remedy: &Remedy<'_>) -> Option<String> {
        match *remedy {
            Remedy::MapDscp { dscp, class, .. } => {
                let name = self
                    .attached("trust-map dscp")
                    .filter(|name| *name != "default")?;
                Some(format!(
                    "trust dscp-map {name}\n qos-group {class} dscp {dscp}"
                ))
            }
            Remedy::MarkEcn { class } => {
                let name = self.attached("service-policy output type queuing")?;
                let policy = self.below("policy-map type queuing", name);
                let own = self.class(policy, "type queuing", ("queue", class))?;
                Some(format!(
                    "wred ROCE\n random-detect color green minimum-threshold 150 maximum-threshold 1500 \
                     drop-probability 100\n random-detect ecn\npolicy-map type queuing {name}\n \
                     class {own}\n  \
                     random-detect ROCE"
                ))
            }
            Remedy::Pfc { class } => {
                let name = self.attached("service-policy input type network-qos")?;
                let policy = self.below("policy-map type network-qos", name);
                let own = self.class(policy, "type network-qos", ("qos-group", class))?;
                Some(format!(
                    "policy-map type network-qos {name}\n class {own}\n  pause\n  pfc-cos \
                     {class}\ninterface {}\n \
                     priority-flow-control mode on",
                    self.port
                ))
            }
            _ => None,
        }
    }

    fn nvue(&self, remedy: &Remedy<'_>) -> Option<String> {
        let area = match remedy {
            Remedy::MapDscp { .. } => "mapping",
            Remedy::Pfc { .. } | Remedy::ObeyPauses { .. } => "pfc",
            Remedy::MarkEcn { .. } => "congestion-control",
            _ => return None,
        };
        let queues = self.names.queues.get(self.port)?;
        // Marks are a setting of the traffic class that a switch priority is in.
        let remedy = match *remedy {
            Remedy::MarkEcn { class } => Remedy::MarkEcn {
                class: *queues.get(usize::from(class))?,
            },
            remedy => remedy,
        };
        let usual = Dialect::Nvue.remedy(&remedy);
        Some(match self.names.profiles.get(self.port)?.get(area) {
            Some(name) => usual.replace(&format!(" {PROFILE} "), &format!(" {} ", quoted(name))),
            None => usual,
        })
    }

    fn eos(&self, remedy: &Remedy<'_>) -> Option<String> {
        let name = self.attached("service-profile")?;
        let profile = self.below("qos profile", name);
        match *remedy {
            Remedy::MarkEcn { class } => {
                let has = |word: &&&str| profile.iter().any(|line| line.after(word).is_some());
                let word = EOS_QUEUES.iter().find(has).unwrap_or(&EOS_QUEUES[1]);
                Some(format!(
                    "qos profile {name}\n   {word} {class}\n      random-detect ecn \
                     minimum-threshold 150 kbytes \
                     maximum-threshold 1500 kbytes max-mark-probability 100 weight 0"
                ))
            }
            Remedy::Pfc { class } => Some(format!(
                "qos profile {name}\n   priority-flow-control on\n   priority-flow-control priority {class} \
                 no-drop"
            )),
            _ => None,
        }
    }
}

/// Whether a list of values and names has a DSCP.
fn has(values: &str, dscp: u8) -> bool {
    let values: String = values.split_whitespace().collect();
    values.split(',').any(|part| match dscp_named(part) {
        Some(value) => value == dscp,
        None => list("", 1, part, 63).is_ok_and(|values| values.contains(&dscp)),
    })
}
