//! The configuration file of a server. Changes at run time are kept in the same form, so that the state of a
//! server can be read, edited and used as a configuration again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use server::settings;
use thiserror::Error;

use crate::auth::Credentials;
use crate::identifier::{Nguid, Serial, Uuid};
use crate::limits::{SHARED_RECEIVES_MAX, SHARED_RECEIVES_MIN};
use crate::nqn::Nqn;

/// Why a configuration cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// The path of the configuration file.
        path: PathBuf,
        /// The error of the file system.
        source: std::io::Error,
    },
    /// The file is not a valid configuration; the message has line and column.
    #[error("{path}: {source}")]
    Parse {
        /// The path of the configuration file.
        path: PathBuf,
        /// The error of the parser, with its position.
        source: Box<toml::de::Error>,
    },
}

/// Bytes of a configuration file at most: a thousand namespaces with their hosts take a tenth of it.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// The configuration of a server.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// The NVM subsystems that are served.
    #[serde(default, rename = "subsystem", skip_serializing_if = "Vec::is_empty")]
    pub subsystems: Vec<SubsystemConfig>,
    /// The ports that the server listens on.
    #[serde(default, rename = "port", skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortConfig>,
    /// Referrals: other discovery services that the discovery log lists.
    #[serde(default, rename = "referral", skip_serializing_if = "Vec::is_empty")]
    pub referrals: Vec<ReferralConfig>,
}

/// A subsystem: an NQN with its namespaces and its allowed hosts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SubsystemConfig {
    /// The NQN of the subsystem.
    pub nqn: Nqn,
    /// The serial number (SN), at most 20 characters; derived from machine and NQN when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<Serial>,
    /// The model number (MN), at most 40 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The allowed hosts; every host when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<BTreeSet<Nqn>>,
    /// Credentials by host NQN. If there are any, only these hosts may connect.
    #[serde(default, rename = "host", skip_serializing_if = "BTreeMap::is_empty")]
    pub credentials: BTreeMap<Nqn, Credentials>,
    /// The namespaces of the subsystem.
    #[serde(default, rename = "namespace", skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<NamespaceConfig>,
}

impl SubsystemConfig {
    /// A subsystem without namespaces that every host may use.
    pub fn new(nqn: Nqn) -> Self {
        let (hosts, credentials, namespaces) = (None, BTreeMap::new(), Vec::new());
        Self {
            nqn,
            serial: None,
            model: None,
            hosts,
            credentials,
            namespaces,
        }
    }
}

/// The allowed hosts of a subsystem; every host when `None`.
pub type HostsConfig = Option<BTreeSet<Nqn>>;

/// A namespace: its identifier, its blocks, and the store that holds them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct NamespaceConfig {
    /// The namespace identifier (NSID), from 1.
    pub id: u32,
    /// The store that holds the blocks.
    #[serde(flatten)]
    pub backend: BackendConfig,
    /// The logical block size: 512 or 4096 bytes.
    #[serde(default = "block_size", skip_serializing_if = "is_block_size")]
    pub block_size: BlockSize,
    /// Whether the namespace is read-only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// The ANA group identifier, from 1.
    #[serde(default = "group", skip_serializing_if = "is_group")]
    pub group: u32,
    /// The UUID: the same on servers that are paths to one disk. Derived from machine, subsystem, identifier
    /// and store when UUID and NGUID are absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<Uuid>,
    /// The NGUID, derived as the UUID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nguid: Option<Nguid>,
}

impl NamespaceConfig {
    /// A namespace with blocks of 4096 bytes in ANA group 1 that hosts may write.
    pub fn new(id: u32, backend: BackendConfig) -> Self {
        let (block_size, group) = (block_size(), group());
        Self {
            id,
            backend,
            block_size,
            read_only: false,
            group,
            uuid: None,
            nguid: None,
        }
    }
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

/// A logical block size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub enum BlockSize {
    /// Logical blocks of 512 bytes.
    B512,
    /// Logical blocks of 4096 bytes.
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

/// The store of a namespace: one of `file`, `memory` and `null`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "BackendKeys", into = "BackendKeys")]
pub enum BackendConfig {
    /// A regular file or a block device.
    File {
        /// The path of the regular file or block device.
        path: PathBuf,
        /// The size to which the file is extended; its present size when absent.
        size: Option<Bytes>,
        /// Whether to use direct I/O (`O_DIRECT`) where the file supports it.
        direct: bool,
    },
    /// In the memory of the server, with this size; the data end with the process.
    Memory(Bytes),
    /// Nowhere: writes are discarded, and reads return zeros. The size is what hosts see.
    Null(Bytes),
}

impl BackendConfig {
    /// The same with an absolute path: a relative one would mean another file after a restart in another
    /// folder.
    ///
    /// # Errors
    /// When the path is empty, or the working directory does not exist any more.
    pub fn absolute(self) -> std::io::Result<Self> {
        Ok(match self {
            Self::File { path, size, direct } => Self::File {
                path: std::path::absolute(path)?,
                size,
                direct,
            },
            other => other,
        })
    }
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
        let BackendKeys {
            file,
            size,
            direct,
            memory,
            null,
        } = keys;
        match (file, memory, null) {
            (Some(path), None, None) => Ok(Self::File {
                path,
                size,
                direct: direct.unwrap_or(true),
            }),
            (None, Some(bytes), None) if size.is_none() && direct.is_none() => {
                Ok(Self::Memory(bytes))
            }
            (None, None, Some(bytes)) if size.is_none() && direct.is_none() => {
                Ok(Self::Null(bytes))
            }
            (None, None, None) => Err("say where a namespace's bytes are: file, memory or null"),
            _ => Err("a namespace has one of file (with size and direct), memory and null"),
        }
    }
}

impl From<BackendConfig> for BackendKeys {
    fn from(backend: BackendConfig) -> Self {
        let none = Self {
            file: None,
            size: None,
            direct: None,
            memory: None,
            null: None,
        };
        match backend {
            BackendConfig::File { path, size, direct } => Self {
                file: Some(path),
                size,
                direct: (!direct).then_some(false),
                ..none
            },
            BackendConfig::Memory(bytes) => Self {
                memory: Some(bytes),
                ..none
            },
            BackendConfig::Null(bytes) => Self {
                null: Some(bytes),
                ..none
            },
        }
    }
}

/// A port: an address that the server listens on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PortConfig {
    /// The port identifier (PORTID); assigned by the server when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u16>,
    /// The transport, TCP or RDMA.
    #[serde(default, skip_serializing_if = "is_tcp")]
    pub transport: TransportConfig,
    /// Whether the port requires TLS 1.3 with the PSKs of the hosts. TCP only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tls: bool,
    /// The length of the shared receive queue of all connections of a device; when absent, each connection
    /// has its own receives, one for each command. RDMA only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_receives: Option<Receives>,
    /// The address and port to listen on, as in 192.0.2.1:4420, [::]:4420 or [fe80::1%eth0]:4420.
    #[serde(with = "server::address")]
    pub address: SocketAddr,
    /// The subsystems that hosts reach through this port; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subsystems: Option<BTreeSet<Nqn>>,
}

/// The length of a shared receive queue: from 64 to 32768, the limit of rockery devices.
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
        text.parse::<u32>()
            .map_err(|error| error.to_string())?
            .try_into()
    }
}

/// The transport of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TransportConfig {
    /// NVMe/TCP, with or without TLS.
    #[default]
    Tcp,
    /// NVMe/RDMA over a verbs device.
    Rdma,
}

impl PortConfig {
    /// The transport as users know it: TLS is a port of its own to them.
    pub(super) const fn transport_name(&self) -> &'static str {
        match (self.transport, self.tls) {
            (TransportConfig::Rdma, _) => "RDMA",
            (TransportConfig::Tcp, true) => "TLS",
            (TransportConfig::Tcp, false) => "TCP",
        }
    }
}

fn is_tcp(transport: &TransportConfig) -> bool {
    *transport == TransportConfig::Tcp
}

/// A referral to another discovery service.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ReferralConfig {
    /// The address and port of the discovery service.
    #[serde(with = "server::address")]
    pub address: SocketAddr,
}

impl Config {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// When the file cannot be read or is not valid; the error has the position.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let file = |source| ConfigError::File {
            path: path.to_owned(),
            source,
        };
        let text = settings::read_text(path, FILE_BYTES_MAX).map_err(file)?;
        toml::from_str(&text).map_err(|source| ConfigError::Parse {
            path: path.to_owned(),
            source: Box::new(source),
        })
    }

    /// The configuration as TOML.
    pub fn to_text(&self) -> String {
        // All keys are text, and all values numbers, booleans, text or tables, so that serialization cannot
        // fail.
        toml::to_string(self).unwrap_or_default()
    }

    /// Changes the subsystem of this name, if it exists.
    pub(super) fn with_subsystem(&mut self, name: &Nqn, change: impl FnOnce(&mut SubsystemConfig)) {
        if let Some(subsystem) = self.subsystems.iter_mut().find(|it| it.nqn == *name) {
            change(subsystem);
        }
    }

    /// Writes the file atomically: the old file stays until the new one is on the medium. A file that has the
    /// same contents already is not written, so that no free space is needed then.
    ///
    /// # Errors
    /// When the file system reports an error.
    pub fn write(&self, path: &Path) -> Result<(), ConfigError> {
        let text = self.to_text();
        if std::fs::read(path).is_ok_and(|found| found == text.as_bytes()) {
            return Ok(());
        }
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        let new = PathBuf::from(new);
        let folder = path
            .parent()
            .filter(|it| !it.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let write = || {
            use std::io::Write;
            // The configuration may contain secrets, so a temporary file of an earlier attempt, with unknown
            // permissions, is not reused.
            _ = std::fs::remove_file(&new);
            let options = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .clone();
            let mut out = options.open(&new)?;
            out.write_all(text.as_bytes())?;
            out.sync_all()?;
            std::fs::rename(&new, path)?;
            File::open(folder)?.sync_all()
        };
        write().map_err(|source| {
            _ = std::fs::remove_file(&new);
            ConfigError::File {
                path: path.to_owned(),
                source,
            }
        })
    }
}

/// A number of bytes in text form: 4096, 512M, 10GiB. Units are powers of 1024.
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
        let wrong =
            || format!("{text:?} is no size: write bytes, or K, M, G, T, P behind a number");
        let upper = text.trim().to_ascii_uppercase();
        let plain = upper
            .strip_suffix("IB")
            .or_else(|| upper.strip_suffix('B'))
            .unwrap_or(&upper);
        let unit = UNITS
            .iter()
            .find_map(|(unit, shift)| Some((plain.strip_suffix(unit)?, *shift)));
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
        uuid = "36ebf5a9-1df9-47b3-a6d0-e9ba32e428a2"
        nguid = "36ebf5a91df947b3a6d0e9ba32e428a3"

        [[port]]
        address = "[::]:4420"
    "#;

    #[test]
    fn a_configuration_is_written_as_it_was_read() {
        let config: Config = toml::from_str(TEXT).unwrap();
        let namespaces = &config.subsystems[0].namespaces;
        assert_eq!(
            namespaces[1].backend,
            BackendConfig::Memory(Bytes(64 << 20))
        );
        let text = toml::to_string(&config).unwrap();
        assert_eq!(toml::from_str::<Config>(&text).unwrap(), config, "{text}");
    }

    #[test]
    fn invalid_text_gives_a_specific_error() {
        let wrong = |from: &str, to: &str| {
            toml::from_str::<Config>(&TEXT.replace(from, to))
                .unwrap_err()
                .to_string()
        };
        assert!(wrong("block-size = 512", "block-size = 100").contains("512 or 4096"));
        assert!(wrong("memory = \"64M\"", "").contains("file, memory or null"));
        assert!(wrong("memory = \"64M\"", "memory = \"64 apples\"").contains("is no size"));
        assert!(wrong("nqn.2024-01.org", "disk").contains("begins with nqn."));
        assert!(wrong("group = 3", "gruop = 3").contains("gruop"));
        assert!(wrong("36ebf5a9-", "36ebf5-").contains("32 hexadecimal digits"));
        assert!(wrong("hosts =", "serial = \"ü\"\nhosts =").contains("20 printable characters"));
    }

    #[test]
    fn sizes_have_units() {
        for (text, bytes) in [
            ("4096", 4096),
            ("512M", 512 << 20),
            ("10GiB", 10 << 30),
            ("1 tb", 1 << 40),
        ] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)));
        }
        assert_eq!(Bytes(3 << 30).to_string(), "3GiB");
        assert_eq!(Bytes(1000).to_string(), "1000");
        assert!("99999999P".parse::<Bytes>().is_err());
    }
}
