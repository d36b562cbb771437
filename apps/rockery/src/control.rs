//! The control sockets of servers: the default path of each kind, and all that this user's servers listen on.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde_json::Value;
use server::control::{ControlError, Query, ask};

use crate::{Error, runtime};

/// The name of an NVMe target's socket.
const NVME: &str = "nvme.sock";
/// Prefix and suffix of the names of SMB gateways' and dials' sockets.
const SMB: [&str; 2] = ["smb-", ".sock"];

/// The control socket of a server.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Socket {
    /// Path of the server's control socket. Default: rockery/nvme.sock in XDG_RUNTIME_DIR, or
    /// rockery-UID/nvme.sock in /tmp. `rockery top`, `serve status` and `serve metrics` also find the default
    /// sockets of `rockery smb`, which are in the same folder.
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

impl Socket {
    /// The path of an NVMe target's socket. Its folder is private to this user, unless the path was given.
    ///
    /// # Errors
    /// When another user could write to the folder.
    pub(crate) fn path(&self) -> Result<PathBuf, Error> {
        match &self.control {
            Some(path) => Ok(path.clone()),
            None => Ok(runtime::folder()?.join(NVME)),
        }
    }

    /// The answer of the server at the given path, or of every server that listens on a default socket, in
    /// the order of the paths. There is at least one.
    ///
    /// # Errors
    /// When no server answers, or one refuses.
    pub(crate) fn ask_all(&self, query: &Query) -> Result<Vec<(PathBuf, Value)>, Error> {
        let path = self.path()?;
        if self.control.is_none() {
            let mut answers = Vec::new();
            for path in default_sockets()? {
                match ask(&path, query) {
                    Ok(answer) => answers.push((path, answer)),
                    // A file that a killed server left, or a server that ends.
                    Err(ControlError::NoServer { .. } | ControlError::Gone(_)) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            if !answers.is_empty() {
                return Ok(answers);
            }
        }
        let answer = ask(&path, query)?;
        Ok(vec![(path, answer)])
    }

    /// The answer of the only server that [`Socket::ask_all`] finds.
    ///
    /// # Errors
    /// As there, and with their sockets when there are several.
    pub(crate) fn ask_one(&self, query: &Query) -> Result<Value, Error> {
        let mut answers = self.ask_all(query)?;
        match answers.pop() {
            Some((_, answer)) if answers.is_empty() => Ok(answer),
            last => {
                let paths = answers
                    .into_iter()
                    .chain(last)
                    .map(|(path, _)| path.display().to_string());
                Err(Error::SeveralServers(paths.collect::<Vec<_>>().join(", ")))
            }
        }
    }
}

/// The socket files with default names in this user's folder, sorted.
///
/// # Errors
/// As [`Socket::path`].
pub(crate) fn default_sockets() -> Result<Vec<PathBuf>, Error> {
    let folder = runtime::folder()?;
    let is_ours = |path: &PathBuf| {
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        name == NVME || (name.starts_with(SMB[0]) && name.ends_with(SMB[1]))
    };
    let entries = std::fs::read_dir(&folder).map_err(Error::file(&folder))?;
    let mut paths: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(is_ours)
        .collect();
    paths.sort();
    Ok(paths)
}

/// The default socket of an SMB gateway or dial, named after its role and the address that it listens on, so
/// that several run beside each other.
///
/// # Errors
/// As [`Socket::path`].
pub(crate) fn of_smb(role: &str, address: SocketAddr) -> Result<PathBuf, Error> {
    Ok(runtime::folder()?.join(smb_name(role, address)))
}

/// Without brackets, which shells expand; with the interface of a link-local address.
fn smb_name(role: &str, address: SocketAddr) -> String {
    let [begin, end] = SMB;
    let scope = match address {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => format!("%{}", v6.scope_id()),
        _ => String::new(),
    };
    format!(
        "{begin}{role}-{}{scope}-{}{end}",
        address.ip(),
        address.port()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_of_gateways_and_dials_are_named_after_their_addresses() {
        for (role, address, name) in [
            ("gateway", "192.0.2.1:445", "smb-gateway-192.0.2.1-445.sock"),
            ("dial", "127.0.0.1:1445", "smb-dial-127.0.0.1-1445.sock"),
            ("dial", "[2001:db8::1]:445", "smb-dial-2001:db8::1-445.sock"),
            (
                "gateway",
                "[fe80::1%3]:445",
                "smb-gateway-fe80::1%3-445.sock",
            ),
        ] {
            assert_eq!(smb_name(role, address.parse().unwrap()), name);
        }
    }
}
