//! Snapshots: facts of hosts and switches, from their configurations and the outputs of their commands. A
//! fact that was not observed is unknown.

use std::collections::BTreeSet;

use vendors::facts::PlannedLink;
use vendors::switch_facts::Shown;
use vendors::text::ReadError;
use vendors::{
    Area, Configuration, Dialect, Imported, Intent, NotUnderstood, OwnNames, PathSpread, Remedy,
};

use crate::configuration_text::ConfigurationText;
use crate::marks::Marks;

/// A switch, as its configuration and its outputs describe it.
#[derive(Clone, PartialEq, Debug)]
pub struct SwitchFacts {
    /// The name of the file; of several files, their names.
    pub file: String,
    /// The files, each with the number of lines before it in the text.
    pub parts: Vec<(String, usize)>,
    /// The system of the switch.
    pub dialect: Dialect,
    /// The text of the file, for evidence.
    pub text: ConfigurationText,
    /// The names that the configuration has for classes, policies and profiles.
    pub names: OwnNames,
    /// Ports that are configured alike; none where no configuration was seen.
    pub groups: Vec<Intent>,
    /// Facts from the outputs of its commands.
    pub shown: Shown,
    /// The switch's plan, where a fabric file has one.
    pub planned: Option<Planned>,
    /// The DSCP that the configuration itself gives the lossless class.
    pub marks: Marks,
    /// Lines that were not understood: what they set or show is unknown.
    pub left: Vec<NotUnderstood>,
    /// Settings that are understood and that no rule judges, each with the reason.
    pub not_judged: Vec<NotUnderstood>,
    /// The configuration as the simulator reads it, of systems whose files it takes.
    pub imported: Option<Imported>,
    /// Bytes of the pools that arriving packets are charged to, and of the chip's memory, where the
    /// configuration has them.
    pub pools: Option<(u64, Option<u64>)>,
    /// The first two numbers of the system's version, where the configuration names it and it matters.
    pub version: Option<(u32, u32)>,
}

/// The plan of a fabric file for a switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Planned {
    /// The name of the switch.
    pub name: String,
    /// The planned settings, as far as the switch's system can express them.
    pub intent: Intent,
    /// Planned settings of single groups of ports, where the fabric file names a configuration of this
    /// system.
    pub groups: Vec<Intent>,
    /// How packets of a flow are spread over paths, as far as the switch's system can express it.
    pub spread: PathSpread,
    /// Whether all hosts of the file place packets in whatever order they arrive.
    pub out_of_order: bool,
    /// DSCPs of data and of notifications, where all hosts of the file have the same.
    pub marks: Marks,
    /// Names of its ports, by number.
    pub ports: Vec<String>,
    /// Links of the switch with other switches.
    pub links: Vec<PlannedLink>,
}

impl SwitchFacts {
    /// Whether other ports than those of this intent have lossless classes. The lanes of a port are one port.
    pub fn has_pfc_elsewhere(&self, intent: &Intent) -> bool {
        let own: BTreeSet<&str> = intent.ports.iter().map(|port| port.name.as_str()).collect();
        let is_other = |group: &Intent| {
            let mut names = group.ports.iter().map(|port| port.name.as_str());
            names.all(|name| !own.contains(name))
        };
        let mut lossless = self.groups.iter().filter(|group| group.pfc_send != 0);
        lossless.any(is_other)
    }

    /// Whether the tag of an IP packet with this DSCP may decide about its class. Where both headers are
    /// trusted, the DSCP decides (Cumulus Linux, "Quality of Service": L3 before L2); class maps of a policy
    /// leave a packet whose DSCP they do not match to those that match its tag.
    pub(crate) fn may_decide_by_tag(&self, intent: &Intent, dscp: u8) -> bool {
        let has_policies = matches!(self.dialect, Dialect::Eos | Dialect::NxOs | Dialect::Os10);
        let is_unmatched = has_policies && intent.class_of_dscp(dscp) == intent.default_class;
        intent.trust.pcp() && (!intent.trust.dscp() || is_unmatched)
    }

    /// The file of a line of the text, and the number of the line there.
    pub(crate) fn place_in_file(&self, line: usize) -> (&str, usize) {
        let mut parts = self.parts.iter().rev();
        let own = parts.find(|(_, before)| *before < line);
        own.map_or((&self.file, line), |(file, before)| (file, line - before))
    }

    /// The correction of a setting of some ports, in the names of the configuration where it has names.
    pub(crate) fn remedy_of(&self, remedy: &Remedy<'_>, intent: &Intent) -> String {
        let own = intent
            .ports
            .first()
            .and_then(|port| self.names.remedy(remedy, &port.name));
        own.unwrap_or_else(|| self.dialect.remedy(remedy))
    }

    /// The first file.
    pub fn first_file(&self) -> &str {
        self.parts.first().map_or(&self.file, |(file, _)| file)
    }

    /// The place of findings of ports that are configured alike.
    pub(crate) fn place_of(&self, intent: &Intent) -> String {
        let names: Vec<&str> = intent.ports.iter().map(|port| port.name.as_str()).collect();
        let dialect = self.dialect.name();
        format!("{} ({dialect}), {}", self.file, names.join(", "))
    }

    /// The name of the port that has this number in the fabric file.
    pub fn port_name(&self, number: u16) -> Option<&str> {
        let planned = self.planned.as_ref()?;
        planned.ports.get(usize::from(number)).map(String::as_str)
    }

    /// The configured settings of the port with this number: of the port of that name, else of most ports.
    pub fn group(&self, number: u16) -> Option<&Intent> {
        let name = self.port_name(number);
        let is_own = |group: &&Intent| {
            name.is_some_and(|name| group.ports.iter().any(|port| port.name == name))
        };
        let most = || self.groups.iter().max_by_key(|group| group.ports.len());
        self.groups.iter().find(is_own).or_else(most)
    }
}

/// The system of a configuration that is of none of the dialects, by lines that only that system has.
fn other_system(text: &str) -> Option<&'static str> {
    let begins = |words: &[&str]| {
        let mut lines = text.lines().map(str::trim_start);
        lines.any(|line| words.iter().any(|words| line.starts_with(words)))
    };
    [
        (
            "NVIDIA Onyx",
            &[
                "dcb priority-flow-control ",
                "traffic-class 3 congestion-control",
                "interface ethernet 1/1 dcb",
            ][..],
        ),
        (
            "Dell Enterprise SONiC's command line",
            &[
                "roce enable",
                "qos wred-policy",
                "qos scheduler-policy",
                "qos map dscp-tc",
            ],
        ),
        (
            "Huawei's VRP",
            &["dcb pfc enable", "qos buffer headroom", "drop-profile "],
        ),
        ("Cisco IOS", &["mls qos", "auto qos"]),
        (
            "Broadcom's ICOS or Cumulus' own files",
            &["datacenter-bridging", "pfc.port_group_list"],
        ),
    ]
    .into_iter()
    .find(|(_, words)| begins(words))
    .map(|(name, _)| name)
}

/// What is said of a text that is of no system.
const KNOWN: &str = "no configuration of RouterOS, SONiC, NVUE, EOS, NX-OS, OS10 or Junos is recognised in \
                     it, and no output of their commands";

/// Outputs of Junos have queues and profiles, and its configuration says which classes and ports they are of.
fn number_by_class(shown: &mut Shown, groups: &[Intent], configuration: &str) {
    let paused = groups.iter().filter(|group| group.pfc_send != 0);
    let ports = paused.flat_map(|group| &group.ports);
    shown.pfc_of_profiles(ports.map(|port| port.name.as_str()));
    shown.number_by_class(vendors::junos_queue_classes(configuration));
}

/// What is said of an input in which no rule finds a port to judge.
fn without_ports(file: &str) -> NotUnderstood {
    let why = "no port of this input has settings of QoS, so nothing of it was judged: give the \
               whole configuration of the switch";
    NotUnderstood {
        file: file.to_owned(),
        line: 1,
        why: why.to_owned(),
        ports: Vec::new(),
        areas: vec![Area::Classes],
    }
}

/// The groups of ports without those that are down, which are named.
fn without_down(read: Configuration, not_judged: &mut Vec<NotUnderstood>) -> Vec<Intent> {
    let mut groups = read.groups;
    let down = read.outcomes.down_ports();
    let of_qos = groups.iter().flat_map(|group| &group.ports);
    let of_qos: BTreeSet<&str> = of_qos.map(|port| port.name.as_str()).collect();
    let concerns = |line: &&NotUnderstood| {
        let mut ports = line.ports.iter();
        line.ports.is_empty() || ports.any(|port| of_qos.contains(port.as_str()))
    };
    let lines = read.outcomes.lines_not_judged().iter();
    not_judged.extend(lines.filter(concerns).cloned());
    for group in &mut groups {
        group.ports.retain(|port| !down.contains(&port.name));
    }
    groups.retain(|group| !group.ports.is_empty());
    groups
}

/// What is said of a configuration beside outputs of a system that is known.
fn of_no_system(file: &str) -> NotUnderstood {
    let why = "the configuration is of no system that is known, and is not read";
    NotUnderstood {
        file: file.to_owned(),
        line: 1,
        why: why.to_owned(),
        ports: Vec::new(),
        areas: Vec::new(),
    }
}

/// The configuration as the simulator reads it, of systems whose files it takes.
///
/// # Errors
/// What changes the meaning of the whole, as where its settings were read.
fn imported(
    detected: Option<Dialect>,
    configuration: Option<&str>,
    file: &str,
) -> Result<Option<Imported>, ReadError> {
    let (is_sonic, text) = match (detected, configuration) {
        (Some(Dialect::Sonic), Some(text)) => (true, text),
        (Some(Dialect::RouterOs), Some(text)) => (false, text),
        _ => return Ok(None),
    };
    import(is_sonic, &[(file, text.to_owned())]).map(Some)
}

fn import(is_sonic: bool, texts: &[(&str, String)]) -> Result<Imported, ReadError> {
    Imported::read(is_sonic, texts).map_err(|error| {
        let instead = error.instead.map(|text| format!("; {text}"));
        let what = error.what + &instead.unwrap_or_default();
        ReadError::new(&error.file, error.line.max(1), what)
    })
}

/// Reads the facts of a SONiC switch from several files: its database, and the tables of its platform.
///
/// # Errors
/// A text that is none, and files without ports.
pub fn read_switch_files(files: &[(String, String)]) -> Result<SwitchFacts, ReadError> {
    if let [(file, text)] = files {
        return read_switch(file, text);
    }
    let (mut all, mut parts) = (String::new(), Vec::new());
    for (file, text) in files {
        parts.push((file.clone(), all.lines().count()));
        all.push_str(text);
        if !all.is_empty() && !all.ends_with('\n') {
            all.push('\n');
        }
    }
    let names: Vec<&str> = files.iter().map(|(file, _)| file.as_str()).collect();
    let file = names.join(" + ");
    let texts: Vec<(&str, &str)> = files
        .iter()
        .map(|(file, text)| (file.as_str(), text.as_str()))
        .collect();
    let mut not_judged: Vec<NotUnderstood> = Vec::new();
    let read = Configuration::of_sonic(&texts)?;
    let mut left = read.outcomes.left();
    let groups = without_down(read, &mut not_judged);
    if groups.is_empty() && left.is_empty() && not_judged.is_empty() {
        left.push(without_ports(&file));
    }
    let owned: Vec<(&str, String)> = texts
        .iter()
        .map(|(file, text)| (*file, (*text).to_owned()))
        .collect();
    let imported = import(true, &owned)?;
    not_judged.extend_from_slice(imported.not_simulated());
    let ports = groups.iter().flat_map(|group| &group.ports);
    let ports = ports.map(|port| port.name.as_str());
    Ok(SwitchFacts {
        file,
        parts,
        dialect: Dialect::Sonic,
        names: OwnNames::default(),
        text: ConfigurationText::new(all, ports),
        pools: imported.pools(),
        groups,
        shown: Shown::default(),
        planned: None,
        marks: Marks::default(),
        left,
        not_judged,
        imported: Some(imported),
        version: None,
    })
}

/// The error of a text whose system is not known. A line that was not understood may be the reason.
fn of_no_dialect(file: &str, text: &str, first: Option<&NotUnderstood>) -> ReadError {
    let known = match other_system(text) {
        Some(name) => format!("it is a configuration of {name}, which is not read; {KNOWN}"),
        None => KNOWN.to_owned(),
    };
    let what = match first {
        Some(line) => format!("{}; {known}", line.why),
        None => known,
    };
    ReadError::new(file, first.map_or(1, |line| line.line), what)
}

/// Reads the facts of a switch: its configuration, or outputs of its commands, or both.
///
/// # Errors
/// A system that is not known, and the first line that is not understood.
pub fn read_switch(file: &str, text: &str) -> Result<SwitchFacts, ReadError> {
    let (mut shown, shown_dialect, configuration, mut left) =
        match vendors::outputs::has_outputs(text) {
            true => {
                let outputs = vendors::outputs::read(file, text)?;
                let left = outputs.outcomes.left();
                (outputs.shown, outputs.dialect, outputs.configuration, left)
            }
            false => (Shown::default(), None, Some(text.to_owned()), Vec::new()),
        };
    let detected = configuration.as_deref().and_then(Dialect::detect);
    let detected = detected.filter(|dialect| !dialect.is_host());
    let dialect = detected.or(shown_dialect);
    let dialect = dialect.ok_or_else(|| of_no_dialect(file, text, left.first()))?;
    let mut not_judged: Vec<NotUnderstood> = Vec::new();
    let groups = match (detected, &configuration) {
        (Some(dialect), Some(configuration)) => {
            let read = dialect.read_groups(file, configuration)?;
            left.extend(read.outcomes.left());
            without_down(read, &mut not_judged)
        }
        (None, Some(_)) => {
            left.push(of_no_system(file));
            Vec::new()
        }
        (_, None) => Vec::new(),
    };
    // `set [find] …` of a part of a configuration, for example, changes no port that is in it.
    let is_named = left.iter().any(|line| !line.areas.is_empty());
    if groups.is_empty() && shown.each().next().is_none() && !is_named && not_judged.is_empty() {
        left.push(without_ports(file));
    }
    match (detected, &configuration) {
        (Some(Dialect::Junos), Some(text)) => number_by_class(&mut shown, &groups, text),
        (Some(Dialect::Nvue), Some(text)) => {
            let queues = vendors::nvue_queue_of_priority(text);
            queues
                .into_iter()
                .for_each(|queues| shown.number_by_queue_of_class(queues));
        }
        _ => {}
    }
    let imported = imported(detected, configuration.as_deref(), file)?;
    let marks = Marks {
        dscp: imported.as_ref().and_then(Imported::named_dscp),
        cnp: None,
    };
    let pools = imported.as_ref().and_then(Imported::pools);
    let version = imported.as_ref().and_then(Imported::version);
    if let Some(imported) = &imported {
        not_judged.extend_from_slice(imported.not_simulated());
    }
    let ports = groups.iter().flat_map(|group| &group.ports);
    let ports = ports.map(|port| port.name.as_str());
    Ok(SwitchFacts {
        file: file.to_owned(),
        parts: Vec::new(),
        dialect,
        names: OwnNames::of(dialect, configuration.as_deref().unwrap_or_default()),
        text: ConfigurationText::new(text.to_owned(), ports),
        groups,
        shown,
        planned: None,
        marks,
        left,
        not_judged,
        imported,
        pools,
        version,
    })
}
