//! A remote namespace as an NBD export, in the foreground or in a process in the background.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ::nvme::limits::STALL_TIMEOUT;
use ::nvme::nbd::{self, Stop, Writes};
use serde::{Deserialize, Serialize};
use server::local::{self, LocalListener};

use crate::printable::{self, Printable};
use crate::sys::{EndSignals, Pidfd};
use crate::target::Target;
use crate::{Error, ending, output, runtime};

/// Clients of one export at once: each has a controller of its own.
const CLIENTS_MAX: usize = 16;
/// How long the process of a connection may take to end: longer than its sessions may, so that it ends by
/// itself if the target does not answer.
const END_TIMEOUT: Duration = Duration::from_secs(20);
/// The time for the sessions at the end of the process: more than 5 s for their commands, and 5 s for the
/// shutdown of their controllers.
const SESSIONS_TIMEOUT: Duration = Duration::from_secs(12);
/// How often the end of the sessions is checked.
const SESSIONS_INTERVAL: Duration = Duration::from_millis(5);

/// A namespace of a target, and the rights of NBD clients on it.
#[derive(Debug, clap::Args)]
pub(crate) struct Remote {
    /// The target, and how to connect to it.
    #[command(flatten)]
    pub(crate) target: Target,
    /// ID of the namespace, from 1.
    #[arg(long, default_value_t = 1)]
    namespace: u32,
    /// Refuse writes of NBD clients.
    #[arg(long)]
    read_only: bool,
}

/// A namespace to export, and the address of the export.
#[derive(Debug, clap::Args)]
pub(crate) struct Export {
    /// The namespace to export.
    #[command(flatten)]
    pub(crate) remote: Remote,
    /// Address for NBD clients: unix:PATH, or IP:PORT. An NBD export has no authentication. Its URI is
    /// printed when it is ready, and then the NQN of the subsystem.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) nbd: NbdAddress,
    /// Name of the export: NBD clients ask for it, or for the export without a name.
    #[arg(long, default_value = "disk")]
    name: Name,
}

/// A namespace to export in the background, and the name of the export.
#[derive(Debug, clap::Args)]
pub(crate) struct Connect {
    /// The namespace to export.
    #[command(flatten)]
    remote: Remote,
    /// Name of the export, for `list`, `disconnect` and NBD clients: 1 to 32 letters, digits, - and _.
    #[arg(long, default_value = "disk")]
    pub(crate) name: Name,
}

/// The name of a connection, of which a file name is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name(String);

impl FromStr for Name {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let is_name = (1..=32).contains(&text.len()) && text.bytes().all(is_plain);
        if is_name {
            Ok(Self(text.to_owned()))
        } else {
            Err("1 to 32 letters, digits, - and _")
        }
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// The address of an NBD server.
#[derive(Clone, Debug)]
pub(crate) enum NbdAddress {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

impl FromStr for NbdAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix("unix:") {
            // The printed URI is used in other folders.
            Some(path) if !path.is_empty() => std::path::absolute(path)
                .map(Self::Unix)
                .map_err(|error| error.to_string()),
            _ => link::address::socket(text)
                .map(Self::Tcp)
                .map_err(|error| format!("{error}, or unix:PATH")),
        }
    }
}

impl std::fmt::Display for NbdAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "nbd+unix:///?socket={}", path.display()),
            // The % of a zone is %25 in a URI (RFC 6874).
            Self::Tcp(address) => write!(f, "nbd://{}", address.to_string().replace('%', "%25")),
        }
    }
}

enum Listener {
    Unix(LocalListener),
    Tcp(TcpListener),
}

/// The clients of an export. Errors of one are printed, and the others are served.
struct Clients {
    what: Export,
    writes: Arc<Writes>,
    stop: Arc<Stop>,
    count: AtomicUsize,
    /// A controller was not shut down after the end was requested.
    is_unfinished: AtomicBool,
    /// The last client found no target. The error is printed once, not for each client that tries.
    is_unreachable: AtomicBool,
}

/// Serves NBD clients until it is ended.
///
/// # Errors
/// When the target cannot be reached, or the address cannot be bound.
pub(crate) fn export(what: Export) -> Result<(), Error> {
    let signals = EndSignals::block();
    let clients = Arc::new(Clients::new(what)?);
    // Errors of the target are reported now, not when the first client connects.
    _ = clients.what.remote.connected(&clients)?.client.shut_down();
    let address = clients.what.nbd.clone();
    let listener = Arc::new(match &address {
        NbdAddress::Unix(path) => {
            Listener::Unix(LocalListener::bind(path).map_err(Error::file(path))?)
        }
        NbdAddress::Tcp(address) => {
            Listener::Tcp(TcpListener::bind(address).map_err(Error::file(address.to_string()))?)
        }
    });
    let (ended, ended_listener) = (Arc::clone(&clients), Arc::clone(&listener));
    ending::at_first_signal(signals, move |_| ended.end(&ended_listener))?;
    output::print(format_args!(
        "{address}\nsubsystem {}\n",
        clients.what.remote.target.subsystem()?
    ))?;
    loop {
        match &*listener {
            Listener::Unix(listener) => {
                let stream = listener.accept().map_err(Error::file("an NBD client"))?;
                stream
                    .set_nonblocking(true)
                    .map_err(Error::file("an NBD client"))?;
                Clients::start(&clients, stream);
            }
            Listener::Tcp(listener) => {
                let (stream, _) = listener.accept().map_err(Error::file("an NBD client"))?;
                _ = stream.set_nodelay(true);
                stream
                    .set_nonblocking(true)
                    .map_err(Error::file("an NBD client"))?;
                Clients::start(&clients, stream);
            }
        }
    }
}

trait Stream: std::io::Read + Write + std::os::fd::AsRawFd + Send + 'static {}
impl Stream for UnixStream {}
impl Stream for TcpStream {}

impl Clients {
    fn start(this: &Arc<Self>, mut stream: impl Stream) {
        if this.count.fetch_add(1, Ordering::SeqCst) >= CLIENTS_MAX {
            this.count.fetch_sub(1, Ordering::SeqCst);
            output::note!("rockery: there are {CLIENTS_MAX} NBD clients already");
            return;
        }
        let this = Arc::clone(this);
        std::thread::spawn(move || {
            // The client gets its greeting when the target is there: without it the connection ends.
            if !this.stop.is_requested()
                && let Some(target) = this.connected()
            {
                this.serve(&mut stream, target);
            }
            this.count.fetch_sub(1, Ordering::SeqCst);
        });
    }

    fn new(what: Export) -> Result<Self, Error> {
        let stop = Stop::new().map_err(Error::file("a pipe"))?;
        let (writes, count) = (Arc::default(), AtomicUsize::new(0));
        let (is_unfinished, is_unreachable) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Self {
            what,
            writes,
            stop,
            count,
            is_unfinished,
            is_unreachable,
        })
    }

    /// Ends all sessions, and then this process. The file of the socket stays if a controller was not shut
    /// down, which tells `disconnect`.
    fn end(&self, listener: &Listener) -> ! {
        self.stop.request();
        let deadline = Instant::now() + SESSIONS_TIMEOUT;
        while self.count.load(Ordering::SeqCst) > 0 && Instant::now() < deadline {
            std::thread::sleep(SESSIONS_INTERVAL);
        }
        if self.count.load(Ordering::SeqCst) > 0 || self.is_unfinished.load(Ordering::SeqCst) {
            std::process::exit(1);
        }
        if let Listener::Unix(listener) = listener {
            listener.remove_file();
        }
        std::process::exit(0)
    }

    /// The namespace for one more client.
    fn connected(&self) -> Option<nbd::Target> {
        let connected = self.what.remote.connected(self);
        let was_unreachable = self
            .is_unreachable
            .swap(connected.is_err(), Ordering::SeqCst);
        match &connected {
            Err(error) if !was_unreachable => {
                let error = error.to_string();
                output::note!(
                    "rockery: NBD clients are refused until the target answers: {}",
                    printable::lines(&error)
                );
            }
            Ok(_) if was_unreachable => output::note!("rockery: the target answers again"),
            _ => {}
        }
        connected.ok()
    }

    fn serve(&self, stream: &mut impl Stream, target: nbd::Target) {
        match nbd::serve(stream, target, &self.what.name.0) {
            // Most clients close the connection without a disconnect request.
            Err(nbd::NbdError::Stream(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {}
            Err(error) => {
                let is_of_target = matches!(
                    error,
                    nbd::NbdError::NotShutDown(_) | nbd::NbdError::Host(_)
                );
                if is_of_target && self.stop.is_requested() {
                    self.is_unfinished.store(true, Ordering::SeqCst);
                }
                output::note!("rockery: {}", printable::lines(&error.to_string()));
            }
            Ok(()) => {}
        }
    }
}

impl Remote {
    fn connected(&self, clients: &Clients) -> Result<nbd::Target, Error> {
        let mut client = self.target.connect()?;
        let namespace = client.namespace(self.namespace)?;
        let (read_only, stall_timeout) = (self.read_only, STALL_TIMEOUT);
        let (writes, stop) = (Arc::clone(&clients.writes), Arc::clone(&clients.stop));
        Ok(nbd::Target {
            client,
            namespace,
            writes,
            read_only,
            stop,
            stall_timeout,
        })
    }

    /// The same on a command line.
    fn words(&self) -> Vec<String> {
        let mut words = self.target.words();
        words.extend(["--namespace".to_owned(), self.namespace.to_string()]);
        words.extend(self.read_only.then(|| "--read-only".to_owned()));
        words
    }
}

/// An export in the background: its process, and where it is.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    process: u32,
    target: String,
    subsystem: String,
    transport: String,
    namespace: u32,
    uri: String,
}

/// The folder with the records of this user's exports.
fn folder() -> Result<PathBuf, Error> {
    Ok(runtime::subfolder("nvme")?)
}

/// Starts a process that exports a namespace, and prints the NBD URI.
///
/// # Errors
/// When an export has this name already, or the target cannot be reached.
pub(crate) fn connect(what: &Connect) -> Result<(), Error> {
    let folder = folder()?;
    let (socket, record) = (
        folder.join(format!("{}.sock", what.name)),
        recorded(&folder, &what.name),
    );
    if local::connect(&socket).is_ok() {
        return Err(Error::Connected(what.name.to_string()));
    }
    let own = std::env::current_exe().map_err(Error::file("/proc/self/exe"))?;
    let mut command = Command::new(&own);
    command.args(["nvme", "export"]).args(what.remote.words());
    command
        .arg("--nbd")
        .arg(format!("unix:{}", socket.display()));
    command.args(["--name", &what.name.0]);
    // A process group of its own: signals to the shell's job do not end it.
    let mut child = command
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(Error::file(&own))?;
    let mut lines = [String::new(), String::new()];
    if let Some(out) = child.stdout.take() {
        let mut out = BufReader::new(out);
        for line in &mut lines {
            out.read_line(line)
                .map_err(Error::file("the export's output"))?;
        }
    }
    let [uri, subsystem] = lines.map(|line| line.trim().to_owned());
    if uri.is_empty() {
        _ = child.wait();
        return Err(Error::NotConnected);
    }
    let target = &what.remote.target;
    let written = Record {
        process: child.id(),
        target: target.location().to_owned(),
        subsystem: subsystem.trim_start_matches("subsystem ").to_owned(),
        transport: target.transport().to_string(),
        namespace: what.remote.namespace,
        uri: uri.clone(),
    };
    let text = serde_json::to_string(&written).unwrap_or_default();
    runtime::write(&record, &text).map_err(Error::file(&record))?;
    output::line(uri)
}

fn recorded(folder: &Path, name: &Name) -> PathBuf {
    folder.join(format!("{name}.json"))
}

/// The running exports. The record of an export is removed when its process does not answer.
fn records() -> Result<Vec<(String, Record)>, Error> {
    let folder = folder()?;
    let mut found = Vec::new();
    for entry in fs::read_dir(&folder)
        .map_err(Error::file(&folder))?
        .flatten()
    {
        let path = entry.path();
        let name = path
            .file_stem()
            .map(|stem| stem.to_string_lossy().into_owned())
            .unwrap_or_default();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let text = runtime::read(&path).unwrap_or_default();
        let is_there = local::connect(&path.with_extension("sock")).is_ok();
        match serde_json::from_str(&text) {
            Ok(record) if is_there => found.push((name, record)),
            // A record is written in one step: one that cannot be read is of another version.
            Err(error) if is_there => {
                output::note!(
                    "rockery: {} is of a running export, and is not understood: {error}",
                    path.display()
                );
            }
            Ok(_) | Err(_) => _ = fs::remove_file(&path),
        }
    }
    found.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(found)
}

/// Lists the exports of this user.
///
/// # Errors
/// When standard output cannot be written.
pub(crate) fn list() -> Result<(), Error> {
    for (name, it) in records()? {
        let Record {
            target,
            subsystem,
            transport,
            namespace,
            uri,
            ..
        } = it;
        let [name, target, subsystem, transport, uri] =
            [&name, &target, &subsystem, &transport, &uri].map(|text| Printable(text));
        output::line(format_args!(
            "{name:12} {transport:4} {target} {subsystem} namespace {namespace}  {uri}"
        ))?;
    }
    Ok(())
}

/// Ends an export, and waits until its process has ended: the target executes no request of it afterwards.
///
/// # Errors
/// When there is none of this name, its process does not end, or it could not shut down its controllers.
pub(crate) fn disconnect(name: &Name) -> Result<(), Error> {
    let found = records()?.into_iter().find(|(found, _)| *found == name.0);
    let (_, record) = found.ok_or_else(|| Error::NoSuchConnection(name.to_string()))?;
    let folder = folder()?;
    let socket = folder.join(format!("{name}.sock"));
    let process = exporting(&socket, record.process)?;
    let number = Error::file(format!("process {}", record.process));
    let ended = process
        .terminate()
        .and_then(|()| process.wait(END_TIMEOUT))
        .map_err(number)?;
    if !ended {
        return Err(Error::StillConnected(name.to_string(), record.process));
    }
    _ = fs::remove_file(recorded(&folder, name));
    // The process removes the file when all is finished.
    match fs::remove_file(socket) {
        Ok(()) => Err(Error::NotShutDown(name.to_string())),
        Err(_) => Ok(()),
    }
}

/// The process that exports at a socket, if it is the recorded one. Its number alone proves nothing, because
/// the process may have ended and another one may have its number. The descriptor comes first: whatever it
/// names is the exporting process if the kernel says afterwards that a process of this number listens.
fn exporting(socket: &Path, recorded: u32) -> Result<Pidfd, Error> {
    let process = Pidfd::open(recorded).map_err(Error::file(format!("process {recorded}")))?;
    let (_, peer) =
        local::connect(socket).map_err(|error| Error::file(socket)(io::Error::other(error)))?;
    if peer.process != recorded {
        return Err(Error::OtherProcess {
            socket: socket.to_owned(),
            recorded,
            found: peer.process,
        });
    }
    Ok(process)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names_are_parsed() {
        assert_eq!(
            "unix:/a/b".parse::<NbdAddress>().unwrap().to_string(),
            "nbd+unix:///?socket=/a/b"
        );
        assert_eq!(
            "[::1]:10809".parse::<NbdAddress>().unwrap().to_string(),
            "nbd://[::1]:10809"
        );
        let here = std::env::current_dir().unwrap();
        let relative = "unix:a.sock".parse::<NbdAddress>().unwrap().to_string();
        assert_eq!(
            relative,
            format!("nbd+unix:///?socket={}", here.join("a.sock").display())
        );
        assert!("unix:".parse::<NbdAddress>().is_err() && "/a/b".parse::<NbdAddress>().is_err());
        assert!("../x".parse::<Name>().is_err() && "".parse::<Name>().is_err());
    }
}
