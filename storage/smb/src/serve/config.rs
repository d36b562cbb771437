//! The configuration file of a gateway or a dial.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use thiserror::Error;

/// The longest file, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The configuration file of a gateway.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatewayConfig {
    /// Addresses and ports to listen on for SMB Direct.
    #[serde(deserialize_with = "server::address::list")]
    pub rdma: Vec<SocketAddr>,
    /// Host, or host and port, of the SMB server.
    pub server: String,
    /// Address and port of the HTTP server for metrics.
    #[serde(default, deserialize_with = "server::address::optional")]
    pub metrics: Option<SocketAddr>,
}

/// The configuration file of a dial.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DialConfig {
    /// Addresses and ports to listen on for SMB over TCP.
    #[serde(deserialize_with = "server::address::list")]
    pub listen: Vec<SocketAddr>,
    /// Host, or host and port, of the SMB Direct server.
    pub server: String,
    /// Address and port of the HTTP server for metrics.
    #[serde(default, deserialize_with = "server::address::optional")]
    pub metrics: Option<SocketAddr>,
}

/// Why a configuration file cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The text is not TOML, or lacks a field, or has one of another name.
    #[error("{path}: {source}")]
    Text {
        /// The path of the file.
        path: PathBuf,
        /// The mistake, with its line.
        source: Box<toml::de::Error>,
    },
    /// There is no address to listen on.
    #[error("{path}: {field} has no address")]
    NoAddress {
        /// The path of the file.
        path: PathBuf,
        /// The field without one.
        field: &'static str,
    },
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, ConfigError> {
    let own = || path.to_owned();
    let text = server::settings::read_text(path, FILE_BYTES_MAX);
    let text = text.map_err(|source| ConfigError::File {
        path: own(),
        source,
    })?;
    toml::from_str(&text).map_err(|source| ConfigError::Text {
        path: own(),
        source: Box::new(source),
    })
}

fn with_address<T>(
    config: T,
    path: &Path,
    field: &'static str,
    count: usize,
) -> Result<T, ConfigError> {
    if count == 0 {
        Err(ConfigError::NoAddress {
            path: path.to_owned(),
            field,
        })
    } else {
        Ok(config)
    }
}

impl GatewayConfig {
    /// Reads a file.
    ///
    /// # Errors
    /// [`ConfigError`] names the file, and the line of a mistake.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let config: Self = read(path)?;
        let count = config.rdma.len();
        with_address(config, path, "rdma", count)
    }
}

impl DialConfig {
    /// Reads a file.
    ///
    /// # Errors
    /// [`ConfigError`] names the file, and the line of a mistake.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let config: Self = read(path)?;
        let count = config.listen.len();
        with_address(config, path, "listen", count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), text).expect("a file of ours");
        file
    }

    #[test]
    fn files_name_addresses_and_the_server() {
        let file = written("rdma = ['192.0.2.1:445', '[::1]:445']\nserver = 'localhost'\n");
        let config = GatewayConfig::read(file.path()).unwrap();
        assert_eq!(
            (config.rdma.len(), config.server.as_str(), config.metrics),
            (2, "localhost", None)
        );
        let file =
            written("listen = ['127.0.0.1:1445']\nserver = 'h:1'\nmetrics = '127.0.0.1:9'\n");
        assert_eq!(
            DialConfig::read(file.path()).unwrap().metrics,
            Some(([127, 0, 0, 1], 9).into())
        );
    }

    #[test]
    fn mistakes_are_named_with_the_file() {
        for (text, named) in [
            ("server = 'h'", "rdma"),
            ("rdma = []\nserver = 'h'", "rdma has no address"),
            ("rdma = ['h:445']\nserver = 'h'", "line 1"),
            ("rdma = ['1.2.3.4:1']\nserver = 'h'\nserve = 1", "serve"),
        ] {
            let file = written(text);
            let error = GatewayConfig::read(file.path()).unwrap_err().to_string();
            assert!(
                error.contains(named) && error.contains(file.path().to_str().unwrap()),
                "{error}"
            );
        }
        assert!(GatewayConfig::read(Path::new("/nonexistent/file")).is_err());
        let long = written(&" ".repeat(FILE_BYTES_MAX as usize + 1));
        assert!(matches!(
            DialConfig::read(long.path()),
            Err(ConfigError::File { .. })
        ));
    }

    #[test]
    fn zones_are_read_in_files() {
        let gateway = "rdma = [\"[fe80::1%lo]:445\"]\nserver = \"s\"\nmetrics = \"[fe80::1%1]:9\"";
        let gateway: GatewayConfig = toml::from_str(gateway).unwrap();
        assert_eq!(
            gateway.rdma,
            [link::address::socket("[fe80::1%1]:445").unwrap()]
        );
        assert_eq!(
            gateway.metrics,
            link::address::socket("[fe80::1%lo]:9").ok()
        );
        let dial =
            toml::from_str::<DialConfig>("listen = [\"127.0.0.1:445\"]\nserver = \"s\"").unwrap();
        assert_eq!(dial.metrics, None);
        let error =
            toml::from_str::<DialConfig>("listen = [\"[fe80::1%nosuch0]:1\"]\nserver = \"s\"")
                .unwrap_err();
        assert!(
            error.to_string().contains("\"nosuch0\" is no interface"),
            "{error}"
        );
    }
}
