//! The control socket: each command is a line of JSON, and each answer too.

use std::fmt::Debug;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use thiserror::Error;

use crate::Counted;
use crate::deadline::Deadline;
use crate::local::{self, LocalError, LocalListener};

/// Clients of a control socket at once: a further one is disconnected.
pub const CLIENTS_MAX: usize = 16;
/// The longest command in bytes.
const COMMAND_BYTES_MAX: u64 = 1 << 20;
/// The time limit for receiving a command, and again for sending the answer.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(5);

/// A command of a kind of server.
pub trait Command: DeserializeOwned + Debug {
    /// Whether the command changes the server: the log has those that do.
    fn is_change(&self) -> bool;
}

/// The commands of all servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case")]
pub enum Query {
    /// Reports the state of the server.
    Status,
    /// Reports its counters.
    Report,
    /// A command that only other servers have.
    #[serde(other, skip_serializing)]
    Other,
}

impl Command for Query {
    fn is_change(&self) -> bool {
        false
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
pub fn ask(path: &Path, command: &impl Serialize) -> Result<Value, ControlError> {
    let (stream, _) = local::connect(path).map_err(|error| not_connected(path, error))?;
    exchange(stream, command, u64::MAX)
}

/// The same as [`ask`], with limits for the time of the whole exchange and the length of the answer.
///
/// # Errors
/// As [`ask`], and when a limit is exceeded.
pub fn ask_within(
    path: &Path,
    command: &impl Serialize,
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
    command: &impl Serialize,
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

/// The control socket of a server.
#[derive(Debug)]
pub struct Control {
    listener: LocalListener,
    clients: Arc<AtomicUsize>,
}

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
        Ok(Self {
            listener: LocalListener::bind(path)?,
            clients: Arc::default(),
        })
    }

    /// Serves clients until the socket fails, each in a thread of its own, so that a slow client does not
    /// delay others. `obey` executes a command, or says why not.
    ///
    /// # Errors
    /// The error of the socket.
    pub fn serve<C: Command>(
        &self,
        obey: impl Fn(C) -> Result<Value, String> + Send + Sync + 'static,
    ) -> io::Result<()> {
        let obey = Arc::new(obey);
        loop {
            let stream = self.listener.accept()?;
            let (obey, clients) = (Arc::clone(&obey), Arc::clone(&self.clients));
            let thread = std::thread::Builder::new().name("control".to_owned());
            // If no thread can be started, the connection is closed, and the client reports that.
            _ = thread.spawn(move || {
                if let Some(_one) = Counted::one_more(&clients, CLIENTS_MAX) {
                    _ = answer(&stream, &*obey);
                }
            });
        }
    }

    /// Removes the file of the socket at the end of the server.
    pub fn remove_file(&self) {
        self.listener.remove_file();
    }
}

fn answer<C: Command>(
    stream: &UnixStream,
    obey: &impl Fn(C) -> Result<Value, String>,
) -> io::Result<()> {
    let mut line = String::new();
    let command = Deadline::after(stream, EXCHANGE_TIMEOUT);
    BufReader::new(command.take(COMMAND_BYTES_MAX)).read_line(&mut line)?;
    let answer = match serde_json::from_str::<C>(&line) {
        Ok(command) => {
            if command.is_change() {
                // The log has the parsed command, whose secrets are not printed, and not its text.
                tracing::info!(?command, "control command");
            }
            obey(command).unwrap_or_else(|error| json!({ "error": error }))
        }
        Err(error) => json!({ "error": format!("not a command: {error}") }),
    };
    Deadline::after(stream, EXCHANGE_TIMEOUT).write_all(format!("{answer}\n").as_bytes())
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
        let result = ask_within(&path, &Query::Report, TIME, bytes_max);
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

    /// A server of another kind than its client expects says so, and a line that is no command is refused.
    #[test]
    fn commands_of_other_servers_are_known_as_such() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let control = Control::listen(&path).unwrap();
        let obey = |query: Query| match query {
            Query::Other => Err("another server".to_owned()),
            query => Ok(json!({ "query": query })),
        };
        std::thread::spawn(move || control.serve(obey));
        let known = ask(&path, &Query::Report).unwrap();
        assert_eq!(known, json!({ "query": { "command": "report" } }));
        let refused = |command: Value| match ask(&path, &command) {
            Err(ControlError::Refused(why)) => why,
            answer => panic!("{answer:?}"),
        };
        let other = json!({ "command": "resize", "nqn": "x", "size": 1 });
        assert_eq!(refused(other), "another server");
        assert!(refused(json!({})).contains("not a command"));
        assert!(refused(json!(7)).contains("not a command"));
    }
}
