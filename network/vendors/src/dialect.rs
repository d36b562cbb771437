//! The configuration languages of single systems.

use std::collections::{BTreeMap, HashMap};

use crate::intent::{Fit, Intent, Note, Port};
use crate::outcome::{Area, NotUnderstood, Outcomes};
use crate::path_spread::PathSpread;
use crate::remedy::Remedy;
use crate::text::{ReadError, check_ports, shortened};
pub use crate::version::Version;
use crate::{eos, esxi, freebsd, junos, linux, mlnx, nvue, nxos, os10, routeros, sonic, windows};

/// A system whose configurations are written and read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dialect {
    /// MikroTik RouterOS on switch chips with PFC.
    RouterOs,
    /// The file `config_db.json` of SONiC.
    Sonic,
    /// NVIDIA Cumulus Linux, commands of NVUE.
    Nvue,
    /// Arista EOS on switches with queuing profiles.
    Eos,
    /// Cisco NX-OS on Nexus 9000.
    NxOs,
    /// Dell SmartFabric OS10 on PowerSwitch.
    Os10,
    /// Juniper's Junos on QFX5000 switches.
    Junos,
    /// Linux with iproute2's `dcb`.
    Linux,
    /// Linux with NVIDIA's `mlnx_qos`.
    Mlnx,
    /// Windows Server and clients, commands of PowerShell.
    Windows,
    /// FreeBSD's `iovctl`: SR-IOV only.
    FreeBsd,
    /// VMware ESXi with NVIDIA's native driver, commands of `esxcli`.
    Esxi,
}

/// A dialect or version that is not known.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UnknownVersion {
    /// No dialect of this name.
    #[error("\"{0}\" is no dialect; there are: {there}", there = Dialect::names())]
    Dialect(String),
    /// No version after the `@`.
    #[error("{0}: say the version, as in {0}@{1}: dialects change between versions")]
    Missing(&'static str, Version),
    /// A version outside the known range.
    #[error(
        "{dialect}@{version} is not known: versions {known} are, and others may mean something else"
    )]
    Range {
        /// The name of the dialect.
        dialect: &'static str,
        /// The requested version.
        version: String,
        /// The known versions.
        known: String,
    },
}

/// A configuration as text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Written {
    /// The usual name of the file.
    pub file: &'static str,
    /// The configuration itself.
    pub text: String,
    /// The intent that the configuration expresses: the nearest one that the dialect can.
    pub expressed: Intent,
    /// Files that belong to it, with their names.
    pub more: Vec<(&'static str, String)>,
    /// Differences between the intent and the configuration.
    pub notes: Vec<Note>,
}

/// Groups of ports that one configuration of a dialect cannot express.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "ports are configured differently, and {dialect} has one setting for all of them, or none by port: {what}"
)]
pub struct GroupsDiffer {
    /// The name of the dialect.
    pub dialect: &'static str,
    /// The settings that would not be as planned.
    pub what: String,
}

impl Dialect {
    /// All dialects, in the order of the manual.
    pub const ALL: [Self; 12] = [
        Self::RouterOs,
        Self::Sonic,
        Self::Nvue,
        Self::Eos,
        Self::NxOs,
        Self::Os10,
        Self::Junos,
        Self::Linux,
        Self::Mlnx,
        Self::Windows,
        Self::FreeBsd,
        Self::Esxi,
    ];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RouterOs => "routeros",
            Self::Sonic => "sonic",
            Self::Nvue => "nvue",
            Self::Eos => "eos",
            Self::NxOs => "nxos",
            Self::Os10 => "os10",
            Self::Junos => "junos",
            Self::Linux => "linux",
            Self::Mlnx => "mlnx",
            Self::Windows => "windows",
            Self::FreeBsd => "freebsd",
            Self::Esxi => "esxi",
        }
    }

    fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }

    /// The oldest and the newest version whose configurations are known.
    pub const fn versions(self) -> (Version, Version) {
        match self {
            // 7.23 maps DSCP from profiles by itself, and has its own lossless classes.
            Self::RouterOs => (Version(7, 15), Version(7, 24)),
            Self::Sonic => (Version(202_205, 0), Version(202_505, 0)),
            // 5.15 writes `enabled` where earlier versions write `on`.
            Self::Nvue => (Version(5, 3), Version(5, 14)),
            Self::Eos => (Version(4, 27), Version(4, 36)),
            Self::NxOs => (Version(9, 3), Version(10, 5)),
            Self::Os10 => (Version(10, 5), Version(10, 6)),
            // Pauses by DSCP, and classes whose priority is not their queue.
            Self::Junos => (Version(20, 2), Version(25, 4)),
            // `dcb apptrust` is in Linux and iproute2 since 6.1.
            Self::Linux => (Version(6, 1), Version(6, 18)),
            Self::Mlnx => (Version(5, 0), Version(25, 10)),
            // Windows 10 and 11, and servers from 2019 on.
            Self::Windows => (Version(10, 0), Version(2025, 0)),
            Self::FreeBsd => (Version(12, 0), Version(15, 0)),
            // The module parameters of nmlx5_core and nmlx5_rdma.
            Self::Esxi => (Version(7, 0), Version(8, 0)),
        }
    }

    /// Whether it configures hosts.
    pub const fn is_host(self) -> bool {
        matches!(
            self,
            Self::Linux | Self::Mlnx | Self::Windows | Self::FreeBsd | Self::Esxi
        )
    }

    /// Whether each port has its own spread of packets over paths; else the whole switch has one.
    pub const fn spreads_by_port(self) -> bool {
        matches!(self, Self::Sonic | Self::Nvue | Self::NxOs)
    }

    /// Reads a dialect and its version, written `DIALECT@VERSION`.
    ///
    /// # Errors
    /// Dialects and versions that are not known.
    pub fn parse(text: &str) -> Result<(Self, Version), UnknownVersion> {
        let (name, version) = text.split_once('@').unwrap_or((text, ""));
        let found = Self::ALL.into_iter().find(|dialect| dialect.name() == name);
        let dialect = found.ok_or_else(|| UnknownVersion::Dialect(shortened(name)))?;
        let (from, to) = dialect.versions();
        if version.is_empty() {
            return Err(UnknownVersion::Missing(dialect.name(), to));
        }
        let range = || UnknownVersion::Range {
            dialect: dialect.name(),
            version: shortened(version),
            known: match dialect {
                Self::Windows => "10 and 11 (clients) and 2019 to 2025 (servers)".to_owned(),
                _ => format!("{from} to {to}"),
            },
        };
        // Third and later numbers are fixes, which do not change configurations.
        let mut numbers = version.split('.').map(str::parse::<u32>);
        let parsed = match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), None) => Version(major, 0),
            (Some(Ok(major)), Some(Ok(minor))) => Version(major, minor),
            _ => return Err(range()),
        };
        // Clients of Windows count by themselves, and older servers are not known.
        let is_between = dialect == Self::Windows && (12..2019).contains(&parsed.0);
        if (from..=to).contains(&parsed) && !is_between {
            Ok((dialect, parsed))
        } else {
            Err(range())
        }
    }

    /// The default name of a port by its number.
    pub fn port_name(self, index: usize) -> String {
        match self {
            Self::RouterOs => format!("qsfp28-{}-1", index + 1),
            Self::Sonic => format!("Ethernet{}", index * 4),
            Self::Nvue => format!("swp{}", index + 1),
            Self::Eos => format!("Ethernet{}/1", index + 1),
            Self::NxOs => format!("Ethernet1/{}", index + 1),
            Self::Os10 => format!("ethernet1/1/{}", index + 1),
            Self::Junos => format!("et-0/0/{index}"),
            Self::Linux | Self::Mlnx => format!("eth{index}"),
            Self::Windows => format!("RDMA {}", index + 1),
            Self::FreeBsd => format!("mce{index}"),
            Self::Esxi => format!("vmnic{index}"),
        }
    }

    /// The nearest intent that the dialect can express, with the differences.
    pub fn fit(self, intent: &Intent) -> (Intent, Vec<Note>) {
        let (mut fitted, mut fit) = (intent.clone().normal(), Fit::default());
        if fitted.ports.is_empty() {
            let name = self.port_name(0);
            fit.add_note(format!("no port is named: {name} is written"));
            fitted.ports.push(Port {
                name,
                mbps: None,
                metres: None,
            });
        }
        if !self.is_host() {
            fit.no_host(&mut fitted);
        }
        match self {
            Self::RouterOs => routeros::write::fit(&mut fitted, &mut fit),
            Self::Sonic => sonic::write::fit(&mut fitted, &mut fit),
            Self::Nvue => nvue::write::fit(&mut fitted, &mut fit),
            Self::Eos => eos::write::fit(&mut fitted, &mut fit),
            Self::NxOs => nxos::write::fit(&mut fitted, &mut fit),
            Self::Os10 => os10::write::fit(&mut fitted, &mut fit),
            Self::Junos => junos::write::fit(&mut fitted, &mut fit),
            Self::Linux => linux::write::fit(&mut fitted, &mut fit),
            Self::Mlnx => mlnx::write::fit(&mut fitted, &mut fit),
            Self::Windows => windows::write::fit(&mut fitted, &mut fit),
            Self::FreeBsd => freebsd::write::fit(&mut fitted, &mut fit),
            Self::Esxi => esxi::write::fit(&mut fitted, &mut fit),
        }
        (fitted.normal(), fit.notes())
    }

    /// Writes an intent as a configuration of this system.
    pub fn write(self, intent: &Intent, version: Version) -> Written {
        let (mut expressed, mut notes) = self.fit(intent);
        self.without_newer(&mut expressed, version, &mut notes);
        let (file, text) = match self {
            Self::RouterOs => ("roce.rsc", routeros::write::write(&expressed, version)),
            Self::Sonic => ("config_db.json", sonic::write::write(&expressed)),
            Self::Nvue => ("nvue.sh", nvue::write::write(&expressed)),
            Self::Eos => ("roce.eos", eos::write::write(&expressed)),
            Self::NxOs => ("roce.nxos", nxos::write::write(&expressed)),
            Self::Os10 => ("roce.os10", os10::write::write(&expressed)),
            Self::Junos => ("roce.set", junos::write::write(&expressed)),
            Self::Linux => ("rockery-roce.sh", linux::write::write(&expressed)),
            Self::Mlnx => ("rockery-roce.sh", mlnx::write::write(&expressed)),
            Self::Windows => ("roce.ps1", windows::write::write(&expressed, version)),
            Self::FreeBsd => ("iovctl.conf", freebsd::write::write(&expressed)),
            Self::Esxi => ("roce.esxcli.sh", esxi::write::write(&expressed)),
        };
        let comment = match self {
            Self::Sonic => None,
            Self::Eos | Self::NxOs | Self::Os10 => Some('!'),
            _ => Some('#'),
        };
        let text = match comment {
            Some(mark) => format!(
                "{mark} For {}@{version}. Review before applying; rockery applies nothing.\n{text}",
                self.name()
            ),
            None => text,
        };
        let more = match self {
            Self::Linux | Self::Mlnx => {
                vec![("rockery-roce.service", linux::write::UNIT.to_owned())]
            }
            _ => Vec::new(),
        };
        Written {
            file,
            text,
            expressed,
            more,
            notes,
        }
    }

    /// Takes away settings that only later versions have.
    fn without_newer(self, expressed: &mut Intent, version: Version, notes: &mut Vec<Note>) {
        // Cisco Nexus 9000 Series NX-OS, "Configure Dynamic Load Balancing": 10.5(1)F.
        let since = Version(10, 5);
        let is_older = self == Self::NxOs && version < since;
        if is_older && expressed.spread != PathSpread::Flows {
            notes.push(Note(format!(
                "packets spread {} are not written: dynamic load balancing is in {since} and later",
                expressed.spread
            )));
            expressed.spread = PathSpread::Flows;
        }
    }

    /// Writes intents of ports that are configured differently as one configuration, and reads it again: what
    /// it says of each port is what is planned.
    ///
    /// # Errors
    /// A setting that the dialect has for all ports, where it differs.
    pub fn write_groups(
        self,
        intents: &[Intent],
        version: Version,
    ) -> Result<(Written, Vec<Intent>), GroupsDiffer> {
        let all: Vec<Written> = intents
            .iter()
            .map(|intent| self.write(intent, version))
            .collect();
        let expressed: Vec<Intent> = all.iter().map(|one| one.expressed.clone()).collect();
        let mut whole = all.first().cloned().unwrap_or_else(|| {
            let nothing = Intent::nothing();
            self.write(&nothing, version)
        });
        for note in all.iter().flat_map(|one| &one.notes) {
            if !whole.notes.contains(note) {
                whole.notes.push(note.clone());
            }
        }
        if all.len() < 2 {
            return Ok((whole, expressed));
        }
        let forwards: Vec<&str> = all.iter().map(|one| one.text.as_str()).collect();
        let backwards: Vec<&str> = forwards.iter().rev().copied().collect();
        let mut what = String::new();
        // Where a setting of the device is written twice, the last one counts.
        for texts in [forwards, backwards] {
            let text = self.joined(&texts);
            let read = self.read_groups(whole.file, &text);
            let read = read.map_or_else(|_| Vec::new(), |read| read.groups);
            let differences = crate::diff::changes_by_port(&read, &expressed, &expressed);
            if differences.is_empty() {
                whole.text = text;
                return Ok((whole, expressed));
            }
            let shown: Vec<String> = differences
                .iter()
                .take(2)
                .map(ToString::to_string)
                .collect();
            what = shown.join("; ");
        }
        let dialect = self.name();
        Err(GroupsDiffer { dialect, what })
    }

    /// Texts of groups of ports as one text. Names of profiles and maps in the second and later ones are
    /// numbered.
    fn joined(self, texts: &[&str]) -> String {
        let numbered = texts.iter().enumerate().map(|(index, text)| match index {
            0 => (*text).to_owned(),
            index => text.replace("ROCKERY", &format!("ROCKERY{}", index + 1)),
        });
        let numbered: Vec<String> = numbered.collect();
        match self {
            Self::Sonic => sonic::write::joined(&numbered),
            Self::RouterOs => routeros::write::joined(texts),
            _ => numbered.concat(),
        }
    }

    /// Reads a configuration, called `file` in messages. Of ports that are configured differently, the
    /// largest group of equal ones counts.
    ///
    /// # Errors
    /// A text that is none, and one without QoS of this system.
    pub fn read(self, file: &str, text: &str) -> Result<Intent, ReadError> {
        let read = self.read_groups(file, text)?;
        read.largest().cloned().ok_or_else(|| {
            let odd = read.outcomes.left();
            let what = match odd.first() {
                Some(line) => format!("nothing of it is QoS of {}: {}", self.name(), line.why),
                None => format!("nothing of it is QoS of {}", self.name()),
            };
            ReadError::new(file, odd.first().map_or(1, |line| line.line), what)
        })
    }

    /// Reads a configuration; ports that are configured alike are one intent. Lines that are not understood
    /// are among the outcomes, and what they set is unknown.
    ///
    /// # Errors
    /// A text that is none, and what changes the meaning of the whole.
    pub fn read_groups(self, file: &str, text: &str) -> Result<Configuration, ReadError> {
        let by_port = match self {
            Self::RouterOs => routeros::read::read(file, text),
            Self::Sonic => sonic::read::read(file, text),
            Self::Nvue => nvue::read::read(file, text),
            Self::Eos => eos::read::read(file, text),
            Self::NxOs => nxos::read::read(file, text),
            Self::Os10 => os10::read::read(file, text),
            Self::Junos => junos::read::read(file, text),
            Self::Linux => linux::read::read(file, text),
            Self::Mlnx => mlnx::read::read(file, text),
            Self::Windows => windows::read::read(file, text),
            Self::FreeBsd => freebsd::read::read(file, text),
            Self::Esxi => esxi::read::read(file, text),
        };
        let (by_port, outcomes) = by_port.map_err(|error| within(error, text))?;
        check_ports(file, by_port.len())?;
        Ok(Configuration::new(by_port, outcomes))
    }

    /// The dialect that a text is written in, by words that only that dialect has.
    pub fn detect(text: &str) -> Option<Self> {
        let has = |part: &str| text.contains(part);
        // PowerShell takes cmdlets in any case.
        let small = text.to_ascii_lowercase();
        let has_word = |part: &str| small.contains(part);
        let signs = [
            (
                Self::Sonic,
                text.trim_start().starts_with('{') && SONIC_TABLES.into_iter().any(has),
            ),
            (
                Self::Junos,
                text.lines().map(str::trim_start).any(|line| {
                    line.starts_with("class-of-service {")
                        || line.starts_with("set class-of-service ")
                        || line.contains(" class-of-service forwarding-classes ")
                }),
            ),
            (Self::RouterOs, routeros::shown::is_script(text)),
            (
                Self::Nvue,
                has("nv set ")
                    || (text.lines().any(|line| line == "- set:") && has("  interface:")),
            ),
            (
                Self::NxOs,
                has("class type network-qos ")
                    || has("class type queuing ")
                    || (has("policy-map type network-qos ") && has_interfaces(text, 2))
                    || (has("priority-flow-control mode ")
                        && !has(" no-drop")
                        && has_interfaces(text, 2)),
            ),
            (
                Self::Eos,
                has("qos profile ")
                    || has("qos trust ")
                    || has("qos map dscp ")
                    || (has("priority-flow-control priority ") && has(" no-drop")),
            ),
            (
                Self::Os10,
                has("trust dscp-map ")
                    || has("trust dot1p-map ")
                    || has("dcbx enable")
                    || (has("priority-flow-control mode ") && has_interfaces(text, 3)),
            ),
            (
                Self::Windows,
                has_word("netqos")
                    || has_word("netadapterqos")
                    || has_word("netoffloadglobalsetting"),
            ),
            (Self::Mlnx, has("mlnx_qos ")),
            (
                Self::Linux,
                has("dcb pfc ") || has("dcb ets ") || has("dcb app "),
            ),
            (Self::FreeBsd, has("num_vfs")),
            (Self::Esxi, has("esxcli system module parameters set")),
        ];
        // Dell's OS10 has network-qos policies as well, with other names.
        if has("type network-qos") && (has("ets mode on") || has("trust-map ")) {
            return Some(Self::Os10);
        }
        signs
            .into_iter()
            .find(|(_, found)| *found)
            .map(|(dialect, _)| dialect)
    }

    /// The commands or tables that correct a setting of a switch; words where the system is a host's.
    pub fn remedy(self, remedy: &Remedy<'_>) -> String {
        let own = match self {
            Self::RouterOs => routeros::remedy::command(remedy),
            Self::Sonic => sonic::remedy::command(remedy),
            Self::Nvue => nvue::remedy::command(remedy),
            Self::Eos => eos::remedy::command(remedy),
            Self::NxOs => nxos::remedy::command(remedy),
            Self::Os10 => os10::remedy::command(remedy),
            Self::Junos => junos::remedy::command(remedy),
            Self::Linux | Self::Mlnx | Self::Windows | Self::FreeBsd | Self::Esxi => None,
        };
        own.unwrap_or_else(|| remedy.in_words())
    }
}

/// Tables by which SONiC's JSON is recognised, in their beginnings: platforms ship the tables of buffers and
/// those of QoS as files of their own.
const SONIC_TABLES: [&str; 5] = [
    "\"PORT_QOS_MAP",
    "\"BUFFER_P",
    "\"CABLE_LENGTH",
    "\"WRED_PROFILE",
    "\"PFC_WD",
];

/// Whether a text has interfaces of so many numbers: `Ethernet1/1` of NX-OS has two, `ethernet1/1/1` of OS10
/// three.
fn has_interfaces(text: &str, numbers: usize) -> bool {
    let names = text
        .lines()
        .filter_map(|line| line.strip_prefix("interface "));
    let mut firsts = names.map(|name| {
        let name = name.trim().strip_prefix("range ").unwrap_or(name.trim());
        name.split([',', '-']).next().unwrap_or_default()
    });
    firsts.any(|name| name.starts_with(['E', 'e']) && name.split('/').count() == numbers)
}

/// A configuration, read.
#[derive(Clone, PartialEq, Debug)]
pub struct Configuration {
    /// Ports that are configured alike are one intent.
    pub groups: Vec<Intent>,
    /// What became of each line.
    pub outcomes: Outcomes,
}

impl Configuration {
    /// Reads the files of one SONiC switch: `config_db.json`, `qos.json`, `buffers.json`, and the tables of
    /// its platform.
    ///
    /// # Errors
    /// A text that is none, and what changes the meaning of the whole.
    pub fn of_sonic(files: &[(&str, &str)]) -> Result<Self, ReadError> {
        let read = sonic::read::read_files(files).map_err(|error| {
            let own = files.iter().find(|(file, _)| *file == error.file);
            within(error, own.map_or("", |(_, text)| text))
        });
        let (by_port, outcomes) = read?;
        check_ports(files.first().map_or("", |(file, _)| file), by_port.len())?;
        Ok(Self::new(by_port, outcomes))
    }

    /// Puts ports together that are configured alike. The areas of lines that were not understood are
    /// unknown, at the ports that the lines concern.
    pub(crate) fn new(mut by_port: Vec<Intent>, outcomes: Outcomes) -> Self {
        forget(&mut by_port, &outcomes.left());
        Self {
            groups: grouped(by_port),
            outcomes,
        }
    }

    /// The largest group of ports that are configured alike; of equal ones the first.
    pub fn largest(&self) -> Option<&Intent> {
        let groups = self.groups.iter().rev();
        groups.max_by_key(|intent| intent.ports.len())
    }
}

/// A text that ends too early is wrong in its last line, wherever a parser counts its end.
fn within(error: ReadError, text: &str) -> ReadError {
    let last = text.lines().count().max(1);
    ReadError {
        line: error.line.clamp(1, last),
        ..error
    }
}

/// Marks the areas of lines that were not understood as unknown, at the ports that the lines concern.
pub(crate) fn forget(intents: &mut [Intent], left: &[NotUnderstood]) {
    // The first line of an area counts, for all ports or for one.
    let mut whys: BTreeMap<(Option<&str>, Area), String> = BTreeMap::new();
    for line in left {
        let why = || format!("line {} was not understood", line.line);
        for area in &line.areas {
            if line.ports.is_empty() {
                whys.entry((None, *area)).or_insert_with(why);
            }
            for port in &line.ports {
                whys.entry((Some(port), *area)).or_insert_with(why);
            }
        }
    }
    for ((port, area), why) in &whys {
        let concerned = |intent: &&mut Intent| {
            port.is_none_or(|port| intent.ports.iter().any(|own| own.name == port))
        };
        for intent in intents.iter_mut().filter(concerned) {
            intent.forget(*area, why.clone());
        }
    }
}

/// The intents of a configuration of RouterOS that was read already.
/// Groups of ports that a RouterOS configuration treats alike.
pub fn routeros_intents(config: &crate::routeros::RouterOsConfig) -> Vec<Intent> {
    grouped(routeros::read::of_config(config))
}

/// Intents of single ports, put together where they differ in their ports only.
pub fn grouped(by_port: Vec<Intent>) -> Vec<Intent> {
    let mut groups: Vec<Intent> = Vec::new();
    // Numbers of groups by their settings, without ports.
    let mut known: HashMap<Intent, usize> = HashMap::new();
    for intent in by_port {
        let mut settings = intent.normal();
        let ports = core::mem::take(&mut settings.ports);
        match known.get(&settings) {
            Some(number) => groups[*number].ports.extend(ports),
            None => {
                known.insert(settings.clone(), groups.len());
                groups.push(Intent { ports, ..settings });
            }
        }
    }
    groups.into_iter().map(Intent::normal).collect()
}
