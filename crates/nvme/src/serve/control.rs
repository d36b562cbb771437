//! The control socket: one JSON command in a line, one JSON answer in a line.

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use thiserror::Error;
use wire::nvme::log::AnaState;

use super::config::{Bytes, NamespaceConfig, PortConfig, SubsystemConfig};
use super::state::Server;
use crate::auth::Credentials;
use crate::nqn::Nqn;

/// Bytes of the longest command.
const COMMAND_BYTES_MAX: u64 = 1 << 20;
/// How long a client may take for its command.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a server can be told.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Command {
    /// What is served, and to whom.
    Status,
    /// What has been done so far, with the time that it took.
    Report,
    /// What is served, as a configuration file has it.
    Config,
    /// One more subsystem.
    AddSubsystem(SubsystemConfig),
    /// One subsystem less.
    RemoveSubsystem {
        /// Which.
        nqn: Nqn,
    },
    /// One more namespace.
    AddNamespace {
        /// Where.
        nqn: Nqn,
        /// What.
        namespace: NamespaceConfig,
    },
    /// One namespace less.
    RemoveNamespace {
        /// Where.
        nqn: Nqn,
        /// Which.
        id: u32,
    },
    /// Another size.
    Resize {
        /// Where.
        nqn: Nqn,
        /// Which.
        id: u32,
        /// How large.
        size: Bytes,
    },
    /// Who may use a subsystem.
    Hosts {
        /// Which.
        nqn: Nqn,
        /// These, or everybody.
        hosts: Option<BTreeSet<Nqn>>,
    },
    /// What a host proves itself with.
    Credentials {
        /// Where.
        nqn: Nqn,
        /// Who.
        host: Nqn,
        /// This, or nothing.
        credentials: Option<Credentials>,
    },
    /// One more address.
    AddPort(PortConfig),
    /// How a group of namespaces is reached through a port.
    Access {
        /// Where.
        nqn: Nqn,
        /// Through which port.
        port: u16,
        /// Which group.
        group: u32,
        /// How.
        access: Access,
    },
}

/// How a group of namespaces is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the names say it")]
pub enum Access {
    Optimized,
    NonOptimized,
    Inaccessible,
    PersistentLoss,
    Change,
}

impl From<Access> for AnaState {
    fn from(access: Access) -> Self {
        match access {
            Access::Optimized => Self::Optimized,
            Access::NonOptimized => Self::NonOptimized,
            Access::Inaccessible => Self::Inaccessible,
            Access::PersistentLoss => Self::PersistentLoss,
            Access::Change => Self::Change,
        }
    }
}

/// Why a server could not be told something.
#[derive(Debug, Error)]
pub enum ControlError {
    /// Nobody is there.
    #[error("no server answers at {path}: {source}")]
    Nobody {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It hung up.
    #[error("the server went away: {0}")]
    Gone(io::Error),
    /// It did not want to.
    #[error("{0}")]
    Refused(String),
    /// It answered with something else.
    #[error("the server's answer is not understood: {0}")]
    Answer(serde_json::Error),
}

/// Tells a server something, and returns what it says.
///
/// # Errors
/// When nobody is there, or it refuses.
pub fn ask(path: &Path, command: &Command) -> Result<Value, ControlError> {
    let nobody = |source| ControlError::Nobody { path: path.to_owned(), source };
    let mut stream = UnixStream::connect(path).map_err(nobody)?;
    let line = serde_json::to_string(command).map_err(ControlError::Answer)? + "\n";
    stream.write_all(line.as_bytes()).map_err(ControlError::Gone)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).map_err(ControlError::Gone)?;
    let answer: Value = serde_json::from_str(&answer).map_err(ControlError::Answer)?;
    match answer.get("error").and_then(Value::as_str) {
        Some(error) => Err(ControlError::Refused(error.to_owned())),
        None => Ok(answer),
    }
}

/// A socket through which a server is told things.
#[derive(Debug)]
pub struct Control {
    listener: UnixListener,
    path: PathBuf,
}

impl Control {
    /// Listens; only this user may connect. A socket that nobody answers is replaced.
    ///
    /// # Errors
    /// When somebody answers there already, or the path cannot be had.
    pub fn listen(path: &Path) -> io::Result<Self> {
        if UnixStream::connect(path).is_ok() {
            let text = format!("a server answers at {} already", path.display());
            return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
        }
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder)?;
        }
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        Ok(Self { listener, path: path.to_owned() })
    }

    /// Answers commands, one client at a time, for ever.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn serve(&self, server: &Arc<Mutex<Server>>) -> io::Result<()> {
        loop {
            let (stream, _) = self.listener.accept()?;
            // A client that misbehaves hurts only itself.
            _ = answer(&stream, server);
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.path);
    }
}

fn answer(stream: &UnixStream, server: &Mutex<Server>) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream.take(COMMAND_BYTES_MAX)).read_line(&mut line)?;
    let answer = match serde_json::from_str::<Command>(&line) {
        Ok(command) => {
            let is_change = !matches!(command, Command::Status | Command::Report | Command::Config);
            if is_change {
                // Not its text: there may be secrets in it, which this does not show.
                tracing::info!(?command, "told");
            }
            let mut server = server.lock().unwrap_or_else(PoisonError::into_inner);
            server.obey(command).unwrap_or_else(|error| json!({ "error": error.to_string() }))
        }
        Err(error) => json!({ "error": format!("not a command: {error}") }),
    };
    let mut stream = stream;
    stream.write_all(format!("{answer}\n").as_bytes())
}

impl Server {
    fn obey(&mut self, command: Command) -> Result<Value, super::ServeError> {
        match command {
            Command::Status => return Ok(self.status()),
            Command::Report => return Ok(json!(super::Report::of(self.shared()))),
            Command::Config => return Ok(json!(self.config())),
            Command::AddSubsystem(subsystem) => self.add_subsystem(subsystem)?,
            Command::RemoveSubsystem { nqn } => self.remove_subsystem(&nqn)?,
            Command::AddNamespace { nqn, namespace } => self.add_namespace(&nqn, namespace)?,
            Command::RemoveNamespace { nqn, id } => self.remove_namespace(&nqn, id)?,
            Command::Resize { nqn, id, size } => self.resize_namespace(&nqn, id, size)?,
            Command::Hosts { nqn, hosts } => self.set_hosts(&nqn, hosts)?,
            Command::Credentials { nqn, host, credentials } => {
                self.set_credentials(&nqn, host, credentials)?;
            }
            Command::AddPort(port) => {
                let id = self.add_port(port)?;
                return Ok(json!({ "port": id }));
            }
            Command::Access { nqn, port, group, access } => {
                self.target().set_access(&nqn, port, group, access.into())?;
            }
        }
        Ok(json!({}))
    }

    fn status(&self) -> Value {
        use std::sync::atomic::Ordering::Relaxed;
        let subsystems = self.target().subsystems();
        let namespace = |it: &Arc<crate::target::Namespace>| {
            let counters = &it.counters;
            json!({
                "id": it.nsid(), "bytes": it.bytes(), "block-size": 1 << it.shift(), "group": it.group(),
                "read-only": it.is_read_only(), "direct": it.store().is_direct(),
                "reads": counters.reads.load(Relaxed), "read-bytes": counters.read_bytes.load(Relaxed),
                "writes": counters.writes.load(Relaxed),
                "written-bytes": counters.written_bytes.load(Relaxed),
                "others": counters.others.load(Relaxed), "errors": counters.errors.load(Relaxed),
            })
        };
        let subsystems: Vec<Value> = subsystems
            .iter()
            .map(|it| {
                let namespaces: Vec<Value> = it.namespaces().iter().map(namespace).collect();
                json!({ "nqn": it.name(), "namespaces": namespaces })
            })
            .collect();
        let controllers = self.target().controllers().into_iter().map(|it| {
            json!({
                "id": it.id, "subsystem": it.subsystem, "host": it.host, "port": it.port,
                "queues": it.queues, "keep-alive-ms": it.keep_alive_ms,
            })
        });
        let controllers: Vec<Value> = controllers.collect();
        let ports: Vec<String> = self.addresses().iter().map(ToString::to_string).collect();
        let connections = self.shared().connections();
        json!({
            "subsystems": subsystems, "controllers": controllers, "ports": ports, "connections": connections,
        })
    }
}
