//! Switches as their vendors' configurations describe them.

mod counted;
pub mod routeros;
pub mod sonic;

pub use counted::{CountedPort, CountedSwitch};

use crate::config::{BufferConfig, Profile};
use crate::topology::LinkConfig;
use crate::watchdog::Watchdog;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Why a vendor's configuration was not understood.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{file}:{line}: {what}{}", .instead.as_ref().map(|text| format!("; {text}")).unwrap_or_default())]
pub struct ImportError {
    /// The file's name.
    pub file: String,
    /// The line's number, from 1.
    pub line: usize,
    /// The part that is not understood, and why.
    pub what: String,
    /// The text to write instead, where one is known.
    pub instead: Option<String>,
}

/// A vendor's configuration, read.
#[derive(Clone, PartialEq, Debug)]
pub enum Imported {
    /// A configuration of MikroTik RouterOS, from scripts.
    RouterOs(routeros::RouterOsConfig),
    /// A configuration of SONiC, from `config_db.json`.
    Sonic(sonic::SonicConfig),
}

/// A port that a link is attached to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortPlace<'a> {
    /// The name that the fabric file gives.
    pub name: Option<&'a str>,
    /// Its number in the order of links.
    pub index: usize,
    /// How many ports of the switch have links.
    pub count: usize,
}

/// A class of traffic at a port of a switch that is lossy, though its data should not be lost.
#[derive(Clone, Copy, Debug)]
pub struct LossyClass<'a> {
    /// The port's name.
    pub port: &'a str,
    /// The class that the switch puts data into.
    pub class: u8,
    /// The DSCP of the data.
    pub dscp: u8,
    /// Classes that are lossless at this port, one bit each.
    pub lossless: u8,
}

/// A setting that causes an observed fault, and its replacement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Advice {
    /// The setting, in the vendor's terms.
    pub cause: String,
    /// The vendor's command or table that changes it.
    pub instead: String,
}

/// Classes of a mask as people list them: `3, 4`.
pub fn class_list(mask: u8) -> String {
    let classes = (0..8)
        .filter(|class| mask >> class & 1 == 1)
        .map(|class| format!("{class}"));
    let text = classes.collect::<Vec<_>>().join(", ");
    if text.is_empty() { "none".into() } else { text }
}

impl Imported {
    /// Why a class is lossy, where the vendor's settings say more than the resulting configuration.
    pub fn why_lossy(&self, switch: &str, lossy: &LossyClass<'_>) -> Option<Advice> {
        match self {
            Self::RouterOs(config) => Some(config.why_lossy(switch, lossy)),
            Self::Sonic(_) => None,
        }
    }

    /// The setting without which nothing else of the configuration has an effect, if it is off.
    pub fn without_effect(&self) -> Option<Advice> {
        match self {
            Self::RouterOs(config) => config.without_effect(),
            Self::Sonic(_) => None,
        }
    }

    /// The setting that enables ECN marking.
    pub const fn ecn_setting(&self) -> &'static str {
        match self {
            Self::RouterOs(_) => routeros::ECN_ON,
            Self::Sonic(_) => "WRED_PROFILE with ecn = ecn_all, and QUEUE with that wred_profile",
        }
    }

    /// Reads texts in the order in which a switch would; each with its name.
    ///
    /// # Errors
    /// The first line that is not understood.
    pub fn read(is_sonic: bool, texts: &[(&str, String)]) -> Result<Self, ImportError> {
        if is_sonic {
            let (name, text) = texts
                .first()
                .map_or(("", ""), |(name, text)| (*name, text.as_str()));
            return sonic::read(name, text).map(Self::Sonic);
        }
        let mut config = routeros::RouterOsConfig::default();
        texts
            .iter()
            .try_for_each(|(name, text)| config.run(name, text))?;
        Ok(Self::RouterOs(config))
    }

    /// The name of a port, and how it treats traffic.
    ///
    /// # Errors
    /// When there is no such port.
    pub fn port(
        &self,
        place: &PortPlace<'_>,
        link: &LinkConfig,
    ) -> Result<(String, Profile), String> {
        let names = self.port_names();
        let name = match place.name {
            Some(name) => names.iter().find(|other| *other == name),
            None => names.get(place.index),
        };
        let Some(name) = name else {
            return Err(match place.name {
                Some(name) => format!("the switch has no port \"{name}\""),
                None => format!(
                    "the switch has {} ports, and there are more links",
                    names.len()
                ),
            });
        };
        let profile = match self {
            Self::RouterOs(config) => config.profile(name, place.count, link),
            Self::Sonic(config) => config.profile(name, link),
        };
        Ok((name.clone(), profile))
    }

    /// The names of all ports.
    pub fn port_names(&self) -> Vec<String> {
        match self {
            Self::RouterOs(config) => config.ports.keys().cloned().collect(),
            Self::Sonic(config) => config.ports.keys().cloned().collect(),
        }
    }

    /// The PFC watchdog, where one is configured: that of the first port that has one.
    pub fn watchdog(&self) -> Option<Watchdog> {
        let Self::Sonic(config) = self else {
            return None;
        };
        let (detect, restore) = config.ports.values().find_map(|port| port.watchdog)?;
        Some(Watchdog { detect, restore })
    }

    /// The packet memory.
    pub fn buffer(&self) -> BufferConfig {
        match self {
            Self::RouterOs(config) => config.buffer(),
            Self::Sonic(config) => config.buffer(),
        }
    }
}
