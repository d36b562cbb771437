//! The file that says what is served. What a server is told at run time is kept in the same form, so that its
//! state can be read, changed and used as a file again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::OpenOptions;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::auth::Credentials;
use crate::limits::{SHARED_RECEIVES_MAX, SHARED_RECEIVES_MIN};
use crate::nqn::Nqn;

/// Why a configuration cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// It cannot be read, or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is not what it should be; the message has line and column.
    #[error("{path}: {source}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// Where, and what.
        source: Box<toml::de::Error>,
    },
}

/// Everything that a server serves.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// The subsystems.
    #[serde(default, rename = "subsystem", skip_serializing_if = "Vec::is_empty")]
    pub subsystems: Vec<SubsystemConfig>,
    /// Where it listens.
    #[serde(default, rename = "port", skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortConfig>,
    /// Other discovery services that this one names.
    #[serde(default, rename = "referral", skip_serializing_if = "Vec::is_empty")]
    pub referrals: Vec<ReferralConfig>,
}

/// Namespaces under a name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SubsystemConfig {
    /// Its name.
    pub nqn: Nqn,
    /// Its serial number, at most 20 characters; made from the name when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Its model, at most 40 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The hosts that may use it; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<BTreeSet<Nqn>>,
    /// What hosts prove themselves with. When there is any, no others may come.
    #[serde(default, rename = "host", skip_serializing_if = "BTreeMap::is_empty")]
    pub credentials: BTreeMap<Nqn, Credentials>,
    /// Its namespaces.
    #[serde(default, rename = "namespace", skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<NamespaceConfig>,
}

impl SubsystemConfig {
    /// One that every host may use, without namespaces.
    pub fn new(nqn: Nqn) -> Self {
        let (hosts, credentials, namespaces) = (None, BTreeMap::new(), Vec::new());
        Self { nqn, serial: None, model: None, hosts, credentials, namespaces }
    }
}

/// Another name for who may use a subsystem.
pub type HostsConfig = Option<BTreeSet<Nqn>>;

/// Blocks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct NamespaceConfig {
    /// Its number, from 1.
    pub id: u32,
    /// Where its bytes are.
    #[serde(flatten)]
    pub backend: BackendConfig,
    /// Bytes of a block: 512 or 4096.
    #[serde(default = "block_size", skip_serializing_if = "is_block_size")]
    pub block_size: BlockSize,
    /// Whether hosts may only read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// Its group of asymmetric access, from 1.
    #[serde(default = "group", skip_serializing_if = "is_group")]
    pub group: u32,
}

fn block_size() -> BlockSize {
    BlockSize::B4096
}

fn is_block_size(size: &BlockSize) -> bool {
    *size == block_size()
}

fn group() -> u32 {
    1
}

fn is_group(group: &u32) -> bool {
    *group == 1
}

/// Bytes of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub enum BlockSize {
    /// 512.
    B512,
    /// 4096.
    B4096,
}

impl TryFrom<u32> for BlockSize {
    type Error = String;

    fn try_from(bytes: u32) -> Result<Self, String> {
        match bytes {
            512 => Ok(Self::B512),
            4096 => Ok(Self::B4096),
            _ => Err(format!("blocks have 512 or 4096 bytes, not {bytes}")),
        }
    }
}

impl From<BlockSize> for u32 {
    fn from(size: BlockSize) -> Self {
        match size {
            BlockSize::B512 => 512,
            BlockSize::B4096 => 4096,
        }
    }
}

/// Where bytes are: one of `file`, `memory` and `null`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "BackendKeys", into = "BackendKeys")]
pub enum BackendConfig {
    /// In a file or on a block device.
    File {
        /// Which.
        path: PathBuf,
        /// How large it is made; as large as it is when absent.
        size: Option<Bytes>,
        /// Whether the page cache is kept out where that can be done.
        direct: bool,
    },
    /// In memory.
    Memory(Bytes),
    /// Nowhere.
    Null(Bytes),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct BackendKeys {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    file: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    size: Option<Bytes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    direct: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    memory: Option<Bytes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    null: Option<Bytes>,
}

impl TryFrom<BackendKeys> for BackendConfig {
    type Error = &'static str;

    fn try_from(keys: BackendKeys) -> Result<Self, &'static str> {
        let BackendKeys { file, size, direct, memory, null } = keys;
        match (file, memory, null) {
            (Some(path), None, None) => Ok(Self::File { path, size, direct: direct.unwrap_or(true) }),
            (None, Some(bytes), None) if size.is_none() && direct.is_none() => Ok(Self::Memory(bytes)),
            (None, None, Some(bytes)) if size.is_none() && direct.is_none() => Ok(Self::Null(bytes)),
            (None, None, None) => Err("say where a namespace's bytes are: file, memory or null"),
            _ => Err("a namespace has one of file (with size and direct), memory and null"),
        }
    }
}

impl From<BackendConfig> for BackendKeys {
    fn from(backend: BackendConfig) -> Self {
        let none = Self { file: None, size: None, direct: None, memory: None, null: None };
        match backend {
            BackendConfig::File { path, size, direct } => {
                Self { file: Some(path), size, direct: (!direct).then_some(false), ..none }
            }
            BackendConfig::Memory(bytes) => Self { memory: Some(bytes), ..none },
            BackendConfig::Null(bytes) => Self { null: Some(bytes), ..none },
        }
    }
}

/// A way to the target.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PortConfig {
    /// Its number; given when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u16>,
    /// How.
    #[serde(default, skip_serializing_if = "is_tcp")]
    pub transport: TransportConfig,
    /// Whether hosts come in TLS 1.3, with the keys that they have in their subsystems. TCP only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tls: bool,
    /// Receives that all connections of a device share; when absent each has as many as commands. RDMA only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_receives: Option<Receives>,
    /// Where: an address and a port, as in 192.0.2.1:4420 or [::]:4420.
    pub address: SocketAddr,
    /// The subsystems it leads to; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subsystems: Option<BTreeSet<Nqn>>,
}

/// Receives of a shared queue: from 64 to 32768, as many as rockery's devices have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Receives(pub(super) u32);

impl TryFrom<u32> for Receives {
    type Error = String;

    fn try_from(count: u32) -> Result<Self, String> {
        match count {
            SHARED_RECEIVES_MIN..=SHARED_RECEIVES_MAX => Ok(Self(count)),
            _ => Err(format!(
                "connections share {SHARED_RECEIVES_MIN} to {SHARED_RECEIVES_MAX} receives, not {count}"
            )),
        }
    }
}

impl From<Receives> for u32 {
    fn from(receives: Receives) -> Self {
        receives.0
    }
}

impl FromStr for Receives {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse::<u32>().map_err(|error| error.to_string())?.try_into()
    }
}

/// How a port is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TransportConfig {
    /// NVMe/TCP.
    #[default]
    Tcp,
    /// NVMe/RDMA.
    Rdma,
}

fn is_tcp(transport: &TransportConfig) -> bool {
    *transport == TransportConfig::Tcp
}

/// Another discovery service.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ReferralConfig {
    /// Where.
    pub address: SocketAddr,
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// With the place in the file where it is wrong.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let file = |source| ConfigError::File { path: path.to_owned(), source };
        let text = std::fs::read_to_string(path).map_err(file)?;
        toml::from_str(&text)
            .map_err(|source| ConfigError::Parse { path: path.to_owned(), source: Box::new(source) })
    }

    /// As a file has it.
    pub fn to_text(&self) -> String {
        // Keys are text and values are numbers and text: there is nothing that TOML cannot say.
        toml::to_string(self).unwrap_or_default()
    }

    /// Writes a file, whole or not at all: what was there before stays until the new one is on the medium.
    ///
    /// # Errors
    /// As the file system.
    pub fn write(&self, path: &Path) -> Result<(), ConfigError> {
        let file = |source| ConfigError::File { path: path.to_owned(), source };
        let text = self.to_text();
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        let new = PathBuf::from(new);
        let write = || {
            use std::io::Write;
            // It may have secrets.
            let options = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).clone();
            let mut out = options.open(&new)?;
            out.write_all(text.as_bytes())?;
            out.sync_all()?;
            std::fs::rename(&new, path)
        };
        write().map_err(file)
    }
}

/// A number of bytes, as people write it: 4096, 512M, 10GiB. Units are powers of 1024.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(try_from = "BytesText", into = "BytesText")]
pub struct Bytes(pub u64);

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum BytesText {
    Number(u64),
    Text(String),
}

impl TryFrom<BytesText> for Bytes {
    type Error = String;

    fn try_from(text: BytesText) -> Result<Self, String> {
        match text {
            BytesText::Number(bytes) => Ok(Self(bytes)),
            BytesText::Text(text) => text.parse(),
        }
    }
}

impl From<Bytes> for BytesText {
    fn from(bytes: Bytes) -> Self {
        Self::Text(bytes.to_string())
    }
}

const UNITS: [(&str, u32); 5] = [("K", 10), ("M", 20), ("G", 30), ("T", 40), ("P", 50)];

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no size: write bytes, or K, M, G, T, P behind a number");
        let upper = text.trim().to_ascii_uppercase();
        let plain = upper.strip_suffix("IB").or_else(|| upper.strip_suffix('B')).unwrap_or(&upper);
        let unit = UNITS.iter().find_map(|(unit, shift)| Some((plain.strip_suffix(unit)?, *shift)));
        let (number, shift) = unit.unwrap_or((plain, 0));
        let number: u64 = number.trim().parse().map_err(|_| wrong())?;
        number.checked_mul(1 << shift).map(Self).ok_or_else(wrong)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = |(_, shift): &&(&str, u32)| self.0 != 0 && self.0.trailing_zeros() >= *shift;
        match UNITS.iter().rev().find(whole) {
            Some((unit, shift)) => write!(f, "{}{unit}iB", self.0 >> shift),
            None => write!(f, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        [[subsystem]]
        nqn = "nqn.2024-01.org.example:disks"
        hosts = ["nqn.2014-08.org.nvmexpress:uuid:1"]

        [[subsystem.namespace]]
        id = 1
        file = "disk.img"
        size = "10GiB"
        block-size = 512

        [[subsystem.namespace]]
        id = 2
        memory = "64M"
        group = 3

        [[port]]
        address = "[::]:4420"
    "#;

    #[test]
    fn what_is_written_is_what_was_read() {
        let config: Config = toml::from_str(TEXT).unwrap();
        let namespaces = &config.subsystems[0].namespaces;
        assert_eq!(namespaces[1].backend, BackendConfig::Memory(Bytes(64 << 20)));
        let text = toml::to_string(&config).unwrap();
        assert_eq!(toml::from_str::<Config>(&text).unwrap(), config, "{text}");
    }

    #[test]
    fn mistakes_are_named() {
        let wrong =
            |from: &str, to: &str| toml::from_str::<Config>(&TEXT.replace(from, to)).unwrap_err().to_string();
        assert!(wrong("block-size = 512", "block-size = 100").contains("512 or 4096"));
        assert!(wrong("memory = \"64M\"", "").contains("file, memory or null"));
        assert!(wrong("memory = \"64M\"", "memory = \"64 apples\"").contains("is no size"));
        assert!(wrong("nqn.2024-01.org", "disk").contains("begins with nqn."));
        assert!(wrong("group = 3", "gruop = 3").contains("gruop"));
    }

    #[test]
    fn sizes_are_written_as_people_do() {
        for (text, bytes) in [("4096", 4096), ("512M", 512 << 20), ("10GiB", 10 << 30), ("1 tb", 1 << 40)] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)));
        }
        assert_eq!(Bytes(3 << 30).to_string(), "3GiB");
        assert_eq!(Bytes(1000).to_string(), "1000");
        assert!("99999999P".parse::<Bytes>().is_err());
    }
}
