//! The control socket: each command is a line of JSON, and each answer too.

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use server::Counted;
use server::deadline::Deadline;
use server::local::{self, LocalError, LocalListener};
use thiserror::Error;
use wire::nvme::log::AnaState;

use super::config::{Bytes, NamespaceConfig, PortConfig, SubsystemConfig};
use super::server::Server;
use crate::auth::Credentials;
use crate::identifier::{Nguid, Uuid};
use crate::limits::CONTROL_CLIENTS_MAX;
use crate::nqn::Nqn;

/// The longest command in bytes.
const COMMAND_BYTES_MAX: u64 = 1 << 20;
/// The time limit for receiving a command, and again for sending the answer.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(5);

static CLIENTS: AtomicUsize = AtomicUsize::new(0);

/// A command for a server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Command {
    /// Reports the subsystems, namespaces, ports and controllers.
    Status,
    /// Reports the counters and latency histograms.
    Report,
    /// Reports the configuration in the form of the file.
    Config,
    /// Adds a subsystem.
    AddSubsystem(SubsystemConfig),
    /// Removes a subsystem.
    RemoveSubsystem {
        /// The NQN of the subsystem.
        nqn: Nqn,
    },
    /// Adds a namespace.
    AddNamespace {
        /// The NQN of the subsystem.
        nqn: Nqn,
        /// The namespace to add.
        namespace: NamespaceConfig,
    },
    /// Removes a namespace.
    RemoveNamespace {
        /// The NQN of the subsystem.
        nqn: Nqn,
        /// The namespace identifier (NSID).
        id: u32,
    },
    /// Changes the size of a namespace.
    Resize {
        /// The NQN of the subsystem.
        nqn: Nqn,
        /// The namespace identifier (NSID).
        id: u32,
        /// The new size in bytes.
        size: Bytes,
    },
    /// Sets the allowed hosts of a subsystem.
    Hosts {
        /// The NQN of the subsystem.
        nqn: Nqn,
        /// The allowed hosts; every host when `None`.
        hosts: Option<BTreeSet<Nqn>>,
    },
    /// Sets the credentials of a host.
    Credentials {
        /// The NQN of the subsystem.
        nqn: Nqn,
        /// The NQN of the host.
        host: Nqn,
        /// The credentials; `None` removes them.
        credentials: Option<Credentials>,
    },
    /// Adds a port.
    AddPort(PortConfig),
    /// Sets the ANA state of a group on a port.
    Access {
        /// The NQN of the subsystem.
        nqn: Nqn,
        /// The port identifier (PORTID).
        port: u16,
        /// The ANA group identifier, from 1.
        group: u32,
        /// The new ANA state.
        access: Access,
    },
}

/// The ANA states that can be set.
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

/// Why a command failed.
#[derive(Debug, Error)]
pub enum ControlError {
    /// No server accepts connections at the path.
    #[error("no server answers at {path}: {source}")]
    NoServer {
        /// The path of the control socket.
        path: PathBuf,
        /// The error of the connection attempt.
        source: io::Error,
    },
    /// The server runs as another user, who could forge answers and read secrets in commands.
    #[error(
        "the server at {path} is a process of user {user}, not of this user or root: nothing was sent to it; \
         run this command as that user, or name another socket with --control"
    )]
    OtherUser {
        /// The path of the control socket.
        path: PathBuf,
        /// The user ID of the server.
        user: u32,
    },
    /// The server closed the connection.
    #[error("the server closed the connection: {0}")]
    Gone(io::Error),
    /// The server did not take the command, or did not answer it, within the time limit.
    #[error("the server gave no answer in time: it is stopped, or busy")]
    Silent,
    /// The answer is longer than the limit.
    #[error("the answer of the server has more than {0} bytes")]
    TooLong(u64),
    /// The server refused the command, with this reason.
    #[error("{0}")]
    Refused(String),
    /// The answer is not valid.
    #[error("the answer of the server is not valid: {0}")]
    Answer(serde_json::Error),
}

/// Sends a command to a server, and returns its answer. The server has to run as this user or as root.
///
/// # Errors
/// When no server listens, it runs as another user, or it refuses the command.
pub fn ask(path: &Path, command: &Command) -> Result<Value, ControlError> {
    let (stream, _) = local::connect(path).map_err(|error| not_connected(path, error))?;
    exchange(stream, command, u64::MAX)
}

/// The same as [`ask`], with limits for the time of the whole exchange and the length of the answer.
///
/// # Errors
/// As [`ask`], and when a limit is exceeded.
pub fn ask_within(
    path: &Path,
    command: &Command,
    time: Duration,
    bytes_max: u64,
) -> Result<Value, ControlError> {
    let end = Instant::now() + time;
    let (stream, _) =
        local::connect_within(path, time).map_err(|error| not_connected(path, error))?;
    let stream = Deadline::after(&stream, end.saturating_duration_since(Instant::now()));
    exchange(stream, command, bytes_max)
}

fn not_connected(path: &Path, error: LocalError) -> ControlError {
    match error {
        LocalError::Io(source) => ControlError::NoServer {
            path: path.to_owned(),
            source,
        },
        LocalError::OtherUser(user) => ControlError::OtherUser {
            path: path.to_owned(),
            user,
        },
    }
}

/// An error of the connection to a server.
fn broken(error: io::Error) -> ControlError {
    match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => ControlError::Silent,
        _ => ControlError::Gone(error),
    }
}

fn exchange(
    mut stream: impl Read + Write,
    command: &Command,
    bytes_max: u64,
) -> Result<Value, ControlError> {
    let line = serde_json::to_string(command).map_err(ControlError::Answer)? + "\n";
    stream.write_all(line.as_bytes()).map_err(broken)?;
    let mut answer = String::new();
    BufReader::new(stream.take(bytes_max))
        .read_line(&mut answer)
        .map_err(broken)?;
    match answer.ends_with('\n') {
        true => {}
        false if answer.len() as u64 == bytes_max => return Err(ControlError::TooLong(bytes_max)),
        false => return Err(ControlError::Gone(io::ErrorKind::UnexpectedEof.into())),
    }
    let answer: Value = serde_json::from_str(&answer).map_err(ControlError::Answer)?;
    match answer.get("error").and_then(Value::as_str) {
        Some(error) => Err(ControlError::Refused(error.to_owned())),
        None => Ok(answer),
    }
}

/// Executes a command, or says why not.
pub type Obey = Arc<dyn Fn(Command) -> Result<Value, String> + Send + Sync>;

/// The control socket of a server.
#[derive(Debug)]
pub struct Control(LocalListener);

impl Control {
    /// Listens; only this user and root may connect. The file of a socket that no process listens on is
    /// replaced.
    ///
    /// # Errors
    /// When a server listens there already, or the socket cannot be created.
    pub fn listen(path: &Path) -> io::Result<Self> {
        if let Some(folder) = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
        {
            std::fs::create_dir_all(folder)?;
        }
        Ok(Self(LocalListener::bind(path)?))
    }

    /// Serves clients until the socket fails, each in a thread of its own, so that a slow client does not
    /// delay others.
    ///
    /// # Errors
    /// The error of the socket.
    pub fn serve(&self, server: &Arc<Server>) -> io::Result<()> {
        let server = Arc::clone(server);
        self.serve_by(Arc::new(move |command| {
            server.obey(command).map_err(|error| error.to_string())
        }))
    }

    /// Removes the file of the socket at the end of the server.
    pub fn remove_file(&self) {
        self.0.remove_file();
    }

    /// Serves clients of any server, as [`Control::serve`]: `obey` executes a command, or says why not.
    ///
    /// # Errors
    /// As [`Control::serve`].
    pub fn serve_by(&self, obey: Obey) -> io::Result<()> {
        loop {
            let stream = self.0.accept()?;
            let obey = Arc::clone(&obey);
            let thread = std::thread::Builder::new().name("control".to_owned());
            // If no thread can be started, the connection is closed, and the client reports that.
            _ = thread.spawn(move || {
                if let Some(_one) = Counted::one_more(&CLIENTS, CONTROL_CLIENTS_MAX) {
                    _ = answer(&stream, &obey);
                }
            });
        }
    }
}

fn answer(stream: &UnixStream, obey: &Obey) -> io::Result<()> {
    let mut line = String::new();
    let command = Deadline::after(stream, EXCHANGE_TIMEOUT);
    BufReader::new(command.take(COMMAND_BYTES_MAX)).read_line(&mut line)?;
    let answer = match serde_json::from_str::<Command>(&line) {
        Ok(command) => {
            let is_change = !matches!(command, Command::Status | Command::Report | Command::Config);
            if is_change {
                // The log has the parsed command, whose secrets are not printed, and not its text.
                tracing::info!(?command, "control command");
            }
            obey(command).unwrap_or_else(|error| json!({ "error": error }))
        }
        Err(error) => json!({ "error": format!("not a command: {error}") }),
    };
    Deadline::after(stream, EXCHANGE_TIMEOUT).write_all(format!("{answer}\n").as_bytes())
}

fn with_warning(warning: Option<String>) -> Value {
    warning.map_or_else(|| json!({}), |text| json!({ "warning": text }))
}

impl Server {
    fn obey(&self, command: Command) -> Result<Value, super::ServeError> {
        match command {
            Command::Status => return Ok(self.status()),
            Command::Report => return Ok(json!(super::Report::of(self.shared()))),
            Command::Config => return Ok(json!(self.config())),
            Command::AddSubsystem(subsystem) => self.add_subsystem(subsystem)?,
            Command::RemoveSubsystem { nqn } => self.remove_subsystem(&nqn)?,
            Command::AddNamespace { nqn, namespace } => {
                return Ok(with_warning(self.add_namespace(&nqn, namespace)?));
            }
            Command::RemoveNamespace { nqn, id } => self.remove_namespace(&nqn, id)?,
            Command::Resize { nqn, id, size } => {
                return Ok(with_warning(self.resize_namespace(&nqn, id, size)?));
            }
            Command::Hosts { nqn, hosts } => self.set_hosts(&nqn, hosts)?,
            Command::Credentials {
                nqn,
                host,
                credentials,
            } => {
                self.set_credentials(&nqn, host, credentials)?;
            }
            Command::AddPort(port) => {
                let id = self.add_port(port)?;
                return Ok(json!({ "port": id }));
            }
            Command::Access {
                nqn,
                port,
                group,
                access,
            } => {
                self.set_access(&nqn, port, group, access.into())?;
            }
        }
        Ok(json!({}))
    }

    fn status(&self) -> Value {
        use std::sync::atomic::Ordering::Relaxed;
        let subsystems = self.target().subsystems();
        let namespace = |it: &Arc<crate::controller::Namespace>| {
            let counters = &it.counters;
            json!({
                "id": it.nsid(), "uuid": Uuid::from(it.identity().uuid),
                "nguid": Nguid::from(it.identity().nguid),
                "bytes": it.bytes(), "block-size": 1 << it.shift(), "group": it.group(),
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
                json!({ "nqn": it.name(), "serial": it.serial(), "namespaces": namespaces })
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

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_millis(200);

    /// Asks a server that writes `answer` and then keeps the connection, or closes it.
    fn asked(answer: &'static str, keeps: bool, bytes_max: u64) -> Result<Value, ControlError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = LocalListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let stream = listener.accept().unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            (&stream).write_all(answer.as_bytes()).unwrap();
            keeps.then_some(stream)
        });
        let result = ask_within(&path, &Command::Report, TIME, bytes_max);
        drop(server.join());
        result
    }

    #[test]
    fn answers_are_limited_in_time_and_length() {
        assert_eq!(asked("{\"a\":1}\n", true, 8).unwrap(), json!({ "a": 1 }));
        assert!(matches!(
            asked("{\"a\":1}\n", true, 7),
            Err(ControlError::TooLong(7))
        ));
        assert!(matches!(
            asked("{\"a\":1}", true, 100),
            Err(ControlError::Silent)
        ));
        assert!(matches!(asked("", true, 100), Err(ControlError::Silent)));
        assert!(matches!(
            asked("{\"a\":", false, 100),
            Err(ControlError::Gone(_))
        ));
    }
}
