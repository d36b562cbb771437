//! Switches as their vendors' configurations describe them.

use crate::advice::{Advice, LossyClass};
use crate::dialect::{Dialect, grouped};
use crate::import_error::ImportError;
use crate::intent::Intent;
use crate::outcome::NotUnderstood;
use crate::{routeros, sonic};
use fabric::Watchdog;
use fabric::config::{BufferConfig, Profile};
use fabric::topology::LinkConfig;

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

impl Imported {
    /// Why a class is lossy, where the vendor's settings say more than the resulting configuration.
    pub fn why_lossy(&self, switch: &str, lossy: &LossyClass<'_>) -> Option<Advice> {
        match self {
            Self::RouterOs(config) => Some(config.why_lossy(switch, lossy)),
            Self::Sonic(_) => None,
        }
    }

    /// Why a queue of a lossless class is full before its ports pause, where a setting of the vendor's says
    /// it.
    pub fn why_full(&self, switch: &str, port: &str) -> Option<Advice> {
        match self {
            Self::RouterOs(config) => config.why_full(switch, port),
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
            let files: Vec<(&str, &str)> = texts
                .iter()
                .map(|(name, text)| (*name, text.as_str()))
                .collect();
            return sonic::read_files(&files).map(Self::Sonic);
        }
        let mut config = routeros::RouterOsConfig::default();
        texts
            .iter()
            .try_for_each(|(name, text)| config.expect(name, text))?;
        texts
            .iter()
            .try_for_each(|(name, text)| config.run(name, text))?;
        Ok(Self::RouterOs(config))
    }

    /// The settings of groups of ports that are configured alike, as a comparison sees them.
    pub fn intents(&self) -> Vec<Intent> {
        let by_port = match self {
            Self::RouterOs(config) => routeros::read::of_config(config),
            Self::Sonic(config) => sonic::read::intents(config).0,
        };
        grouped(by_port)
    }

    /// The DSCP that a configuration itself gives the lossless class: that of the only such profile.
    pub fn named_dscp(&self) -> Option<u8> {
        match self {
            Self::RouterOs(config) => config.named_dscp(),
            Self::Sonic(_) => None,
        }
    }

    /// The system whose configuration it is.
    pub const fn dialect(&self) -> Dialect {
        match self {
            Self::RouterOs(_) => Dialect::RouterOs,
            Self::Sonic(_) => Dialect::Sonic,
        }
    }

    /// Lines that were not understood: what they set is unknown, and not simulated.
    pub fn left(&self) -> &[NotUnderstood] {
        match self {
            Self::RouterOs(config) => &config.left,
            Self::Sonic(config) => &config.left,
        }
    }

    /// Settings that are understood and not simulated, each with the reason.
    pub fn not_simulated(&self) -> &[NotUnderstood] {
        match self {
            Self::RouterOs(config) => &config.not_simulated,
            Self::Sonic(config) => &config.not_simulated,
        }
    }

    /// Bytes of the pools that arriving packets are charged to, and of the chip's memory where it is known.
    pub fn pools(&self) -> Option<(u64, Option<u64>)> {
        match self {
            Self::RouterOs(_) => None,
            Self::Sonic(config) => Some((config.pool_bytes, config.memory_bytes)),
        }
    }

    /// The first two numbers of the system's version, where the configuration names it and it matters.
    pub fn version(&self) -> Option<(u32, u32)> {
        match self {
            Self::RouterOs(config) => config.version.map(|version| (version.0, version.1)),
            Self::Sonic(_) => None,
        }
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
