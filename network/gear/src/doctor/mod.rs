//! `doctor`: facts of hosts and switches, and their faults. A fact that was not observed is unknown: no rule
//! evaluates it.

pub mod collect;
mod dcb;
mod facts;
mod linux;
pub(crate) mod manual;
mod neighbours;
mod rules;
mod sections;
mod shown;
mod windows;

use core::fmt;

pub use facts::{
    Adapter, Evidence, Fact, GidEntry, HostFacts, PcieFacts, PcieLink, PlannedHost, PlannedLink,
    SmbMount, WindowsFacts,
};
pub use manual::{Entry, RULES};
pub use neighbours::{EtsFacts, Neighbour, PfcFacts, hear, neighbours, page};
pub use rules::check;
pub use shown::{Shown, ShownPort};

use crate::consequence::Cost;
use crate::text::ReadError;
use crate::{Dialect, Intent};

/// A switch, as its configuration and its outputs describe it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SwitchFacts {
    /// The name of the file.
    pub file: String,
    /// The system of the switch.
    pub dialect: Dialect,
    /// The text of the configuration, for evidence.
    pub text: String,
    /// Ports that are configured alike; none where no configuration was seen.
    pub groups: Vec<Intent>,
    /// Facts from the outputs of its commands.
    pub shown: Shown,
    /// The switch's plan, where a fabric file has one.
    pub planned: Option<Planned>,
}

/// The plan of a fabric file for a switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Planned {
    /// The name of the switch.
    pub name: String,
    /// The planned settings, as far as the switch's system can express them.
    pub intent: Intent,
    /// Names of its ports, by number.
    pub ports: Vec<String>,
    /// Its links with other switches.
    pub links: Vec<PlannedLink>,
}

impl SwitchFacts {
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

/// The consequence of a fault.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Consequence {
    /// The simulated difference.
    Simulated(Cost),
    /// No packet of RDMA arrives.
    NothingArrives,
    /// RDMA is not used: programs use TCP.
    FallsBackToTcp,
    /// Settings are lost at the next boot: until then nothing changes.
    AfterReboot(Cost),
    /// A consequence that the simulator does not model; no figure is known.
    NotSimulated(&'static str),
}

/// A fault that a rule found.
#[derive(Clone, PartialEq, Debug)]
pub struct Finding {
    /// The name of the rule.
    pub rule: &'static str,
    /// The host or switch, with its port.
    pub place: String,
    /// A description of the fault.
    pub what: String,
    /// The lines that show it.
    pub evidence: Vec<Evidence>,
    /// The consequence of the fault.
    pub consequence: Consequence,
    /// The correction, in the terms of that system.
    pub fix: String,
    /// The section of the manual.
    pub link: &'static str,
    /// The specification of the setting.
    pub specification: &'static str,
}

impl fmt::Display for Consequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Simulated(cost) => write!(f, "{cost}"),
            Self::NothingArrives => write!(
                f,
                "0 Gb/s of RDMA: no packet arrives, and connections time out"
            ),
            Self::FallsBackToTcp => {
                write!(
                    f,
                    "0 Gb/s of RDMA: data goes over TCP, which costs processor time and latency"
                )
            }
            Self::AfterReboot(cost) => write!(f, "after the next start: {cost}"),
            Self::NotSimulated(why) => write!(f, "not simulated: {why}"),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {} [{}]", self.place, self.what, self.rule)?;
        for evidence in &self.evidence {
            writeln!(f, "  seen         {evidence}")?;
        }
        writeln!(f, "  consequence  {}", self.consequence)?;
        for (index, line) in self.fix.lines().enumerate() {
            writeln!(f, "  {:12} {line}", if index == 0 { "fix" } else { "" })?;
        }
        writeln!(f, "  more         {}; {}", self.link, self.specification)
    }
}

/// Reads a snapshot of a host.
///
/// # Errors
/// The first line that is not understood.
pub fn read_host(file: &str, text: &str) -> Result<HostFacts, ReadError> {
    let mut host = HostFacts {
        name: file.to_owned(),
        ..HostFacts::default()
    };
    for section in sections::sections(file, text)? {
        // Sections of other commands are not used by any rule.
        let _ = linux::take(&section, &mut host)? || windows::take(&section, &mut host)?;
    }
    Ok(host)
}

/// Reads the facts of a switch: its configuration, or outputs of its commands, or both.
///
/// # Errors
/// A system that is not known, and the first line that is not understood.
pub fn read_switch(file: &str, text: &str) -> Result<SwitchFacts, ReadError> {
    let (shown, shown_dialect, configuration) = match shown::has_outputs(text) {
        true => {
            let outputs = shown::read(file, text)?;
            (outputs.shown, outputs.dialect, outputs.configuration)
        }
        false => (Shown::default(), None, Some(text.to_owned())),
    };
    let detected = configuration
        .as_deref()
        .and_then(Dialect::detect)
        .filter(|dialect| !dialect.is_host());
    let known = "no configuration of RouterOS, SONiC, NVUE, EOS, NX-OS or OS10 is recognised in it, and no \
                 output of their commands";
    let dialect = detected
        .or(shown_dialect)
        .ok_or_else(|| ReadError::new(file, 1, known))?;
    let groups = match (detected, &configuration) {
        (Some(dialect), Some(configuration)) => dialect.read_groups(file, configuration)?,
        _ => Vec::new(),
    };
    Ok(SwitchFacts {
        file: file.to_owned(),
        dialect,
        text: text.to_owned(),
        groups,
        shown,
        planned: None,
    })
}
