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
    /// From 1.
    pub line: usize,
    /// What is wrong.
    pub what: String,
    /// What to write instead.
    pub instead: Option<String>,
}

/// A vendor's configuration, read.
#[derive(Clone, PartialEq, Debug)]
pub enum Imported {
    /// MikroTik RouterOS.
    RouterOs(routeros::Config),
    /// SONiC.
    Sonic(sonic::Config),
}

/// A port that a link is attached to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place<'a> {
    /// The name that the fabric file gives.
    pub name: Option<&'a str>,
    /// Its number in the order of links.
    pub index: usize,
    /// How many ports of the switch have links.
    pub count: usize,
}

impl Imported {
    /// Reads texts in the order in which a switch would; each with its name.
    ///
    /// # Errors
    /// The first line that is not understood.
    pub fn read(is_sonic: bool, texts: &[(&str, String)]) -> Result<Self, ImportError> {
        if is_sonic {
            let (name, text) = texts.first().map_or(("", ""), |(name, text)| (*name, text.as_str()));
            return sonic::read(name, text).map(Self::Sonic);
        }
        let mut config = routeros::Config::default();
        texts.iter().try_for_each(|(name, text)| config.run(name, text))?;
        Ok(Self::RouterOs(config))
    }

    /// The name of a port, and how it treats traffic.
    ///
    /// # Errors
    /// When there is no such port.
    pub fn port(&self, place: &Place<'_>, link: &LinkConfig) -> Result<(String, Profile), String> {
        let names = self.port_names();
        let name = match place.name {
            Some(name) => names.iter().find(|other| *other == name),
            None => names.get(place.index),
        };
        let Some(name) = name else {
            return Err(match place.name {
                Some(name) => format!("the switch has no port \"{name}\""),
                None => format!("the switch has {} ports, and there are more links", names.len()),
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
        let Self::Sonic(config) = self else { return None };
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
