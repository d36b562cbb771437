//! Snapshots: facts of hosts and switches, from their configurations and the outputs of their commands. A
//! fact that was not observed is unknown.

use vendors::facts::PlannedLink;
use vendors::switch_facts::Shown;
use vendors::text::ReadError;
use vendors::{Dialect, Intent};

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

/// Reads the facts of a switch: its configuration, or outputs of its commands, or both.
///
/// # Errors
/// A system that is not known, and the first line that is not understood.
pub fn read_switch(file: &str, text: &str) -> Result<SwitchFacts, ReadError> {
    let (shown, shown_dialect, configuration) = match vendors::outputs::has_outputs(text) {
        true => {
            let outputs = vendors::outputs::read(file, text)?;
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
